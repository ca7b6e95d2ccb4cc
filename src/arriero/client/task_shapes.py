"""Tasks and steps as the command line and the HTTP API show them; what is printed for operators is made from the same values."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..core.starts import find_snooze_end
from ..core.supervision import read_step_policy
from ..core.undo import list_open_compensations
from ..explain.convoys import TasksAhead
from ..explain.past import TaskPast
from ..inspection.attempts import Retrying
from ..model import TASK_OPEN, Instant, Loaded, StepKind, StepRow, TaskRow, TaskState
from ..model.failures import StepFailure, TaskFailure, read_step_failure, read_task_failure
from ..model.progress import PublishedRow
from ..model.tags import read_tags
from ..store.readable import faults_of, format_faults, legible, legible_task
from ..store.state_store import StateStore
from .payload_record import ShownRecord
from .row_shapes import build_output, to_datetime
from .task_view import (
    StepFacts,
    describe_release_wait,
    find_published,
    list_published_faults,
    load_tasks_ahead,
    read_family,
    waiting_for,
)

if TYPE_CHECKING:
    from ..explain.children import Relatives  # only who shows a task with children pays for loading it

Payloads = Literal["included", "withheld"]
Payload = msgspec.Raw | msgspec.UnsetType | None  # JSON text; unset for those who may not read payloads


class ListedRetry(msgspec.Struct, frozen=True):
    """The step of a task running with the most failures that is tried again.

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
    """One line of ``task list``.

    ``retry``: what of it is tried again; None: nothing, or it is not asked for. ``waiting_for``: what else moves it next; empty:
    nothing, or it is not asked for.
    """

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
    snoozed_until: datetime | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    waiting_for: str = ""


class StandingTask(msgspec.Struct, frozen=True):
    """A task as a verb on it prints it."""

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
    tags: dict[str, str] = msgspec.field(default_factory=dict)


class ShownPolicy(msgspec.Struct, frozen=True):
    """A step's policy; ``calls_max`` is tries x attempts x rounds. ``extend_max``: None: ten times the attempt's time."""

    tries: int
    attempts: int
    rounds: int
    calls_max: int
    cool_off: float
    complete_within: float
    wait_within: float | None
    then: str
    complete_within_factor: float
    extend_max: float | None


class ShownStep(StepFacts, frozen=True, kw_only=True):
    """One step, compensation, timer or child of ``task show``; ``undoes`` names the step it undoes by its ordinal.

    ``past``: of a life that was undone before the task ran again. ``asked``: what the code asks with, where an operator
    had other ``arguments`` sent. ``checkpoint``: what its attempts kept last. ``published``: what they published last, at
    ``published_at``. ``started_at``: when its last attempt began. ``took_seconds``: without ``waited_seconds``, in which the
    task waited for an operator. ``child``: id of the task that it is, or that undoes itself for it, with ``child_state``, null if it
    was not submitted yet or was purged; ``detached``: the task neither waits for it nor undoes it.
    ``copied_from``: of a fork: id of the task that has done it and that alone undoes it, as ``copied_step``; empty: it was purged.
    """

    kind: str
    state: str
    policy: ShownPolicy | None
    failure: StepFailure | None
    arguments: Payload = msgspec.UNSET
    asked: Payload = msgspec.UNSET
    result: Payload = msgspec.UNSET
    checkpoint: Payload = msgspec.UNSET
    published: Payload = msgspec.UNSET
    published_at: datetime | None = None


class TaskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it stands, with its steps.

    ``payloads``: over HTTP: ``withheld`` if the token lacks the scope read-payloads; then arguments, results, output, checkpoints, details
    of failures and the record are left out. ``turn``: where it stands in its convoy: waiting, open, batched, ended or set_aside.

    ``published``: what its code published last, at ``published_at``; null: nothing. Steps have the same.
    ``parent``: id of the task whose code has started it, and ``parent_step``, the label of the step that it is there.
    ``forked_from``: of a fork: id of the task that it does again from ``forked_step`` on.
    ``batch``: id of the task that handles its message in a batch of its convoy, which may be itself.

    ``run``: number of this run of its code, which is more than 1 after ContinueAs; earlier runs are the tasks ``ID~1``, ``ID~2``.
    ``is_earlier_run``: it ended by ContinueAs, and its code continues in another run.

    ``took_seconds``: from submission to end, without ``waited_seconds``, in which it has waited for an operator.
    ``held_by``: the process that drives it. ``unreadable``: columns that this release cannot read; what is shown in their
    place is not theirs. ``record``: edited arguments, what operators gave by hand, and late answers.
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
    arguments: Payload = msgspec.UNSET
    output: Payload = msgspec.UNSET
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
    record: ShownRecord | msgspec.UnsetType = ShownRecord()
    app: str = ""
    snoozed_until: datetime | None = None
    payloads: Payloads | msgspec.UnsetType = msgspec.UNSET
    published: Payload = msgspec.UNSET
    published_at: datetime | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    parent: str | None = None
    parent_step: str | None = None
    forked_from: str | None = None
    forked_step: str | None = None
    batch: str | None = None
    code_version: str | None = None
    run: int = 1
    is_earlier_run: bool = False


class EndAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """End of a task. A processed task has an ``output``; others have ``public``, ``reason``, ``step`` and ``code``.

    ``public``: what a customer may read of the failure. ``reason``: for operators; empty if the token lacks the scope read.
    ``payloads``: ``withheld`` if the token lacks the scope read-payloads; then there is no output.
    """

    state: str
    ended_at: datetime | None = None
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reason: str = ""
    step: str = ""
    code: str = ""
    open_compensations: tuple[str, ...] = ()
    payloads: str = "included"
    public: str = ""


def name_apps(tasks: list[ListedTask]) -> list[ListedTask]:
    """Add to each task its App, beside its workflow, where the tasks are of several Apps."""
    if len({task.app for task in tasks} - {""}) <= 1:
        return tasks
    named = {task.no: f"{task.workflow} ({task.app or 'no App'})" for task in tasks}
    return [msgspec.structs.replace(task, workflow=named[task.no]) for task in tasks]


class TaskContext(msgspec.Struct, frozen=True):
    """Facts beside a task's own rows: times, names of the processes that hold it, the store's clock.

    ``record``: what is kept of its payloads. ``family``: its parent and its children.
    """

    times: TaskPast
    holders: dict[int, str]
    now: Instant
    record: ShownRecord = ShownRecord()
    published: Mapping[int, PublishedRow] = {}
    family: "Relatives | None" = None

    def show_published(self, ordinal: int) -> dict[str, Any]:
        """The fields of a task (0) or a step that show what it has published."""
        row = find_published(self.published, ordinal)
        if row is None or row.value is None:
            return {"published": None, "published_at": None}
        return {"published": msgspec.Raw(row.value.encode()), "published_at": to_datetime(row.at)}

    def holder(self, process_no: int | None) -> str | None:
        """The name of a process; its number where nobody knows a name."""
        return None if process_no is None else self.holders.get(process_no, f"process {process_no}")


def build_listed_task(as_it_stands: TaskRow, retrying: Retrying | None = None, waiting: str = "") -> ListedTask:
    """Build one line of ``task list``; its reason names what of the row cannot be read. ``waiting``: what moves it next."""
    task, faults = legible(as_it_stands), faults_of(as_it_stands)
    failure = None if task.failure is None else read_task_failure(task.failure)
    return build_output(
        ListedTask,
        task,
        no=task.task_no,
        id=task.task_id,
        reason=format_faults(faults) or ("" if failure is None else failure.reason),
        paused=task.paused_at is not None,
        snoozed_until=to_datetime(find_snooze_end(task)),
        tags=read_tags(task.tags),
        retry=None if retrying is None else build_output(ListedRetry, retrying, running=retrying.is_running),
        waiting_for=waiting,
    )


async def load_waits(store: StateStore, rows: Sequence[TaskRow]) -> dict[int, str]:
    """Load what moves each of some tasks next, by their numbers; of those that have ended nothing. Raises StoreError."""
    found = {}
    for as_it_stands in await store.load_all([row.task_no for row in rows if row.state in TASK_OPEN]):
        loaded, faults = legible_task(as_it_stands)
        found[loaded.task.task_no] = describe_release_wait(faults) if faults else waiting_for(loaded)
    return found


