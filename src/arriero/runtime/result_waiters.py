"""Waiters for tasks: one poll of the store asks for all of a process. Those for the end of tasks are here."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from ..errors import InvalidInput, StoreError, UnknownTask
from ..store.contract import Ended
from ..system.loops import Loop, LoopGuard
from .ports import Ports, ProcessClock

if TYPE_CHECKING:  # only who opens a store pays for its operations
    from ..store.state_store import StateStore

T = TypeVar("T")

ASK_SECONDS = 0.02
ASK_SECONDS_MAX = 0.25
ASK_TASKS_MAX = 500
REPORT_SECONDS = 3.0  # a process that starts now, or takes over, has its lease by then
REPORT_SECONDS_AGAIN = 60.0
IDLE_PER_ASKED = 4.0  # seconds of rest for each second that asking about all took


class TaskWaiters(Generic[T]):
    """All who wait for news of tasks by way of one opening of an App; one poll asks for all of them.

    A subclass says what is asked, and what ``close`` raises in those who still wait.

    Args:
        is_driven: returns True if this process hears of a task without asking: the store is rarely asked about such a task.
    """

    _loop: ClassVar[Loop]
    _closed: ClassVar[str]

    def __init__(
        self,
        store: Callable[[], "StateStore"],
        ports: Callable[[], Ports],
        is_driven: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._ports = ports
        self._is_driven = is_driven
        # By task, with what each knows of it already; None: nothing.
        self._waiters: dict[int, dict[asyncio.Future[T], str | None]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()  # a new caller waits: what it waits for may have happened long ago
        self._new: list[int] = []
        self._all_asked = False

    def look(self) -> None:
        """Ask the store now instead of at the next poll: another process may have changed something."""
        self._all_asked = True
        self._asked.set()

    def give_up(self, error: Exception) -> None:
        """Raise an error in all waiters."""
        for task_no in list(self._waiters):
            self._raise(task_no, error)

    def _raise(self, task_no: int, error: Exception) -> None:
        for waiter in list(self._waiters.get(task_no, ())):
            if not waiter.done():
                waiter.set_exception(error)

    def _raise_purged(self, task_no: int) -> None:
        self._raise(task_no, UnknownTask("the task is no longer there: it was purged"))

    def _enter(self, task_no: int, known: str | None = None) -> asyncio.Future[T]:
        """Begin to wait for a task; who does so calls ``_forget`` at the end."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        self._waiters.setdefault(task_no, {})[waiter] = known
        self._new.append(task_no)
        self._asked.set()
        if self._poller is None or self._poller.done():
            self._poller = loop.create_task(self._poll(), name=f"arriero-{self._loop}")
        return waiter

    def _forget(self, task_no: int, waiter: asyncio.Future[T]) -> None:
        left = self._waiters.get(task_no)
        if left is not None:
            left.pop(waiter, None)
            if not left:
                del self._waiters[task_no]

    async def _poll(self) -> None:
        clock = self._ports().clock
        guard = LoopGuard(self._loop, clock.monotonic)
        while self._waiters:
            with guard:
                await self._ask_repeatedly(clock)
            if guard.failed:
                self._all_asked = True  # those who had just come are asked about with all the others
                await clock.idle(asyncio.Event(), ASK_SECONDS_MAX)

    async def _ask_repeatedly(self, clock: ProcessClock) -> None:
        """Ask about new waiters immediately, and about all of them now and then."""
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
                is_told, self._all_asked = self._all_asked, False
                if await self._ask_about_all(is_told=is_told, is_slow=wait >= ASK_SECONDS_MAX):
                    wait = ASK_SECONDS
                # With thousands who wait, asking takes its time: it must not take most of the process's.
                spent = clock.monotonic() - began_at
                all_at = began_at + spent + max(wait, spent * IDLE_PER_ASKED)
                wait = min(wait * 1.5, ASK_SECONDS_MAX)
            await clock.idle(self._asked, max(all_at - clock.monotonic(), 0.0))

    async def _ask_about_all(self, *, is_told: bool, is_slow: bool) -> bool:
        """Ask about all. Returns True if there was an answer for any.

        Args:
            is_told: ``look`` was called.
            is_slow: nothing has happened for some time.
        """
        numbers = list(self._waiters)
        return await self._ask(numbers if is_told or is_slow else self._list_driven_elsewhere(numbers))

    def _list_driven_elsewhere(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if not self._is_driven(number)]

    async def _ask(self, numbers: Sequence[int]) -> bool:
        """Answer the waiters of some tasks, as far as there is an answer. Returns True if there was any."""
        any_answered = False
        for start in range(0, len(numbers), ASK_TASKS_MAX):
            with suppress(StoreError):  # asked again; the caller that waits has a separate timeout
                any_answered = await self._answer(numbers[start : start + ASK_TASKS_MAX]) or any_answered
        return any_answered

    async def _answer(self, numbers: Sequence[int]) -> bool:
        """Answer the waiters of some tasks, at most ``ASK_TASKS_MAX``. Raises StoreError."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop asking, and raise in all waiters."""
        self.give_up(InvalidInput(self._closed))
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            await asyncio.wait({poller})
        self._asked = asyncio.Event()  # the next opening may be on another loop


