"""Plain data: the rows of the state store and the words for their states. Imports nothing of arriero.

Instants are whole microseconds since 1970 by the store's clock. Payloads are JSON text.
"""

from enum import StrEnum
from typing import Any, Literal, NewType

import msgspec

Instant = NewType("Instant", int)
MICROSECONDS = 1_000_000


STEP_BITS = 20  # a step's number is its task's number and its ordinal, so that a task's steps lie side by side


def later(instant: Instant, seconds: float) -> Instant:
    """The instant ``seconds`` after ``instant``."""
    return Instant(instant + round(seconds * MICROSECONDS))


def seconds_between(start: Instant, end: Instant) -> float:
    """Seconds from ``start`` to ``end``; negative when ``end`` lies before."""
    return (end - start) / MICROSECONDS


ProcessState = Literal["pending", "processing", "processed", "error", "compensating", "compensated"]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class TaskState(StrEnum):
    """``process_state`` of a task."""

    PENDING = "pending"
    PROCESSING = "processing"
    PROCESSED = "processed"
    ERROR = "error"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"


class StepState(StrEnum):
    """State of a step, a compensation or a timer."""

    PLANNED = "planned"  # a compensation whose turn has not come
    PENDING = "pending"  # a request: may be taken when its time has come
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class StepKind(StrEnum):
    """What a row of the step table stands for."""

    STEP = "step"
    COMPENSATION = "compensation"
    TIMER = "timer"


class Verb(StrEnum):
    """What a person may ask of a task; what each does stands in ``core.verbs``."""

    RESUBMIT = "resubmit"
    COMPENSATE = "compensate"
    CANCEL = "cancel"
    EXTEND = "extend"
    ANSWER = "answer"
    PAUSE = "pause"
    RESUME = "resume"


TASK_OPEN = frozenset({TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING})
TASK_FORWARD = frozenset({TaskState.PENDING, TaskState.PROCESSING})
STEP_OPEN = frozenset({StepState.PENDING, StepState.RUNNING})


class StepFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt, or at last the step, has no result."""

    cause: Literal["permanent", "transient", "unknown", "expired"]
    message: str = ""
    code: str = ""
    details: Any = None


class TaskFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a task is undone or waits for a person.

    ``kind``: ``step`` a step failed; ``refused`` the workflow raised Permanent; ``limit`` the task's own time passed;
    ``bug`` any other exception of workflow code; ``replay`` code and record disagree; ``unawaited`` a call value was
    never awaited; ``lost`` processes died with it too often; ``in_doubt`` a step that cannot be undone may have
    happened; ``undo`` a compensation failed; ``person`` somebody cancelled or compensated it.
    ``redo``: ordinals of the failed steps that a resubmission does again.
    """

    kind: Literal["step", "refused", "limit", "bug", "replay", "unawaited", "lost", "in_doubt", "undo", "person"]
    reason: str
    step: str = ""
    code: str = ""
    nothing_to_undo: tuple[str, ...] = ()
    redo: tuple[int, ...] = ()
    began_by: "TaskFailure | None" = None  # of an undo that stopped: why it was begun
    results: int | None = None  # recorded when the task went into error


class UndoContext(msgspec.Struct, frozen=True):
    """What a compensation is told of the step it undoes. ``result`` is JSON text, None when unknown."""

    outcome: Literal["completed", "unknown"]
    forward_key: str
    result: str | None


class TaskRow(msgspec.Struct, frozen=True):
    """One task. What each field means stands in DESIGN's words in docs/glossary.md."""

    task_no: int
    task_id: str
    workflow: str
    state: TaskState
    priority: int
    not_before: Instant | None  # None: only news wakes it
    locked_by: int | None
    fence: int
    revision: int
    incarnation: int
    failure_count: int
    lost_count: int
    opened_count: int  # steps, timers and compensations ever opened: the last ordinal
    open_count: int  # steps and compensations now pending or running
    result_count: int  # results recorded: the last result_number
    unseen_since: Instant | None  # since when news (or the claim) waits for the holder's next advance
    seed: int
    policy: str
    body_hash: str
    submitted_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    complete_by: Instant | None  # the whole task's limit
    output: str | None
    failure: str | None
    link: int  # commits written to the task's history
    head: str  # hash of the last one
    paused_at: Instant | None = None  # since when a person keeps it from going on
    undoing: bool = False  # its undo has begun in this incarnation: it never goes forward again in it
    past_count: int = 0  # steps up to this ordinal belong to a life that was undone as a whole
    branched_at: Instant | None = None  # steps opened from here on followed a failure that is done again
    reply_to: str | None = None  # the submitter's reply queue
    status_count: int = 0  # statuses written: the last one's number


