"""The fold of a convoy's events, and the violations found in them.

Handlers of the single events stand in ``fold_turns``; ``fold_stream`` brings them into their order.
"""

import msgspec

from ..events import Event, UnreadableEvent
from ..events.convoy import ConvoyClosed, ConvoyMended, ConvoyOpened, ConvoyReturned, ConvoyStopped
from ..model import ConvoyState, Turn
from .fold import Violation
from .fold_waiting import Member, WaitingTasks


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
        """Its state in one word, as far as a history tells."""
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
    """Return the state without the gap: a history cannot tell a gap from rest, because a gap may close without an event."""
    return "idle" if state == "gap" else str(state)
