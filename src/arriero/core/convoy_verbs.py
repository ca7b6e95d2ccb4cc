"""What a person may do to a convoy: one table of verb and state, and what each verb changes.

A verb is judged on the row as it stands in its transaction, and carries the fence that its person saw: whoever skips a head
skips the one they looked at.
"""

from collections.abc import Callable

from msgspec.structs import replace

from ..commands import OperateConvoy, Refusal
from ..model import TASK_OPEN, ConvoyRow, ConvoyState, ConvoyVerb, Instant, TaskRow, TaskState, Turn
from .changes import ConvoyChange, Refused, Rows, Writer
from .convoys import Round, policy_of

CONVOY_VERB_RULES: dict[tuple[ConvoyVerb, str], str] = {
    (ConvoyVerb.SET, "idle"): "its own policy holds from now on",
    (ConvoyVerb.SET, "open"): "its own policy holds from now on",
    (ConvoyVerb.SET, "stopped"): "its own policy holds at once: under skip the key goes on, under park it is parked",
    (ConvoyVerb.SET, "gap"): "its own policy holds at once, also for the gap that it waits at",
    (ConvoyVerb.SET, "parked"): "its own policy holds once it is released",
    (ConvoyVerb.RELEASE, "parked"): "it goes on; if its head is still in error it waits for that",
    (ConvoyVerb.SKIP, "stopped"): "the task in error is set aside, the key goes on",
    (ConvoyVerb.SKIP, "gap"): "what is missing is skipped, the key goes on; if it comes after all it is set aside",
    (
        ConvoyVerb.SKIP,
        "parked",
    ): "the task in error, or what is missing, is passed over; it stays parked until it is released",
    (ConvoyVerb.PARK, "idle"): "nothing begins until it is released",
    (ConvoyVerb.PARK, "open"): "the task that is under way goes to its end; nothing else begins until it is released",
    (ConvoyVerb.PARK, "stopped"): "nothing begins until it is released, also when its head is mended",
    (ConvoyVerb.PARK, "gap"): "nothing begins until it is released, also when what is missing comes",
    (ConvoyVerb.MOVE_TO_HEAD, "idle"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "open"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "stopped"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "parked"): "a waiting task comes before all others that wait",
}


def allowed_convoy_verbs(convoy: ConvoyRow) -> tuple[ConvoyVerb, ...]:
    """Verbs that the table allows a convoy as it stands."""
    return tuple(verb for verb in ConvoyVerb if (verb, convoy.shown) in CONVOY_VERB_RULES)


class _NotAllowed(Exception):
    """The verb cannot be carried out; the message says why and what could be."""


def operate_convoy(command: OperateConvoy, rows: Rows, now: Instant) -> ConvoyChange | Refused:
    """Carry out a verb on the convoy as it stands, or refuse it and change nothing. Raises: core.convoys.Held."""
    convoy = rows.convoy(command.convoy_no)
    if command.fence is not None and command.fence != convoy.fence:
        said = f"somebody or something else came first: convoy {convoy.key!r} is {convoy.shown} now; look at it again"
        return Refused(_refusal("came_first", said, convoy))
    if (command.verb, convoy.shown) not in CONVOY_VERB_RULES:
        allowed = ", ".join(allowed_convoy_verbs(convoy))
        said = f"convoy {convoy.key!r} is {convoy.shown}: {command.verb} is not allowed there; allowed: {allowed}"
        return Refused(_refusal("not_allowed", said, convoy))
    try:
        return _ConvoyOperation(command, convoy, rows, now).carried_out()
    except _NotAllowed as refused:
        return Refused(_refusal("not_allowed", str(refused), convoy))


def _refusal(verdict: str, detail: str, convoy: ConvoyRow) -> Refusal:
    return Refusal(verdict, detail, convoy.shown, tuple(str(verb) for verb in allowed_convoy_verbs(convoy)))


