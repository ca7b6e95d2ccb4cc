"""Tasks and steps as ``--json`` prints them; what is printed for people is made from the same values."""

from datetime import datetime

import msgspec

from ..attempt import as_datetime
from ..core.attempts import Retrying
from ..core.compensation import open_compensations
from ..core.convoy_words import Ahead
from ..core.elapsed import TaskTimes
from ..core.readable import faults_of, faults_told, legible, legible_task
from ..core.supervision import step_policy
from ..model import Instant, Loaded, StepFailure, StepKind, StepRow, TaskFailure, TaskRow, TaskState
from ..task_view import waiting_for, waiting_for_release
from .output import time_of
from .payload_record import ShownRecord

_read_task_failure = msgspec.json.Decoder(TaskFailure).decode
_read_step_failure = msgspec.json.Decoder(StepFailure).decode


class ListedRetry(msgspec.Struct, frozen=True):
    """Of a task under way the step with the most failures that is tried again.

    ``attempt``: the number of the one that runs, or of the next one, which begins at ``next_at`` or later (None: one
    runs, or the task is paused). ``failure``: of the last one.
    """

    agent: str
    step: str
    attempt: int
    failure_count: int
    failure: StepFailure
    running: bool
    next_at: datetime | None


class ListedTask(msgspec.Struct, frozen=True):
    """One line of ``task list``. ``retry``: what of it is tried again; None: nothing, or it is not asked for."""

    no: int
    id: str
    workflow: str
    state: str
    priority: int
    failure_count: int
    lost_count: int
    reason: str
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    incarnation: int
    paused: bool
    retry: ListedRetry | None = None
    app: str = ""


class StandingTask(msgspec.Struct, frozen=True):
    """How a task stands, as a verb on it prints it."""

    id: str
    workflow: str
    state: str
    failure_count: int
    lost_count: int
    priority: int
    waiting_for: str
    reason: str
    submitted_at: datetime
    ended_at: datetime | None
    incarnation: int
    paused: bool
    convoy: str | None
    place: int | None
    sequence: int | None


class ShownPolicy(msgspec.Struct, frozen=True):
    """A step's policy; ``calls_max`` is tries x attempts x rounds."""

    tries: int
    attempts: int
    rounds: int
    calls_max: int
    cool_off: float
    complete_within: float
    wait_within: float | None
    then: str


class ShownStep(msgspec.Struct, frozen=True):
    """One step, compensation or timer of ``task show``; ``undoes`` names the step it undoes by its ordinal.

    ``past``: of a life that was undone before the task ran again. ``asked``: what the code asks with, where a person
    had other ``arguments`` sent. ``started_at``: when its last attempt began. ``took_seconds``: without
    ``waited_seconds``, in which the task waited for a person.
    """

    ordinal: int
    kind: str
    name: str
    key: str
    label: str
    agent: str
    state: str
    attempt: int
    taken: bool
    failure_count: int
    lost_count: int
    in_doubt: bool
    pivot: bool
    undoes: int | None
    idempotency_key: str
    policy: ShownPolicy | None
    failure: StepFailure | None
    past: bool
    arguments: msgspec.Raw | None
    asked: msgspec.Raw | None
    result: msgspec.Raw | None
    opened_at: datetime
    not_before: datetime | None
    complete_by: datetime | None
    finished_at: datetime | None
    started_at: datetime | None
    took_seconds: float | None
    waited_seconds: float
    held_by: str | None


