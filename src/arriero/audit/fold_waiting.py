"""The tasks of a convoy, in the order in which they are taken: who waits, and which numbers have come."""

from heapq import heappop, heappush

import msgspec

from ..events.convoy import ConvoyPlaced
from ..model import Turn
from .fold import TaskFold


class Member(msgspec.Struct, eq=False):
    """A task of a convoy. ``turn``: by the order of the convoy's events; ``task.turn`` is by that of the history's rows."""

    task: TaskFold
    position: int  # of its placing among those of the convoy, in the order of the history
    place: int
    rank: int
    sequence: int | None
    turn: Turn = Turn.WAITING

    @property
    def task_id(self) -> str:
        return self.task.task_id


class WaitingTasks:
    """All tasks of a convoy.

    An event was written by somebody who saw only what was placed before it. ``seen`` is how many those were, where a
    question is about what the writer could know.
    """

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self._is_by_sequence = False
        self._placings: dict[int, int] = {}  # the position at which a number of the sequence came
        self._waiting: list[tuple[int, int, int]] = []  # rank, place, task_no; some do not wait any more

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
