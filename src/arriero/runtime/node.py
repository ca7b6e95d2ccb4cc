"""Builds the parts of one process and runs them. No rule lives here."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from ..commands import Answer, AnyCommand, Claim, Submit, Take
from ..definitions import Agent
from ..errors import StoreError
from ..model import StepRow, TaskRow
from ..store.base import Busy, StateStore
from ..store.committer import Committer
from . import crash_points
from .agent_host import AgentHost, Around
from .alerting import Alerting
from .code import Code
from .leader import Leader
from .live import LiveTask
from .membership import Membership
from .ports import Ports
from .scheduler import OnSubmitted, Scheduler
from .seldom import Seldom
from .settings import Settings
from .supervisor import Supervisor
from .upkeep import Upkeep

logger = logging.getLogger("arriero")

BEGIN_AGAIN_SECONDS = 0.5  # between attempts of a lost process to begin again
DRAIN_SECONDS_MAX = 15.0  # for putting down what is held, once all attempts have ended
POLL_SECONDS_MAX = 1.0  # between polls of a store that does not answer


class Session:
    """One process start: from its registration until it stops or is declared lost."""

    def __init__(
        self,
        agents: Iterable[Agent],
        codes: Mapping[str, Code],
        *,
        store: StateStore,
        ports: Ports,
        settings: Settings,
        roles: frozenset[str],
        on_end: Callable[[TaskRow, LiveTask], None],
        around: Around | None = None,
        about: str = "{}",
        upkeep: Upkeep | None = None,
        alerting: Alerting | None = None,
    ) -> None:
        self._about = about
        self._upkeep = upkeep
        self._alerting = alerting
        self._around = around
        self._store = store
        self._ports = ports
        self._settings = settings
        self._roles = roles
        self._on_end = on_end
        self._agents_given = tuple(agents) if "agents" in roles else ()
        self._codes = codes if "scheduler" in roles else {}
        self.lost = asyncio.Event()
        self._wake = asyncio.Event()
        self._troubled = False
        self._batch_trouble = Seldom(logger, ports.clock.monotonic)
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order: a set would iterate by address
        self._draining = False
        self.instance = ports.new_instance()
        self.committer: Committer[AnyCommand, Answer] = Committer(
            crash_points.around(store.apply, "before_commit", "after_commit"),
            sleep=ports.clock.sleep,
            monotonic=ports.clock.monotonic,
            repeat=lambda command: not isinstance(command, Claim | Take),
            on_trouble=self._on_trouble,
        )
        self.membership = Membership(
            store=store,
            committer=self.committer,
            ports=ports,
            settings=settings,
            instance=self.instance,
            on_lost=self.lost.set,
            spawn=self._spawn,
        )

    async def start(self) -> None:
        """Register, free what dead processes left, open resources, begin."""
        await self.membership.register(self._about)
        common: dict[str, Any] = {
            "store": self._store,
            "committer": self.committer,
            "ports": self._ports,
            "settings": self._settings,
            "actor": self.instance,
        }
        process_no = self.membership.process_no
        self.agents = AgentHost(
            self._agents_given,
            **common,
            process_no=process_no,
            report=self._report,
            is_trusted=self.membership.is_trusted,
            on_taken=self._note_taken,
            around=self._around,
        )
        self.scheduler = Scheduler(
            self._codes,
            **common,
            process_no=process_no,
            agents=self.agents,
            on_end=self._on_end,
            spawn=self._spawn,
            is_trusted=self.membership.is_trusted,
            others=lambda: self.membership.other_schedulers,
        )
        self.supervisor = Supervisor(**common)
        self.leader = Leader(
            self._lead,
            store=self._store,
            ports=self._ports,
            settings=self._settings,
            actor=self.instance,
            process_no=process_no,
        )
        try:
            self.committer.start()
            await self.agents.start()
            await self.membership.start()
        except BaseException:  # a resource cannot be opened, the store is gone, or nobody wants it any more
            with contextlib.suppress(StoreError):
                await self.abandon(retire=True)
            raise
        if "supervisor" in self._roles:
            self._spawn(self.leader.run())
            if self._alerting is not None:
                self._spawn(self._alerting.run())
        self._spawn(self._poll())

    async def _lead(self, term: int) -> int:
        if self._upkeep is not None:
            await self._upkeep.tick()
        return await self.supervisor.tick(term)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._spawned_ended)

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a part of the process broke: %r", error, exc_info=error)

    def _on_trouble(self, error: StoreError) -> None:
        if isinstance(error, Busy):  # nothing is unknown
            self._batch_trouble.warn("another program keeps a task's rows locked, arriero doctor names it: %s", error)
            return
        self._troubled = True
        self._batch_trouble.warn("the store did not answer, the batch is sent again: %s", error)

    def _report(self, step: StepRow, report: Any) -> None:
        if not self.scheduler.offer(step, report):
            self.scheduler.report_alone(report)

    def _note_taken(self, step: StepRow) -> None:
        self.scheduler.note_taken(step)

    # --- polling is the truth, wake-ups are hints
    def hint(self) -> None:
        """Something was submitted here."""
        self.scheduler.claim_soon()

    def look(self) -> None:
        """Another process may have brought something: ask the store now, not only at the next poll."""
        self._wake.set()

    async def _poll(self) -> None:
        workflows, agents = tuple(self._codes), tuple(self.agents.agents)
        poll_trouble = Seldom(logger, self._ports.clock.monotonic)
        trouble_wait = 0.0
        while True:
            wait = self._settings.poll_seconds
            self._wake.clear()
            try:
                due = await self._store.due(workflows, agents)
                if due.tasks and self._codes:
                    self.scheduler.claim_soon()
                if due.steps:
                    self.agents.note_due()
                await self._settle()
                poll_trouble.over()
                trouble_wait = 0.0
                if due.next_at is not None:
                    wait = min(wait, max((due.next_at - due.now) / 1_000_000, 0.001))
            except StoreError as error:
                poll_trouble.warn("the store could not be asked what is due: %s", error)
                wait = trouble_wait = min(max(trouble_wait, wait) * 2, POLL_SECONDS_MAX)
            await self._ports.clock.idle(self._wake, wait)

    async def _settle(self) -> None:
        """News from other processes, what a lost answer left unknown, and tasks that wait long."""
        await self.scheduler.look_for_news()
        if self._troubled:
            self._troubled = False
            try:
                await self.scheduler.reconcile()
                self.agents.reconciled()
            except StoreError:
                self._troubled = True
                raise
        self.scheduler.mark_seen()
        if not self._draining:
            self.scheduler.put_down_idle()
            self.scheduler.look_again()

    # --- the end
    async def drain(self) -> None:
        """Take nothing new, let attempts end, put down every task, say that nothing is held."""
        self._draining = True
        self.scheduler.drain()
        self.agents.stop_taking()
        await self.agents.drained()
        give_up_at = self._ports.clock.monotonic() + DRAIN_SECONDS_MAX
        while not self.lost.is_set() and (self.scheduler.is_busy() or self.agents.is_busy()):
            if not self.agents.is_busy() and self._ports.clock.monotonic() > give_up_at:
                logger.warning("some tasks could not be put down; they are freed once this process is retired")
                break
            await self.agents.drained()  # also what a commit under way has begun meanwhile
            self.scheduler.put_down_idle(all_idle=True)
            await self._ports.clock.sleep(0.01)
        await self._stop_tasks()
        try:
            with contextlib.suppress(StoreError):  # its lease runs out by itself
                await self.leader.resign()
            await self.committer.stop()
            with contextlib.suppress(StoreError):  # it is found lapsed, or dead, and holds nothing
                await self.membership.stop(retire=True)
        finally:
            await self.agents.close()

    async def abandon(self, *, retire: bool = False) -> None:
        """Drop everything and write nothing: this process was declared lost, or (``retire``) could not start."""
        self.agents.abandon()
        self.scheduler.abandon()
        self.committer.abandon()
        await self._stop_tasks()
        try:
            await self.membership.stop(retire=retire)
        finally:
            await self.agents.close()

    async def pause(self, seconds: float) -> None:
        """Wait, on this process's clock."""
        await self._ports.clock.sleep(seconds)

    async def _stop_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Node:
    """The roles of an App in this process; a process declared lost begins again under a new name."""

    def __init__(self, make_session: Callable[[], Session]) -> None:
        self._make_session = make_session
        self.session: Session | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run until ``stop``."""
        self.session = self._make_session()
        await self.session.start()
        self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="arriero-node")

    async def _watch(self) -> None:
        while True:
            session = self.session
            assert session is not None
            await session.lost.wait()
            self.session = None
            logger.error(
                "this process was declared lost (frozen, or cut off from the store); it begins again as a new one"
            )
            self._leaving = asyncio.get_running_loop().create_task(self._leave(session))
            await asyncio.shield(self._leaving)  # whoever stops us meanwhile waits for it
            self.session = await self._begun_again()

    @staticmethod
    async def _leave(session: Session) -> None:
        try:
            await session.abandon()
        except Exception:
            logger.exception("what the lost process had open could not be closed")

    async def _begun_again(self) -> Session:
        """A new start, however long the store or a resource stays away."""
        while True:
            session = self._make_session()
            try:
                await session.start()
                return session
            except Exception as error:
                logger.error("the process could not begin again yet: %s", error)
                await session.pause(BEGIN_AGAIN_SECONDS)

    def hint(self) -> None:
        """Something was submitted in this process."""
        if self.session is not None:
            self.session.hint()

    def drives(self, task_no: int) -> bool:
        """Whether this process holds a task now."""
        return self.session is not None and task_no in self.session.scheduler.live

    def begin_with(self, command: Submit) -> tuple[Submit, OnSubmitted | None]:
        """See ``Scheduler.begin_with``; None also while this process begins again."""
        return (command, None) if self.session is None else self.session.scheduler.begin_with(command)

    def look(self) -> None:
        """Another process may have brought something."""
        if self.session is not None:
            self.session.look()

    async def stop(self, *, drain: bool = True) -> None:
        """End; with ``drain`` after letting attempts end and putting every task down."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        if self._leaving is not None:
            await self._leaving
        if self.session is not None:
            await (self.session.drain() if drain else self.session.abandon())
