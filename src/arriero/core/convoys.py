"""Turns in a convoy: the decisions when a task ends or comes back, and when the convoy is to be looked at again.

One row for each key says whose turn it is (``open_task``). It changes only in the commit that ends that task, in one that
finds nothing open, or by an operator's verb, and always under that row's lock: two tasks of one key are never open at a time. The
lock of a key is therefore the lock of its open task: it is held under the same process lease, guarded by the same fence, and
lost with it.
"""

from msgspec.structs import replace

from ..errors import UnreadableRow
from ..events import Event
from ..events.convoy import (
    ConvoyClosed,
    ConvoyLeft,
    ConvoyMended,
    ConvoyParked,
    ConvoyReturned,
    ConvoySetAside,
    ConvoySkipped,
    ConvoyStopped,
    ConvoyWaiting,
)
from ..events.task import AlertClosed
from ..model import TASK_OPEN, ConvoyRow, ConvoyState, Instant, TailRow, TaskRow, TaskState, Turn, later
from ..model.commands import Ahead, HandOver
from ..model.failures import TaskFailure
from ..model.policies import ConvoyPolicy
from ..model.processes import choose_version, has_version
from .apps import may_run
from .changes import Change, ConvoyChange, Rows
from .lease import PROBATION_FROM
from .placement import open_turn, pass_number
from .speculative_start import claim, open_first_steps
from .supervision import decode_task_policy
from .writer import Writer


def resolve_convoy_policy(convoy: ConvoyRow, task: TaskRow) -> ConvoyPolicy:
    """Return the policy for a task of a convoy: the convoy's own, else that of the task's workflow."""
    policy = decode_task_policy(task.policy).convoy
    given = {"head": convoy.on_head, "gap": convoy.on_gap, "gap_within": convoy.gap_within}
    return replace(policy, **{name: value for name, value in given.items() if value is not None})


LOOK_AGAIN_SECONDS = 0.05  # while a caller is just adding to the key: then it is known what comes next
PASSED_OVER_MAX = 100  # tasks set aside in one commit


LOOK_AT_UNREADABLE_SECONDS = (
    10.0  # until the task that comes next is looked at again: a release that can read it opens it
)


class Gone(Exception):  # no error: the command that names it is refused
    """The convoy does not exist; it was purged."""


class Held(Exception):  # no error: a store says that another transaction has the row just now
    """The task that comes next is another transaction's for the moment."""


class NextUnreadable(Held):
    """The task that comes next cannot be read here. Nobody goes before it: the key keeps its order."""

    def __init__(self, error: UnreadableRow) -> None:
        super().__init__(str(error))
        self.error = error


def was_skipped(task: TaskRow, expected: int) -> bool:
    """Returns True if the task's number was skipped before it came. One that an operator brought back is not late."""
    return task.sequence is not None and task.incarnation == 1 and task.sequence < expected


