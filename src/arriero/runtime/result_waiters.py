"""Waiters for the end of tasks: answered immediately by this process's own Scheduler, else by polling the store."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import InvalidInput, StoreError, UnknownTask
from ..store.contract import Ended
from ..system.loops import Loop, LoopGuard
from .ports import Ports, ProcessClock

if TYPE_CHECKING:  # only who opens a store pays for its operations
    from ..store.state_store import StateStore

ASK_SECONDS = 0.02
ASK_SECONDS_MAX = 0.25
ASK_TASKS_MAX = 500
REPORT_SECONDS = 3.0  # a process that starts now, or takes over, has its lease by then
REPORT_SECONDS_AGAIN = 60.0
IDLE_PER_ASKED = 4.0  # seconds of rest for each second that asking about all took


class ResultWaiters:
    """All waiters of one App; one poll asks for all of them.

    Args:
        is_driven: returns True if this process's own Scheduler holds a task. It reports the end by itself, so the store
            is rarely asked about such a task.
    """

    def __init__(
        self,
        store: Callable[[], "StateStore"],
        ports: Callable[[], Ports],
        is_driven: Callable[[int], bool],
    ) -> None:
        self._store = store
        self._ports = ports
        self._is_driven = is_driven
        # Logs if nobody runs the task that is awaited longest. It is called when a caller has waited for some seconds.
        self.report: Callable[[int], Awaitable[None]] | None = None
        self._waiters: defaultdict[int, set[asyncio.Future[Ended]]] = defaultdict(set)
        self._poller: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()  # a new caller waits: the task may have ended long ago
        self._report_at = 0.0  # set when the poll begins
        self._new: list[int] = []
        self._all_asked = False

    def settle(self, ended: Ended) -> None:
        """Answer the waiters of a task that has ended."""
        for waiter in self._waiters.pop(ended.task.task_no, set()):
            if not waiter.done():
                waiter.set_result(ended)

    def look(self) -> None:
        """Ask the store now instead of at the next poll: another process may have ended something."""
        self._all_asked = True
        self._asked.set()

    def list_awaited(self) -> frozenset[int]:
        """Numbers of the tasks that a caller waits for."""
        return frozenset(self._waiters)

    def is_awaited(self, task_no: int | None = None) -> bool:
        """Returns True if a task has waiters. ``task_no``: of the task; None: any task."""
        return bool(self._waiters) if task_no is None else task_no in self._waiters

    def give_up(self, error: Exception) -> None:
        """Raise an error in all waiters."""
        for waiters in list(self._waiters.values()):
            for waiter in list(waiters):
                if not waiter.done():
                    waiter.set_exception(error)

    async def wait_until_ended(self, task_no: int, limit: float | None) -> Ended:
        """Wait until a task has ended. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Ended] = loop.create_future()
        self._waiters[task_no].add(waiter)
        self._new.append(task_no)
        self._asked.set()
        if self._poller is None or self._poller.done():
            self._poller = loop.create_task(self._poll(), name="arriero-waiting")
        timer = None
        if limit is not None:
            late = TimeoutError(f"the task has not ended within {limit:g} s; it continues")
            timer = self._ports().clock.call_later(limit, lambda: None if waiter.done() else waiter.set_exception(late))
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(task_no, waiter)

    def _forget(self, task_no: int, waiter: "asyncio.Future[Ended]") -> None:
        left = self._waiters.get(task_no)
        if left is not None:
            left.discard(waiter)
            if not left:
                del self._waiters[task_no]

    async def _poll(self) -> None:
        """Ask about new waiters immediately, and about all of them now and then."""
        clock = self._ports().clock
        self._report_at = clock.monotonic() + REPORT_SECONDS
        guard = LoopGuard(Loop.WAITING, clock.monotonic)
        while self._waiters:
            with guard:
                await self._ask_repeatedly(clock)
            if guard.failed:
                self._all_asked = True  # those who had just come are asked about with all the others
                await clock.idle(asyncio.Event(), ASK_SECONDS_MAX)

    async def _ask_repeatedly(self, clock: ProcessClock) -> None:
        wait = ASK_SECONDS
        all_at = clock.monotonic()
        while self._waiters:
            if self._asked.is_set():
                self._asked.clear()
                wait = ASK_SECONDS
            new, self._new = self._new, []
            began_at = clock.monotonic()
            if new and began_at < all_at and not self._all_asked:
                await self._ask(self._list_driven_elsewhere(new))
            else:
                is_thorough = self._all_asked or wait >= ASK_SECONDS_MAX
                self._all_asked = False
                if await self._ask(list(self._waiters) if is_thorough else self._list_driven_elsewhere(self._waiters)):
                    wait = ASK_SECONDS
                elif wait >= ASK_SECONDS_MAX:
                    await self._settle_purged()
                    if began_at >= self._report_at:
                        self._report_at = began_at + REPORT_SECONDS_AGAIN
                        await self._report_longest_awaited()
                # With thousands who wait, asking takes its time: it must not take most of the process's.
                spent = clock.monotonic() - began_at
                all_at = began_at + spent + max(wait, spent * IDLE_PER_ASKED)
                wait = min(wait * 1.5, ASK_SECONDS_MAX)
            await clock.idle(self._asked, max(all_at - clock.monotonic(), 0.0))

    def _list_driven_elsewhere(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if not self._is_driven(number)]

    async def _ask(self, numbers: list[int]) -> bool:
        """Notify the waiters whose tasks have ended. Returns True if there were any."""
        any_ended = False
        for start in range(0, len(numbers), ASK_TASKS_MAX):
            with suppress(StoreError):  # asked again; the caller that waits has a separate timeout
                for ended in await self._store().load_ended(numbers[start : start + ASK_TASKS_MAX]):
                    self.settle(ended)
                    any_ended = True
        return any_ended

    async def _settle_purged(self) -> None:
        """Look if the task awaited longest was purged, because such a task never ends. The next call looks at the next one."""
        number = next(iter(self._waiters), None)
        if number is None:
            return
        with suppress(StoreError):
            gone = await self._store().load(number) is None
            waiters = self._waiters.pop(number, set())
            if not gone:
                if waiters:  # else all got their answer meanwhile: an empty entry would count as a caller who waits
                    self._waiters[number] |= waiters
                return
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(UnknownTask("the task is no longer there: it was purged"))

    async def _report_longest_awaited(self) -> None:
        """Report, while a caller waits, if no process runs the task awaited longest."""
        if self.report is not None and self._waiters:
            with suppress(StoreError):
                await self.report(next(iter(self._waiters)))

    async def close(self) -> None:
        """Stop asking, and raise in all waiters."""
        self.give_up(InvalidInput("the App was closed while a result was waited for; the task continues"))
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            await asyncio.wait({poller})
        self._asked = asyncio.Event()  # the next opening may be on another loop
