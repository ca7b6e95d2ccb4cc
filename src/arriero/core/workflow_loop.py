"""The small event loop on which workflow code runs: it knows only ``call_soon``.

Between two deliveries the code runs until nothing is ready. Whatever asyncio offers beyond that (timers, sockets,
threads) has no record to replay from, so asking for it is refused by name, with the remedy.
"""

import asyncio
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn

from ..errors import ForbiddenInWorkflow

RUNS_MAX = 1_000_000  # callbacks between two deliveries: beyond it the code spins without waiting for anything

_REMEDIES = {
    "call_later": "a timer (asyncio.sleep, timeout, wait_for): use `await arriero.sleep(...)`, or complete_within= on the step",
    "call_at": "a timer (asyncio.sleep, timeout, wait_for): use `await arriero.sleep(...)`, or complete_within= on the step",
    "time": "the loop's clock: use `arriero.now()`",
    "run_in_executor": "a thread: move the call into a step",
    "call_soon_threadsafe": "another thread: move the call into a step",
}


class WorkflowTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks (asyncio.wait) iterate alike in every replay."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class WorkflowLoop(asyncio.AbstractEventLoop):
    """See the module. ``workflow_run`` is what call values find when they are awaited."""

    def __init__(self, workflow_run: Any) -> None:
        self.workflow_run = workflow_run
        self.violation: ForbiddenInWorkflow | None = None
        self._ready: deque[asyncio.Handle] = deque()
        self._task_count = 0
        self._tasks: list[WorkflowTask] = []
        self._closed = False

    # --- what asyncio's futures and tasks need
    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]  # the base has TypeVarTuple
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None, **kwargs: Any) -> asyncio.Task[Any]:
        task = WorkflowTask(coro, loop=self, name=name or "step", context=context)
        self._task_count += 1
        task.number = self._task_count
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task nobody awaited failed: what it did is in the record, and only what the code returns decides."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    # --- running
    def run_ready(self) -> None:
        """Run until nothing is ready. Raises ForbiddenInWorkflow when the code spins."""
        outer = events._get_running_loop()
        outer_task = None if outer is None else tasks.current_task(outer)
        if outer is not None and outer_task is not None:
            tasks._leave_task(outer, outer_task)
        events._set_running_loop(self)
        try:
            for _ in range(RUNS_MAX):
                if not self._ready:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
            raise ForbiddenInWorkflow(f"workflow code ran {RUNS_MAX:,} callbacks without awaiting a step: it spins")
        finally:
            events._set_running_loop(outer)
            if outer is not None and outer_task is not None:
                tasks._enter_task(outer, outer_task)

    def close(self) -> None:
        """Drop the code where it stands. Its ``finally`` blocks run, but nothing they await is carried out."""
        self._closed = True
        for task in self._tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # the task is dropped on purpose
            coroutine: Coroutine[Any, Any, Any] = task.get_coro()  # type: ignore[assignment]  # never None in our loop
            try:
                coroutine.close()
            except (RuntimeError, ValueError):
                pass  # code that awaits while being closed; its state is in the record
            except Exception:
                pass  # a `finally` block that fails while being dropped decides nothing
        self._tasks.clear()
        self._ready.clear()

    def _refuse(self, name: str) -> NoReturn:
        remedy = _REMEDIES.get(name, "a socket, pipe, process or signal: move the call into a step")
        self.violation = ForbiddenInWorkflow(f"workflow code asked its loop for {name}, that is {remedy}")
        raise self.violation


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: WorkflowLoop, *_args: Any, **_kwargs: Any) -> NoReturn:
        self._refuse(name)

    return refuse


for _name, _member in list(vars(asyncio.AbstractEventLoop).items()):
    if not _name.startswith("_") and callable(_member) and _name not in vars(WorkflowLoop):
        setattr(WorkflowLoop, _name, _refusing(_name))
WorkflowLoop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # all of them are given just above
