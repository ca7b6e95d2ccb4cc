"""Waiters for changes of tasks: one poll of the store asks for all of a process, however many follow a task."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import InvalidInput, StoreError, UnknownTask
from ..system.loops import Loop, LoopGuard
from .ports import Ports, ProcessClock
from .result_waiters import ASK_SECONDS, ASK_SECONDS_MAX, ASK_TASKS_MAX, IDLE_PER_ASKED

if TYPE_CHECKING:  # only who opens a store pays for its operations
    from ..store.state_store import StateStore


class _Waiter:
    """One caller that waits until a task has another version than the one it knows."""

    def __init__(self, known: str | None, loop: asyncio.AbstractEventLoop) -> None:
        self.known = known
        self.future: asyncio.Future[str] = loop.create_future()


class ChangeWaiters:
    """All who follow tasks by way of one opening of an App.

    A version of a task is a text that changes with each of its commits, and with each value that it publishes.
    """

    def __init__(self, store: Callable[[], "StateStore"], ports: Callable[[], Ports]) -> None:
        self._store = store
        self._ports = ports
        self._waiters: dict[int, list[_Waiter]] = {}
        self._new: set[int] = set()
        self._asked = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._all_asked = False

    def look(self) -> None:
        """Ask the store now instead of at the next poll: another process may have changed something."""
        self._all_asked = True
        self._asked.set()

    async def wait(self, task_no: int, known: str | None) -> str:
        """Wait until a task has another version than ``known``; None: any. Returns: its version.

        Raises: UnknownTask - it was purged; InvalidInput - the App was closed.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(known, loop)
        self._waiters.setdefault(task_no, []).append(waiter)
        self._new.add(task_no)
        self._asked.set()
        if self._poller is None or self._poller.done():
            self._poller = loop.create_task(self._poll(), name="arriero-following")
        try:
            return await waiter.future
        finally:
            self._forget(task_no, waiter)

    def _forget(self, task_no: int, waiter: _Waiter) -> None:
        left = self._waiters.get(task_no)
        if left is not None and waiter in left:
            left.remove(waiter)
            if not left:
                del self._waiters[task_no]

    async def _poll(self) -> None:
        clock = self._ports().clock
        guard = LoopGuard(Loop.FOLLOWING, clock.monotonic)
        while self._waiters:
            with guard:
                await self._ask_repeatedly(clock)
            if guard.failed:
                self._all_asked = True
                await clock.idle(asyncio.Event(), ASK_SECONDS_MAX)

    async def _ask_repeatedly(self, clock: ProcessClock) -> None:
        """Ask about new waiters immediately, and about all of them now and then."""
        wait, all_at = ASK_SECONDS, clock.monotonic()
        while self._waiters:
            self._asked.clear()
            new, self._new = self._new, set()
            began_at = clock.monotonic()
            if began_at < all_at and not self._all_asked:
                await self._ask([number for number in sorted(new) if number in self._waiters])
            else:
                self._all_asked = False
                has_changed = await self._ask(sorted(self._waiters))
                spent = clock.monotonic() - began_at
                wait = ASK_SECONDS if has_changed else min(wait * 1.5, ASK_SECONDS_MAX)
                all_at = began_at + spent + max(wait, spent * IDLE_PER_ASKED)
            if not self._asked.is_set():
                await clock.idle(self._asked, max(all_at - clock.monotonic(), 0.0))

    async def _ask(self, numbers: Sequence[int]) -> bool:
        """Answer the waiters whose tasks have changed. Returns True if there were any."""
        any_changed = False
        for start in range(0, len(numbers), ASK_TASKS_MAX):
            some = numbers[start : start + ASK_TASKS_MAX]
            with suppress(StoreError):  # asked again; the caller has a separate timeout
                versions = await self._store().load_versions(some)
                for number in some:
                    any_changed = self._settle(number, versions.get(number)) or any_changed
        return any_changed

    def _settle(self, number: int, version: str | None) -> bool:
        waiting = [waiter for waiter in self._waiters.get(number, ()) if not waiter.future.done()]
        if version is None:
            for waiter in waiting:
                waiter.future.set_exception(UnknownTask("the task is no longer there: it was purged"))
            return False
        changed = [waiter for waiter in waiting if waiter.known != version]
        for waiter in changed:
            waiter.future.set_result(version)
        return bool(changed)

    async def close(self) -> None:
        """Stop asking, and raise in all waiters."""
        for waiters in list(self._waiters.values()):
            for waiter in waiters:
                if not waiter.future.done():
                    waiter.future.set_exception(InvalidInput("the App was closed while a task was followed"))
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            await asyncio.wait({poller})
        self._asked = asyncio.Event()  # the next opening may be on another loop
