"""An estimate of the server's clock, made without asking the server."""

import time

from ...boot_clock import nanoseconds_since_boot
from ...model import MICROSECONDS, Instant

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

        Of two answers the quicker one tells more. Only when the server's clock has gone back by far, because another
        server took over, the later answer counts.
        """
        offset = now - _monotonic()
        if self._offset is None or offset > self._offset or self._offset - offset > STEP_BACK:
            self._offset = offset


def _monotonic() -> int:
    return nanoseconds_since_boot() // 1000
