"""A thread that owns a connection and runs functions on it in order; urgent ones first."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from ..errors import StoreError
from ..system.loops import Loop, LoopGuard

T = TypeVar("T")


class Closes(Protocol):
    """A connection, as far as the thread needs to know it."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closes)
_Call = tuple[Callable[[C], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class ConnectionThread(Generic[C]):
    """Thread that owns a connection and runs functions on it.

    Args:
        name: of the thread.
        connect: makes the connection, in the thread.
        between: run after each function, for upkeep.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], C],
        between: Callable[[C], None] | None = None,
    ) -> None:
        self._connect = connect
        self._connection: C | None = None  # the thread's
        self._between = between
        self._calls: deque[_Call[C]] = deque()
        self._urgent: deque[_Call[C]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._guard = LoopGuard(Loop.STORE_THREAD, time.monotonic)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[[C], T], *, urgent: bool = False) -> T:
        """Run a function on the connection; its result or error is ours."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._wake:
            if self._closing:
                raise StoreError("the store is closed")
            (self._urgent if urgent else self._calls).append((function, loop, future))
            self._wake.notify()
        return await future

    def end(self) -> None:
        """Take nothing more; the thread runs what was asked for, closes the connection and ends by itself."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    async def close(self) -> None:
        """Run what was asked for, then close the connection."""
        self.end()
        await asyncio.to_thread(self._thread.join)

    def wait(self, seconds: float) -> None:
        """Wait in the thread for at most that many seconds. An urgent call that arrives meanwhile is run."""
        with self._wake:
            if not self._urgent:
                self._wake.wait(seconds)
            call = self._urgent.popleft() if self._urgent else None
        if call is not None:
            self._serve(call)

    def is_alive(self) -> bool:
        """Returns True if the thread runs what is asked for."""
        return self._thread.is_alive()

    def _next(self) -> "_Call[C] | None":
        with self._wake:
            while not self._urgent and not self._calls:
                if self._closing:
                    return None
                self._wake.wait()
            return (self._urgent or self._calls).popleft()

    def _run(self) -> None:
        try:
            while (call := self._next()) is not None:
                with self._guard:
                    self._serve(call)
                    if self._between is not None and self._connection is not None:
                        self._between(self._connection)
        finally:  # whatever ended it: nobody waits for a thread that no longer exists
            self.end()
            for _, loop, future in (*self._urgent, *self._calls):
                _answer(loop, future, None, StoreError("the store's thread has ended: open the App again"))
            if self._connection is not None:
                with self._guard:
                    self._connection.close()

    def _serve(self, call: "_Call[C]") -> None:
        function, loop, future = call
        result, error = None, None
        try:
            if self._connection is None:
                self._connection = self._connect()
            result = function(self._connection)
        except BaseException as raised:  # whatever it is, it is the caller's
            error = raised
        _answer(loop, future, result, error)


def _answer(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", result: Any, error: BaseException | None
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):  # a future refuses it, and the caller would wait indefinitely
            future.set_exception(RuntimeError(f"the store raised {error!r}"))
        else:
            future.set_exception(error)

    with suppress(RuntimeError):  # the caller's loop no longer exists, and with it the one who waited
        loop.call_soon_threadsafe(settle)
