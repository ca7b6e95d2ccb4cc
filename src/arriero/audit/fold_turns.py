"""The fold of the turns in a convoy, and their invariants."""

from heapq import heappop, heappush
from typing import assert_never

import msgspec

from ..events import Event, UnreadableEvent
from ..events.convoy import (
    ConvoyAction,
    ConvoyBatched,
    ConvoyClosed,
    ConvoyContinued,
    ConvoyLeft,
    ConvoyMended,
    ConvoyMessageEnded,
    ConvoyMoved,
    ConvoyOpened,
    ConvoyParked,
    ConvoyPlaced,
    ConvoyReturned,
    ConvoySetAside,
    ConvoySkipped,
    ConvoyStopped,
    ConvoyWaiting,
    EventOfConvoy,
    EventOfTurn,
)
from ..model import ConvoyState, ConvoyVerb, Turn
from ..model.verb_rules import CONVOY_VERB_RULES
from .fold import TaskFold, Violation


class Member(msgspec.Struct, eq=False):
    """A task of a convoy. ``turn``: by the order of the convoy's events; ``task.turn`` is by that of the history's rows."""

    task: TaskFold
    position: int  # of its placing among those of the convoy, in the order of the history
    place: int
    rank: int
    sequence: int | None
    turn: Turn = Turn.WAITING
    batch: int | None = None  # number of another task that handles its message

    @property
    def task_id(self) -> str:
        return self.task.task_id


class WaitingTasks:
    """All tasks of a convoy.

    An event was written by a caller who saw only what was placed before it. ``seen`` is how many those were, where a
    question is about what the writer could know.
    """

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self._is_by_sequence = False
        self._placings: dict[int, int] = {}  # the position at which a number of the sequence came
        self._waiting: list[tuple[int, int, int]] = []  # rank, place, task_no; some do not wait any longer

    @property
    def is_by_sequence(self) -> bool | None:
        """True if its producer numbers the tasks; None: there is no task yet."""
        return self._is_by_sequence if self.members else None

    def __len__(self) -> int:
        return len(self.members)

    def place(self, task: TaskFold, event: ConvoyPlaced) -> Member:
        """Add a task that comes and waits."""
        member = Member(task, len(self.members) + 1, event.place, event.rank, event.sequence)
        self.members[task.task_no] = member
        self._is_by_sequence = self._is_by_sequence or (member.sequence is not None and not event.refused)
        if member.sequence is not None:
            self._placings.setdefault(member.sequence, member.position)
        self.wait(member)
        return member

    def continue_at(self, task: TaskFold, event: ConvoyContinued) -> None:
        """Add the next run of a task, at the place of the run before."""
        earlier = self.members.get(event.earlier)
        position = len(self.members) + 1 if earlier is None else earlier.position
        self.members[task.task_no] = Member(task, position, event.place, event.rank, event.sequence, turn=Turn.OPEN)

    def wait(self, member: Member) -> None:
        """Let a task wait at its rank."""
        member.turn = Turn.WAITING
        heappush(self._waiting, (member.rank, member.place, member.task.task_no))

    def first(self, seen: int) -> Member | None:
        """Return the first task that waits."""
        unseen = []
        found = None
        while self._waiting and found is None:
            rank, place, task_no = self._waiting[0]
            member = self.members[task_no]
            if member.turn is not Turn.WAITING or (member.rank, member.place) != (rank, place):
                heappop(self._waiting)
            elif member.position > seen:
                unseen.append(heappop(self._waiting))
            else:
                found = member
        for entry in unseen:
            heappush(self._waiting, entry)
        return found

    def has(self, sequence: int, seen: int) -> bool:
        """Returns True if a number of the producer's sequence had come."""
        return self._placings.get(sequence, seen + 1) <= seen

    def find_missing(self, start: int, before: int, seen: int) -> int | None:
        """Return the first number from ``start`` up to but without ``before`` that had not come."""
        return next((number for number in range(start, before) if not self.has(number, seen)), None)

    def come_up_to(self, start: int, seen: int) -> int:
        """Return the first number from ``start`` on that had not come."""
        while self.has(start, seen):
            start += 1
        return start

    def holes(self) -> list[int]:
        """Return the places that no task has, though a later one has."""
        places = {member.place for member in self.members.values()}
        return [place for place in range(1, max(places, default=0)) if place not in places]


class StreamEvent(msgspec.Struct, frozen=True):
    """An event of a convoy as it was found. ``task_no``: in whose stream, 0: in the convoy's own."""

    at: int
    task_no: int
    seen: int  # how many tasks had been placed before it
    event: Event | UnreadableEvent


