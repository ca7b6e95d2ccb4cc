"""Submits the runs of schedules that are due. It runs on the leader, and needs no user code.

Each pass loads what is due by its index, decides, and writes a batch of decisions in one transaction with the runs. If the
process dies before that, nothing is there; after it, all of it. Two leaders at the same time do no harm: the second decision is refused
by the row's revision, and a run's id is its schedule and its instant.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from ..core.lease import is_alive, read_process_about
from ..core.schedules import build_fire, decide_due, describe_missing_approval, describe_missing_code
from ..core.workflow_pauses import find_pause
from ..errors import ArrieroError
from ..model import Instant, later, seconds_between
from ..model.answers import Refusal, Submitted
from ..model.processes import ProcessRow
from ..model.schedules import (
    DueSchedule,
    FireSchedule,
    ProblemCause,
    ReportScheduleProblem,
    ScheduleApplied,
    ScheduleRow,
    read_declaration,
)
from ..model.workflow_pauses import Pauses, index_pauses
from ..store.state_store import StateStore
from ..system.loops import Loop, LoopGuard
from .crash_points import reach
from .ports import Ports

logger = logging.getLogger("arriero")

BATCH = 200  # schedules in one transaction; more would keep the store's history from others for too long
RUNS_AT_ONCE = 200  # run late by few schedules they would be as many
LOOK_SECONDS = 1.0  # at most between looks: others may have declared a schedule that is due sooner
NOT_LEADING_SECONDS = 0.25
BLOCKED_SECONDS = 10.0  # until a schedule is looked at again that cannot submit, as its code runs nowhere
UNREADABLE_SECONDS = 60.0  # until a row is read again that could not be read

Codes = dict[tuple[str, str], str]  # policy as JSON text, by App and workflow; empty: it is not said


class ScheduleRunner:
    """Submits the due runs of schedules.

    Args:
        actor: the process start.
        term: answers under which term this process leads; None: it does not.
        cancel_persons: how many operators the settings ask for to cancel a task. Above one a schedule cannot do it.
        on_submitted: called after runs were submitted: a Scheduler of this process may take them.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        ports: Ports,
        actor: str,
        term: Callable[[], int | None],
        cancel_persons: int = 1,
        on_submitted: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._ports = ports
        self._actor = actor
        self._term = term
        self._cancel_persons = cancel_persons
        self._on_submitted = on_submitted
        self._never = asyncio.Event()
        self.submitted = 0  # runs since the start

    async def run(self) -> None:
        """Run until cancelled, in the passes in which this process leads."""
        guard = LoopGuard(
            Loop.SCHEDULES, self._ports.clock.monotonic, unanswered="the runs of schedules could not be submitted: %s"
        )
        while True:
            wait = LOOK_SECONDS
            with guard:
                wait = await self.tick()
            await self._ports.clock.idle(self._never, wait)

    async def tick(self) -> float:
        """Submit what is due. Returns the seconds until the next look. Raises StoreError."""
        while (term := self._term()) is not None:
            due = await self._store.load_due_schedules(BATCH)
            if due.found and not await self._fire(due.found, due.now, term):
                return LOOK_SECONDS  # nothing could be written: the same would be found again
            if len(due.found) < BATCH:
                if due.found:
                    return 0.0  # some of them may be due again by now
                ahead = LOOK_SECONDS if due.next_at is None else seconds_between(due.now, due.next_at)
                return min(LOOK_SECONDS, max(ahead, 0.001))
        return NOT_LEADING_SECONDS

    async def finish(self) -> None:
        """Submit what is due until nothing of it is left. Raises StoreError."""
        while self._term() is not None and not await self.tick():
            pass

    async def _fire(self, found: Sequence[DueSchedule], now: Instant, term: int) -> int:
        """Decide about schedules and write it. Returns how many were written."""
        _, processes = await self._store.known_processes()
        codes = list_codes(processes, now)
        pauses = index_pauses(await self._store.list_workflow_pauses())
        commands: list[FireSchedule | ReportScheduleProblem] = []
        for due in found:
            commands.append(self._decide(due, now, term, codes, pauses))
        return sum([await self._write(some) for some in divide_by_runs(commands)])

    async def _write(self, commands: Sequence[FireSchedule | ReportScheduleProblem]) -> int:
        reach("before_fire")
        answers = await self._store.change_schedules(commands)
        reach("after_fire")
        written = submitted = 0
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, ScheduleApplied):
                written += 1
                submitted += sum(isinstance(one, Submitted) for one in answer.submitted)
                self._tell_refused(command.name, answer)
            elif isinstance(answer, ArrieroError) or answer.verdict == "busy":
                logger.info("schedule %s cannot submit just now: %s", command.name, answer)
        if submitted:
            self.submitted += submitted
            self._on_submitted()
        return written

    def _decide(
        self, due: DueSchedule, now: Instant, term: int, codes: Codes, pauses: Pauses
    ) -> FireSchedule | ReportScheduleProblem:
        row = due.row
        if not due.is_readable:
            return self._build_report(row, ProblemCause.UNREADABLE, "", now, term)
        declared = read_declaration(row)
        if find_pause(pauses, row.app, declared.workflow) is not None:  # looked at again until it is resumed
            return self._build_report(row, ProblemCause.PAUSED, "", now, term)
        policy = codes.get((row.app, declared.workflow))
        if policy is None:
            known = row.problem if row.problem_cause == ProblemCause.CODE else ""
            problem = known or describe_missing_code(row, now)
            return self._build_report(row, ProblemCause.CODE, problem, now, term)
        decision = decide_due(row, now, is_open=due.is_open)
        if decision.cancels and due.cancellable and self._cancel_persons > 1:
            problem = describe_missing_approval(due.cancellable, self._cancel_persons)
            return self._build_report(row, ProblemCause.APPROVALS, problem, now, term)
        draw = self._ports.random.getrandbits
        return build_fire(row, decision, policy or declared.policy, draw, actor=self._actor, term=term)

    def _build_report(
        self, row: ScheduleRow, cause: ProblemCause, problem: str, now: Instant, term: int
    ) -> ReportScheduleProblem:
        return ReportScheduleProblem(
            actor=self._actor,
            app=row.app,
            name=row.name,
            revision=row.revision,
            cause=cause,
            problem=problem,
            look_at=later(now, UNREADABLE_SECONDS if cause is ProblemCause.UNREADABLE else BLOCKED_SECONDS),
            term=term,
        )

    def _tell_refused(self, name: str, answer: ScheduleApplied) -> None:
        for refused in answer.submitted:
            if isinstance(refused, Refusal):
                logger.warning("a run of schedule %s was not submitted: %s", name, refused.detail)


def divide_by_runs(
    commands: Sequence[FireSchedule | ReportScheduleProblem],
) -> Iterator[list[FireSchedule | ReportScheduleProblem]]:
    """Divide commands into transactions, so that none has many more runs than RUNS_AT_ONCE."""
    some: list[FireSchedule | ReportScheduleProblem] = []
    runs = 0
    for command in commands:
        some.append(command)
        runs += len(command.runs) if isinstance(command, FireSchedule) else 0
        if runs >= RUNS_AT_ONCE:
            yield some
            some, runs = [], 0
    if some:
        yield some


def list_codes(processes: Sequence[ProcessRow], now: Instant) -> Codes:
    """List which workflows processes alive can run, each with the policy that the newest process says."""
    codes: Codes = {}
    for process in sorted(processes, key=lambda one: one.process_no):
        if is_alive(process, "scheduler", now):
            about = read_process_about(process)
            for workflow in about.workflows:
                codes[about.app, workflow] = about.policies.get(workflow, "")
    return codes