class ConvoyWriter:
    """The changes that one commit makes in a convoy: its turn, and other tasks of it."""

    def __init__(self, convoy: ConvoyRow, rows: Rows, now: Instant) -> None:
        self.convoy = convoy
        self.rows = rows
        self.now = now
        self.follows: list[Change] = []
        self.events: list[Event] = []
        self.tail: TailRow | None = None
        self.begins = False

    def change(self) -> ConvoyChange:
        """Return the changes to write."""
        return ConvoyChange(self.convoy, self.tail, self.follows, self.events, self.begins)

    def set(self, **fields: object) -> None:
        self.convoy = replace(self.convoy, **fields)

    def take_number(self) -> tuple[int, int]:
        """Return the convoy and the number of its next event, which is written to the history of the event's task."""
        self.set(number=self.convoy.number + 1)
        return self.convoy.convoy_no, self.convoy.number

    # --- a turn ends
    def close(self, writer: Writer) -> bool:
        """End the turn of a task that has ended. False: the convoy is stopped on it, because it is held."""
        task = writer.task
        if task.state is not TaskState.HELD:
            writer.set(turn=Turn.ENDED)
            self._end_turn(writer)
            self.end_messages(task)
            return True
        word = resolve_convoy_policy(self.convoy, task).head
        if word == "skip":
            self.set_aside(writer, "skip")
            return True
        self.stop(writer, word)
        return False

    def end_messages(self, task: TaskRow) -> None:
        """End the tasks whose messages the task had in a batch. Raises: Held, before anything is written."""
        if task.batch_no is not None and task.batch_no == task.task_no:
            from .batch_ends import end_messages  # only who handles batches pays for loading it

            end_messages(self, task)

    def _end_turn(self, writer: Writer, why: str | None = None) -> None:
        self.set(state=ConvoyState.IDLE, open_task=None, fence=self.convoy.fence + 1)
        assert writer.task.turn is not None
        writer.events.append(ConvoyClosed(*self.take_number(), writer.task.turn, self.convoy.fence, why))

    def set_aside(self, writer: Writer, why: str) -> None:
        """Pass over a held task; only an operator brings it back."""
        writer.set(turn=Turn.SET_ASIDE)
        if self.convoy.open_task == writer.task.task_no:
            self._end_turn(writer, why)
        else:
            writer.events.append(ConvoySetAside(*self.take_number(), why))

    def stop(self, writer: Writer, word: str) -> None:
        """Stop the convoy on a held task until that is repaired, or under ``park`` until an operator releases the convoy."""
        task = writer.task
        writer.set(turn=Turn.OPEN)
        assert task.rank is not None
        self.set(
            state=ConvoyState.STOPPED,
            open_task=task.task_no,
            fence=self.convoy.fence + 1,
            from_rank=min(self.convoy.from_rank, task.rank),  # one that came back may wait before it
            reached=max(self.convoy.reached, task.rank),
            expected=pass_number(self.convoy.expected, task),
            gap_since=None,
            look_at=None,
        )
        if self.tail is not None:
            self.tail = replace(self.tail, asks=False)
        if word == "park" and self.convoy.parked_at is None:
            self.set(parked_at=self.now, parked_why=f"task {task.task_id} is held")
        writer.events.append(
            ConvoyStopped(
                *self.take_number(),
                fence=self.convoy.fence,
                rank=task.rank,
                expected=self.convoy.expected,
                parked=self.convoy.parked_at is not None,
            )
        )

    def close_forgotten_turn(self) -> None:
        """End a turn that nobody passed on: a process of a release without convoys ended its task."""
        number = self.convoy.open_task
        task = None if number is None else self.rows.member(number)
        if task is None or task.state in TASK_OPEN:
            return
        writer = Writer(task, self.rows, self.now, None)
        goes_on = self.close(writer)
        self.follows.append(writer.change())
        if goes_on:
            self.open_next_turn()

    # --- a task comes back
    def give_back(self, writer: Writer) -> None:
        """Give a reopened task its turn back if the convoy was stopped on it; else let it wait for its turn."""
        task = writer.task
        assert task.rank is not None
        stood_on_it = self.convoy.open_task == task.task_no
        if stood_on_it and self.convoy.parked_at is None:
            self.set(state=ConvoyState.OPEN, fence=self.convoy.fence + 1)
            writer.events.append(ConvoyMended(*self.take_number(), self.convoy.fence))
            return
        if stood_on_it:
            self.set(state=ConvoyState.IDLE, open_task=None, fence=self.convoy.fence + 1)
        has_lost_its_place = not stood_on_it and self.convoy.reached > task.rank
        writer.set(turn=Turn.WAITING)
        self.set(from_rank=min(self.convoy.from_rank, task.rank))
        if self.convoy.state in (ConvoyState.IDLE, ConvoyState.GAP) and self.convoy.parked_at is None:
            self.set(look_at=self.now)
        writer.events.append(
            ConvoyReturned(*self.take_number(), task.rank, self.convoy.fence, place_lost=has_lost_its_place)
        )

    def tell_of_lost_place(self, writer: Writer) -> None:
        """Record that others have gone before a task while it was held. Records nothing if none has."""
        rank = writer.task.rank
        if rank is not None and self.convoy.reached > rank:
            writer.events.append(ConvoyReturned(*self.take_number(), rank, self.convoy.fence, place_lost=True))

    # --- whose turn is next
    def open_next_turn(self, hand_over: HandOver | None = None, process_no: int | None = None) -> None:
        """Open the next task, or record what the convoy waits for. No task is open when this is called."""
        if self.convoy.parked_at is not None:
            self.set(look_at=None)
            return
        after = (self.convoy.from_rank, 0)
        pause = LOOK_AGAIN_SECONDS
        try:
            while len(self.follows) < PASSED_OVER_MAX:
                task = self.rows.next_waiting(self.convoy.convoy_no, after)
                if task is None or self._misses_some(task):
                    if self.tail is None:
                        self.tail = self.rows.seal(self.convoy.convoy_no)
                        if self.tail is None:
                            break
                        continue  # nobody adds from here on: what is there now is all there is
                    if task is None:
                        self._rest()
                        return
                    if not self._pass_gap(task):
                        return
                if was_skipped(task, self.convoy.expected):
                    self._refuse_late(task)
                elif task.state is TaskState.HELD:
                    if not self._pass_failed(task):
                        return
                else:
                    self._open(task, hand_over, process_no)
                    return
                assert task.rank is not None
                assert task.place is not None
                after = (task.rank, task.place)
        except NextUnreadable:
            pause = LOOK_AT_UNREADABLE_SECONDS
        except Held:
            pass
        self.set(state=ConvoyState.IDLE, look_at=later(self.now, pause))

    def _rest(self) -> None:
        assert self.tail is not None
        self.tail = replace(self.tail, asks=True)
        self.set(state=ConvoyState.IDLE, gap_since=None, look_at=None)

    def _refuse_late(self, task: TaskRow) -> None:
        writer = Writer(task, self.rows, self.now, None)
        self.close_alert(writer)
        if task.state in TASK_OPEN:
            reason = (
                f"it arrived after sequence {task.sequence} of convoy {self.convoy.key!r} had been passed (skipped, or handled"
                " and purged): it was set aside; resubmit it to have it handled now, out of order"
            )
            writer.hold(TaskFailure("late", reason, code="late"))
            writer.set(revision=task.revision + 1)
        self.set_aside(writer, "late")
        self.follows.append(writer.change())

    def _pass_failed(self, task: TaskRow) -> bool:
        """Apply the policy to a task whose own limit passed while it waited. Returns False if the convoy is stopped on it."""
        writer = Writer(task, self.rows, self.now, None)
        word = resolve_convoy_policy(self.convoy, task).head
        if word == "skip":
            self.set_aside(writer, "skip")
        else:
            self.stop(writer, word)
        self.follows.append(writer.change())
        return word == "skip"

    def _open(self, task: TaskRow, hand_over: HandOver | None, process_no: int | None) -> None:
        alerted = self.convoy.alerted_task == task.task_no
        task, self.convoy, event = open_turn(task, self.convoy, self.now)
        change = Change(task, [], [], [event], [], closes_alert=alerted)
        if alerted:
            change.events.append(AlertClosed())
        if self.tail is not None:
            self.tail = replace(self.tail, asks=False)  # who submits now need not look at what the key is doing
        may_go_on = hand_over is not None and process_no is not None and not self.rows.process_is_retired(process_no)
        if (
            may_go_on
            and hand_over is not None
            and process_no is not None
            and _fits(task, hand_over, self.rows, self.now)
        ):
            claimed = claim(task, process_no, self.now, choose_version(hand_over.versions, task.workflow))
            change.task, change.statuses = claimed.task, claimed.statuses
            change.events += claimed.events
            ahead = hand_over.ahead
            if ahead is not None and _still_counts(ahead, task, self.convoy, self.now):
                open_first_steps(change, ahead.opened, self.rows, self.now, process_no)
                change.task = replace(change.task, unseen_since=None)  # the answer goes to who asked for the end before
                self.begins = True
        self.follows.append(change)

    # --- gaps
    def _misses_some(self, task: TaskRow) -> bool:
        """Returns True if numbers before the task's have not come. One that came and has ended since is not missing."""
        if task.sequence is None or task.sequence <= self.convoy.expected:
            return False
        known = self.rows.count_sequences(self.convoy.convoy_no, self.convoy.expected, task.sequence)
        return known < task.sequence - self.convoy.expected

    def _pass_gap(self, task: TaskRow) -> bool:
        """Wait for the numbers missing before the task; after ``gap_within`` apply the policy. Returns True if they are skipped."""
        assert task.sequence is not None
        policy = resolve_convoy_policy(self.convoy, task)
        since = self.convoy.gap_since
        if since is None:
            since = self.now
            self.events.append(ConvoyWaiting(*self.take_number(), self.convoy.expected, task.sequence))
        assert isinstance(policy.gap_within, float)
        until = later(since, policy.gap_within)
        if until > self.now:
            self._wait_at_gap(since, until)
            return False
        if policy.gap == "skip":
            self.skip_gap(task, "policy")
            return True
        self._wait_at_gap(since, None)
        self._tell_of_gap(task)
        if policy.gap == "park":
            self.park(f"sequence {self.convoy.expected} is missing")
        return False

    def _wait_at_gap(self, since: Instant, until: Instant | None) -> None:
        assert self.tail is not None
        self.tail = replace(self.tail, asks=True)
        self.set(state=ConvoyState.GAP, gap_since=since, look_at=until)

    def _tell_of_gap(self, task: TaskRow) -> None:
        """Alert operators once for each gap, because one may have to decide. A held task has its own alert."""
        if self.convoy.alerted_task is not None or task.state is TaskState.HELD:
            return
        writer = Writer(task, self.rows, self.now, None)
        reason = (
            f"it waits in convoy {self.convoy.key!r} for sequence {self.convoy.expected}, which has not come in time:"
            " submit what is missing, or skip it with `arriero convoy skip`"
        )
        writer.open_alert(TaskFailure("gap", reason, code="gap"))
        self.set(alerted_task=task.task_no)
        self.follows.append(writer.change())

    def close_alert(self, writer: Writer) -> None:
        """Close the alert about the gap before a task, if there is one."""
        if self.convoy.alerted_task == writer.task.task_no:
            self.set(alerted_task=None)
            writer.closes_alert = True
            writer.events.insert(0, AlertClosed())

    def skip_gap(self, task: TaskRow, why: str) -> None:
        """Continue with the task; what is missing before it will be set aside if it comes."""
        assert task.sequence is not None
        self.events.append(ConvoySkipped(*self.take_number(), self.convoy.expected, task.sequence, why))
        self.set(expected=task.sequence, gap_since=None)

    def park(self, why: str) -> None:
        """Begin nothing more until an operator releases the key."""
        self.set(parked_at=self.now, parked_why=why, look_at=None)
        if self.tail is not None:
            self.tail = replace(self.tail, asks=False)
        self.events.append(ConvoyParked(*self.take_number(), why))


