"""Builds the parts of one process and runs them. No rule lives here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.routing import encode_reports
from ..core.task_run import TaskRun
from ..core.transitions import has_ended
from ..declare.providers import Groups
from ..declare.steps import Agent
from ..errors import StoreError
from ..model import TaskRow
from ..model.answers import Answer, Applied
from ..model.commands import AnyCommand, Claim, Report, Submit, Take
from ..model.processes import Versions
from ..store.committer import CommitCounts, Committer
from ..store.contract import Busy
from ..store.state_store import StateStore
from ..system.loops import Loop, LoopGuard, WarningThrottle
from . import crash_points
from .agent_host import AgentHost
from .alerts import Alerting
from .child_tasks import SubmitChild
from .code import Code
from .failure_log import FailureLog
from .hosted_agent import choose_hosted
from .leader import Leader
from .loop_watch import StandstillReports
from .membership import Membership
from .ports import Ports
from .process_context import ProcessContext, Substitutes
from .schedule_runner import ScheduleRunner
from .scheduler import Scheduler
from .settings import Settings
from .shutdown import CANCELLED_SECONDS_MAX, finish
from .speculative_start import OnSubmitted
from .supervisor import Supervisor
from .upkeep import Upkeep

if TYPE_CHECKING:  # only who traces tasks pays for loading it
    from ..tracing.tracer import TaskTracer

logger = logging.getLogger("arriero")

BEGIN_AGAIN_SECONDS = 0.5  # between attempts of a lost process to begin again
DRAIN_SECONDS_MAX = 15.0  # for putting down what is held, once all attempts have ended
POLL_SECONDS_MAX = 1.0  # between polls of a store that does not answer


def _is_repeated(command: AnyCommand) -> bool:
    """Returns True if a command is sent again when its answer was lost.

    Another claim would take more tasks. Nothing depends on a late report, so it is sent once.
    """
    return not isinstance(command, Claim | Take) and not (isinstance(command, Report) and command.late)


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The roles of an App in one process, and what they need.

    Attributes:
        agents: those of the App; the roles say which of them are hosted.
        codes, versions: what the App can run, by the name in the task's row.
        roles: as of ``settings.ROLES``.
        on_end: called with each task that ended here.
        about: what the process says of itself, as JSON text.
        upkeep, alerting: run with the role supervisor; None: nobody does.
        groups: Agents that serve the same calls.
        submit: commits a submission, of a child.
        commit_counts: of its commits, for monitors.
        substitutes, tracer: see ``ProcessContext``.
    """

    agents: Sequence[Agent]
    codes: Mapping[str, Code]
    store: StateStore
    ports: Ports
    settings: Settings
    roles: frozenset[str]
    on_end: Callable[[TaskRow, TaskRun], None]
    substitutes: Substitutes | None = None
    about: str = "{}"
    app: str = ""
    upkeep: Upkeep | None = None
    alerting: Alerting | None = None
    groups: Groups = {}
    commit_counts: CommitCounts | None = None
    tracer: "TaskTracer | None" = None
    submit: SubmitChild
    versions: Versions = {}


