"""Verbs of operators on a convoy: the check against the table of verb and state, and the changes of each verb.

A verb is judged on the row as it stands in its transaction, and carries the fence that its person saw: the one who skips a head
skips the one they looked at.
"""

from collections.abc import Callable

from msgspec import Raw, json
from msgspec.structs import replace

from ..events.convoy import ConvoyAction, ConvoyMoved
from ..model import TASK_OPEN, ConvoyRow, ConvoyState, ConvoyVerb, Instant, TaskRow, TaskState, Turn
from ..model.answers import Refusal
from ..model.commands import OperateConvoy
from ..model.verb_rules import CONVOY_VERB_RULES
from .changes import ConvoyChange, Refused, Rows
from .convoys import ConvoyWriter, resolve_convoy_policy
from .placement import explain_kept_key
from .writer import Writer

# What lets the runs of a schedule continue. The other verbs hold them up or change their order: a schedule has its own.
_OF_SCHEDULES = (ConvoyVerb.RELEASE, ConvoyVerb.SKIP)


def list_allowed_convoy_verbs(convoy: ConvoyRow) -> tuple[ConvoyVerb, ...]:
    """List the verbs that the table allows on a convoy as it stands."""
    verbs = _OF_SCHEDULES if explain_kept_key(convoy.key) else tuple(ConvoyVerb)
    return tuple(verb for verb in verbs if (verb, convoy.shown) in CONVOY_VERB_RULES)


class _ConvoyVerbRefused(Exception):
    """The verb cannot be carried out; the message says why and what could be."""


def operate_convoy(command: OperateConvoy, rows: Rows, now: Instant) -> ConvoyChange | Refused:
    """Carry out a verb on the convoy as it stands, or refuse it and change nothing. Raises: core.convoys.Held."""
    convoy = rows.convoy(command.convoy_no)
    if command.fence is not None and command.fence != convoy.fence:
        said = f"another verb came first: convoy {convoy.key!r} is {convoy.shown} now; look at it again"
        return Refused(_build_refusal("came_first", said, convoy))
    if command.verb not in _OF_SCHEDULES and (kept := explain_kept_key(convoy.key)):
        said = f"{kept}: pause, resume or run the schedule instead (arriero schedule)"
        return Refused(_build_refusal("not_allowed", said, convoy))
    if (command.verb, convoy.shown) not in CONVOY_VERB_RULES:
        allowed = ", ".join(list_allowed_convoy_verbs(convoy))
        said = f"convoy {convoy.key!r} is {convoy.shown}: {command.verb} is not allowed there; allowed: {allowed}"
        return Refused(_build_refusal("not_allowed", said, convoy))
    try:
        return _ConvoyOperation(command, convoy, rows, now).carry_out()
    except _ConvoyVerbRefused as refused:
        return Refused(_build_refusal("not_allowed", str(refused), convoy))


def _build_refusal(verdict: str, detail: str, convoy: ConvoyRow) -> Refusal:
    return Refusal(verdict, detail, convoy.shown, tuple(str(verb) for verb in list_allowed_convoy_verbs(convoy)))