def _fits(task: TaskRow, hand_over: HandOver, rows: Rows, now: Instant) -> bool:
    """Returns True if the process that ended the task before may continue with this one immediately."""
    return (
        task.paused_at is None
        and task.lost_count < PROBATION_FROM
        and task.not_before is not None
        and task.not_before <= now
        and may_run(hand_over.app, task.app)
        and (
            task.state is TaskState.COMPENSATING
            or (task.workflow in hand_over.workflows and has_version(hand_over.versions, task))
        )
        and not (rows.pauses and _must_wait(task, rows))
    )


def _must_wait(task: TaskRow, rows: Rows) -> bool:
    from .workflow_pauses import must_wait  # only where a workflow is paused

    return must_wait(task, rows.pauses)


def _still_counts(ahead: Ahead, task: TaskRow, convoy: ConvoyRow, now: Instant) -> bool:
    """Returns True if the code would ask now for the same as it did when it ran ahead of its turn."""
    return (
        (task.task_no, task.link, convoy.value) == (ahead.task_no, ahead.link, ahead.convoy_state)
        and task.state is TaskState.PENDING
        and not task.opened_count
        and (task.complete_by is None or task.complete_by > now)
    )


def settle_convoy(
    writer: Writer,
    before: TaskRow,
    *,
    hand_over: HandOver | None = None,
    convoy_state: str | None = None,
    trace_link: str | None = None,
) -> None:
    """Decide the effect of a task's end or return on its convoy. Called last, when ``writer`` holds the task's changes.

    The convoy keeps ``trace_link``, to the task's span, and reports the one that it kept until then.

    Raises: Held, before anything is written.
    """
    task = writer.task
    if before.turn is None or before.convoy_no is None:
        return
    was_open, is_open = before.state in TASK_OPEN, task.state in TASK_OPEN
    if was_open and is_open:
        return
    convoy_writer = ConvoyWriter(writer.rows.convoy(before.convoy_no), writer.rows, writer.now)
    if before.turn is Turn.WAITING:
        _leave_convoy(convoy_writer, writer)
    elif was_open:
        writer.trace_link = convoy_writer.convoy.trace_link
        convoy_writer.set(trace_link=trace_link)
        if convoy_writer.close(writer):
            if convoy_state is not None and task.state is TaskState.PROCESSED:
                convoy_writer.set(value=convoy_state)
            convoy_writer.open_next_turn(hand_over, writer.process_no)
    elif is_open:
        convoy_writer.give_back(writer)
    writer.convoy = convoy_writer.change()