class ConvoyFold:
    """The fold of one convoy's events. ``violations``: of its invariants."""

    def __init__(self, convoy_no: int) -> None:
        self.convoy_no = convoy_no
        self.key = ""
        self.number = 0
        self.fence = 0
        self.state = ConvoyState.IDLE
        self.open_task: int | None = None
        self.expected = 1
        self.is_parked = False
        self.reached = (0, 0)  # the greatest rank and place whose turn has come
        self.last_place = 0
        self.end_rank: int | None = None
        self.promise: tuple[int, str, int] | None = None  # a verb's instant, and state and fence it says to lead to
        self.line = WaitingTasks()
        self.violations: list[Violation] = []
        self.doubtful: list[Violation] = []  # excused if tasks were removed, and their events with them

    def convict(self, invariant: str, detail: str, *, unless_purged: bool = False) -> None:
        """Note a violation."""
        found = self.doubtful if unless_purged else self.violations
        found.append(Violation(invariant, f"convoy {self.key}", detail))

    @property
    def shown(self) -> str:
        """Its state in one word, as far as a history says."""
        return "parked" if self.is_parked else plain(self.state)

    def name(self, task_no: int | None) -> str:
        """The id of a task of the convoy."""
        member = None if task_no is None else self.line.members.get(task_no)
        return "nobody" if member is None else member.task_id

    def grow_fence(self, event: ConvoyOpened | ConvoyClosed | ConvoyStopped | ConvoyMended | ConvoyReturned) -> None:
        """Check that the fence grows with every turn that begins or ends."""
        fence = event.fence
        if fence <= self.fence:
            self.convict("I6", f"{event.type} under fence {fence}, the highest was {self.fence}")
        self.fence = max(self.fence, fence)

    def begin(self, member: Member, event: ConvoyOpened | ConvoyStopped, state: ConvoyState) -> None:
        """Begin the task's turn."""
        self.grow_fence(event)
        member.turn, self.state, self.open_task = Turn.OPEN, state, member.task.task_no
        self.reached = max(self.reached, (member.rank, member.place))
        if member.sequence is not None:
            self.expected = max(self.expected, member.sequence + 1)

    def expect(self, expected: int, seen: int) -> None:
        """Expect this number next. The convoy may have passed numbers that came and have ended since."""
        if not self.expected <= expected <= self.line.come_up_to(self.expected, seen):
            self.convict("I40", f"it counts on sequence {expected}, {self.expected} comes next", unless_purged=True)
        self.expected = expected

    def judge_first(self, member: Member, seen: int, what: str) -> None:
        """Judge that no task which waits stands before it."""
        first = self.line.first(seen)
        if first is not None and (first.rank, first.place) < (member.rank, member.place):
            self.convict("I40", f"{what} before task {first.task_id}, which waits and stands before it")

    def judge_promise(self, at: int | None) -> None:
        """Judge that the recorded result of a verb holds at the end of its commit, which has one instant."""
        if self.promise is None:
            return
        instant, state, fence = self.promise
        if (state, fence) == (self.shown, self.fence):
            self.promise = None
        elif at != instant:
            said, found = f"{state} under fence {fence}", f"{self.shown} under fence {self.fence}"
            self.convict("I59", f"a verb is recorded to lead to {said}, the convoy is {found}", unless_purged=True)
            self.promise = None


def plain(state: str) -> str:
    """Return the state without the gap: a history cannot distinguish a gap from rest, because a gap may close without an event."""
    return "idle" if state == "gap" else str(state)


def place_task(convoy: ConvoyFold, task: TaskFold, event: ConvoyPlaced) -> None:
    """Fold a task that comes. The submitter holds the tail until the commit, so places stand in order."""
    convoy.key = convoy.key or event.key
    place, rank, sequence = event.place, event.rank, event.sequence
    if event.key != convoy.key:
        convoy.convict("I39", f"task {task.task_id} was placed under the key {event.key!r}")
    if place <= convoy.last_place:
        convoy.convict("I39", f"place {place} was given after place {convoy.last_place}")
    if event.refused:  # of a ledger, and the convoy takes it no more: it has a place, and is set aside immediately
        convoy.last_place = max(convoy.last_place, place)
        convoy.line.place(task, event)
        return
    if sequence is not None and convoy.line.has(sequence, len(convoy.line)):
        convoy.convict("I40", f"sequence {sequence} was placed twice")
    if convoy.line.is_by_sequence not in (None, sequence is not None):
        convoy.convict("I39", f"place {place} is ordered in another way than those before")
    if convoy.end_rank is not None and rank > convoy.end_rank:
        convoy.convict("I39", f"task {task.task_id} was placed behind the end mark at {convoy.end_rank}")
    convoy.last_place = max(convoy.last_place, place)
    convoy.end_rank = rank if event.end else convoy.end_rank
    convoy.line.place(task, event)


