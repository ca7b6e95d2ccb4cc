"""One pass of supervision and upkeep, as a separate process: for cron, and for schedulers of a cloud.

The process registers, asks for the Supervisors' lease, and does nothing if another process leads. Else it does what a
Supervisor does over time, each until nothing of it is left, and leaves. If it dies meanwhile, what it wrote stays written, and
its leases lapse.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from ..core.lease import is_retirable
from ..errors import StoreError
from ..model import Instant
from ..model.answers import Answer, Applied
from ..model.commands import AnyCommand, EndByLimit, FreeTask, Recover
from ..model.leases import LeaseHolder
from ..model.moves import BeginUndo, RetryAsked
from ..model.processes import ProcessAbout, ProcessRow
from ..store.committer import Committer
from ..store.state_store import StateStore
from ..system.loops import WarningThrottle
from .alerts import Alerting
from .leader import Leader
from .membership import Membership
from .ports import Ports
from .process_context import ProcessContext
from .schedule_runner import ScheduleRunner
from .settings import Settings
from .supervisor import Supervisor
from .upkeep import Upkeep

logger = logging.getLogger("arriero")

LOOK_SECONDS = 0.1  # between looks whether the lost processes are retired
LEASES_WAITED = 3  # after a time when nobody renewed, each process gets the time of one lease before it counts as lost


class PassReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one pass.

    Args:
        led_by: another process that leads, so that nothing was done; None: this one led.
        term: of this process's lease.
        processes_lost, tasks_freed: processes found lost, and tasks that were freed of them or of a holder that was blocked.
        attempts_retried: attempts that expired and come back, the last of them at ``last_retry_at``.
        steps_failed: steps that failed, because no attempt is left or no Agent took them in time.
        tasks_undone, tasks_held: tasks whose own limit has passed, by what became of them.
        ledgers, statuses_dropped, convoys_mended, tasks_readable: done by the upkeep of the store.
        runs_submitted: runs of schedules that were due.
        alerts_told, alerts_failed: alerts that all sinks were notified of; tries that failed, which are repeated later.
        upkeep_failed: a part of the upkeep failed; the log says why.
    """

    led_by: str | None = None
    term: int | None = None
    processes_lost: int = 0
    tasks_freed: int = 0
    attempts_retried: int = 0
    last_retry_at: Instant | None = None
    steps_failed: int = 0
    tasks_undone: int = 0
    tasks_held: int = 0
    ledgers: int = 0
    statuses_dropped: int = 0
    convoys_mended: int = 0
    tasks_readable: int = 0
    runs_submitted: int = 0
    alerts_told: int = 0
    alerts_failed: int = 0
    upkeep_failed: bool = False