def _leave_convoy(convoy_writer: ConvoyWriter, writer: Writer) -> None:
    """End the wait of a task that ended before its turn, with nothing done. One that is held waits on until its turn."""
    task = writer.task
    if task.state in TASK_OPEN:
        convoy_writer.tell_of_lost_place(writer)
        return
    convoy_writer.close_alert(writer)  # an error has its own
    if task.state is TaskState.HELD:
        return
    writer.set(turn=Turn.ENDED)
    writer.events.append(ConvoyLeft(*convoy_writer.take_number()))
    convoy_writer.end_messages(task)
    if convoy_writer.convoy.state is ConvoyState.GAP and convoy_writer.convoy.parked_at is None:
        convoy_writer.set(look_at=writer.now)


def find_next_turn(convoy: ConvoyRow, rows: Rows, now: Instant) -> ConvoyChange:
    """Decide again whose turn it is in a convoy where nothing is open."""
    convoy_writer = ConvoyWriter(convoy, rows, now)
    if convoy.state in (ConvoyState.IDLE, ConvoyState.GAP):
        convoy_writer.tail = rows.seal(convoy.convoy_no)
        convoy_writer.open_next_turn()
        return convoy_writer.change()
    convoy_writer.set(look_at=None)
    if convoy.full_at is not None:
        from .batch_ends import wake_full_batch  # only who handles batches pays for loading it

        wake_full_batch(convoy_writer)
    if convoy.state is ConvoyState.OPEN:
        convoy_writer.close_forgotten_turn()
    return convoy_writer.change()
