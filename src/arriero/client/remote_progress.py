"""Values that programs outside of Python publish by way of one gateway: of each attempt at most one a second is written."""

import asyncio
from collections.abc import Awaitable, Callable

from ..core.progress import STATUS_SECONDS
from ..runtime.ports import ProcessClock
from ..runtime.report_verdicts import AttemptIdentity

Write = Callable[[str], Awaitable[str]]  # writes a value as JSON text; answers with the verdict


class MergedValues:
    """The values of one attempt. A program that waits for the answer has its value, or a later one, in the store."""

    def __init__(self, clock: ProcessClock) -> None:
        self._clock = clock
        self._latest = ""
        self._next_at = clock.monotonic()
        self._waiting: asyncio.Task[str] | None = None  # a write that has not begun yet
        self._writing = asyncio.Lock()

    def is_idle(self) -> bool:
        """Returns True if nothing is written, and the next value would be written immediately."""
        return self._waiting is None and not self._writing.locked() and self._clock.monotonic() >= self._next_at

    async def publish(self, text: str, write: Write) -> str:
        """Write a value, or a later one in its place. Returns: the verdict. A caller that has gone stops no write."""
        self._latest = text
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._write(write), name="arriero-publishing")
            self._waiting.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )  # also if no caller waits
        return await asyncio.shield(self._waiting)

    async def _write(self, write: Write) -> str:
        async with self._writing:
            if (wait := self._next_at - self._clock.monotonic()) > 0:
                await self._clock.sleep(wait)
            self._waiting = None  # what comes from now on is written after this
            self._next_at = self._clock.monotonic() + STATUS_SECONDS
            return await write(self._latest)


class RemoteProgress:
    """The attempts that publish by way of this process."""

    def __init__(self) -> None:
        self._values: dict[AttemptIdentity, MergedValues] = {}

    def find(self, identity: AttemptIdentity, clock: ProcessClock) -> MergedValues:
        """Return the values of an attempt. Those of attempts that publish no more are forgotten."""
        self._values = {one: values for one, values in self._values.items() if one == identity or not values.is_idle()}
        return self._values.setdefault(identity, MergedValues(clock))