async def load_standing_task(as_it_stands: Loaded, store: StateStore) -> StandingTask:
    """Build a task as a verb shows it, with the tasks before it in its convoy. Raises StoreError."""
    ahead = await load_tasks_ahead(as_it_stands, store)
    family = None
    for step in as_it_stands.steps:
        if step.kind is StepKind.CHILD:
            family = await read_family(as_it_stands, store)
            break
    loaded, faults = legible_task(as_it_stands)
    task = loaded.task
    return build_output(
        StandingTask,
        task,
        id=task.task_id,
        waiting_for=describe_release_wait(faults) if faults else waiting_for(loaded, ahead, family),
        reason="" if task.failure is None else read_task_failure(task.failure).reason,
        paused=task.paused_at is not None,
        convoy=None if loaded.convoy is None else loaded.convoy.key,
        tags=read_tags(task.tags),
    )


def build_shown_task(
    as_it_stands: Loaded, context: TaskContext, ahead: TasksAhead | None = None, **more: Any
) -> TaskAnswer:
    """Build ``task show``. ``ahead``: the tasks before it in its convoy, if its turn has not come."""
    loaded, faults = legible_task(as_it_stands)
    task = loaded.task
    elapsed = context.times.measure_task(task, context.now)
    unread_events = (f"column events of table history (row {number})" for number in context.times.unreadable)
    without_policy = {fault.key[0] for fault in faults if (fault.table, fault.column) == ("step", "policy")}
    has_policy = all((fault.table, fault.column) != ("task", "policy") for fault in faults)
    failure = None if task.failure is None else read_task_failure(task.failure)
    return build_output(
        TaskAnswer,
        task,
        no=task.task_no,
        id=task.task_id,
        waiting_for=describe_release_wait(faults) if faults else waiting_for(loaded, ahead, context.family),
        reason="" if failure is None else failure.reason,
        failure=failure,
        open_compensations=_open_compensations_of(loaded),
        nothing_to_undo=() if failure is None else failure.nothing_to_undo,
        policy=msgspec.Raw(task.policy.encode() if has_policy else b"null"),
        arguments=msgspec.Raw(loaded.arguments.encode()),
        steps=tuple(
            _build_step(step, loaded, context, has_policy=step.step_no not in without_policy) for step in loaded.steps
        ),
        convoy=None if loaded.convoy is None else loaded.convoy.key,
        turn=None if task.turn is None else str(task.turn),
        unreadable=(*(fault.says for fault in faults), *list_published_faults(context.published), *unread_events),
        took_seconds=elapsed.took,
        waited_seconds=elapsed.waited,
        held_by=context.holder(task.locked_by),
        record=context.record,
        snoozed_until=to_datetime(find_snooze_end(task)),
        **context.show_published(0),
        tags=read_tags(task.tags),
        is_earlier_run=task.next_no is not None,
        **({} if context.family is None else context.family.show_parent(task)),
        **more,
    )


def _open_compensations_of(loaded: Loaded) -> tuple[str, ...]:
    undoing = loaded.task.state in (TaskState.COMPENSATING, TaskState.HELD)
    return list_open_compensations(loaded.steps) if undoing else ()


def _build_step(step: StepRow, loaded: Loaded, context: TaskContext, *, has_policy: bool) -> ShownStep:
    elapsed = context.times.measure_step(step, context.now)
    return build_output(
        ShownStep,
        step,
        undoes=_find_undone(loaded, step),
        policy=_build_policy(step) if has_policy and step.kind is not StepKind.TIMER and not step.is_of_child else None,
        failure=None if step.failure is None else read_step_failure(step.failure),
        past=step.ordinal <= loaded.task.past_count,
        arguments=msgspec.Raw(step.arguments.encode()) if step.arguments else None,
        started_at=to_datetime(context.times.began.get(step.ordinal)),
        took_seconds=elapsed.took,
        waited_seconds=elapsed.waited,
        held_by=context.holder(step.locked_by),
        **context.show_published(step.ordinal),
        **({} if context.family is None else context.family.show_child(loaded, step)),
    )


def _find_undone(loaded: Loaded, step: StepRow) -> int | None:
    """Find the ordinal of the step that a compensation undoes. A forward step undoes none, and there may be thousands of them."""
    if step.undoes is None:
        return None
    return next((other.ordinal for other in loaded.steps if other.step_no == step.undoes), None)


def _build_policy(step: StepRow) -> ShownPolicy:
    policy = read_step_policy(step)
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
        supervision.complete_within_factor,
        policy.extend_max,
    )
