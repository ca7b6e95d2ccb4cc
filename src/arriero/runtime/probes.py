"""Probes of this process: asks a service whose breaker is open whether it is healthy, if no other process does."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ..declare.agent_parts import Probe
from ..declare.resources import ResourcePool, open_resources
from ..errors import StoreError
from ..model import Instant
from ..model.agents import BreakerKey, BreakerRow, BreakerState
from ..model.answers import Answer, BreakerApplied
from ..model.commands import BeginProbe, EndProbe
from ..payloads.codec import error_text
from .hosted_agent import HostedAgent
from .process_context import ProcessContext

logger = logging.getLogger("arriero")
FAILURE_CHARACTERS_MAX = 500  # of a probe's exception in the history


class Probing:
    """Probes the service of one Agent. Call ``look`` again and again: it is cheap if no breaker is open."""

    def __init__(self, hosted: HostedAgent, probe: Probe, context: ProcessContext, resources: ResourcePool) -> None:
        self._hosted = hosted
        self._probe = probe
        self._context = context
        self._resources = resources
        self._under_way: set[BreakerKey] = set()
        self._calling: set[BreakerKey] = set()  # whose function has not ended, maybe long after its time
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self) -> None:
        """Begin the probes whose time has come."""
        known = self._hosted.breakers.known
        if not known or not self._context.is_trusted():
            return
        now = self._context.store.now()
        for key, row in list(known.items()):
            if self._is_due(row, now) and key not in self._under_way and key not in self._calling:
                self._under_way.add(key)
                task = asyncio.get_running_loop().create_task(self._ask(key), name=f"arriero-probe-{row.label}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _is_due(self, row: BreakerRow, now: Instant) -> bool:
        if row.state is not BreakerState.OPEN or row.probe_at is None or row.probe_at > now:
            return False
        whole = self._hosted.breakers.find_whole(row.app)
        is_kept = row.paused_at is not None or (whole is not None and whole.keeps_all)
        return row.app == self._context.app and not is_kept

    def abandon(self) -> None:
        """Cancel every probe. What it has found is not reported; another process probes once its time is over."""
        for task in self._tasks:
            task.cancel()

    async def _ask(self, key: BreakerKey) -> None:
        (app, agent, target), probe, actor = key, self._probe, self._context.actor
        begin = BeginProbe(actor=actor, app=app, agent=agent, target=target, complete_within=probe.complete_within)
        try:
            answer, _ = await self._context.ask(begin)
            if isinstance(answer, BreakerApplied):
                self._hosted.breakers.known[key] = answer.breaker
                fence, failure = answer.breaker.fence, await self._call(key)
                end = EndProbe(actor=actor, app=app, agent=agent, target=target, fence=fence, failure=failure)
                answer, _ = await self._context.ask(end)
            await self._keep(key, answer)
        except StoreError as error:
            logger.warning("the probe of Agent %s could not be recorded: %s; another one follows", agent, error)
        except Exception:
            logger.exception("the probe of Agent %s broke; another one follows", agent)
        finally:
            self._under_way.discard(key)

    async def _keep(self, key: BreakerKey, answer: Answer) -> None:
        """Keep the breaker as it now stands. If another process came first, the store is asked."""
        known = self._hosted.breakers.known
        if isinstance(answer, BreakerApplied):
            known[key] = answer.breaker
        else:
            known.pop(key, None)
            for row in await self._context.store.list_breakers():
                if (row.app, row.agent, row.target) == key and (row.is_outage or row.paused_at is not None):
                    known[key] = row
        self._hosted.note_waiting()

    async def _call(self, key: BreakerKey) -> str | None:
        """Call the function within its time. Returns what speaks against the service; None if it is healthy."""
        probe = self._probe
        self._calling.add(key)
        task = asyncio.get_running_loop().create_task(self._start(key))
        if probe.is_async:  # it may swallow its cancellation; a thread says by itself when it has ended
            task.add_done_callback(lambda _: self._calling.discard(key))
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._context.clock.call_later(probe.complete_within, partial(_set, late))
        try:
            await asyncio.wait((task, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            task.cancel()  # nobody waits for it any longer
            task.add_done_callback(_look_at)
        if not task.done():
            return f"no answer within {probe.complete_within:g} s"
        if task.cancelled():
            return "the probe cancelled itself"
        error = task.exception()
        return None if error is None else error_text(error)[:FAILURE_CHARACTERS_MAX]

    async def _start(self, key: BreakerKey) -> None:
        try:
            await self._call_function(key)
        except SystemExit as error:  # asyncio would end the process by it
            raise RuntimeError(error_text(error)) from error

    async def _call_function(self, key: BreakerKey) -> None:
        probe, agent = self._probe, self._hosted.agent
        arguments = (key[2],) if probe.takes_target else ()
        substitutes = self._context.substitutes
        if substitutes is not None and substitutes.find_probe is not None:
            function = substitutes.find_probe(agent)
            await self._call_substitute(key, partial(function, *arguments))
            return
        await self._resources.open(agent.resources)  # a test opens them late
        open_resources.set(self._resources.opened)
        if probe.is_async:
            await probe.function(*arguments)
            return
        on_end = partial(self._calling.discard, key)  # a thread continues after a cancellation
        function = partial(probe.function, *arguments)
        await self._context.ports.run_in_thread(f"{agent.name}-probe-{key[2]}", 1, function, on_end)

    async def _call_substitute(self, key: BreakerKey, function: Callable[[], Any]) -> None:
        try:
            answer = function()
            if inspect.isawaitable(answer):
                await answer
        finally:
            self._calling.discard(key)


def _look_at(task: "asyncio.Task[None]") -> None:
    """Look at the exception of a function that ended too late, so that asyncio does not warn of it."""
    if not task.cancelled():
        task.exception()


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
