"""An App that is open in a background thread, for callers without an event loop; forks and the interpreter's exit.

One lock is held to open an App, to close it, to begin a call, and during a fork: no call begins while a process forks.
"""

import asyncio
import concurrent.futures.thread  # for its order: what it does at the interpreter's exit must follow what we do there
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from ..errors import InvalidInput
from ..runtime.shutdown import CANCELLED_SECONDS_MAX
from ..system.loops import drop_silently
from .replies import Replies
from .session import Session

if TYPE_CHECKING:
    from ..store.state_store import StateStore

P = ParamSpec("P")
T = TypeVar("T")

FORK_SECONDS = 1.0  # that a fork waits for running calls
CLOSE_SECONDS = 5.0  # that a fork, or the interpreter's exit, waits for an App to close
_END: Any = object()

_lock = threading.Lock()
_forking: int | None = None  # the thread that holds the lock for its fork
_open: set["BackgroundSession"] = set()  # those with a background thread


class BackgroundLoop:
    """A daemon thread with an event loop. Contexts entered in it stay open until they are left or the thread is closed."""

    def __init__(self, name: str) -> None:
        self.process = os.getpid()
        self.calls: set[Future[Any]] = set()  # running
        self.entered: list[AbstractAsyncContextManager[Any]] = []
        self._leaving: set[asyncio.Task[Any] | None] = set()
        self.loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._closed.wait())
            self.loop.run_until_complete(self._end())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    async def _end(self) -> None:
        """End the loop as ``asyncio.Runner`` does, but without waiting forever for tasks that swallow their cancellation."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=CANCELLED_SECONDS_MAX)
        for task in left:
            drop_silently(task)  # it was reported when it was left behind
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        call = asyncio.run_coroutine_threadsafe(work, self.loop)
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)
        return call

    async def enter(self, manager: AbstractAsyncContextManager[Any]) -> None:
        """Enter a context; on the loop."""
        await manager.__aenter__()
        self.entered.append(manager)

    async def leave(self, *managers: AbstractAsyncContextManager[Any]) -> None:
        """Leave these contexts as far as they were entered; without any, all. On the loop."""
        leaving = asyncio.current_task()
        self._leaving.add(leaving)
        try:
            async with AsyncExitStack() as stack:
                for manager in managers or tuple(self.entered):
                    if manager in self.entered:
                        self.entered.remove(manager)
                        stack.push_async_exit(manager)
        finally:
            self._leaving.discard(leaving)

    async def _leave_all(self) -> None:
        """Leave all contexts, after those that are being left already: a cancelled drain still has to drop what it held."""
        if waited := [task for task in self._leaving if task is not None]:
            await asyncio.wait(waited)
        await self.leave()

    def close(self, limit: float | None) -> None:
        """Cancel the running calls, leave all contexts, end the thread. Raises what leaving raised; TimeoutError."""
        for call in tuple(self.calls):
            call.cancel()
        try:
            self.begin(self._leave_all()).result(limit)
        finally:
            self.loop.call_soon_threadsafe(self._closed.set)
            self._thread.join(limit)


class BackgroundSession:
    """Calls of many threads to one App, on a loop in the background; the first call opens the App there."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._loop: BackgroundLoop | None = None
        self._users = 0  # ``with`` blocks

    # --- calling
    def call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the background and wait for it; its errors are raised here."""
        self._refuse_on_a_loop()
        with _lock:
            call = self._open_loop().begin(function(*args, **kwargs))
        return self._wait_for_result(call)

    def call_closed(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the calling thread, on a loop that is made for it; the App is not opened."""
        self._refuse_on_a_loop()
        return asyncio.run(function(*args, **kwargs))

    def open(self) -> "StateStore":
        """Open the App for work in the calling thread. Returns its store. Raises as a call does."""
        self._refuse_on_a_loop()
        with _lock:
            return self.session.openings.find(self._open_loop().loop).find_store()

    def _refuse_on_a_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InvalidInput(
            f"app.sync of App {self.session.app} was called on an event loop, which it would block: await the App's own "
            "methods there, like `await app.submit(...)`"
        )

    def _wait_for_result(self, call: Future[T]) -> T:
        try:
            return call.result()
        except CancelledError:
            raise InvalidInput(
                f"app.sync of App {self.session.app} was closed while a call waited: leave `with app.sync` after the last one"
            ) from None
        except BaseException:
            call.cancel()  # the waiting was interrupted; a call that has ended is not changed by it
            raise

    # --- opening and closing
    def enter(self) -> None:
        """Begin a ``with`` block: keep the App open as a client, also while roles run, because they may be left first."""
        self._refuse_on_a_loop()
        with _lock:
            self._open_loop(as_client=True)
            self._users += 1

    def run(self, roles: AbstractAsyncContextManager[None]) -> None:
        """Begin a ``with`` block that runs roles."""
        self._refuse_on_a_loop()
        with _lock:
            loop = self._ensure_loop()
            self._users += 1
            call = loop.begin(loop.enter(roles))
        try:
            self._wait_for_result(call)
        except BaseException:
            self.leave(roles)
            raise

    def leave(self, *roles: AbstractAsyncContextManager[None]) -> None:
        """End a ``with`` block; the last one closes the App."""
        try:
            with _lock:
                loop = self._find_own_loop()
                call = loop.begin(loop.leave(*roles)) if roles and loop is not None else None
            if call is not None:
                self._wait_for_result(call)
        finally:
            with _lock:
                self._users -= 1
                if not self._users:
                    self._close()

    def release(self, limit: float, *, drain: bool) -> None:
        """Close if no call is running after the limit; if roles run, only with ``drain``. Under the lock."""
        loop = self._find_own_loop()
        if loop is None or self.session.openings.find(loop.loop).is_in_memory:
            return
        runs = any(manager is not self.session for manager in loop.entered)
        if drain if runs else not concurrent.futures.wait(loop.calls, limit).not_done:
            self._close(CLOSE_SECONDS)

    def _find_own_loop(self) -> BackgroundLoop | None:
        """The background thread, if there is one; the one of a parent is not in its child. Under the lock."""
        return self._loop if self._loop is not None and self._loop.process == os.getpid() else None

    def _open_loop(self, *, as_client: bool = False) -> BackgroundLoop:
        """The background thread, with the App open in it. Under the lock."""
        loop = self._ensure_loop()
        if self.session not in loop.entered if as_client else not loop.entered:
            try:
                self._wait_for_result(loop.begin(loop.enter(self.session)))
            except BaseException:
                if not self._users:
                    self._close()
                raise
        return loop

    def _ensure_loop(self) -> BackgroundLoop:
        """The background thread; a new one, if there is none. Under the lock."""
        loop = self._find_own_loop()
        if loop is None:
            loop = self._loop = BackgroundLoop(f"arriero-sync-{self.session.app}")
            _open.add(self)
        return loop

    def _close(self, limit: float | None = None) -> None:
        """End the background thread. Under the lock."""
        loop = self._find_own_loop()
        if loop is not None:
            self._loop = None
            _open.discard(self)
            loop.close(limit)