class _ConvoyOperation:
    """One verb on one convoy."""

    def __init__(self, command: OperateConvoy, convoy: ConvoyRow, rows: Rows, now: Instant) -> None:
        self.command = command
        self.convoy_writer = ConvoyWriter(convoy, rows, now)
        self.event = ConvoyAction(
            *self.convoy_writer.take_number(),
            verb=command.verb,
            by=command.by,
            reason=command.reason,
            before=convoy.shown,
            after=convoy.shown,  # until it is carried out, and so the fence
            fence=convoy.fence,
        )

    def carry_out(self) -> ConvoyChange:
        _CARRY_OUT[self.command.verb](self)
        convoy = self.convoy_writer.convoy
        self.convoy_writer.events.insert(0, replace(self.event, after=convoy.shown, fence=convoy.fence))
        return self.convoy_writer.change()

    def set(self) -> None:
        given = self.command.policy
        assert given is not None
        self.convoy_writer.set(on_head=given.head, on_gap=given.gap, gap_within=given.gap_within)
        self.event = replace(self.event, policy=Raw(json.encode(given)))
        convoy = self.convoy_writer.convoy
        if convoy.parked_at is not None:
            return
        if convoy.state is ConvoyState.GAP:
            self.convoy_writer.open_next_turn()
        elif convoy.state is ConvoyState.STOPPED:
            self._follow_policy()

    def _follow_policy(self) -> None:
        """Apply a policy that has just changed to a convoy that is stopped on a held task."""
        task = self._load_stopping_task()
        word = resolve_convoy_policy(self.convoy_writer.convoy, task).head
        if word == "skip":
            self._skip_head(task)
        elif word == "park":
            self.convoy_writer.park(f"task {task.task_id} is held")

    def _load_stopping_task(self) -> TaskRow:
        number = self.convoy_writer.convoy.open_task
        task = None if number is None else self.convoy_writer.rows.member(number)
        if task is None:
            raise _ConvoyVerbRefused(
                f"convoy {self.convoy_writer.convoy.key!r}: the task it is blocked on no longer exists"
            )
        return task

    def release(self) -> None:
        self.convoy_writer.set(parked_at=None, parked_why="", gap_since=None)  # at a gap its time begins again
        if self.convoy_writer.convoy.state in (ConvoyState.IDLE, ConvoyState.GAP):
            self.convoy_writer.tail = self.convoy_writer.rows.seal(self.convoy_writer.convoy.convoy_no)
            self.convoy_writer.open_next_turn()
        elif self.convoy_writer.convoy.state is ConvoyState.STOPPED:
            task = self._load_stopping_task()
            if resolve_convoy_policy(self.convoy_writer.convoy, task).head == "skip":
                self._skip_head(task)

    def skip(self) -> None:
        convoy = self.convoy_writer.convoy
        if convoy.state is ConvoyState.STOPPED:
            self._skip_head(self._load_stopping_task())
        elif convoy.state is ConvoyState.GAP:
            self._skip_gap()
        else:
            raise _ConvoyVerbRefused(f"convoy {convoy.key!r} waits for nothing that could be skipped")

    def _skip_head(self, task: TaskRow) -> None:
        writer = Writer(task, self.convoy_writer.rows, self.convoy_writer.now, None)
        self.convoy_writer.set_aside(writer, "skip")
        self.convoy_writer.follows.append(writer.change())
        self.convoy_writer.open_next_turn()

    def _skip_gap(self) -> None:
        convoy = self.convoy_writer.convoy
        self.convoy_writer.tail = self.convoy_writer.rows.seal(convoy.convoy_no)
        if self.convoy_writer.tail is None:
            raise _ConvoyVerbRefused(f"convoy {convoy.key!r}: a task is being added to it; ask again")
        task = self.convoy_writer.rows.next_waiting(convoy.convoy_no, (convoy.from_rank, 0))
        if task is None or task.sequence is None or task.sequence <= convoy.expected:
            raise _ConvoyVerbRefused(f"convoy {convoy.key!r}: nothing is missing any longer; look at it again")
        self.convoy_writer.tail = replace(self.convoy_writer.tail, asks=False)
        self.convoy_writer.skip_gap(task, "person")
        if convoy.parked_at is None:
            self.convoy_writer.open_next_turn()
        else:
            self.convoy_writer.set(state=ConvoyState.IDLE)

    def park(self) -> None:
        why = f"by {self.command.by}: {self.command.reason}"
        self.convoy_writer.set(parked_at=self.convoy_writer.now, parked_why=why, look_at=None)

    def move_to_head(self) -> None:
        convoy, rows = self.convoy_writer.convoy, self.convoy_writer.rows
        if convoy.ordering == "sequence":
            raise _ConvoyVerbRefused(
                f"convoy {convoy.key!r} is ordered by its producer's sequence; no task can be moved in it"
            )
        assert self.command.task_no is not None
        task = rows.member(self.command.task_no)
        if task is None or task.convoy_no != convoy.convoy_no:
            raise _ConvoyVerbRefused(f"convoy {convoy.key!r}: the task is not in it")
        if task.turn is not Turn.WAITING or task.state not in (*TASK_OPEN, TaskState.HELD):
            raise _ConvoyVerbRefused(f"convoy {convoy.key!r}: task {task.task_id!r} does not wait for its turn")
        first = rows.next_waiting(convoy.convoy_no, (convoy.from_rank, 0))
        assert first is not None
        assert first.rank is not None
        if first.task_no == task.task_no:
            raise _ConvoyVerbRefused(f"convoy {convoy.key!r}: task {task.task_id!r} is the next already")
        writer = Writer(task, rows, self.convoy_writer.now, None)
        writer.rewrites = True
        rank = min(first.rank, convoy.from_rank) - 1
        writer.set(rank=rank)
        self.convoy_writer.set(from_rank=min(convoy.from_rank, rank))
        writer.events.append(ConvoyMoved(*self.convoy_writer.take_number(), rank))
        self.convoy_writer.follows.append(writer.change())


_CARRY_OUT: dict[ConvoyVerb, Callable[[_ConvoyOperation], None]] = {
    ConvoyVerb.SET: _ConvoyOperation.set,
    ConvoyVerb.RELEASE: _ConvoyOperation.release,
    ConvoyVerb.SKIP: _ConvoyOperation.skip,
    ConvoyVerb.PARK: _ConvoyOperation.park,
    ConvoyVerb.MOVE_TO_HEAD: _ConvoyOperation.move_to_head,
}