class NodeSession:
    """One process start: from its registration until it stops or is declared lost."""

    def __init__(self, plan: NodePlan) -> None:
        ports = plan.ports
        self._plan = plan
        self._store = plan.store
        self._clock = ports.clock
        self._agents_given = choose_hosted(plan.agents, plan.roles)
        self._codes = plan.codes if "scheduler" in plan.roles else {}
        self.lost = asyncio.Event()
        self._wake = asyncio.Event()
        self._troubled = False
        self._is_ending = False
        self._loops: dict[Loop, asyncio.Task[None]] = {}  # that must not end before the process does
        self._batch_trouble = WarningThrottle(logger, self._clock.monotonic)
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order: a set would iterate by address
        self._draining = False
        self.committer: Committer[AnyCommand, Answer] = Committer(
            crash_points.wrap_write(plan.store.apply, "before_commit", "after_commit"),
            sleep=self._clock.sleep,
            monotonic=self._clock.monotonic,
            repeat=_is_repeated,
            on_trouble=self._on_trouble,
            counts=plan.commit_counts,
            has_ended_task=has_ended,
        )
        self._failures = FailureLog(self._clock.monotonic, plan.store.now)
        self.context = ProcessContext(
            store=plan.store,
            committer=self.committer,
            ports=ports,
            settings=plan.settings,
            actor=ports.new_instance(),
            app=plan.app,
            on_applied=self._failures.note if plan.tracer is None else self._note_applied,
            tracer=plan.tracer,
            substitutes=plan.substitutes,
        )
        self._standstills = StandstillReports(ports, plan.store.now, self._failures.warnings)
        self.membership = Membership(
            self.context,
            on_lost=self.lost.set,
            spawn=self._spawn,
            standing_still=self._standstills.describe_current,
            about_now=self._standstills.add_to_about,
            room_now=lambda: encode_reports(self.agents.router.report_room()),
        )

    async def start(self) -> None:
        """Register, free what dead processes left, open resources, begin."""
        await self.membership.register(self._plan.about)
        self.agents = AgentHost(self._agents_given, self.context, self._plan.groups, lambda: self.membership.others)
        self.scheduler = Scheduler(
            self.context,
            self._codes,
            agents=self.agents,
            on_end=self._plan.on_end,
            spawn=self._spawn,
            membership=self.membership,
            submit=self._plan.submit,
            versions=self._plan.versions,
        )
        self.supervisor = Supervisor(
            self.context,
            partial(self._standstills.list_of_process, membership=self.membership, process_no=self.context.process_no),
        )
        self.leader = Leader(self.context, self.supervisor.tick, period=lambda: self.supervisor.period_seconds)
        self._standstills.start(self.agents.find_attempt)
        try:
            self.committer.start(lambda: self._process_loop_end(Loop.COMMITTER))
            await self.agents.start()
            await self.membership.start()
        except BaseException:  # a resource cannot be opened, the store no longer exists, or nobody wants it any longer
            await finish(self.abandon(retire=True))
            raise
        if "supervisor" in self._plan.roles:
            self._begin(Loop.LEADER, self.leader.run())
            self._begin(Loop.RECOVERY, self.leader.recover())
            self._begin(Loop.SCHEDULES, self._make_schedule_runner().run())
            if self._plan.upkeep is not None:
                self._begin(Loop.UPKEEP, self._plan.upkeep.run(self.leader.is_leading))
            if self._plan.alerting is not None:
                self._begin(Loop.ALERTS, self._plan.alerting.run())
        if self._agents_given:
            self._begin(Loop.METRICS, self.agents.metrics.run())
        self._begin(Loop.POLL, self._poll())

    def _make_schedule_runner(self) -> ScheduleRunner:
        return ScheduleRunner(
            store=self._store,
            ports=self._plan.ports,
            actor=self.context.actor,
            term=lambda: self.leader.term if self.leader.is_leading() else None,
            cancel_persons=self._plan.settings.approvals_cancel,
            on_submitted=self.hint,
        )

    # --- loops
    @property
    def has_started(self) -> bool:
        """True once all its parts are there."""
        return bool(self._loops)

    def list_loop_liveness(self) -> dict[Loop, bool]:
        """Returns for each loop that was begun if it lives. Cheap."""
        alive = {loop: not task.done() for loop, task in self._loops.items()}
        if self._loops:  # it has started
            alive[Loop.LEASE] = self.membership.is_renewing()
            alive[Loop.COMMITTER] = self.committer.is_alive()
            alive[Loop.REREADING] = self.scheduler.is_reloading_alive()
            if (watching := self._standstills.keeper) is not None:
                alive[Loop.LOOP_WATCH] = watching.is_alive()
        return alive

    def _begin(self, loop: Loop, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loops[loop] = self._create_task(coroutine)
        task.add_done_callback(lambda _: self._process_loop_end(loop))

    def _process_loop_end(self, loop: Loop) -> None:
        """Begin again as a new process. No exception ends a loop; if one ends all the same, the process does not work."""
        if not self._is_ending:
            logger.error("the loop %s has ended: this process begins again as a new one", loop)
            self.lost.set()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self._is_ending:  # nobody would end it
            coroutine.close()
        else:
            _ = self._create_task(coroutine)

    def _create_task(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._process_task_end)
        return task

    def _process_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a part of the process broke: %r", error, exc_info=error)

    def _note_applied(self, command: AnyCommand, answer: Applied) -> None:
        assert self._plan.tracer is not None
        self._failures.note(command, answer)
        self._plan.tracer.note_applied(command, answer)

    def _on_trouble(self, error: Exception) -> None:
        if isinstance(error, Busy):  # nothing is unknown
            self._batch_trouble.warn("another program keeps a task's rows locked, arriero doctor names it: %s", error)
            return
        self._troubled = True
        if isinstance(error, StoreError):
            self._batch_trouble.warn("the store did not answer, the batch is sent again: %s", error)
        else:
            self._batch_trouble.warn("a batch could not be written: %r", error, unexpected=True)

    # --- polling is the truth, wake-ups are hints
    def hint(self) -> None:
        """Claim soon: something was submitted here."""
        self.scheduler.claim_soon()

    def look(self) -> None:
        """Ask the store now instead of at the next poll: another process may have written something."""
        self._wake.set()

    async def _poll(self) -> None:
        clock = self._clock
        guard = LoopGuard(Loop.POLL, clock.monotonic, unanswered="the store could not be asked what is due: %s")
        trouble_wait = 0.0
        while True:
            wait = self._plan.settings.poll_seconds
            self._wake.clear()
            with guard:
                wait = await self._look_once(wait)
            trouble_wait = min(max(trouble_wait, wait) * 2, POLL_SECONDS_MAX) if guard.failed else 0.0
            await clock.idle(self._wake, trouble_wait or wait)

    async def _look_once(self, wait: float) -> float:
        """Ask what is due and what came in. Returns how long to wait for the next poll."""
        plan = self._plan
        due = await self._store.due(tuple(self._codes), self.agents.list_watched(), plan.app, plan.versions)
        if due.tasks and self._codes:
            self.scheduler.claim_soon()
        if due.steps:
            self.agents.note_due()
        if due.is_leaderless:
            self.leader.note_leaderless()
        await self._settle()
        self._failures.flush()
        self.agents.look()
        await self.agents.remote.look()
        return wait if due.next_at is None else min(wait, max((due.next_at - due.now) / 1_000_000, 0.001))

    async def _settle(self) -> None:
        """Take up news from other processes, what a lost answer left unknown, and tasks that wait long."""
        await self.scheduler.look_for_news()
        if self._troubled:
            self._troubled = False
            try:
                lost = self.agents.taker.unsure
                await self.scheduler.reconcile()
                self.agents.taker.free_reconciled_places(lost)
            except BaseException:
                self._troubled = True
                raise
        self.scheduler.mark_seen()
        if not self._draining:
            self.scheduler.put_down_idle()
            self.scheduler.look_again()

    # --- the end
    async def drain(self) -> None:
        """Take nothing new, let attempts end, put down every task, retire.

        Cancelled, or broken, it drops everything instead: nothing continues that nobody would end.
        """
        try:
            await self._put_down_all()
            await self._stop_tasks()
            await self.agents.metrics.write()  # the last calls; before the process is retired
            with suppress(StoreError):  # its lease runs out by itself
                await self.leader.resign()
            await self.committer.stop()
            with suppress(StoreError):  # it is found lapsed, or dead, and holds nothing
                await self.membership.stop(retire=not self.agents.may_still_act())
            await self.agents.close()
        except BaseException:
            await finish(self.abandon(retire=True))
            raise

    async def _put_down_all(self) -> None:
        self._draining = True
        self._spawn(self.membership.announce_leaving())
        self.scheduler.drain()
        self.agents.drain()
        await self.agents.wait_until_drained()
        give_up_at = self._clock.monotonic() + DRAIN_SECONDS_MAX
        while not self.lost.is_set() and (self.scheduler.is_busy() or self.agents.is_busy()):
            if not self.agents.is_busy() and self._clock.monotonic() > give_up_at:
                logger.warning("some tasks could not be put down; they are freed once this process is retired")
                break
            await self.agents.wait_until_drained()  # also what a commit running has begun meanwhile
            self.scheduler.put_down_idle(all_idle=True)
            await self._clock.sleep(0.01)

    async def abandon(self, *, retire: bool = False) -> None:
        """Drop everything and write only that this process has ended. May be called again, and after ``drain``.

        Args:
            retire: say immediately that nothing is held any longer. This is not done if an attempt still runs before its deadline,
                because it swallows its cancellation or runs in a thread. Then others wait until the lease has lapsed.
        """
        self._is_ending = True
        self.membership.distrust()
        self.agents.abandon()
        self.scheduler.abandon()
        self.committer.abandon()
        try:
            await self.agents.wait_until_dropped()
            await self._stop_tasks()
            if retire:
                with suppress(StoreError):  # its lease runs out by itself
                    await self.leader.resign()
        finally:
            try:
                with suppress(StoreError):
                    await self.membership.stop(retire=retire and not self.agents.may_still_act())
            finally:
                await self.agents.close()

    def monotonic(self) -> float:
        """Seconds on this process's clock."""
        return self._clock.monotonic()

    async def pause(self, seconds: float) -> None:
        """Wait, on this process's clock."""
        await self._clock.sleep(seconds)

    async def _stop_tasks(self) -> None:
        self._is_ending = True
        await self._standstills.stop()
        self._failures.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, left = await asyncio.wait(list(self._tasks), timeout=CANCELLED_SECONDS_MAX)
            for task in left:  # a function that is notified of alerts
                logger.error("%s continues although it was cancelled, and is left behind", task.get_coro())


class Node:
    """The roles of an App in this process; a process declared lost begins again under a new name."""

    def __init__(self, make_session: Callable[[], NodeSession]) -> None:
        self._make_session = make_session
        self.session: NodeSession | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run until ``stop``."""
        self.session = self._make_session()
        await self.session.start()
        self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="arriero-node")

    async def _watch(self) -> None:
        session = self.session
        assert session is not None
        guard = LoopGuard(Loop.NODE, session.monotonic)
        while True:
            with guard:
                await session.lost.wait()
                session = self.session = await self._begin_again(session)
            if guard.failed:
                await session.pause(BEGIN_AGAIN_SECONDS)

    async def _begin_again(self, lost: NodeSession) -> NodeSession:
        """Start a new session, however long the store or a resource stays away."""
        self.session = None
        logger.error("this process was declared lost (frozen, or cut off from the store); it begins again as a new one")
        self._leaving = asyncio.get_running_loop().create_task(self._leave(lost))
        await asyncio.shield(self._leaving)  # the one who stops us meanwhile waits for it
        while True:
            try:
                session = self._make_session()
                await session.start()
                return session
            except Exception as error:
                logger.error("the process could not begin again yet: %s", error)
                await lost.pause(BEGIN_AGAIN_SECONDS)

    @staticmethod
    async def _leave(session: NodeSession) -> None:
        try:
            await session.abandon()
        except Exception:
            logger.exception("what the lost process had open could not be closed")

    def hint(self) -> None:
        """Claim soon: something was submitted in this process."""
        if self.session is not None:
            self.session.hint()

    def is_driving(self, task_no: int) -> bool:
        """Returns True if this process holds the task now."""
        return self.session is not None and task_no in self.session.scheduler.drivers

    def begin_with(self, command: Submit) -> tuple[Submit, OnSubmitted | None]:
        """See ``SpeculativeStarts.begin_with``; None also while this process begins again."""
        return (command, None) if self.session is None else self.session.scheduler.starts.begin_with(command)

    def note_news(self, task: TaskRow) -> None:
        """Something came for a task: ``task`` as it stands now."""
        if self.session is not None:
            self.session.scheduler.note_news(task)

    def look(self) -> None:
        """Ask the store now: another process may have written something."""
        if self.session is not None:
            self.session.look()

    async def stop(self, *, drain: bool = True) -> None:
        """End; with ``drain`` after letting attempts end and putting every task down.

        Cancelled meanwhile, it drops everything, ends all the same, and then the cancellation continues.
        """
        session = None
        try:
            await finish(self._end_watching())
            session = self.session
            if session is not None and drain:
                await session.drain()
        except BaseException:
            if self.session is not None and session is None:  # it did not come to draining
                await finish(self.session.abandon(retire=True))
            raise
        if session is not None and not drain:
            await finish(session.abandon())

    async def _end_watching(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait({self._watcher})
        if self._leaving is not None:
            await asyncio.wait({self._leaving})
