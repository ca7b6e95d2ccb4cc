"""Ports for time, chance and threads. Everything in the runtime that waits or draws goes through these.

The simulator and ``arriero.testing`` replace them; nothing else in the runtime differs there.
"""

import asyncio
import contextvars
import os
import random
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait  # not later: it cannot be loaded once the main thread has ended
from contextlib import suppress
from time import time_ns
from types import FrameType
from typing import Any, Protocol, TypeVar

from ..system.boot_clock import seconds_since_boot

T = TypeVar("T")
LOOK_SECONDS = 1.0  # between looks whether the event loop that a thread waits for was closed


class Timer(Protocol):
    """A callback that is due later and can be cancelled until then."""

    def cancel(self) -> None: ...


class ProcessClock(Protocol):
    """A process's own time; the store has its own."""

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event, at most so long: what a loop does between two passes. Need not be waited out."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...


class Ports(Protocol):
    """All ports together."""

    clock: ProcessClock
    random: random.Random

    def new_instance(self) -> str:
        """Make an id for one process start, never used before."""
        ...

    def new_task_id(self) -> str:
        """Make an id for a task without one; later ones sort after earlier ones."""
        ...

    async def run_in_thread(self, pool: str, size: int, function: Callable[[], T], on_done: Callable[[], None]) -> T:
        """Run a plain function in a thread; ``on_done`` is called when it has ended, even if nobody waits any longer."""
        ...

    def wait_in_thread(self, loop: asyncio.AbstractEventLoop, asked: Coroutine[Any, Any, T]) -> T:
        """Wait in a thread of ``run_in_thread`` for a coroutine, which ``loop`` carries out. Raises RuntimeError - it is closed."""
        ...

    async def start_child(self) -> "ChildProcess":
        """Start a child process for one call of a step. Raises OSError. Never called where ``runs_inline``."""
        ...

    @property
    def runs_inline(self) -> bool:
        """Returns True if ``run_in_thread`` blocks the event loop until the function has ended, as in tests."""
        ...

    def keep(self, renewals: Callable[[], Coroutine[Any, Any, None]]) -> "Keeper":
        """Run the renewals of a process's lease off the event loop."""
        ...

    def watch(self, look: "Look", seconds: float) -> "Keeper | None":
        """Call ``look`` every that many seconds off the event loop, which it looks at; None where no time passes."""
        ...


class ChildProcess(Protocol):
    """A child process that runs one call of a step (``runtime.child_main``)."""

    async def send(self, line: bytes) -> None:
        """Send a line. If it has died, nothing happens."""
        ...

    async def read_line(self) -> bytes:
        """Wait for a line; empty once it has ended."""
        ...

    async def wait(self) -> int:
        """Wait for its end. Returns its exit code, below 0 the signal that ended it."""
        ...

    async def kill(self) -> None:
        """Kill it with SIGKILL, and what it has started; nothing happens if it has ended."""
        ...


Look = Callable[[Callable[[], FrameType | None]], None]  # it is given how to find out where the loop's thread is


class Keeper(Protocol):
    """Work off the event loop."""

    def is_alive(self) -> bool: ...

    async def stop(self) -> None: ...


class LoopClock:
    """The machine's time since boot, suspended time included: a deadline that passed while it slept has passed.

    The event loop's timers are blocked in that time, so the one who sends looks at this clock before each try.

    Not asked of the running loop: a coroutine that is collected runs its ``finally`` wherever that happens, also while
    workflow code is on its own loop, which has no clock to give.
    """

    monotonic = staticmethod(seconds_since_boot)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await event.wait()
        except TimeoutError:
            pass

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(seconds, 0), callback)


