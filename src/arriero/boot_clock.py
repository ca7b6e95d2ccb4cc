"""Time since the machine's boot, with the time it slept.

The usual monotonic clock of Linux stands still while the machine is suspended. Deadlines and leases go on meanwhile, so
whoever compares with them counts on this clock.
"""

import time

# Where the system has no such clock (macOS, Windows), its monotonic one is the nearest.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def nanoseconds_since_boot() -> int:
    """Nanoseconds since boot, suspended time included where the system can say so."""
    return time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)


def seconds_since_boot() -> float:
    """The same in seconds."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