# --- turns
def fold_turn_of_key(convoy: ConvoyFold, member: Member, event: EventOfTurn, seen: int) -> None:
    """Fold one event that stands in the history of a task. ``seen``: how many tasks had been placed before it."""
    match event:
        case ConvoyPlaced():
            pass  # it has no number: see ``place_task``
        case ConvoyOpened():
            _judge_begin(convoy, member, seen)
            convoy.begin(member, event, ConvoyState.OPEN)
            convoy.expect(event.expected, seen)
        case ConvoyContinued():
            _continue(convoy, member, event)
        case ConvoyClosed():
            _close(convoy, member, event)
        case ConvoyStopped():
            _stop(convoy, member, event, seen)
        case ConvoyMended():
            _go_on(convoy, member, event)
        case ConvoyReturned():
            _return(convoy, member, event)
        case ConvoyLeft():
            member.turn = Turn.ENDED
        case ConvoySetAside():
            _set_aside(convoy, member, event, seen)
        case ConvoyMoved():
            _move(convoy, member, event, seen)
        case ConvoyBatched():
            pass  # see ``fold_batches``
        case ConvoyMessageEnded():
            member.turn = Turn.ENDED
        case _:
            assert_never(event)


def _stop(convoy: ConvoyFold, member: Member, event: ConvoyStopped, seen: int) -> None:
    if convoy.open_task != member.task.task_no:
        _judge_begin(convoy, member, seen)
    elif convoy.is_parked and not event.parked:
        convoy.convict("I41", f"it is blocked on task {member.task_id} and is not parked, but nobody released it")
    convoy.begin(member, event, ConvoyState.STOPPED)
    convoy.expect(event.expected, seen)
    convoy.is_parked = event.parked


def _judge_begin(convoy: ConvoyFold, member: Member, seen: int) -> None:
    what = f"the turn of task {member.task_id} began"
    if convoy.open_task is not None:
        other = convoy.name(convoy.open_task)
        if convoy.state is ConvoyState.STOPPED:
            convoy.convict("I41", f"{what} while the convoy was blocked on task {other}")
        else:
            convoy.convict("I40", f"{what} while task {other} had its turn")
    if convoy.is_parked:
        convoy.convict("I41", f"{what} while the convoy was parked")
    convoy.judge_first(member, seen, what)
    if member.sequence is None:
        return
    if member.sequence < convoy.expected and member.task.incarnation == 1:
        convoy.convict(
            "I40", f"{what}, but its sequence {member.sequence} had been passed before it came", unless_purged=True
        )
    missing = convoy.line.find_missing(convoy.expected, member.sequence, seen)
    if missing is not None:
        convoy.convict("I40", f"{what}, but sequence {missing} had not come and was not skipped", unless_purged=True)


def _continue(convoy: ConvoyFold, member: Member, event: ConvoyContinued) -> None:
    """The next run of a task has the turn and the place of the run before."""
    earlier = convoy.line.members.get(event.earlier)
    if earlier is None or (earlier.place, earlier.rank, earlier.sequence) != (event.place, event.rank, event.sequence):
        convoy.convict(
            "I89", f"task {member.task_id} continues at a place that its run before had not", unless_purged=True
        )
    if convoy.open_task != event.earlier:
        convoy.convict(
            "I89", f"task {member.task_id} continues, it was {convoy.name(convoy.open_task)}'s turn", unless_purged=True
        )
    if earlier is not None:
        earlier.turn = Turn.ENDED
    member.turn, convoy.state, convoy.open_task = Turn.OPEN, ConvoyState.OPEN, member.task.task_no


def _close(convoy: ConvoyFold, member: Member, event: ConvoyClosed) -> None:
    if convoy.open_task != member.task.task_no:
        convoy.convict("I40", f"the turn of task {member.task_id} ended, it was {convoy.name(convoy.open_task)}'s")
    convoy.grow_fence(event)
    member.turn, convoy.state, convoy.open_task = Turn(event.turn), ConvoyState.IDLE, None


def _go_on(convoy: ConvoyFold, member: Member, event: ConvoyMended) -> None:
    if convoy.state is not ConvoyState.STOPPED or convoy.open_task != member.task.task_no:
        convoy.convict("I41", f"it continues with task {member.task_id}, on which it was not blocked")
    if convoy.is_parked:
        convoy.convict("I41", f"it continues with task {member.task_id} while it is parked")
    convoy.grow_fence(event)
    convoy.state = ConvoyState.OPEN