class ThreadKeeper:
    """Renewals in a thread with a separate loop, so that a busy event loop does not cost a lease."""

    def __init__(self, renewals: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._renewals = renewals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="arriero-lease", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.create_task(self._renewals())
            with suppress(asyncio.CancelledError):
                await self._task

        asyncio.run(main())

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def stop(self) -> None:
        while self._thread.is_alive() and self._task is None:
            await asyncio.to_thread(self._thread.join, 0.01)
        if self._loop is not None and self._task is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # it ended by itself just now
                self._loop.call_soon_threadsafe(self._task.cancel)
        await asyncio.to_thread(self._thread.join)


class TaskKeeper:
    """Renewals as a task on the loop of the work, where no time passes outside of it."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self._task = task

    def is_alive(self) -> bool:
        return not self._task.done()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class ThreadWatch:
    """Watches, in a thread, the event loop on which it is made."""

    def __init__(self, look: Look, seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._watched = threading.get_ident()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arriero-loop-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(self._seconds):
            self._look(lambda: sys._current_frames().get(self._watched))

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def stop(self) -> None:
        self._is_over.set()
        await asyncio.to_thread(self._thread.join)


class SystemPorts:
    """The real machine."""

    def __init__(self) -> None:
        self.clock: ProcessClock = LoopClock()
        self.random = random.Random(secrets.randbits(64))
        self._pid = os.getpid()
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def new_instance(self) -> str:
        host = "".join(c if c.isascii() and c.isalnum() else "-" for c in socket.gethostname())[:40]
        return f"{host.lstrip('-') or 'host'}-{os.getpid()}-{secrets.token_hex(6)}"

    def new_task_id(self) -> str:
        if os.getpid() != self._pid:  # a forked process must not draw what its parent draws
            self._pid = os.getpid()
            self.random.seed(secrets.randbits(64))
        # Not from the system's source: asking that gives up the interpreter's lock, thousands of times a second.
        return f"{time_ns() // 1000:013x}{self.random.getrandbits(40):010x}"

    async def run_in_thread(self, pool: str, size: int, function: Callable[[], T], on_done: Callable[[], None]) -> T:
        executor = self._pools.get(pool)
        if executor is None:  # of two event loops that come first, both get the same one
            executor = ThreadPoolExecutor(size, thread_name_prefix=f"arriero-{pool}")
            executor = self._pools.setdefault(pool, executor)
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        is_wanted = True

        def run() -> tuple[Any, BaseException | None]:
            # What the function raises is handed over as a value: asyncio makes a new TimeoutError of one that a future
            # holds, without its traceback.
            if not is_wanted:
                return None, RuntimeError("no caller waits for the function any longer")
            try:
                return context.run(function), None
            except BaseException as error:
                return None, error

        try:
            future = executor.submit(run)
        except BaseException:  # no thread could be started, but the pool may keep the function for the next one
            is_wanted = False
            on_done()
            raise

        def tell(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed; nobody counts any longer
                loop.call_soon_threadsafe(on_done)

        future.add_done_callback(tell)
        value, raised = await asyncio.wrap_future(future)
        if isinstance(raised, StopIteration):  # a coroutine must not raise it
            raise RuntimeError("StopIteration left the function") from raised
        if raised is not None:
            try:
                raise raised
            finally:
                raised = None  # else it and this frame would keep each other alive
        return value  # type: ignore[no-any-return]  # what the function gave

    runs_inline = False

    async def start_child(self) -> ChildProcess:
        from .system_child import SystemChild  # it loads what few programs need

        return await SystemChild.start()

    def wait_in_thread(self, loop: asyncio.AbstractEventLoop, asked: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(asked, loop)
        except RuntimeError:
            asked.close()
            raise
        while not future.done():  # in slices: a loop that is closed notifies no waiter
            wait((future,), LOOK_SECONDS)
            if loop.is_closed() and not future.done():
                raise RuntimeError("the event loop is closed")
        return future.result()

    def keep(self, renewals: Callable[[], Coroutine[Any, Any, None]]) -> Keeper:
        return ThreadKeeper(renewals)

    def watch(self, look: Look, seconds: float) -> Keeper:
        return ThreadWatch(look, seconds)

    def close(self) -> None:
        """Let go of the thread pools without waiting for functions that outlived their deadline."""
        pools, self._pools = self._pools, {}  # in one step: another event loop may ask for a pool
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