class SinglePass:
    """One pass of supervision and upkeep. ``run`` is called once."""

    def __init__(
        self, *, store: StateStore, ports: Ports, settings: Settings, upkeep: Upkeep, alerting: Alerting
    ) -> None:
        self._store = store
        self._ports = ports
        self._settings = settings
        self._upkeep = upkeep
        self._alerting = alerting
        self._counts: Counter[str] = Counter()
        self._lost: set[int] = set()
        self._last_retry_at: Instant | None = None
        self._freeing: set[asyncio.Task[None]] = set()
        self._trouble = WarningThrottle(logger, ports.clock.monotonic)
        self._committer: Committer[AnyCommand, Answer] = Committer(
            store.apply,
            sleep=ports.clock.sleep,
            monotonic=ports.clock.monotonic,
            repeat=lambda _: True,  # each is guarded; the caller limits the time
            on_trouble=self._warn,
        )
        self._context = ProcessContext(
            store=store,
            committer=self._committer,
            ports=ports,
            settings=settings,
            actor=ports.new_instance(),
            on_applied=self._count,
        )
        self._membership = Membership(self._context, on_lost=lambda: None, spawn=self._spawn)
        self._supervisor = Supervisor(self._context)

    async def run(self) -> PassReport:
        """Do the pass and leave. Raises StoreError - the store does not answer; what was written stays written."""
        about = msgspec.json.encode(ProcessAbout(roles=("supervisor",))).decode()
        await self._membership.register(about)
        leader = Leader(self._context, self._supervisor.tick)
        try:
            if not await leader.try_to_lead():
                return PassReport(led_by=await self._find_name(leader.led_by))
            return await self._work(leader)
        finally:
            await self._leave(leader)

    async def _work(self, leader: Leader) -> PassReport:
        term = leader.term
        self._committer.start()
        keeping = asyncio.get_running_loop().create_task(leader.run())
        try:
            await self._membership.start()
            await self._wait_until_lost_are_freed()
            await leader.make_pass()
            await self._submit_runs(leader)
            upkeep_done = await self._upkeep.finish()
            await self._alerting.tell_due()
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
        await self._committer.stop()  # decisions that still wait for an answer
        return self._report(term, upkeep_failed=not upkeep_done)

    async def _submit_runs(self, leader: Leader) -> None:
        runner = ScheduleRunner(
            store=self._store,
            ports=self._ports,
            actor=self._context.actor,
            term=lambda: leader.term if leader.is_leading() else None,
            cancel_persons=self._settings.approvals_cancel,
        )
        await runner.finish()
        self._counts["runs_submitted"] = runner.submitted

    def _report(self, term: int | None, *, upkeep_failed: bool) -> PassReport:
        done, done_here = self._upkeep.done, self._counts
        return PassReport(
            term=term,
            processes_lost=len(self._lost),
            last_retry_at=self._last_retry_at,
            ledgers=done["ledgers"],
            statuses_dropped=done["statuses"],
            convoys_mended=done["convoys"],
            tasks_readable=done["readable"],
            alerts_told=self._alerting.told,
            alerts_failed=self._alerting.failed,
            upkeep_failed=upkeep_failed,
            runs_submitted=done_here["runs_submitted"],
            tasks_freed=done_here["tasks_freed"],
            attempts_retried=done_here["attempts_retried"],
            steps_failed=done_here["steps_failed"],
            tasks_undone=done_here["tasks_undone"],
            tasks_held=done_here["tasks_held"],
        )

    async def _leave(self, leader: Leader) -> None:
        self._committer.abandon()  # nothing waits there, unless the pass failed
        leaving: tuple[Callable[[], Awaitable[None]], ...] = (
            leader.resign,
            lambda: self._membership.stop(retire=True),
        )
        for leave in leaving:
            with suppress(StoreError):  # the leases lapse by themselves
                await leave()
        for freeing in self._freeing:
            freeing.cancel()

    async def _find_name(self, process_no: LeaseHolder | None) -> str:
        _, processes = await self._store.known_processes()
        return next((one.instance for one in processes if one.process_no == process_no), f"process {process_no}")

    def _warn(self, error: Exception) -> None:
        self._trouble.warn("the store did not answer, the batch is sent again: %s", error)

    # --- lost processes
    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _wait_until_lost_are_freed(self) -> None:
        """Wait while the renewals find processes lost and free what they held."""
        give_up_at = self._ports.clock.monotonic() + LEASES_WAITED * self._settings.lease_seconds
        while self._freeing or (await self._list_lapsed() and self._ports.clock.monotonic() < give_up_at):
            await asyncio.gather(*self._freeing, return_exceptions=True)
            await self._ports.clock.sleep(LOOK_SECONDS)

    async def _list_lapsed(self) -> list[ProcessRow]:
        now, processes = await self._store.known_processes()
        return [one for one in processes if is_retirable(one, now, known_dead=self._store.is_known_dead(one.instance))]

    # --- what was done
    def _count(self, command: AnyCommand, answer: Applied) -> None:
        if isinstance(command, FreeTask):
            self._counts["tasks_freed"] += 1
            if command.lost_by is not None:
                self._lost.add(command.lost_by)
        elif isinstance(command, Recover):
            if isinstance(command.outcome, RetryAsked):
                self._counts["attempts_retried"] += 1
                self._last_retry_at = max(self._last_retry_at or Instant(0), command.outcome.not_before)
            else:
                self._counts["steps_failed"] += 1
        elif isinstance(command, EndByLimit):
            self._counts["tasks_undone" if isinstance(command.ending, BeginUndo) else "tasks_held"] += 1
