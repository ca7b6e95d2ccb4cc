"""Waiters for changes of tasks: one poll of the store asks for all of a process, however many follow a task."""

from collections.abc import Sequence

from ..system.loops import Loop
from .result_waiters import TaskWaiters


class ChangeWaiters(TaskWaiters[str]):
    """All who follow tasks by way of one opening of an App.

    A version of a task is a text that changes with each of its commits, and with each value that it publishes.
    """

    _loop = Loop.FOLLOWING
    _closed = "the App was closed while a task was followed"

    async def wait(self, task_no: int, known: str | None) -> str:
        """Wait until a task has another version than ``known``; None: any. Returns: its version.

        Raises: UnknownTask - it was purged; InvalidInput - the App was closed.
        """
        waiter = self._enter(task_no, known)
        try:
            return await waiter
        finally:
            self._forget(task_no, waiter)

    async def _answer(self, numbers: Sequence[int]) -> bool:
        versions = await self._store().load_versions(numbers)
        return any([self._settle(number, versions.get(number)) for number in numbers])

    def _settle(self, number: int, version: str | None) -> bool:
        """Answer those of a task who know another version. Returns True if there were any."""
        if version is None:
            self._raise_purged(number)
            return False
        waiting = self._waiters.get(number, {}).items()
        changed = [waiter for waiter, known in waiting if known != version and not waiter.done()]
        for waiter in changed:
            waiter.set_result(version)
        return bool(changed)