class StepRow(msgspec.Struct, frozen=True):
    """One step, compensation or timer of a task."""

    step_no: int
    task_no: int
    ordinal: int  # order of opening in the task
    kind: StepKind
    name: str
    key: str  # given by the user, else #1, #2, ... by occurrence
    agent: str
    state: StepState
    priority: int
    arguments: str
    policy: str
    idempotency_key: str
    pivot: bool
    effect_free: bool
    compensation: str | None  # the policy of its compensation; None: it has none
    undoes: int | None  # of a compensation: the step it undoes
    undo: str | None  # of a compensation: its UndoContext
    attempt: int  # the number of the current or next attempt
    failure_count: int
    lost_count: int
    taken: bool  # an attempt was dispatched at least once
    in_doubt: bool
    fence: int
    locked_by: int | None
    not_before: Instant | None  # of a timer: when it fires
    complete_by: Instant | None
    wait_by: Instant | None
    result: str | None
    failure: str | None
    result_number: int | None
    delivered_at: Instant | None
    opened_at: Instant
    finished_at: Instant | None
    asked: str | None = None  # what the code asks with, where a person had other arguments sent

    @property
    def label(self) -> str:
        """How people see it: the name, with the key where one was given or it occurred again."""
        return self.name if self.key == "#1" else f"{self.name}[{self.key}]"


class ProcessRow(msgspec.Struct, frozen=True):
    """One start of one process."""

    process_no: int
    instance: str
    lease_until: Instant
    retired: bool
    about: str = "{}"  # what it runs, as JSON text


class ProcessAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What a process start says of itself, so that others can tell what has code somewhere.

    ``workflows``: as in a task's row, so with ``step:NAME`` for tasks of one step. ``steps``: as Agent and name.
    ``policies``: of its workflows by name, as JSON text in a task's row, for those who submit by SQL.
    """

    app: str = ""
    roles: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    steps: tuple[tuple[str, str], ...] = ()
    policies: dict[str, str] = {}


class LeaseRow(msgspec.Struct, frozen=True):
    """A lease by name, its growing term and its holder."""

    name: str
    term: int
    holder: int | None
    until: Instant


class Loaded(msgspec.Struct, frozen=True):
    """A task with all that is recorded of it; steps in the order they were opened."""

    task: TaskRow
    arguments: str
    steps: tuple[StepRow, ...]

    @property
    def life(self) -> tuple[StepRow, ...]:
        """The steps that count: without those of a life that was undone as a whole before the task was resubmitted."""
        return life_of(self.task, self.steps)


def life_of(task: TaskRow, steps: tuple[StepRow, ...]) -> tuple[StepRow, ...]:
    """See ``Loaded.life``."""
    return steps if not task.past_count else tuple(step for step in steps if step.ordinal > task.past_count)


StatusKind = Literal["received", "started", "completed", "failed", "compensated", "needs_attention", "dropped"]


class StatusRow(msgspec.Struct, frozen=True):
    """A message in a reply queue. ``no`` orders the queue; 0: not kept yet. ``data`` is JSON text.

    ``dropped``: a gap mark, for messages nobody acknowledged in time; its ``task_no`` and ``number`` are 0.
    """

    no: int
    queue: str
    task_no: int
    task_id: str
    workflow: str
    number: int
    incarnation: int
    kind: StatusKind
    at: Instant
    data: str


class AlertRow(msgspec.Struct, frozen=True):
    """That a task needs a person: opened when it goes into error, closed when it leaves it."""

    no: int
    task_no: int
    task_id: str
    workflow: str
    incarnation: int
    cause: str  # the kind of its TaskFailure
    reason: str
    step: str
    code: str
    opened_at: Instant
    closed_at: Instant | None
    told: tuple[str, ...]  # sinks that know its present state
    attempts: int  # how often it was taken to be told
    next_at: Instant | None  # when it is to be told (again); None: every sink knows
    error: str  # why telling it failed last


class HistoryRow(msgspec.Struct, frozen=True):
    """One commit's events of one task (or of the store itself: ``task_no`` 0), one link of its hash chain."""

    no: int
    task_no: int
    task_id: str
    link: int
    at: Instant
    actor: str
    events: msgspec.Raw
    hash: str
