"""An asyncio event loop whose time is virtual and whose order is drawn from a seed.

Handles carry the context they were made in, and with it the process they belong to: a crashed process's handles are
dropped, a frozen one's are kept aside until it wakes. So a crash runs no ``finally`` and no ``except``, as in life.
"""

import asyncio
import heapq
from asyncio import base_events
from collections import defaultdict, deque
from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from typing import Any

PROCESS: ContextVar[int] = ContextVar("simulated_process", default=0)  # 0: the world itself, which never dies
SHUFFLE = 0.2  # how often something else than the first ready handle runs


class Deadlock(Exception):
    """Nothing is ready and no timer is set: everybody waits for something that cannot come."""


class SimulatedLoop(base_events.BaseEventLoop):
    """See the module."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._virtual_now = 0.0
        self._handles: deque[Any] = vars(self)["_ready"]  # the base keeps them here; its stubs do not say so
        self._timers: list[Any] = vars(self)["_scheduled"]
        self._dead: set[int] = set()
        self._frozen: set[int] = set()
        self._aside: defaultdict[int, list[asyncio.Handle]] = defaultdict(list)
        self.steps = 0
        self.on_tick: Callable[[], None] = lambda: None  # called when time has continued, before anything runs
        self._begun: list[
            asyncio.Task[Any]
        ] = []  # kept: a task that is collected would run its `finally` after its death

    def time(self) -> float:
        return self._virtual_now

    # --- processes
    def crash(self, process: int) -> None:
        """Nothing of this process runs any longer."""
        self._dead.add(process)
        self._frozen.discard(process)
        self._aside.pop(process, None)

    def freeze(self, process: int) -> None:
        """Keep whatever this process would run, until it wakes."""
        self._frozen.add(process)

    def wake(self, process: int) -> None:
        """Let it continue, with everything that piled up, in order."""
        self._frozen.discard(process)
        self._handles.extend(self._aside.pop(process, []))

    def is_frozen(self, process: int) -> bool:
        """Whether the process is frozen."""
        return process in self._frozen

    def is_dead(self, process: int) -> bool:
        """Whether the process has crashed."""
        return process in self._dead

    # --- the loop
    def _run_once(self) -> None:
        ready = self._handles
        if not ready:
            self._jump()
        self._move_due()
        if not ready:
            return
        if len(ready) > 1 and self._random.random() < SHUFFLE:
            ready.rotate(-self._random.randrange(len(ready)))
        handle = ready.popleft()
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS, 0)
        if process in self._dead:
            return
        if process in self._frozen:
            self._aside[process].append(handle)
            return
        self.steps += 1
        handle._run()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not timers:
            raise Deadlock
        if timers[0]._when > self._virtual_now:
            self._virtual_now = timers[0]._when
            self.on_tick()

    def _move_due(self) -> None:
        timers = self._timers
        while timers and timers[0]._when <= self._virtual_now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if not timer._cancelled:
                self._handles.append(timer)

    def _timer_handle_cancelled(self, handle: Any) -> None:
        pass  # _jump and _move_due drop cancelled timers

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **options)
        self._begun.append(task)
        return task

    # --- what would leave the simulated world
    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]  # looser
        future = self.create_future()
        future.set_result(func(*args))
        return future
