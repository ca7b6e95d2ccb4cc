"""What the events of a convoy say of its key, and what they should not say.

Handlers of the single events stand in ``fold_turns``; ``fold_stream`` brings them into their order.
"""

import msgspec

from ..model import ConvoyState, Turn
from .fold import Event, Violation
from .fold_line import Line, Member


class Told(msgspec.Struct, frozen=True):
    """An event of a convoy as it was found. ``task_no``: in whose stream, 0: in the convoy's own."""

    at: int
    task_no: int
    seen: int  # how many tasks had been placed before it
    event: Event


class ConvoyFold:
    """What the events say of one convoy; ``violations`` collects what they should not say."""

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
        self.line = Line()
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

    def grow_fence(self, event: Event) -> None:
        """The fence grows with every turn that begins or ends."""
        fence = event["fence"]
        if fence <= self.fence:
            self.convict("I6", f"{event['type']} under fence {fence}, the highest was {self.fence}")
        self.fence = max(self.fence, fence)

    def begin(self, member: Member, event: Event, state: ConvoyState) -> None:
        """It is the task's turn."""
        self.grow_fence(event)
        member.turn, self.state, self.open_task = Turn.OPEN, state, member.task.task_no
        self.reached = max(self.reached, (member.rank, member.place))
        if member.sequence is not None:
            self.expected = max(self.expected, member.sequence + 1)

    def expect(self, expected: int, seen: int) -> None:
        """The key counts on this number next. It may have passed numbers that came and have ended since."""
        if not self.expected <= expected <= self.line.come_up_to(self.expected, seen):
            self.convict("I40", f"it counts on sequence {expected}, {self.expected} comes next", unless_purged=True)
        self.expected = expected

    def judge_first(self, member: Member, seen: int, what: str) -> None:
        """Nothing that waits stands before it."""
        first = self.line.first(seen)
        if first is not None and (first.rank, first.place) < (member.rank, member.place):
            self.convict("I40", f"{what} before task {first.task_id}, which waits and stands before it")

    def judge_promise(self, at: int | None) -> None:
        """What a verb is recorded to have led to must be so by the end of its commit, which has one instant."""
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
    """A history does not tell a gap from rest for certain: it may close without an event."""
    return "idle" if state == "gap" else str(state)
