"""The clock of a SQLite store: the machine's time since boot plus an offset kept in the file.

Setting the wall clock moves nothing, suspended time counts, and all processes of the machine read the same. After a
reboot the offset is made anew, from the wall clock but never before the last instant the file has seen.
"""

import time

from ...boot_clock import nanoseconds_since_boot
from ...model import Instant


def since_boot() -> int:
    """Microseconds since boot, suspended time included where the system can say so."""
    return nanoseconds_since_boot() // 1000


def wall_clock() -> int:
    """Microseconds since 1970 as the machine's calendar has it."""
    return time.time_ns() // 1000


def fresh_offset(seen: Instant) -> int:
    """The offset for a new boot (or a new file): wall clock, never before ``seen``."""
    return max(wall_clock(), seen) - since_boot()
