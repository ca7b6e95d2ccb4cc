"""The Scheduler of one process: claims what is due, holds a driver for each task, and reads records again."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..core.apps import find_code
from ..core.capacity import build_shares
from ..core.drive import Surroundings, decide_put_down
from ..core.lease import is_on_probation
from ..core.task_run import TaskRun
from ..errors import UnreadableRow
from ..model import Loaded, StepRow, TaskRow, TaskState, seconds_between
from ..model.answers import Answer, Applied, Claimed, Dispatch
from ..model.commands import Claim, Report
from ..model.moves import Ending, PutDown, Reported
from ..model.processes import Versions
from .agent_host import AgentHost
from .child_tasks import ChildTasks, SubmitChild
from .code import Code
from .driver_parts import Parts, start_run
from .membership import Membership
from .process_context import ProcessContext
from .reload import ReloadQueue
from .report_verdicts import UNANSWERED, read_verdict
from .speculative_start import ConvoyYield, SpeculativeStarts
from .task_driver import TaskDriver

if TYPE_CHECKING:
    from .batches import BatchGatherer

logger = logging.getLogger("arriero")

REPORT_AGAIN_SECONDS = 2.0  # until a report is offered again whose task could not be read
REPORT_SECONDS_MAX = (
    600.0  # how long it is: then its attempt has expired, or the person who fixes the row answers by hand
)
UNSEEN_SECONDS = 1.0  # what has begun so and asks for no further write is marked as seen after so long

CLAIM_MAX = 100  # tasks in one claim: few enough that processes which claim at the same time share what there is
BEGINNING_MAX = 100  # tasks that begin with their submission whose commits are in transit; others are claimed


def count_claimable(*, tasks_max: int, taken: int, others: int) -> int:
    """Returns how many tasks to claim now; none if below 1.

    Args:
        tasks_max: what the process may hold at a time.
        taken: what it holds, or begins with submissions that are in transit.
        others: how many other processes claim tasks.
    """
    return min(tasks_max - taken, max(CLAIM_MAX // (1 + others), 1))


def may_begin(*, tasks_max: int, taken: int, beginning: int, others: int) -> bool:
    """Returns True if one more task may begin with its submission; beyond a share of the room, all processes claim them.

    Args:
        beginning: of ``taken``, those whose submission is in transit; the rest as for ``count_claimable``.
    """
    share = BEGINNING_MAX // (1 + others)
    limit = min(tasks_max, share) if others else tasks_max
    return beginning < share and taken < limit


class Scheduler:
    """Scheduler of one process.

    Args:
        codes, versions: what this process can run, by the name in the task's row.
        on_end: called with each task that ended here.
        membership: of this process; nothing is claimed or begun while its lease is not trusted.
    """

    def __init__(
        self,
        context: ProcessContext,
        codes: Mapping[str, Code],
        *,
        agents: AgentHost,
        on_end: Callable[[TaskRow, TaskRun], None],
        spawn: Callable[..., None],
        membership: Membership,
        submit: SubmitChild,
        versions: Versions,
    ) -> None:
        self._codes = codes
        self._weights = {name: code.share for name, code in codes.items()}
        self._context = context
        self._store = store = context.store
        self._clock = context.clock
        self._settings = settings = context.settings
        self._agents = agents
        self._on_end = on_end
        self._membership = membership
        known_code = frozenset(one.definition for code in codes.values() for one in code.list_versions())
        self._parts = Parts(
            context=context,
            agents=agents,
            codes=codes,
            names=tuple(codes),
            versions=versions,
            surroundings=Surroundings(store.store_id, known_code, settings.linger_seconds, agents.router.providers),
        )
        agents.connect(report=self.offer, report_late=self.report_late, note_taken=self.note_taken)
        self._yield = ConvoyYield(context.ports, lambda: membership.other_schedulers)
        self.starts = SpeculativeStarts(self._parts, self._may_begin, self)
        self._reloads = ReloadQueue(
            store=store, ports=context.ports, spawn=spawn, on_read=self._read_again, reading=agents.registry.reading
        )
        self.drivers: dict[int, TaskDriver] = {}  # of the tasks held here, by their numbers
        self._children = ChildTasks(
            context,
            find_driver=self.drivers.get,
            submit=submit,
            spawn=spawn,
            on_submitted=self.claim_soon,
        )
        self.look_after_children, self.begin_children = self._children.look, self._children.begin
        self._batches: BatchGatherer | None = None
        self._claiming = False
        self._claims_all = False  # the next claim is for whatever is due
        self._woken: list[int] = []  # tasks for the next claim, which commands that are put before it may wake
        self._caught_up = False  # the last claim left nothing behind
        self._proven: set[str] = set()  # workflows whose code has come to its first steps here, from what is durable
        self._draining = False
        self._abandoned = False

    # --- claiming
    def claim_soon(self, *, is_for_all: bool = True) -> None:
        """Claim tasks, as many as there is room for, one command at a time.

        Args:
            is_for_all: claim whatever is due; False: only what ``claim_after`` has named, if nothing else may come before it.
        """
        self._claims_all = self._claims_all or is_for_all
        if self._claiming or not (self._claims_all or self._woken):
            return
        woken = () if self._claims_all or not self._caught_up else tuple(self._woken)
        self._claims_all = False
        self._woken.clear()  # whatever may wake them is put before this claim
        if self._yield.should_delay_claim(self.claim_soon):
            self._caught_up = False
            return
        taken = len(self.drivers) + self.starts.under_way
        room = count_claimable(
            tasks_max=self._settings.tasks_max, taken=taken, others=self._membership.other_schedulers
        )
        # A process whose lease has lapsed would only lose again what it claims.
        if self._draining or room <= 0 or not self._context.is_trusted():
            self._caught_up = False
            return
        self._claiming = True
        context = self._context
        command = Claim(
            actor=context.actor,
            process_no=context.process_no,
            workflows=self._parts.names,
            limit=room,
            probation=not any(is_on_probation(driver.run.task) for driver in self.drivers.values()),
            app=context.app,
            shares=build_shares(self._weights, (driver.run.task.workflow for driver in self.drivers.values())),
            only=woken if len(woken) <= room else (),
            versions=self._parts.versions,
        )
        context.committer.put(command, lambda answer: self._process_claim_answer(command, answer))

    def claim_after(self, task_no: int) -> bool:
        """Claim in the commit of the command that is put next, which may wake this task.

        Returns False if the task is held here, and needs no claim.
        """
        if task_no in self.drivers:
            return False
        self._woken.append(task_no)
        asyncio.get_running_loop().call_soon(partial(self.claim_soon, is_for_all=False))
        return True

    def _process_claim_answer(self, command: Claim, answer: Answer | BaseException) -> None:
        self._claiming = False
        tasks = answer.tasks if isinstance(answer, Claimed) else ()
        if not command.only:
            self._caught_up = isinstance(answer, Claimed) and len(tasks) < command.limit
        for loaded in tasks:
            self.take_over(loaded)
        self.claim_soon(is_for_all=len(tasks) == command.limit)

    def take_over(self, loaded: Loaded, *, key_since: float | None = None, behind: Loaded | None = None) -> None:
        """Drive what the store says is ours now.

        Args:
            key_since: when this process got the key of its convoy, with an earlier task; None: now.
            behind: the next task of the convoy.
        """
        task_no = loaded.task.task_no
        if self._is_known_here(task_no):
            self.reload_soon(task_no, ())  # we knew it before this answer came: what is recorded counts
        else:
            self._adopt(loaded, key_since=key_since, behind=behind)

    def _adopt(
        self,
        loaded: Loaded,
        reports: tuple[Reported, ...] = (),
        *,
        key_since: float | None = None,
        behind: Loaded | None = None,
    ) -> None:
        """Drive a task that is ours, from its record; ``reports`` came for it and are not recorded yet."""
        task = loaded.task
        if task.convoy_no is not None and task.batch_no is None:
            if self._batches is None:
                from .batches import BatchGatherer  # only who has convoys pays for loading it

                self._batches = BatchGatherer(self._context, take_over=self.take_over, reload=self.reload_soon)
            if self._batches.gather(loaded, key_since):
                return
        run = start_run(loaded, find_code(self._codes, task))
        if run.execution is not None:
            self._proven.add(task.workflow)
        if key_since is None:
            key_since = self._clock.monotonic()
        driver = self.drivers[task.task_no] = TaskDriver(run, self._parts, self, key_since=key_since, behind=behind)
        driver.take_up(reports)

    def _is_known_here(self, task_no: int) -> bool:
        return task_no in self.drivers or task_no in self._reloads.pending

    # --- beginning with the submission, or with the end of the task before
    def _may_begin(self, workflow: str) -> bool:
        """Returns True if a new task need not wait behind others, and this process has room for it."""
        if self._draining or not self._caught_up or workflow not in self._proven:
            return False
        beginning = self.starts.under_way
        has_room = may_begin(
            tasks_max=self._settings.tasks_max,
            taken=len(self.drivers) + beginning,
            beginning=beginning,
            others=self._membership.other_schedulers,
        )
        return has_room and self._context.is_trusted()

    def begin(
        self,
        run: TaskRun,
        loaded: Loaded,
        dispatches: tuple[Dispatch, ...],
        *,
        left_at: float | None = None,
        key_since: float = 0.0,
        behind: Loaded | None = None,
    ) -> bool:
        """Drive a task whose code ran before the commit that began it. Returns False if it is known here already.

        ``left_at``: see ``AgentHost.dispatch``; the others as for ``take_over``.
        """
        task_no = loaded.task.task_no
        if self._is_known_here(task_no):
            return False
        driver = self.drivers[task_no] = TaskDriver(run, self._parts, self, key_since=key_since, behind=behind)
        driver.begin(loaded, dispatches, left_at)
        return True

    def find_submitted(self, task_no: int) -> None:
        """Look for a task that was submitted here and did not begin with its submission: it may be ours or anybody's."""
        if not self._is_known_here(task_no):
            self.reload_soon(task_no, ())
        self.claim_soon()

    def may_hand_over(self, key_since: float) -> bool:
        """Returns True if this process may continue with the next task of a convoy whose key it has held since then.

        A full process continues with none, because tasks of other convoys may have a higher priority.
        """
        is_full = self._draining or len(self.drivers) >= self._settings.tasks_max
        return not is_full and self._context.is_trusted() and not self._yield.should_release_key(key_since)

    # --- what comes in
    def offer(self, step: StepRow, report: Reported) -> None:
        """Take a report of an Agent here. If the task is not held here, the report goes to the store by itself."""
        driver = self.drivers.get(step.task_no)
        if driver is None:
            self.report_alone(report)
        else:
            driver.offer(report)

    def note_taken(self, step: StepRow) -> None:
        """Note that an Agent here took a request from the store."""
        if (driver := self.drivers.get(step.task_no)) is not None:
            driver.note_taken(step)

    def report_alone(self, report: Reported) -> None:
        """Send a report to the store by itself, because its task is not held here."""
        command = Report(actor=self._context.actor, process_no=self._context.process_no, report=report)
        self._context.committer.put(command, lambda answer: self._process_lone_report_answer(command, answer))

    def _process_lone_report_answer(self, command: Report, answer: Answer | BaseException) -> None:
        report = command.report
        if (
            isinstance(answer, UnreadableRow) and not self._abandoned
        ):  # the row may be fixed, or a newer release may replace this one
            age = seconds_between(report.delivered_at, self._store.now())
            if age < REPORT_SECONDS_MAX:
                self._clock.call_later(REPORT_AGAIN_SECONDS, lambda: self.report_alone(report))
        if isinstance(answer, BaseException):
            self._agents.verdicts.tell((report.step_no, report.fence), UNANSWERED)
        else:
            self._agents.settle_report((report.step_no, report.fence), read_verdict(answer))
        if not isinstance(answer, Applied):
            return
        self._context.on_applied(command, answer)
        if answer.task.locked_by is None:
            self.claim_soon()  # it may have woken its task

    def report_late(self, report: Reported) -> None:
        """Send a report that came after its attempt's deadline. It is sent once, and nothing follows from the answer.

        The attempt stays registered: until the Supervisor has recovered it, its row still shows it as running.
        """
        command = Report(actor=self._context.actor, process_no=self._context.process_no, report=report, late=True)
        identity = (report.step_no, report.fence)
        self._context.committer.put(command, lambda answer: self._agents.verdicts.tell(identity, read_verdict(answer)))

    # --- what the store says is ours
    async def look_for_news(self) -> None:
        """Look for reports by other processes for tasks held here, and for tasks that are ours but unknown here."""
        lost_before = self.starts.count_lost_answers()
        for task_no, revision in await self._store.load_news(self._context.process_no):
            driver = self.drivers.get(task_no)
            if driver is None or (not driver.busy and driver.run.task.revision < revision):
                self.reload_soon(task_no, ())
            elif not driver.busy:
                self._children.look(driver)
        self.starts.release_places_before(lost_before)  # only now: a look that failed has brought nothing

    def note_news(self, task: TaskRow) -> None:
        """Look at a task that something came for; ``task`` as it stands now. If it is free, it may be due."""
        if task.locked_by is None:
            self.claim_soon()
            return
        driver = self.drivers.get(task.task_no) if task.locked_by == self._context.process_no else None
        if driver is not None and driver.run.task.revision < task.revision:
            self.reload_soon(task.task_no, ())

    async def reconcile(self) -> None:
        """Take up what the store says is ours but is unknown here, after an answer was lost."""
        process_no = self._context.process_no
        with self._agents.registry.reading():
            for loaded in await self._store.load_held(process_no, self._settings.tasks_max * 2):
                task = loaded.task
                if task.locked_by == process_no and not self._is_known_here(task.task_no):
                    self.reload_soon(task.task_no, ())
                    continue
                for step in loaded.steps:  # also of a task whose command is in transit: its attempts must begin in time
                    self._agents.adopt(step, task)

    def reload_soon(self, task_no: int, reports: tuple[Reported, ...]) -> None:
        """Read the record again; ``reports`` came for the task and are not recorded yet."""
        driver = self.drivers.get(task_no)
        if driver is not None:
            reports += driver.take_reports()
            driver.busy = True
            if driver.reload_after_answer(reports):  # its answer first: what it writes must be in what we read
                return
        self._reloads.ask(task_no, reports)

    def _read_again(self, task_no: int, loaded: Loaded | None, reports: tuple[Reported, ...]) -> None:
        """Continue with a task from its record, if it is still ours."""
        driver = self.drivers.get(task_no)
        if driver is not None and driver.reload_after_answer(reports):
            return  # adopted meanwhile, and it continued: what we read is old
        ours = loaded if loaded is not None and loaded.task.locked_by == self._context.process_no else None
        key_since, behind = None, None
        if driver is not None:
            del self.drivers[task_no]
            driver.is_held = False
            reports += driver.take_reports()
            if ours is not None and driver.catch_up(ours):
                self.drivers[task_no] = driver
                driver.take_up(reports)
                return
            driver.close()
            key_since, behind = driver.key_since, driver.behind
        if ours is not None:
            self._adopt(ours, reports, key_since=key_since, behind=behind)
            return
        for report in reports:
            self.report_alone(report)

    def is_reloading_alive(self) -> bool:
        """Returns True unless records are to be read and nobody reads them."""
        return self._reloads.is_alive()

    # --- letting go
    def let_go(self, task_no: int) -> None:
        """Drop the driver of a task that ended or was put down."""
        was_full = len(self.drivers) >= self._settings.tasks_max
        driver = self.drivers.pop(task_no)
        task = driver.run.task
        driver.is_held = False
        driver.close()
        if driver.inbox:
            self._children.note_unrecorded(driver.inbox, driver.run.steps)
        for report in driver.take_reports():
            self.report_alone(report)
        if task.ended_at is not None:
            try:
                self._on_end(task, driver.run)
            except (
                Exception
            ):  # the caller that waits asks the store; the next task of the convoy must still be taken up
                logger.exception("the end of task %s could not be reported", task.task_id)
            if task.parent_step is not None and task.state is not TaskState.HELD:
                self._children.note_end(task)
        if was_full or is_on_probation(task):
            self.claim_soon()

    def _list_idle(self, seconds: float) -> list[TaskDriver]:
        """Drivers that have asked for nothing for at least so long."""
        before = self._clock.monotonic() - seconds
        return [
            driver
            for driver in self.drivers.values()
            if driver.is_resting and driver.idle_since is not None and driver.idle_since <= before
        ]

    def mark_seen(self) -> None:
        """Take the mark of news off tasks that began with their submission and have asked for no further write since."""
        for driver in self._list_idle(UNSEEN_SECONDS):
            if driver.run.task.unseen_since is not None:
                driver.drive()

    def put_down_idle(self, *, all_idle: bool = False) -> None:
        """Free tasks whose next event is far off, so that waiting costs no memory. ``all_idle``: at the end of a drain."""
        now, linger = self._store.now(), self._settings.linger_seconds
        for driver in self._list_idle(0.0 if all_idle else linger):
            ending: Ending | None = PutDown(now)
            if not all_idle:
                ending = decide_put_down(driver.run.steps.values(), now, linger)
            if ending is None or self._children.is_looking_after(driver.run.task.task_no):
                driver.fire_timers()  # it stays here for a step's sake; its timers continue
            else:
                driver.send(ending)

    def look_again(self) -> None:
        """Read tasks again that have been idle for long: whatever we missed, it is in the record."""
        before = self._clock.monotonic() - self._settings.progress_seconds
        for task_no, driver in list(self.drivers.items()):
            if not driver.busy and driver.idle_since is not None and driver.idle_since < before:
                self.reload_soon(task_no, ())

    # --- the end of the process
    def is_busy(self) -> bool:
        """Returns True if a task is held here, or may still come with a claim, a submission or a reload."""
        gathers = self._batches is not None and self._batches.under_way
        return bool(self.drivers or self._reloads.pending or self.starts.under_way or gathers) or self._claiming

    def drain(self) -> None:
        """Claim nothing any longer."""
        self._draining = True

    def abandon(self) -> None:
        """Forget everything held: it is another's now."""
        self._abandoned = True
        if self._batches is not None:
            self._batches.under_way.clear()
        self.starts.abandon()
        for driver in self.drivers.values():
            driver.is_held = False
            driver.close()
        self.drivers.clear()
