"""The clock of a SQLite store: the machine's time since boot plus an offset kept in the file.

Setting the wall clock moves nothing, suspended time counts, and all processes of the machine read the same. After a
reboot the offset is made anew, from the wall clock but never before the last instant the file has seen.
"""

import time
from pathlib import Path

from ...model import Instant

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def since_boot() -> int:
    """Microseconds since boot, suspended time included where the system can say so."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1000


def wall_clock() -> int:
    """Microseconds since 1970 as the machine's calendar has it."""
    return time.time_ns() // 1000


def boot_id() -> str:
    """Which boot this is; empty where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def fresh_offset(seen: Instant) -> int:
    """The offset for a new boot (or a new file): wall clock, never before ``seen``."""
    return max(wall_clock(), seen) - since_boot()