class BackgroundReading(Generic[T]):
    """Position in an async iterator of the App. An iterator lasts as long as the App is open.

    Args:
        make: the iterator, on the loop.
        may_begin_again: if the App was closed and opened meanwhile, as by a fork; else that is an error.
    """

    def __init__(
        self, background: BackgroundSession, make: Callable[[], AsyncIterator[T]], *, may_begin_again: bool = False
    ) -> None:
        self._background = background
        self._make = make
        self._may_begin_again = may_begin_again
        self._items: AsyncIterator[T] | None = None
        self._store: object = None
        self._last: T = _END
        self._repeated: T = _END  # what a new iterator may give again

    def each(self, limit: float | None = None) -> Iterator[T]:
        """The items. ``limit``: seconds; it ends when none came for so long."""
        while (item := self._background.call(self._read_next, limit)) is not _END:
            yield item

    async def begin(self) -> AsyncIterator[T]:
        """The iterator, made if there is none. Raises what making it raises; InvalidInput - the App was closed."""
        session = self._background.session
        store = session.store
        if self._items is None or (self._store is not store and self._may_begin_again):
            self._items, self._store, self._repeated = self._make(), store, self._last
        elif self._store is not store:
            raise InvalidInput(
                f"app.sync of App {session.app} was closed, by a fork or by leaving it, while its tasks were looked "
                "through: make a list of them first"
            )
        return self._items

    async def _read_next(self, limit: float | None) -> T:
        """Read the next item; ``_END`` after the last, and if none came in time."""
        items = await self.begin()
        item = await _next(items, limit)
        if item is not _END and item == self._repeated:
            item = await _next(items, limit)
        self._last, self._repeated = item, _END
        return item


async def _next(items: AsyncIterator[T], limit: float | None) -> T:
    try:
        async with asyncio.timeout(limit) as patience:
            return await anext(items, _END)
    except TimeoutError:
        if not patience.expired():
            raise
    ready: Any = await items.next_ready() if isinstance(items, Replies) else None  # however short the limit is
    return _END if ready is None else ready  # type: ignore[no-any-return]  # the caller distinguishes it from every item


# --- forks and the interpreter's exit
def _release_all(limit: float, *, drain: bool) -> None:
    for background in tuple(_open):
        with suppress(Exception):  # it is closed as far as it could be; the fork or the exit continues
            background.release(limit, drain=drain)


def _before_fork() -> None:
    """Close the Apps: a child that inherits an open SQLite file takes no lock on it when it opens it again, and loses commits."""
    global _forking
    if _lock.acquire(timeout=FORK_SECONDS):
        _forking = threading.get_ident()
        _release_all(FORK_SECONDS, drain=False)


def _after_fork_in_parent() -> None:
    global _forking
    if _forking == threading.get_ident():
        _forking = None
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _forking
    _lock, _forking = threading.Lock(), None


def _at_exit() -> None:
    """Drain and close when the main thread has ended. What a call still uses stays open, and nothing is lost."""
    if _lock.acquire(timeout=CLOSE_SECONDS):
        try:
            _release_all(0, drain=True)
        finally:
            _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
# Not ``atexit``, which comes too late: closing needs a pool of threads, and no pool takes work once this has been called.
# It refuses once the main thread has ended; a front that is first used then is closed by the one who opened it.
with suppress(RuntimeError):
    threading._register_atexit(_at_exit)  # type: ignore[attr-defined]  # the standard library's own, for such pools
