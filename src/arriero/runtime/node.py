"""Builds the parts of one process and runs them. No rule lives here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from ..commands import Answer, AnyCommand, Claim, Report, Reported, Submit, Take
from ..core.standstills import Standstill, is_worth_saying, remedy, said_of, standstill_in, what_ran
from ..core.wording import named
from ..definitions import Agent
from ..errors import StoreError
from ..loops import Loop, LoopGuard, Seldom
from ..model import StepRow, TaskRow
from ..store.base import Busy, StateStore
from ..store.committer import Committer
from . import crash_points
from .agent_host import AgentHost, Around
from .alerting import Alerting
from .code import Code
from .ending import CANCELLED_SECONDS_MAX, finish
from .failure_log import FailureLog
from .leader import Leader
from .live import LiveTask, code_running
from .loop_watch import LOOK_SECONDS, Doing, LoopWatch
from .membership import Membership
from .ports import Keeper, Ports
from .scheduler import OnSubmitted, Scheduler
from .settings import Settings
from .supervisor import Supervisor
from .upkeep import Upkeep

logger = logging.getLogger("arriero")

BEGIN_AGAIN_SECONDS = 0.5  # between attempts of a lost process to begin again
DRAIN_SECONDS_MAX = 15.0  # for putting down what is held, once all attempts have ended
POLL_SECONDS_MAX = 1.0  # between polls of a store that does not answer


def _is_repeated(command: AnyCommand) -> bool:
    """Whether a command is sent again when nobody knows what became of it.

    Another claim would take more. Nothing hangs on a late answer, so it is offered once.
    """
    return not isinstance(command, Claim | Take) and not (isinstance(command, Report) and command.late)


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
        app: str = "",
        upkeep: Upkeep | None = None,
        alerting: Alerting | None = None,
    ) -> None:
        self._about = about
        self._app = app
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
        self._is_ending = False
        self._loops: dict[Loop, asyncio.Task[None]] = {}  # that must not end before the process does
        self._batch_trouble = Seldom(logger, ports.clock.monotonic)
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order: a set would iterate by address
        self._draining = False
        self.instance = ports.new_instance()
        self.committer: Committer[AnyCommand, Answer] = Committer(
            crash_points.around(store.apply, "before_commit", "after_commit"),
            sleep=ports.clock.sleep,
            monotonic=ports.clock.monotonic,
            repeat=_is_repeated,
            on_trouble=self._on_trouble,
        )
        self._failures = FailureLog(ports.clock.monotonic, store.now)
        self.membership = Membership(
            store=store,
            committer=self.committer,
            ports=ports,
            settings=settings,
            instance=self.instance,
            on_lost=self.lost.set,
            spawn=self._spawn,
            on_applied=self._failures.note,
            standing_still=self._standing_still,
            about_now=self._about_now,
        )
        self._loop_watch: LoopWatch | None = None
        self._watching: Keeper | None = None

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
        of_app: dict[str, Any] = {**common, "app": self._app}
        process_no = self.membership.process_no
        self.agents = AgentHost(
            self._agents_given,
            **of_app,
            process_no=process_no,
            report=self._report,
            report_late=self._report_late,
            is_trusted=self.membership.is_trusted,
            on_taken=self._note_taken,
            around=self._around,
        )
        self.scheduler = Scheduler(
            self._codes,
            **of_app,
            process_no=process_no,
            agents=self.agents,
            on_end=self._on_end,
            spawn=self._spawn,
            is_trusted=self.membership.is_trusted,
            others=lambda: self.membership.other_schedulers,
            on_applied=self._failures.note,
        )
        self.supervisor = Supervisor(**common, on_applied=self._failures.note, standstills=self._standstills)
        self.leader = Leader(
            self.supervisor.tick,
            store=self._store,
            ports=self._ports,
            settings=self._settings,
            actor=self.instance,
            process_no=process_no,
        )
        self._watch_loop()
        try:
            self.committer.start(lambda: self._loop_ended(Loop.COMMITTER))
            await self.agents.start()
            await self.membership.start()
        except BaseException:  # a resource cannot be opened, the store is gone, or nobody wants it any more
            await finish(self.abandon(retire=True))
            raise
        if "supervisor" in self._roles:
            self._begin(Loop.LEADER, self.leader.run())
            self._begin(Loop.RECOVERY, self.leader.recover())
            if self._upkeep is not None:
                self._begin(Loop.UPKEEP, self._upkeep.run(self.leader.leads))
            if self._alerting is not None:
                self._begin(Loop.ALERTS, self._alerting.run())
        self._begin(Loop.POLL, self._poll())

    # --- an event loop that stands still
    def _watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop_watch = LoopWatch(
            loop,
            monotonic=self._ports.clock.monotonic,
            now=self._store.now,
            doing=lambda: self._doing(loop),
            log=self._failures.warnings,
        )
        self._watching = self._ports.watch(self._loop_watch.look, LOOK_SECONDS)

    def _doing(self, loop: asyncio.AbstractEventLoop) -> Doing:
        """What runs on the event loop just now; asked from another thread."""
        if (task := code_running.get(loop)) is not None:
            return Doing(f"the code of workflow {task.workflow}, task {task.task_id}", code_of_workflow=True)
        attempted = self.agents.attempted_by(asyncio.current_task(loop))
        return Doing() if attempted is None else Doing(f"{named(attempted[0])} of task {attempted[1]}")

    def _standing_still(self) -> str:
        seen = None if self._loop_watch is None else self._loop_watch.standing_still()
        return "" if seen is None else f"{what_ran(seen)}; {remedy(seen)}"

    def _about_now(self, about: str) -> str:
        """What this process says of itself by now; asked from another thread."""
        watch = self._loop_watch
        if watch is None:
            return about
        if (seen := watch.standing_still()) is not None and is_worth_saying(seen):
            return said_of(about, seen, lasts=True)
        over = watch.last_over()
        return said_of(about, over, lasts=False) if over is not None and is_worth_saying(over) else about

    def _standstills(self, step: StepRow) -> Iterable[Standstill]:
        """Of the process that runs a step, ours or another, as far as they are known here."""
        if step.locked_by is None or self._loop_watch is None:
            return ()
        if step.locked_by == self.membership.process_no:
            return self._loop_watch.standstills()
        said = standstill_in(self.membership.about_of(step.locked_by), self._store.now())
        return () if said is None else (said,)

    def loops_alive(self) -> dict[Loop, bool]:
        """Of each loop that was begun whether it lives. Cheap."""
        alive = {loop: not task.done() for loop, task in self._loops.items()}
        if self._loops:  # it has started
            alive[Loop.LEASE] = self.membership.renews()
            alive[Loop.COMMITTER] = self.committer.is_alive()
            alive[Loop.REREADING] = self.scheduler._rereading.is_alive()
            if self._watching is not None:
                alive[Loop.LOOP_WATCH] = self._watching.is_alive()
        return alive

    def _begin(self, loop: Loop, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loops[loop] = self._create_task(coroutine)
        task.add_done_callback(lambda _: self._loop_ended(loop))

    def _loop_ended(self, loop: Loop) -> None:
        """No exception ends one; should it end all the same, the process must not go on as if it worked."""
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
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a part of the process broke: %r", error, exc_info=error)

    def _on_trouble(self, error: Exception) -> None:
        if isinstance(error, Busy):  # nothing is unknown
            self._batch_trouble.warn("another program keeps a task's rows locked, arriero doctor names it: %s", error)
            return
        self._troubled = True
        if isinstance(error, StoreError):
            self._batch_trouble.warn("the store did not answer, the batch is sent again: %s", error)
        else:
            self._batch_trouble.warn("a batch could not be written: %r", error, unexpected=True)

    def _report(self, step: StepRow, report: Any) -> None:
        if not self.scheduler.offer(step, report):
            self.scheduler.report_alone(report)

    def _report_late(self, report: Reported) -> None:
        self.scheduler.report_late(report)

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
        clock = self._ports.clock
        guard = LoopGuard(Loop.POLL, clock.monotonic, unanswered="the store could not be asked what is due: %s")
        trouble_wait = 0.0
        while True:
            wait = self._settings.poll_seconds
            self._wake.clear()
            with guard:
                wait = await self._look_once(wait)
            trouble_wait = min(max(trouble_wait, wait) * 2, POLL_SECONDS_MAX) if guard.failed else 0.0
            await clock.idle(self._wake, trouble_wait or wait)

    async def _look_once(self, wait: float) -> float:
        """What is due, and what came in; answers how long to wait for the next look."""
        due = await self._store.due(tuple(self._codes), tuple(self.agents.agents), self._app)
        if due.tasks and self._codes:
            self.scheduler.claim_soon()
        if due.steps:
            self.agents.note_due()
        await self._settle()
        self._failures.flush()
        return wait if due.next_at is None else min(wait, max((due.next_at - due.now) / 1_000_000, 0.001))

    async def _settle(self) -> None:
        """News from other processes, what a lost answer left unknown, and tasks that wait long."""
        await self.scheduler.look_for_news()
        if self._troubled:
            self._troubled = False
            try:
                lost = self.agents.unsure_places()
                await self.scheduler.reconcile()
                self.agents.reconciled(lost)
            except BaseException:
                self._troubled = True
                raise
        self.scheduler.mark_seen()
        if not self._draining:
            self.scheduler.put_down_idle()
            self.scheduler.look_again()

    # --- the end
    async def drain(self) -> None:
        """Take nothing new, let attempts end, put down every task, say that nothing is held.

        Cancelled, or broken, it drops everything instead: nothing goes on that nobody would end.
        """
        try:
            await self._put_down_all()
            await self._stop_tasks()
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
        self._spawn(self.membership.say_leaving())
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

    async def abandon(self, *, retire: bool = False) -> None:
        """Drop everything and write nothing but that this process is gone. May be called again, and after ``drain``.

        Args:
            retire: say at once that nothing is held any more. Not if an attempt goes on although it was cancelled, or in
                a thread, and its time is not over: then others wait for the lease, as after the loss of a process.
        """
        self._is_ending = True
        self.membership.distrust()
        self.agents.abandon()
        self.scheduler.abandon()
        self.committer.abandon()
        try:
            await self.agents.dropped()
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
        return self._ports.clock.monotonic()

    async def pause(self, seconds: float) -> None:
        """Wait, on this process's clock."""
        await self._ports.clock.sleep(seconds)

    async def _stop_tasks(self) -> None:
        self._is_ending = True
        if self._watching is not None:
            await self._watching.stop()
        self._failures.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, left = await asyncio.wait(list(self._tasks), timeout=CANCELLED_SECONDS_MAX)
            for task in left:  # a function that is told of alerts
                logger.error("%s goes on although it was cancelled, and is left behind", task.get_coro())


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
        session = self.session
        assert session is not None
        guard = LoopGuard(Loop.NODE, session.monotonic)
        while True:
            with guard:
                await session.lost.wait()
                session = self.session = await self._begin_again(session)
            if guard.failed:
                await session.pause(BEGIN_AGAIN_SECONDS)

    async def _begin_again(self, lost: Session) -> Session:
        """A new start, however long the store or a resource stays away."""
        self.session = None
        logger.error("this process was declared lost (frozen, or cut off from the store); it begins again as a new one")
        self._leaving = asyncio.get_running_loop().create_task(self._leave(lost))
        await asyncio.shield(self._leaving)  # whoever stops us meanwhile waits for it
        while True:
            try:
                session = self._make_session()
                await session.start()
                return session
            except Exception as error:
                logger.error("the process could not begin again yet: %s", error)
                await lost.pause(BEGIN_AGAIN_SECONDS)

    @staticmethod
    async def _leave(session: Session) -> None:
        try:
            await session.abandon()
        except Exception:
            logger.exception("what the lost process had open could not be closed")

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
        """End; with ``drain`` after letting attempts end and putting every task down.

        Cancelled meanwhile, it drops everything, ends all the same, and then the cancellation goes on.
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
