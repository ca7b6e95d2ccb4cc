"""A task with what is read beside it, and the reasons that tasks running and ended tasks share."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..core.supervision import find_pivot, is_held_by_program, read_step_policy
from ..model import AlertRow, Instant, Loaded, StepKind, StepRow, StepState, TaskState
from ..model.agents import BreakerRow, LimitsInUse
from ..model.failures import CapturedTraceback, read_task_failure
from ..model.workflow_pauses import WorkflowPauseRow, index_pauses
from ..text.format import format_instant_and_age, format_labelled_location, format_step, format_step_failure
from .agents import describe_held_tries
from .convoys import TasksAhead
from .liveness import LiveProcesses, format_process
from .past import TaskPast

if TYPE_CHECKING:
    from .children import Relatives

STEPS_TOLD_MAX = 10  # a task may have thousands open; the first ones say how it stands
SOON_SECONDS = 5.0  # what is due is taken well within it when nothing is wrong


class Reason(msgspec.Struct, frozen=True):
    """One thing that is so. ``kind`` is for programs; ``step`` a label; ``since`` and ``until`` where it has them.

    ``trace``: of one that names a line of code: all lines that the exception passed.
    ``idempotency_key``: what the step's service knows it by, where a caller may have to ask that.
    ``request``: what an operator approved, as JSON text; it may hold payloads.
    """

    kind: str
    says: str
    step: str = ""
    since: Instant | None = None
    until: Instant | None = None
    idempotency_key: str = ""
    trace: CapturedTraceback = ()
    request: str = ""


class TaskSituation:
    """A task with its steps, its past, its open alert and the live processes."""

    def __init__(
        self,
        loaded: Loaded,
        now: Instant,
        running: LiveProcesses,
        past: TaskPast,
        alert: AlertRow | None,
        ahead: TasksAhead | None,
        breakers: Sequence[BreakerRow] = (),
        limits: Sequence[LimitsInUse] = (),
        pauses: Sequence[WorkflowPauseRow] = (),
        family: "Relatives | None" = None,
    ) -> None:
        self.loaded = loaded
        self.family = family
        self.task = loaded.task
        self.convoy = loaded.convoy
        self.ahead = ahead
        self.breakers = breakers
        self.limits = limits
        self.pauses = index_pauses(pauses)
        self.life = loaded.life
        self.signals = loaded.signals
        self.now = now
        self.running = running
        self.past = past
        self.alert = alert
        self.failure = None if loaded.task.failure is None else read_task_failure(loaded.task.failure)

    def _at(self, instant: Instant) -> str:
        return format_instant_and_age(instant, self.now)

    def _describe_batch(self) -> str:
        """Describe who handles its message in a batch; empty: no other task does."""
        number = self.task.batch_no
        if number is None or number == self.task.task_no:
            return ""
        batch = None if self.family is None else self.family.batch
        return f"its message is in the batch of task {batch or f'number {number}, which was purged'}"

    def _format_lack_of_supervisor(self) -> str:
        return "" if self.running.list_with_role("supervisor") else ", but no process alive runs one"

    def _describe_rescue(self) -> str:
        if self.running.alive:
            return "another process frees it within seconds"
        return "no process is alive that could free it: start one (arriero run MODULE:APP)"

    def _describe_attempt(self, step: StepRow) -> Reason:
        since = self.past.began.get(step.ordinal)
        process = None if step.locked_by is None else self.running.rows.get(step.locked_by)
        where = f"runs at process {step.locked_by}" if process is None else f"runs at {format_process(process)}"
        is_at_program = is_held_by_program(step)
        where = "is held by the program that took it" if is_at_program else where
        began = "" if since is None else f" since {self._at(since)}"
        says = f"{format_step(step)}: {format_attempt(step)} {where}{began}"
        until = step.complete_by
        if not is_at_program and (process is None or process.lease_until <= self.now):
            says += f", which is lost; {self._describe_rescue()}"
        elif until is not None and until > self.now:
            says += f" and must end by {self._at(until)}"
            if process is not None and (held := describe_held_tries(process, step.agent)):
                says += f"; {held}"
        elif until is not None:
            says += (
                f"; its time was over at {self._at(until)}: the Supervisor decides{self._format_lack_of_supervisor()}"
            )
        if self.task.state is TaskState.COMPENSATING and step.kind is StepKind.STEP:
            says += "; it was begun before the undo, which waits for its end"
        if self.task.state is TaskState.HELD:
            says += "; its result is kept when it comes"
        if step.failure is not None:
            says += f"; the attempt before failed: {format_step_failure(step)}"
        return Reason("running", says + self._format_doubt(step), step.label, since, until, step.idempotency_key)

    @staticmethod
    def _format_doubt(step: StepRow) -> str:
        return "; an earlier attempt may have happened" if step.in_doubt else ""

    def _describe_pivot(self) -> list[Reason]:
        pivot = find_pivot(self.life)
        if pivot is None:
            return []
        how = "has happened" if pivot.state is StepState.COMPLETED else "may have happened"
        says = (
            f"past its pivot: {format_step(pivot)} {how}, so nothing is undone from here on and compensate is refused"
        )
        return [Reason("pivot", says, pivot.label, since=pivot.finished_at)]


def format_attempt(step: StepRow) -> str:
    """Format the attempt that runs or comes next: ``attempt 2 of 3``, with the round where there are several."""
    supervision = read_step_policy(step).supervision
    rounds_spent, in_round = divmod(step.failure_count, supervision.attempts)
    text = f"attempt {in_round + 1} of {supervision.attempts}"
    if supervision.rounds > 1:
        text += f" in round {rounds_spent + 1} of {supervision.rounds}"
    return text if step.attempt == step.failure_count + 1 else f"{text} (number {step.attempt} in all)"


def join_names(names: Iterable[str]) -> str:
    return ", ".join(names)


def locate_failure(trace: CapturedTraceback, step: str) -> list[Reason]:
    """The line of code that a failure came from, where one is known."""
    told = format_labelled_location(trace)
    return [Reason("line", told, step, trace=trace)] if told else []


def find_key_in_doubt(step: StepRow) -> str:
    return step.idempotency_key if step.in_doubt else ""


def format_key_to_ask(step: StepRow) -> str:
    """Notify an operator how to settle a doubt: the service knows what it did by the key that came with the call."""
    if not step.in_doubt:
        return ""
    return (
        f"; ask {step.agent} whether it knows the idempotency key {step.idempotency_key}, and say what it answers with"
        " `arriero task answer`"
    )
