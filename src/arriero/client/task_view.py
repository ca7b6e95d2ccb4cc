"""A task as operators and programs see it: how it stands, its steps with their results, and what it waits for."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal

import msgspec

from ..explain.convoys import TasksAhead, describe_person_wait, describe_turn_wait, find_tasks_ahead
from ..explain.past import TaskPast
from ..model import STEP_OPEN, Loaded, ProcessState, StepKind, StepState, TaskState, Turn
from ..model.instants import as_datetime
from ..model.progress import PublishedRow
from ..model.signals import is_wait
from ..payloads.codec import decoder
from ..store.readable import Fault, faults_of, format_faults, legible, legible_task
from ..text.format import format_awaited
from .row_shapes import FailureView

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # checkers have it always; a default keeps a bare `TaskView` complete

    from ..explain.children import Relatives
    from ..store.state_store import StateStore

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

AHEAD_COUNTED_MAX = 100  # of those that come before a task in its convoy

StepStateName = Literal["planned", "pending", "running", "completed", "failed", "withdrawn"]
StepKindName = Literal["step", "compensation", "timer", "child"]

_any_json = decoder(Any, "result")


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that all views of a step share; ``StepView`` describes them."""

    ordinal: int
    name: str
    key: str
    label: str
    agent: str
    attempt: int
    taken: bool
    failure_count: int
    lost_count: int
    in_doubt: bool
    pivot: bool
    undoes: int | None
    idempotency_key: str
    past: bool
    held_by: str | None
    opened_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    not_before: datetime | None
    complete_by: datetime | None
    took_seconds: float | None
    waited_seconds: float
    child: str | None = None
    child_state: str | None = None
    detached: bool = False
    copied_from: str | None = None
    copied_step: int | None = None


class StepView(StepFacts, frozen=True, kw_only=True):
    """A step, compensation, timer or child of a task.

    Args:
        ordinal: its number in the task, in the order of opening: 1, 2, ...
        name, key: as the code has it; ``key`` is ``#1``, ``#2``, ... where none was given. ``label`` is both for operators,
            and what verbs like ``answer`` take.
        agent: the Agent that runs it; empty for a timer, a child and its undo.
        state: ``planned`` a compensation whose turn has not come; ``pending`` asked for; ``running``; ``completed``;
            ``failed`` permanently; ``withdrawn`` no longer wanted. A word of a newer release stays as it is.
        attempt: the number of the running attempt, else of the last or next one; 1 for the first.
        taken: whether an attempt was ever begun.
        failure_count: attempts that failed since it was last set back; ``lost_count``: those lost with their process.
        in_doubt: whether it may have happened although it has no result.
        pivot: past it nothing of the task is undone.
        undoes: of a compensation: ordinal of the step it undoes. ``undone_by``: of a step: ordinal of its compensation.
        idempotency_key: what its service knows it by; empty for a timer.
        past: whether it belongs to a life that was undone before the task ran again.
        held_by: name of the process that runs its attempt now; None: none does.
        opened_at: when the code asked for it. ``started_at``: when its last attempt began; None: none did.
            ``finished_at``: when it got its result, failed permanently or was withdrawn.
        not_before: of one that is pending: when it may begin next; of a timer: when it fires.
        complete_by: until when the running attempt must end.
        took_seconds: from opening to end, without the time the task waited for an operator; None: it has not ended.
        waited_seconds: how long the task waited for an operator meanwhile.
        result: as the type that the step declares, if this App has its code, else as plain JSON values; None: it has
            none, or declares none (``state`` says).
        checkpoint: what its attempts kept last by ``attempt.checkpoint``, as plain JSON values; None: nothing.
        published: what its attempts published last by ``attempt.publish``, as plain JSON values; None: nothing.
            ``published_at``: when.
        failure: why its last attempt has no result; None: nothing failed.
        child: id of the task that it is, or that undoes itself for it, if that is another task; ``child_state``: of that; None: it
            is not submitted yet, or was purged. ``detached``: it is neither waited for nor undone.
        copied_from: of a fork: id of the task that has done it and that alone undoes it, as ``copied_step``; empty: it was purged.
    """

    kind: StepKindName
    state: StepStateName
    undone_by: int | None
    result: Any
    failure: FailureView | None
    checkpoint: Any = None
    published: Any = None
    published_at: datetime | None = None


