"""What a mutex must do on any provider of leases, with the real clock and real servers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from arriero.leases import DistributedMutex, Leadership, Lease

SCENARIO_SECONDS_MAX = 60.0  # a wait, not a measure


class GuardedCounter:
    """A counter that keeps the largest term that it has seen, and refuses the writes of earlier leaders."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.at_work: list[str] = []

    def add(self, leadership: Leadership) -> None:
        """Count once for a term. Fails on an earlier term than the last."""
        assert not self.terms or leadership.term > self.terms[-1], (leadership.term, self.terms)
        self.terms.append(leadership.term)


@asynccontextmanager
async def running(mutex: DistributedMutex, work: Callable[[Leadership], object]) -> AsyncIterator[None]:
    """Let a mutex run for a block, which fails if the mutex does."""
    task = asyncio.get_running_loop().create_task(mutex.run(work))  # type: ignore[arg-type]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()  # it raises what the work raised


async def let_two_contend(make_lease: Callable[[], Lease], duration: float, turns: int = 4) -> GuardedCounter:
    """Two contenders take turns. Fails if both work at once, or a term does not grow."""
    counter = GuardedCounter()
    is_done = asyncio.Event()

    def make_work(name: str) -> Callable[[Leadership], object]:
        async def work(leadership: Leadership) -> None:
            assert counter.at_work == []
            counter.at_work.append(name)
            counter.add(leadership)
            for _ in range(20):  # others get every chance to be at work as well
                await asyncio.sleep(0)
                assert counter.at_work == [name]
            counter.at_work.remove(name)
            if len(counter.terms) >= turns:
                is_done.set()

        return work

    left, right = (DistributedMutex(make_lease(), duration=duration) for _ in range(2))
    async with (
        asyncio.timeout(SCENARIO_SECONDS_MAX),
        running(left, make_work("left")),
        running(right, make_work("right")),
    ):
        await is_done.wait()
    return counter


async def lose_and_return(
    lease: Lease, duration: float, stop: Callable[[], None], start: Callable[[], None]
) -> tuple[list[int], list[str]]:
    """The server goes in the middle of a term, and comes back when the term is lost. Returns the terms, and why they ended."""
    terms: list[int] = []
    reasons: list[str] = []
    elected, lost = asyncio.Event(), asyncio.Event()

    async def work(leadership: Leadership) -> None:
        terms.append(leadership.term)
        elected.set()
        await asyncio.Event().wait()

    def note_loss(leadership: Leadership, reason: str) -> None:
        assert not leadership.is_held()
        reasons.append(reason)
        lost.set()

    mutex = DistributedMutex(lease, duration=duration, on_lost=note_loss)
    async with asyncio.timeout(SCENARIO_SECONDS_MAX), running(mutex, work):
        await elected.wait()
        elected.clear()
        await asyncio.to_thread(stop)
        await lost.wait()
        await asyncio.to_thread(start)
        await elected.wait()
    return terms, reasons


async def wait_for_server(lease: Lease, duration: float, start: Callable[[], None]) -> int:
    """No server is there at first. Returns the term that the contender gets once there is one."""
    elected: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work(leadership: Leadership) -> None:
        elected.set_result(leadership.term)
        await asyncio.Event().wait()

    async with asyncio.timeout(SCENARIO_SECONDS_MAX), running(DistributedMutex(lease, duration=duration), work):
        # It contends on a thread of its own while this one waits for the server.
        start()
        return await elected
