"""The doors of a simulated process: its clock, which may go too fast or too slow, its chance and its names."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from arriero.runtime.ports import ChildProcess, Look, LoopClock, ProcessClock, TaskKeeper, Timer

from .loop import SimulatedLoop

if TYPE_CHECKING:
    from .world import World


class _SimulatedClock(LoopClock):
    """The clock of one process. ``rate``: that many of its seconds pass in one of the world's."""

    def __init__(self, loop: SimulatedLoop, rate: float) -> None:
        self._loop = loop
        self._rate = rate

    def monotonic(self) -> float:
        return self._loop.time() * self._rate

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._rate)

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        await super().idle(event, seconds / self._rate)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(seconds / self._rate, callback)


class SimulatedPorts:
    """The doors of one simulated process."""

    def __init__(self, world: "World", number: int, source: Random | None = None, rate: float = 1.0) -> None:
        self.clock: ProcessClock = _SimulatedClock(world.loop, rate)
        self.random = Random((source or world.random).getrandbits(64))
        self._world = world
        self._number = number

    def new_instance(self) -> str:
        return self._world.unique(f"node-{self._number}")

    def new_task_id(self) -> str:
        return self._world.unique("task")

    async def run_in_thread(
        self, pool: str, size: int, function: Callable[[], Any], on_done: Callable[[], None]
    ) -> Any:
        try:
            return function()
        finally:
            on_done()

    runs_inline = True

    async def start_child(self) -> ChildProcess:
        raise AssertionError("no process is started where functions run inline")

    def wait_in_thread(self, loop: asyncio.AbstractEventLoop, asked: Coroutine[Any, Any, Any]) -> Any:
        raise AssertionError("the steps of the simulated shop are async")

    def keep(self, renewals: Callable[[], Coroutine[Any, Any, None]]) -> TaskKeeper:
        return TaskKeeper(asyncio.get_running_loop().create_task(renewals()))

    def watch(self, look: Look, seconds: float) -> None:
        return