def _return(convoy: ConvoyFold, member: Member, event: ConvoyReturned) -> None:
    stood_on_it = convoy.open_task == member.task.task_no
    if stood_on_it:
        if not convoy.is_parked:
            convoy.convict("I41", f"task {member.task_id} gave up its turn in a convoy that is not parked")
        convoy.grow_fence(event)
        convoy.state, convoy.open_task = ConvoyState.IDLE, None
    elif event.fence != convoy.fence:
        convoy.convict("I6", f"fence {event.fence} is recorded, it is {convoy.fence}", unless_purged=True)
    _judge_lost_place(convoy, member, stood_on_it=stood_on_it, says_lost=event.place_lost)
    convoy.line.wait(member)


def _judge_lost_place(convoy: ConvoyFold, member: Member, *, stood_on_it: bool, says_lost: bool) -> None:
    """Judge the mark of a lost place. A task that was moved may share a rank with an earlier one; either mark is right then."""
    is_lost = not stood_on_it and convoy.reached[0] > member.rank
    may_be_lost = not stood_on_it and convoy.reached > (member.rank, member.place)
    if says_lost not in (is_lost, may_be_lost):
        said = "has lost its place" if says_lost else "keeps its place"
        convoy.convict(
            "I41", f"it is recorded that task {member.task_id} {said}; that is not so", unless_purged=says_lost
        )


def _set_aside(convoy: ConvoyFold, member: Member, event: ConvoySetAside, seen: int) -> None:
    if event.why != "ledger":  # such a one has no turn at all, whatever stands before it
        convoy.judge_first(member, seen, f"task {member.task_id} was passed over")
    if event.why == "late" and (member.sequence is None or member.sequence >= convoy.expected):
        convoy.convict("I40", f"task {member.task_id} was set aside as late, it was not", unless_purged=True)
    member.turn = Turn.SET_ASIDE


def _move(convoy: ConvoyFold, member: Member, event: ConvoyMoved, seen: int) -> None:
    if member.sequence is not None:
        convoy.convict("I40", f"task {member.task_id} was moved, though the order is its producer's")
    member.rank = event.rank
    convoy.line.wait(member)
    convoy.judge_first(member, seen, f"task {member.task_id} was moved to the head, and stands not")


# --- the key itself
def fold_key_event(convoy: ConvoyFold, event: EventOfConvoy, at: int, seen: int) -> None:
    """Fold one event of the convoy's own stream. ``seen``: how many tasks had been placed before it."""
    match event:
        case ConvoyWaiting(expected=expected, before=before):
            _judge_gap(convoy, event, seen)
            if convoy.line.find_missing(expected, before, seen) is None:
                convoy.convict("I40", f"it waits before sequence {before}, but all from {expected} on have come")
            convoy.state = ConvoyState.GAP
        case ConvoySkipped(before=before):
            _judge_gap(convoy, event, seen)
            convoy.expected = max(convoy.expected, before)
            convoy.state = ConvoyState.IDLE
        case ConvoyParked():
            convoy.is_parked = True
        case ConvoyAction():
            _operate(convoy, event, at)
        case _:
            assert_never(event)


def _judge_gap(convoy: ConvoyFold, event: ConvoyWaiting | ConvoySkipped, seen: int) -> None:
    before = event.before
    convoy.expect(event.expected, seen)
    first = convoy.line.first(seen)
    if first is None or first.sequence != before:
        found = "nothing waits" if first is None else f"task {first.task_id} is the first that waits"
        convoy.convict("I40", f"{event.type} before sequence {before}, but {found}", unless_purged=True)


def _operate(convoy: ConvoyFold, event: ConvoyAction, at: int) -> None:
    """Fold an operator's verb; the events that follow from it come behind it."""
    verb, before = ConvoyVerb(event.verb), event.before
    if not event.by:
        convoy.convict("I59", f"{verb} by nobody")
    if (verb, before) not in CONVOY_VERB_RULES:
        convoy.convict("I59", f"{verb} was carried out on a convoy that was {before}")
    if plain(before) != convoy.shown:
        convoy.convict("I59", f"{verb} is recorded from {before}, it was {convoy.shown}", unless_purged=True)
    if verb in (ConvoyVerb.PARK, ConvoyVerb.RELEASE):
        convoy.is_parked = verb is ConvoyVerb.PARK
    convoy.promise = (at, plain(event.after), event.fence)