class TaskView(msgspec.Struct, Generic[R_co], frozen=True):
    """A task as it stood when it was read; typed by its handle. It never changes: ask again for how it stands now.

    Args:
        id, workflow: the task's id, and what it runs; ``step:NAME`` for a task of one step.
        state: ``pending``, ``processing``, ``processed``, ``held``, ``compensating`` or ``compensated``. A word of a
            newer release stays as it is, and ``unreadable`` names it.
        failure_count: attempts of its steps that failed; ``lost_count``: processes lost with it since its last progress.
        priority: 0 to 9, 9 is first.
        waiting_for: what moves it next, in words; empty: nothing does.
        reason: why it is undone or waits for an operator, in words; empty: neither is so.
        submitted_at, started_at, ended_at: by the store's clock; None: not yet.
        incarnation: 1, and one more with each time that an operator reopened it.
        paused: whether an operator paused it, since ``paused_at``.
        snoozed_until: the end of its last snooze, which may be over; None: it has none, or has ended.
        convoy: the key of its convoy, ``place`` and ``sequence`` in it; None: it is in no convoy, or has no number.
        complete_by: its own limit; None: it has none.
        not_before: when a Scheduler looks at it next; None: only news wakes it, or a caller holds it.
        held_by: name of the process that drives it, as ``arriero run`` logs it; None: it is free.
        took_seconds: from submission to end, without the time it waited for an operator; None: it has not ended.
        waited_seconds: how long it waited for an operator, held or paused; a wait that still continues counts since
            ``ended_at`` or ``paused_at``, and is not in it.
        output: what the workflow returned, as its type; None: it is not ``processed``, or returns None. As plain JSON
            values where neither the handle nor the App knows the workflow.
        failure: why it is undone or waits for an operator; None: neither is so. See also ``last_failure``.
        steps: in the order of their opening, with compensations and timers.
        open_compensations: labels of steps that are still to be undone, of a task that is being undone or held.
        nothing_to_undo: labels of completed steps that were left as they are, for they have no compensation.
        unreadable: what this release cannot read or show of it, in words; in its place stands nothing of the row's.
        app: name of the App that runs it; empty: not said, any App that has its code.
        public: what a customer may read of ``failure``; ``reason`` is for operators.
        published: what its code published last by ``arriero.publish``, as plain JSON values; None: nothing.
            ``published_at``: when.
        tags: as they are now, by name.
        run: number of this run of its code, which is more than 1 after ContinueAs. Earlier runs are the tasks ``ID~1``, ``ID~2``.
        is_earlier_run: it ended by ContinueAs, and its code continues in another run.
        parent: id of the task whose code has started it; None: none has, or it was purged. ``parent_step``: the label of the
            step that it is there. ``batch``: id of the task that handles its message in a batch of its convoy.
        forked_from: of a fork: id of the task that it does again from ``forked_step`` on; None: it is none, or that was purged.
        code_version: of the code that continues it, like ``2@blue``; None: version 1, or it has not begun.
    """

    id: str
    workflow: str
    state: ProcessState
    failure_count: int
    lost_count: int
    priority: int
    waiting_for: str
    reason: str
    submitted_at: datetime
    ended_at: datetime | None
    incarnation: int = 1
    paused: bool = False
    convoy: str | None = None
    place: int | None = None
    sequence: int | None = None
    started_at: datetime | None = None
    paused_at: datetime | None = None
    complete_by: datetime | None = None
    not_before: datetime | None = None
    held_by: str | None = None
    took_seconds: float | None = None
    waited_seconds: float = 0.0
    output: R_co | None = None
    failure: FailureView | None = None
    steps: tuple[StepView, ...] = ()
    open_compensations: tuple[str, ...] = ()
    nothing_to_undo: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    app: str = ""
    public: str = ""
    snoozed_until: datetime | None = None
    published: Any = None
    published_at: datetime | None = None
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    parent: str | None = None
    parent_step: str | None = None
    forked_from: str | None = None
    forked_step: str | None = None
    batch: str | None = None
    run: int = 1
    is_earlier_run: bool = False
    code_version: str | None = None

    @property
    def last_failure(self) -> FailureView | None:
        """The reason why it is undone or waits for an operator; else the last failure of a step; else None."""
        if self.failure is not None:
            return self.failure
        return next((step.failure for step in reversed(self.steps) if step.failure is not None and not step.past), None)


