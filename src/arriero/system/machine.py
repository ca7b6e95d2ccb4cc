"""The machine: the time since its boot, with the time it slept, and its loopback addresses.

The usual monotonic clock of Linux stands still while the machine is suspended. Deadlines and leases go on meanwhile, so
whoever compares with them counts on this clock.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each process reads the clock, few look at addresses
    from ipaddress import IPv4Address, IPv6Address

LOCALHOST = "localhost"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to an address. A name but ``localhost`` may stand for any address."""
    address = parse_address(host)
    return host == LOCALHOST if address is None else address.is_loopback


def parse_address(text: str) -> "IPv4Address | IPv6Address | None":
    """Parse an address; one of version 4 that is written as version 6 is one of version 4. None: it is none."""
    from ipaddress import IPv6Address, ip_address

    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


# Where the system has no such clock (macOS, Windows), its monotonic one is the nearest.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

# Since boot, suspended time included where the system can say so. Read many times for each step, so without a function.
nanoseconds_since_boot: Callable[[], int] = (
    time.monotonic_ns if _CLOCK is None else partial(time.clock_gettime_ns, _CLOCK)
)
seconds_since_boot: Callable[[], float] = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
