"""The small event loop on which workflow code runs: it knows only ``call_soon``.

Between two deliveries the code runs until nothing is ready. Whatever asyncio offers beyond that (timers, sockets,
threads) has no record to replay from, so asking for it is refused by name, with the remedy.
"""

import asyncio
import gc
import sys
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import cache
from types import FrameType
from typing import Any, NoReturn

from ..errors import ForbiddenInWorkflow
from ..system.loops import drop_silently

RUNS_MAX = 1_000_000  # callbacks between two deliveries: beyond it the code spins without waiting for anything
REFUSALS_MAX = 100  # refusals the code may swallow; then it is cancelled, which `except Exception` does not swallow
CLOSES_MAX = 100  # how often code that awaits while it is being dropped is dropped again

_TIMER = "a timer (asyncio.sleep, timeout, wait_for): use `await arriero.sleep(...)`, or complete_within= on the step"
_REMEDIES = {
    "call_later": _TIMER,
    "call_at": _TIMER,
    "time": "the loop's clock (asyncio.timeout): use `arriero.now()`, or complete_within= on the step",
    "run_in_executor": "a thread: move the call into a step",
    "call_soon_threadsafe": "another thread: move the call into a step",
}


# What the interpreter announces of calls that block; asked for by workflow code they are refused like awaited ones.
_BLOCKING = {
    "socket.connect": "a socket: move the call into a step",
    "socket.bind": "a socket: move the call into a step",
    "socket.sendto": "a socket: move the call into a step",
    "socket.getaddrinfo": "a socket: move the call into a step",
    "socket.gethostbyname": "a socket: move the call into a step",
    "subprocess.Popen": "a process: move the call into a step",
    "os.system": "a process: move the call into a step",
    # Announced from Python 3.13 on; before that nobody can know.
    "time.sleep": "a pause of the whole process: use `await arriero.sleep(...)`",
}


# Modules that watch a program and decide nothing in it: what they do is not what the workflow does. Instrumentation is not
# among them, because its frames are around the calls of the workflow's own code.
_OBSERVERS = ("logging", "loguru", "structlog", "opentelemetry.sdk", "opentelemetry.exporter", "sentry_sdk.transport")


def _is_called_by_observer(frame: FrameType | None) -> bool:
    """Returns True if a log handler or a span exporter made a call, between the workflow's code and ``frame``."""
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module == __name__:  # the loop: what is above it is not the workflow's code
            return False
        if module.startswith(_OBSERVERS) and any(module == one or module.startswith(f"{one}.") for one in _OBSERVERS):
            return True
        frame = frame.f_back
    return False


@cache
def _install_audit_hook() -> None:
    """Hear of blocking calls from now on; a hook cannot be taken back, so it is set by the first workflow that runs."""
    # Bind the names here: the interpreter calls the hook until its end, when the module has lost them.
    from .workflow_warnings import NOTICED, warn_of_event  # only here: importing arriero should stay fast

    remedies, get_running_loop, loop_class = (
        {**_BLOCKING, **dict.fromkeys(NOTICED, "")},
        events._get_running_loop,
        WorkflowLoop,
    )
    get_frame, is_called_by_observer, warn = sys._getframe, _is_called_by_observer, warn_of_event

    def hear_call(event: str, details: Any) -> None:
        remedy = remedies.get(event)
        if remedy is None or not isinstance(loop := get_running_loop(), loop_class):
            return
        if is_called_by_observer(get_frame(1)):
            return
        if remedy:
            loop.refuse(f"workflow code called {event}, that is {remedy}")
        else:
            warn(event, details, get_frame(1))

    sys.addaudithook(hear_call)


class WorkflowTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks (asyncio.wait) iterate alike in every replay."""

    def __init__(self, number: int, coro: Any, **kwargs: Any) -> None:
        self.number = number  # before the base: that puts us into asyncio's own set of all tasks
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self.number


class WorkflowFuture(asyncio.Future[Any]):
    """A future whose hash is its number, for the same reason."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class WorkflowLoop(asyncio.AbstractEventLoop):
    """Event loop on which workflow code runs. ``workflow_run`` is what call values find when they are awaited.

    Args:
        seed: of the task, the same in every replay. Hashes grow from it: asyncio keeps one set of all tasks of all
            workflows in the process, in which equal hashes would make each new task compare itself with all others.
    """

    def __init__(self, workflow_run: Any, seed: int) -> None:
        _install_audit_hook()
        self.workflow_run = workflow_run
        self.violation: ForbiddenInWorkflow | None = None
        self._refusals = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._number = (seed % 2**40) << 16  # small sets still iterate in the order of creation
        self._tasks: list[WorkflowTask] = []
        self._closed = False

    # --- what asyncio's futures and tasks need
    get_debug = staticmethod(bool)  # False; asyncio asks for every handle, task and future

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]  # the base has TypeVarTuple
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        future = WorkflowFuture(loop=self)
        self._number += 1
        future.number = self._number
        return future

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **kwargs: Any
    ) -> asyncio.Task[Any]:
        self._number += 1
        task = WorkflowTask(self._number, coro, loop=self, name=name or "step", context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task nobody awaited failed: what it did is in the record, and only what the code returns decides."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    # --- running
    def run_ready(self) -> None:
        """Run until nothing is ready. Raises ForbiddenInWorkflow when the code spins."""
        outer = self._enter()
        collects = gc.isenabled()
        gc.disable()  # a finalizer of another user's object must not meet our loop
        try:
            for _ in range(RUNS_MAX):
                if not self._ready:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
            raise ForbiddenInWorkflow(f"workflow code ran {RUNS_MAX:,} callbacks without awaiting a step: it spins")
        finally:
            self._leave(*outer)
            if collects:
                gc.enable()

    def _enter(self) -> tuple[Any, Any, Any]:
        """Put the loop that runs us aside: for the code there is only this one."""
        outer = events._get_running_loop()
        outer_task = None if outer is None else tasks.current_task(outer)
        if outer_task is not None:
            tasks._leave_task(outer, outer_task)  # type: ignore[arg-type]  # a task has a loop
        events._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, self._on_generator_left)
        return outer, outer_task, hooks

    @staticmethod
    def _leave(outer: Any, outer_task: Any, hooks: Any) -> None:
        sys.set_asyncgen_hooks(*hooks)
        events._set_running_loop(outer)
        if outer_task is not None:
            tasks._enter_task(outer, outer_task)

    def _on_generator_left(self, generator: Any) -> None:
        """An async generator was left half way: close it as the code would, never on the loop around us."""
        if self.is_running() and not self._closed:
            _closing = self.create_task(generator.aclose())  # the loop keeps it

    def find_waiting(self, future: Any) -> object | None:
        """Find the coroutine of the code that waits for a future; None: it waits in another way, as by ``asyncio.gather``."""
        return next((task.get_coro() for task in self._tasks if task._fut_waiter is future), None)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Drop the code where it stands. Its ``finally`` blocks run, but nothing they await is carried out."""
        if self._closed:
            return
        self._closed = True
        if all(task.done() for task in self._tasks):  # as after most runs: there is nothing to drop
            self._tasks.clear()
            self._ready.clear()
            return
        outer = self._enter()
        try:
            for task in self._tasks:  # grows when a `finally` block makes tasks; they are dropped as well
                if not task.done():
                    drop_silently(task)
                    _drop(task.get_coro())  # type: ignore[arg-type]  # never None in our loop
            self._tasks.clear()
            self._ready.clear()
        finally:
            self._leave(*outer)

    def refuse(self, violation: str) -> NoReturn:
        """Refuse what the code does. It may swallow the exception, but then the violation is still known."""
        refusal = ForbiddenInWorkflow(violation)
        self.violation = self.violation or refusal  # the one that is raised: it knows the line
        self._refusals += 1
        if self._refusals > REFUSALS_MAX:
            raise asyncio.CancelledError(violation)
        raise refusal

    def _refuse_call(self, name: str) -> NoReturn:
        remedy = _REMEDIES.get(name, "a socket, pipe, process or signal: move the call into a step")
        violation = f"workflow code asked its loop for {name}, that is {remedy}"
        if _is_called_by_observer(sys._getframe(2)):  # its own failure: logging reports it and continues
            raise ForbiddenInWorkflow(violation)
        self.refuse(violation)


def _drop(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine that stands at an await."""
    for _ in range(CLOSES_MAX):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # a `finally` block awaits while being dropped; its state is in the record
        except BaseException:
            pass  # a `finally` block that fails while being dropped decides nothing
        return
    # Code that catches BaseException in an endless loop. Freeing it would run that loop, indefinitely: let it stand.
    import ctypes  # only here: importing arriero should stay fast

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


def _build_refusal_method(name: str) -> Callable[..., Any]:
    def refuse(self: WorkflowLoop, *_args: Any, **_kwargs: Any) -> NoReturn:
        self._refuse_call(name)

    return refuse


for _name, _member in list(vars(asyncio.AbstractEventLoop).items()):
    if not _name.startswith("_") and callable(_member) and _name not in vars(WorkflowLoop):
        setattr(WorkflowLoop, _name, _build_refusal_method(_name))
WorkflowLoop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # all of them are given just above
