"""The figures of `takeover`: a holder of a lease is lost again and again, and each time the next one follows.

Nothing here knows a provider of leases: it is given how a contender is started, and how to ask who holds the lease.
"""

import asyncio
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

CONTENDERS = 2  # beside the holder there is always one that waits
LOOK_SECONDS = 0.002
SECONDS_MAX = 120.0  # for one take-over; a hint that it hangs
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
    start: Callable[[], Contender], find_holder: Callable[[], Awaitable[Held | None]], count: int, loss: signal.Signals
) -> list[float]:
    """Measure how long nobody of the contenders holds the lease after its holder is lost.

    Args:
        start: starts a contender in a process of its own.
        find_holder: asks who holds the lease; None: nobody does.
        count: how often the holder is lost. Each time another contender takes its place.
        loss: SIGKILL, SIGTERM, or SIGSTOP for a death that nobody sees: as of another machine.
    Returns: seconds from each loss until the next one holds, as they came.
    """
    contenders = [start() for _ in range(CONTENDERS)]
    try:
        seconds = []
        holder = await _wait_for_holder(find_holder, contenders, above=0)
        for number in range(count):
            await asyncio.sleep(SETTLE_SECONDS + SPREAD_SECONDS * number / count)
            (lost,) = [one for one in contenders if one.pid == holder.pid]
            lost_at = time.perf_counter()
            lost.send_signal(loss)
            holder = await _wait_for_holder(find_holder, contenders, above=holder.term)
            seconds.append(time.perf_counter() - lost_at)
            if loss is signal.SIGSTOP:
                lost.kill()
            await asyncio.to_thread(lost.wait)
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