class ShownTask(msgspec.Struct, frozen=True):
    """``task show``. ``turn``: where it stands in its convoy: waiting, open, ended or set_aside.

    ``took_seconds``: from submission to end, without ``waited_seconds``, in which it has waited for a person.
    ``held_by``: the process that drives it. ``unreadable``: columns that this release cannot read; what is shown in their
    place is not theirs. ``record``: edited arguments, what people gave by hand, and late answers.
    """

    no: int
    id: str
    workflow: str
    state: str
    priority: int
    incarnation: int
    failure_count: int
    lost_count: int
    waiting_for: str
    reason: str
    failure: TaskFailure | None
    open_compensations: tuple[str, ...]
    nothing_to_undo: tuple[str, ...]
    policy: msgspec.Raw
    arguments: msgspec.Raw
    output: msgspec.Raw | None
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    not_before: datetime | None
    complete_by: datetime | None
    paused_at: datetime | None
    reply_to: str | None
    steps: tuple[ShownStep, ...]
    convoy: str | None = None
    place: int | None = None
    sequence: int | None = None
    turn: str | None = None
    unreadable: tuple[str, ...] = ()
    took_seconds: float | None = None
    waited_seconds: float = 0.0
    held_by: str | None = None
    record: ShownRecord = ShownRecord()
    app: str = ""


def told_apart(tasks: list[ListedTask]) -> list[ListedTask]:
    """As they are, or where they are of several Apps, each with its App beside its workflow."""
    if len({task.app for task in tasks} - {""}) <= 1:
        return tasks
    named = {task.no: f"{task.workflow} ({task.app or 'no App'})" for task in tasks}
    return [msgspec.structs.replace(task, workflow=named[task.no]) for task in tasks]


class Beside(msgspec.Struct, frozen=True):
    """What is read beside a task's own rows: its times, the names of the processes that hold it, the store's clock.

    ``record``: what is kept of its payloads.
    """

    times: TaskTimes
    holders: dict[int, str]
    now: Instant
    record: ShownRecord = ShownRecord()

    def holder(self, process_no: int | None) -> str | None:
        """The name of a process; its number where nobody knows a name."""
        return None if process_no is None else self.holders.get(process_no, f"process {process_no}")


def _listed_retry(step: Retrying) -> ListedRetry:
    return ListedRetry(
        step.agent, step.step, step.attempt, step.failure_count, step.failure, step.is_running, time_of(step.next_at)
    )


def listed(as_it_stands: TaskRow, retrying: Retrying | None = None) -> ListedTask:
    """A task's row as one line; its reason tells what of it cannot be read."""
    task, faults = legible(as_it_stands), faults_of(as_it_stands)
    failure = None if task.failure is None else _read_task_failure(task.failure)
    return ListedTask(
        task.task_no,
        task.task_id,
        task.workflow,
        str(task.state),
        task.priority,
        task.failure_count,
        task.lost_count,
        faults_told(faults) or ("" if failure is None else failure.reason),
        as_datetime(task.submitted_at),
        time_of(task.started_at),
        time_of(task.ended_at),
        task.incarnation,
        task.paused_at is not None,
        None if retrying is None else _listed_retry(retrying),
        task.app,
    )


def standing(as_it_stands: Loaded, ahead: Ahead | None = None) -> StandingTask:
    """A task's rows as one line. ``ahead``: who comes before it in its convoy, if its turn has not come."""
    loaded, faults = legible_task(as_it_stands)
    task = loaded.task
    return StandingTask(
        id=task.task_id,
        workflow=task.workflow,
        state=str(task.state),
        failure_count=task.failure_count,
        lost_count=task.lost_count,
        priority=task.priority,
        waiting_for=waiting_for_release(faults) if faults else waiting_for(loaded, ahead),
        reason="" if task.failure is None else _read_task_failure(task.failure).reason,
        submitted_at=as_datetime(task.submitted_at),
        ended_at=time_of(task.ended_at),
        incarnation=task.incarnation,
        paused=task.paused_at is not None,
        convoy=None if loaded.convoy is None else loaded.convoy.key,
        place=task.place,
        sequence=task.sequence,
    )


