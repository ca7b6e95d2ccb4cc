"""Lower bound of a queue's times, so that a look skips dead index entries that an open transaction keeps.

What was claimed and what has ended leaves dead entries at the beginning of a queue's index. Nobody may clear them away while a
snapshot stands that is older than they are, and whoever looks for the first entry reads past all of them: after a million tasks,
a million rows at each poll. So a look tells from where on something was alive, and the next one begins there.

That place is not the whole truth: a transaction that took long, or a person who lets a paused task go on, brings something
that has been due for longer. So while there are few dead rows every look is a whole one, and otherwise one of some: the more
dead rows there are, the fewer.
"""

from collections.abc import Iterable

from ...model import MICROSECONDS, Instant

DEAD_FEW = (
    20_000  # rows of a table: vacuum comes after half as many, so more are dead only because it may not clear them away
)
DEAD_A_LOOK = 1_000  # rows for each of which a further look need not be a whole one
LOOKS_MAX = 100  # between two whole ones: five seconds of a process that polls
SLACK = 1 * MICROSECONDS  # before the last look: what was being committed as it looked


class Frontier:
    """The place in one queue. Used by looks of one thread; ``since`` may be asked by any."""

    def __init__(self) -> None:
        self._names: frozenset[object] = frozenset()
        self._reached = Instant(0)
        self._looks = 0  # since the last whole one
        self._looks_between = 0

    def begin_look(self, names: Iterable[object]) -> Instant:
        """The number from which to look for rows of these names; 0: from the beginning."""
        wanted = frozenset(names)
        if wanted != self._names or self._looks >= self._looks_between:
            self._names, self._looks, self._reached = wanted, 0, Instant(0)
        else:
            self._looks += 1
        return self._reached

    def end_look(self, earliest: Instant | None, now: Instant, dead: int) -> None:
        """Record the result of the look.

        Args:
            earliest: the first that is alive, whether due or not; None: there is none.
            now: the store's clock as it looked.
            dead: rows of the table.
        """
        self._looks_between = min(max(dead - DEAD_FEW, 0) // DEAD_A_LOOK, LOOKS_MAX)
        if self._looks_between:
            self._reached = Instant((now if earliest is None else min(earliest, now)) - SLACK)

    def since(self, names: Iterable[object]) -> Instant:
        """The number from which due rows are taken; 0: from the beginning."""
        return self._reached if self._names.issuperset(names) else Instant(0)


class Frontiers:
    """Frontiers of one store: of tasks by workflow, of requests by Agent, of news by process."""

    def __init__(self) -> None:
        self.tasks = Frontier()
        self.steps = Frontier()
        self.news = Frontier()
        self.dead_tasks = 0  # as of the last look
