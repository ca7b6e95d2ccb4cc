"""State that all transactions of one store share."""

from collections.abc import Callable

from ...epoch import FIRST
from ...model import Instant
from ..quarantine import Quarantine
from .clock import ServerClock
from .frontier import Frontiers
from .pipeline import PendingAnswer
from .session import Transaction


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