def shown(as_it_stands: Loaded, beside: Beside, ahead: Ahead | None = None) -> ShownTask:
    """A task's rows as one value. ``ahead``: who comes before it in its convoy, if its turn has not come."""
    loaded, faults = legible_task(as_it_stands)
    task = loaded.task
    elapsed = beside.times.of_task(task, beside.now)
    unread_events = (f"column events of table history (row {number})" for number in beside.times.unreadable)
    without_policy = {fault.number for fault in faults if (fault.table, fault.column) == ("step", "policy")}
    has_policy = all((fault.table, fault.column) != ("task", "policy") for fault in faults)
    failure = None if task.failure is None else _read_task_failure(task.failure)
    return ShownTask(
        no=task.task_no,
        id=task.task_id,
        workflow=task.workflow,
        state=str(task.state),
        priority=task.priority,
        incarnation=task.incarnation,
        failure_count=task.failure_count,
        lost_count=task.lost_count,
        waiting_for=waiting_for_release(faults) if faults else waiting_for(loaded, ahead),
        reason="" if failure is None else failure.reason,
        failure=failure,
        open_compensations=_still_open(loaded),
        nothing_to_undo=() if failure is None else failure.nothing_to_undo,
        policy=msgspec.Raw(task.policy.encode() if has_policy else b"null"),
        arguments=msgspec.Raw(loaded.arguments.encode()),
        output=_raw(task.output),
        submitted_at=as_datetime(task.submitted_at),
        started_at=time_of(task.started_at),
        ended_at=time_of(task.ended_at),
        not_before=time_of(task.not_before),
        complete_by=time_of(task.complete_by),
        paused_at=time_of(task.paused_at),
        reply_to=task.reply_to,
        steps=tuple(
            _step(step, loaded, beside, has_policy=step.step_no not in without_policy) for step in loaded.steps
        ),
        convoy=None if loaded.convoy is None else loaded.convoy.key,
        place=task.place,
        sequence=task.sequence,
        turn=None if task.turn is None else str(task.turn),
        unreadable=(*(fault.says for fault in faults), *unread_events),
        took_seconds=elapsed.took,
        waited_seconds=elapsed.waited,
        held_by=beside.holder(task.locked_by),
        record=beside.record,
        app=task.app,
    )


def _still_open(loaded: Loaded) -> tuple[str, ...]:
    undoing = loaded.task.state in (TaskState.COMPENSATING, TaskState.ERROR)
    return open_compensations(loaded.steps) if undoing else ()


def _step(step: StepRow, loaded: Loaded, beside: Beside, *, has_policy: bool) -> ShownStep:
    elapsed = beside.times.of_step(step, beside.now)
    return ShownStep(
        ordinal=step.ordinal,
        kind=str(step.kind),
        name=step.name,
        key=step.key,
        label=step.label,
        agent=step.agent,
        state=str(step.state),
        attempt=step.attempt,
        taken=step.taken,
        failure_count=step.failure_count,
        lost_count=step.lost_count,
        in_doubt=step.in_doubt,
        pivot=step.pivot,
        undoes=next((other.ordinal for other in loaded.steps if other.step_no == step.undoes), None),
        idempotency_key=step.idempotency_key,
        policy=_policy(step) if has_policy and step.kind is not StepKind.TIMER else None,
        failure=None if step.failure is None else _read_step_failure(step.failure),
        past=step.ordinal <= loaded.task.past_count,
        arguments=_raw(step.arguments or None),
        asked=_raw(step.asked),
        result=_raw(step.result),
        opened_at=as_datetime(step.opened_at),
        not_before=time_of(step.not_before),
        complete_by=time_of(step.complete_by),
        finished_at=time_of(step.finished_at),
        started_at=time_of(beside.times.began.get(step.ordinal)),
        took_seconds=elapsed.took,
        waited_seconds=elapsed.waited,
        held_by=beside.holder(step.locked_by),
    )


def _policy(step: StepRow) -> ShownPolicy:
    policy = step_policy(step)
    supervision = policy.supervision
    return ShownPolicy(
        policy.retry.tries,
        supervision.attempts,
        supervision.rounds,
        policy.calls_max,
        supervision.cool_off_seconds(),
        policy.complete_within,
        policy.wait_within,
        supervision.then,
    )


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
