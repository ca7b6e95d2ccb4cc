"""State that all transactions of one store share: the clock, and how far each queue was looked at."""

import time
from collections.abc import Callable, Iterable

from ...model import MICROSECONDS, Instant
from ...model.processes import FIRST
from ...system.boot_clock import nanoseconds_since_boot
from ..quarantine import Quarantine
from .pipeline import PendingAnswer
from .session import Transaction

DEAD_FEW = (
    20_000  # rows of a table: vacuum comes after half as many, so more are dead only because it may not clear them away
)
DEAD_A_LOOK = 1_000  # rows for each of which a further look need not be a whole one
LOOKS_MAX = 100  # between two whole ones: five seconds of a process that polls
SLACK = 1 * MICROSECONDS  # before the last look: what was being committed as it looked


class Frontier:
    """Lower bound of a queue's times, so that a look skips dead index entries that an open transaction keeps.

    What was claimed and what has ended leaves dead entries at the beginning of a queue's index. Nobody may clear them away
    while a snapshot stands that is older than they are, and the one who looks for the first entry reads past all of them: after a
    million tasks, a million rows at each poll. So a look says from where on something was alive, and the next one begins there.

    That place is not the whole truth: a transaction that took long, or an operator who lets a paused task continue, brings something
    that has been due for longer. So while there are few dead rows every look is a whole one, and otherwise one of some: the
    more dead rows there are, the fewer.

    Used by looks of one thread; ``since`` may be asked by any.
    """

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


STEP_BACK = 1 * MICROSECONDS  # a server that is further behind than this has another clock


class ServerClock:
    """Never ahead of the server: counted on the machine's clock since boot from when the last answer came in."""

    def __init__(self) -> None:
        self._offset: int | None = None  # server's clock less ours

    def now(self) -> Instant:
        """The store's clock; before the first answer, the machine's."""
        if self._offset is None:
            return Instant(time.time_ns() // 1000)
        return Instant(_monotonic() + self._offset)

    def note_server_time(self, now: Instant) -> None:
        """The server's clock showed ``now`` before this moment.

        Of two answers the quicker one says more. Only when the server's clock has gone back by far, because another
        server took over, the later answer counts.
        """
        offset = now - _monotonic()
        if self._offset is None or offset > self._offset or self._offset - offset > STEP_BACK:
            self._offset = offset


def _monotonic() -> int:
    return nanoseconds_since_boot() // 1000


class StoreContext:
    """The clock, the rows that are left alone, and how far each queue was looked at.

    Args:
        clock: microseconds, of a test; None: the server's.
    """

    def __init__(self, clock: Callable[[], Instant] | None = None) -> None:
        self._clock = clock
        self._server_clock = ServerClock()
        self.quarantine = Quarantine(self.now)
        self.frontiers = Frontiers()
        self.epoch = FIRST  # in which this process speaks

    @property
    def has_server_clock(self) -> bool:
        """True if no test sets the clock."""
        return self._clock is None

    def now(self) -> Instant:
        """The store's clock, as far as it is known without asking."""
        return self._server_clock.now() if self._clock is None else self._clock()

    def get_test_instant(self) -> Instant | None:
        """The instant that a test says it is; None: the server knows."""
        return None if self._clock is None else self._clock()

    def ask_clock(self, transaction: Transaction) -> PendingAnswer:
        """Ask for the store's clock; the answer is for ``read_clock``."""
        return transaction.ask("select_now", {"given": self.get_test_instant()})

    def read_clock(self, asked: PendingAnswer) -> Instant:
        """The store's clock, as a statement has answered it in its first column."""
        row = asked.fetchone()
        assert row is not None
        now = Instant(row[0])
        self._server_clock.note_server_time(now)
        return now

    def note_server_time(self, now: Instant) -> None:
        """The server's clock showed ``now`` before this moment."""
        self._server_clock.note_server_time(now)