# --- what it waits for
def describe_release_wait(faults: Iterable[Fault]) -> str:
    """Describe the wait of a task with columns that cannot be read."""
    return f"a release that can read it, or an operator who corrects it: {format_faults(faults)}"


async def load_tasks_ahead(loaded: Loaded, store: "StateStore") -> TasksAhead | None:
    """Load the tasks before a task in its convoy; None if its turn has come, or it is in no convoy."""
    if loaded.convoy is None or loaded.task.turn is not Turn.WAITING:
        return None
    convoy = await store.find_convoy(loaded.convoy.key, AHEAD_COUNTED_MAX)
    return None if convoy is None else find_tasks_ahead(loaded.task.task_no, convoy.members)


def waiting_for(loaded: Loaded, ahead: TasksAhead | None = None, family: "Relatives | None" = None) -> str:
    """Describe what moves the task next, in a few words; empty when it has ended.

    ``ahead``: the tasks before it in its convoy; ``family``: its children; None if they were not loaded.
    """
    task = loaded.task
    if task.state is TaskState.HELD:
        return describe_person_wait(task, loaded.convoy)
    if task.ended_at is not None:
        return ""
    if task.paused_at is not None:
        return "an operator who resumes it"
    starts = (task.not_before, *(step.not_before for step in loaded.life if step.state is StepState.PENDING))
    if task.snoozed_until is not None and task.snoozed_until in starts:
        return f"the end of its snooze at {as_datetime(task.snoozed_until).isoformat(timespec='seconds')}"
    if task.turn in (Turn.WAITING, Turn.BATCHED) and loaded.convoy is not None:
        return describe_turn_wait(task, loaded.convoy, ahead)
    for step in loaded.life:
        if step.state in STEP_OPEN and is_wait(step):
            at = step.not_before
            return format_awaited(step) + (
                "" if at is None else f" until {as_datetime(at).isoformat(timespec='seconds')}"
            )
        if step.state in STEP_OPEN and step.kind is StepKind.TIMER and step.not_before is not None:
            return f"the time {as_datetime(step.not_before).isoformat(timespec='seconds')}"
        if step.state in STEP_OPEN and not step.agent and step.is_of_child:
            from ..explain.children import describe_wait_for_children  # only who has children pays for loading it

            return describe_wait_for_children(loaded, {} if family is None else family.children)
        if step.state in STEP_OPEN:
            what = "compensation" if step.kind is StepKind.COMPENSATION else "step"
            return f"{what} {step.label} of Agent {step.agent} ({step.state}, attempt {step.attempt})"
    return "a Scheduler"


# --- what is read beside the task's own rows
async def read_times(store: "StateStore", task_no: int) -> TaskPast:
    """Read the times of a task from its history."""
    times = TaskPast()
    async for row in store.history(task_no):
        times.add(row)
    return times


async def read_holders(loaded: Loaded, store: "StateStore") -> dict[int, str]:
    """Names of the processes that hold the task and its steps, by their numbers, as far as they are not retired."""
    numbers = [loaded.task.locked_by, *(step.locked_by for step in loaded.steps)]
    held = {number for number in numbers if isinstance(number, int)}
    if not held:
        return {}
    _, processes = await store.known_processes()
    return {process.process_no: process.instance for process in processes if process.process_no in held}


async def read_family(loaded: Loaded, store: "StateStore") -> "Relatives | None":
    """Read the parent, the children, the batch and the origin of a task; None: it has none."""
    task = loaded.task
    if (
        task.parent_step is None
        and task.forked_from is None
        and task.batch_no is None
        and not any(step.kind is StepKind.CHILD for step in loaded.steps)
    ):
        return None
    from .children import load_family  # only who shows a task with children pays for loading it

    return await load_family(legible_task(loaded)[0], store)


async def read_published(store: "StateStore", task_no: int) -> dict[int, PublishedRow]:
    """Read what a task (0) and its steps have published, by ordinal; as it stands, also where it cannot be read."""
    return {legible(row).ordinal: row for row in await store.published(task_no)}


def find_published(published: Mapping[int, PublishedRow], ordinal: int) -> PublishedRow | None:
    """Find what a task (0) or a step has published last, if it can be shown."""
    row = legible(published[ordinal]) if ordinal in published else None
    return None if row is None or row.value is None else row


def list_published_faults(published: Mapping[int, PublishedRow]) -> list[str]:
    """List the columns of published values that cannot be read, in words."""
    return [fault.says for row in published.values() for fault in faults_of(row)]
