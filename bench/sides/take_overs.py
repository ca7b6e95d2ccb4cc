"""The figures of `takeover`: a holder of a lease is lost again and again, and each time the next one follows.

Nothing here knows a provider of leases: it is given how a contender is started, and how to ask who holds the lease.
"""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

CONTENDERS = 2  # beside the holder there is always one that waits
LOOK_SECONDS = 0.002
SECONDS_MAX = 120.0  # for one take-over; a hint that it hangs
END_SECONDS = 0.5  # what a contender needs to end that was asked to
SETTLE_SECONDS = 1.5  # after a take-over: by then the new contender waits for the lease
SPREAD_SECONDS = (
    2.0  # a holder renews so often by default: the losses are spread evenly over the time between two renewals
)

Contender = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Held:
    """The lease as it is held: by the process with this number at the operating system, under a term that grows."""

    pid: int
    term: int


async def measure_take_overs(
    start: Callable[[], Contender],
    find_holder: Callable[[], Awaitable[Held | None]],
    count: int,
    lose: Callable[[Contender], None],
) -> list[float]:
    """Measure how long nobody of the contenders holds the lease after its holder is lost.

    Args:
        start: starts a contender in a process of its own.
        find_holder: asks who holds the lease; None: nobody does.
        count: how often the holder is lost. Each time another contender takes its place.
        lose: kills a holder, asks it to end, or freezes it, for a death that nobody sees: as of another machine.
    Returns: seconds from each loss until the next one holds, as they came.
    """
    contenders = [start() for _ in range(CONTENDERS)]
    try:
        seconds = []
        holder = await _wait_for_holder(find_holder, contenders, above=0)
        for number in range(count):
            await asyncio.sleep(SETTLE_SECONDS + SPREAD_SECONDS * number / count)
            (lost,) = [one for one in contenders if one.pid == holder.pid]
            lose(lost)
            lost_at = time.perf_counter()
            holder = await _wait_for_holder(find_holder, contenders, above=holder.term)
            seconds.append(time.perf_counter() - lost_at)
            await asyncio.to_thread(_end, lost)
            contenders.remove(lost)
            contenders.append(start())
        return seconds
    finally:
        for one in contenders:
            one.kill()
            one.wait()


async def _wait_for_holder(
    find_holder: Callable[[], Awaitable[Held | None]], contenders: list[Contender], *, above: int
) -> Held:
    """Wait until a contender holds the lease under a later term."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            held = await find_holder()
            if held is not None and held.term > above and any(one.pid == held.pid for one in contenders):
                return held
            await asyncio.sleep(LOOK_SECONDS)


def _end(lost: Contender) -> None:
    """Wait until it has ended; kill it if it is only frozen."""
    try:
        lost.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        lost.kill()
        lost.wait()
