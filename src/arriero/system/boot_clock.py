"""Time since the machine's boot, with the time it slept.

The usual monotonic clock of Linux is blocked while the machine is suspended. Deadlines and leases continue meanwhile, so
the one who compares with them counts on this clock.
"""

import time
from collections.abc import Callable
from functools import partial

# Where the system has no such clock (macOS, Windows), its monotonic one is the nearest.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

# Since boot, suspended time included where the system can say so. Read many times for each step, so without a function.
nanoseconds_since_boot: Callable[[], int] = (
    time.monotonic_ns if _CLOCK is None else partial(time.clock_gettime_ns, _CLOCK)
)
seconds_since_boot: Callable[[], float] = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