class ResultWaiters(TaskWaiters[Ended]):
    """All who wait for the ends of tasks: answered immediately by this process's own Scheduler, else by the poll."""

    _loop = Loop.WAITING
    _closed = "the App was closed while a result was waited for; the task continues"

    # Logs if nobody runs the task that is awaited longest. It is called when a caller has waited for some seconds.
    report: Callable[[int], Awaitable[None]] | None = None
    _report_at = 0.0  # set when the poll begins

    def settle(self, ended: Ended) -> None:
        """Answer the waiters of a task that has ended."""
        for waiter in self._waiters.pop(ended.task.task_no, ()):
            if not waiter.done():
                waiter.set_result(ended)

    def list_awaited(self) -> frozenset[int]:
        """Numbers of the tasks that a caller waits for."""
        return frozenset(self._waiters)

    def is_awaited(self, task_no: int | None = None) -> bool:
        """Returns True if a task has waiters. ``task_no``: of the task; None: any task."""
        return bool(self._waiters) if task_no is None else task_no in self._waiters

    async def wait_until_ended(self, task_no: int, limit: float | None) -> Ended:
        """Wait until a task has ended, in its last run. Raises TimeoutError."""
        clock = self._ports().clock
        give_up_at = None if limit is None else clock.monotonic() + limit
        while True:
            left = None if give_up_at is None else max(give_up_at - clock.monotonic(), 0.0)
            ended = await self._wait_until_run_ended(task_no, limit, left)
            if ended.task.next_no is None:
                return ended
            task_no = ended.task.next_no

    async def _wait_until_run_ended(self, task_no: int, limit: float | None, left: float | None) -> Ended:
        """Wait until a run has ended. ``limit``: as asked for; ``left``: of it. Raises TimeoutError."""
        waiter = self._enter(task_no)
        timer = None
        if limit is not None:
            late = TimeoutError(f"the task has not ended within {limit:g} s; it continues")
            timer = self._ports().clock.call_later(
                left or 0.0, lambda: None if waiter.done() else waiter.set_exception(late)
            )
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(task_no, waiter)

    async def _poll(self) -> None:
        self._report_at = self._ports().clock.monotonic() + REPORT_SECONDS
        await super()._poll()

    async def _ask_about_all(self, *, is_told: bool, is_slow: bool) -> bool:
        began_at = self._ports().clock.monotonic()
        if await super()._ask_about_all(is_told=is_told, is_slow=is_slow):
            return True
        if is_slow:
            await self._settle_purged()
            if began_at >= self._report_at:
                self._report_at = began_at + REPORT_SECONDS_AGAIN
                await self._report_longest_awaited()
        return False

    async def _answer(self, numbers: Sequence[int]) -> bool:
        found = await self._store().load_ended(numbers)
        for ended in found:
            self.settle(ended)
        return bool(found)

    async def _settle_purged(self) -> None:
        """Look if the task awaited longest was purged, because such a task never ends. The next call looks at the next one."""
        number = next(iter(self._waiters), None)
        if number is None:
            return
        with suppress(StoreError):
            if await self._store().load(number) is None:
                self._raise_purged(number)
            elif number in self._waiters:  # else all got their answer meanwhile
                self._waiters[number] = self._waiters.pop(number)  # now it is the last one

    async def _report_longest_awaited(self) -> None:
        """Report, while a caller waits, if no process runs the task awaited longest."""
        if self.report is not None and self._waiters:
            with suppress(StoreError):
                await self.report(next(iter(self._waiters)))