class _ConvoyOperation:
    """One verb on one convoy."""

    def __init__(self, command: OperateConvoy, convoy: ConvoyRow, rows: Rows, now: Instant) -> None:
        self.command = command
        self.round = Round(convoy, rows, now)
        self.event = self.round.told(
            "action", verb=command.verb, by=command.by, reason=command.reason, before=convoy.shown
        )
        self.round.events.append(self.event)

    def carried_out(self) -> ConvoyChange:
        _CARRY_OUT[self.command.verb](self)
        convoy = self.round.convoy
        self.event |= {"after": convoy.shown, "fence": convoy.fence}
        return self.round.change()

    def set(self) -> None:
        given = self.command.policy
        assert given is not None
        self.round.set(on_head=given.head, on_gap=given.gap, gap_within=given.gap_within)
        self.event["policy"] = given
        convoy = self.round.convoy
        if convoy.parked_at is not None:
            return
        if convoy.state is ConvoyState.GAP:
            self.round.pass_on()
        elif convoy.state is ConvoyState.STOPPED:
            self._follow_policy()

    def _follow_policy(self) -> None:
        """A key that stands still on a task in error, under a policy that has just changed."""
        task = self._stopping_task()
        word = policy_of(self.round.convoy, task).head
        if word == "skip":
            self._skip_head(task)
        elif word == "park":
            self.round.park(f"task {task.task_id} is in error")

    def _stopping_task(self) -> TaskRow:
        number = self.round.convoy.open_task
        task = None if number is None else self.round.rows.member(number)
        if task is None:
            raise _NotAllowed(f"convoy {self.round.convoy.key!r}: the task it stands still on is not there any more")
        return task

    def release(self) -> None:
        self.round.set(parked_at=None, parked_why="", gap_since=None)  # at a gap its time begins anew
        if self.round.convoy.state in (ConvoyState.IDLE, ConvoyState.GAP):
            self.round.tail = self.round.rows.seal(self.round.convoy.convoy_no)
            self.round.pass_on()
        elif self.round.convoy.state is ConvoyState.STOPPED:
            task = self._stopping_task()
            if policy_of(self.round.convoy, task).head == "skip":
                self._skip_head(task)

    def skip(self) -> None:
        convoy = self.round.convoy
        if convoy.state is ConvoyState.STOPPED:
            self._skip_head(self._stopping_task())
        elif convoy.state is ConvoyState.GAP:
            self._skip_gap()
        else:
            raise _NotAllowed(f"convoy {convoy.key!r} waits for nothing that could be skipped")

    def _skip_head(self, task: TaskRow) -> None:
        writer = Writer(task, self.round.rows, self.round.now, None)
        self.round.set_aside(writer, "skip")
        self.round.follows.append(writer.change())
        self.round.pass_on()

    def _skip_gap(self) -> None:
        convoy = self.round.convoy
        self.round.tail = self.round.rows.seal(convoy.convoy_no)
        if self.round.tail is None:
            raise _NotAllowed(f"convoy {convoy.key!r}: somebody is just adding to it; ask again")
        task = self.round.rows.next_waiting(convoy.convoy_no, (convoy.from_rank, 0))
        if task is None or task.sequence is None or task.sequence <= convoy.expected:
            raise _NotAllowed(f"convoy {convoy.key!r}: nothing is missing any more; look at it again")
        self.round.tail = replace(self.round.tail, asks=False)
        self.round.skip_gap(task, "person")
        if convoy.parked_at is None:
            self.round.pass_on()
        else:
            self.round.set(state=ConvoyState.IDLE)

    def park(self) -> None:
        why = f"by {self.command.by}: {self.command.reason}"
        self.round.set(parked_at=self.round.now, parked_why=why, look_at=None)

    def move_to_head(self) -> None:
        convoy, rows = self.round.convoy, self.round.rows
        if convoy.ordering == "sequence":
            raise _NotAllowed(
                f"convoy {convoy.key!r} is ordered by its producer's sequence; no task can be moved in it"
            )
        assert self.command.task_no is not None
        task = rows.member(self.command.task_no)
        if task is None or task.convoy_no != convoy.convoy_no:
            raise _NotAllowed(f"convoy {convoy.key!r}: the task is not in it")
        if task.turn is not Turn.WAITING or task.state not in (*TASK_OPEN, TaskState.ERROR):
            raise _NotAllowed(f"convoy {convoy.key!r}: task {task.task_id!r} does not wait for its turn")
        first = rows.next_waiting(convoy.convoy_no, (convoy.from_rank, 0))
        assert first is not None
        assert first.rank is not None
        if first.task_no == task.task_no:
            raise _NotAllowed(f"convoy {convoy.key!r}: task {task.task_id!r} is the next already")
        writer = Writer(task, rows, self.round.now, None)
        writer.rewrites = True
        rank = min(first.rank, convoy.from_rank) - 1
        writer.set(rank=rank)
        self.round.set(from_rank=min(convoy.from_rank, rank))
        writer.events.append(self.round.told("moved", rank=rank))
        self.round.follows.append(writer.change())


_CARRY_OUT: dict[ConvoyVerb, Callable[[_ConvoyOperation], None]] = {
    ConvoyVerb.SET: _ConvoyOperation.set,
    ConvoyVerb.RELEASE: _ConvoyOperation.release,
    ConvoyVerb.SKIP: _ConvoyOperation.skip,
    ConvoyVerb.PARK: _ConvoyOperation.park,
    ConvoyVerb.MOVE_TO_HEAD: _ConvoyOperation.move_to_head,
}
