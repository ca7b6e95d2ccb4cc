"""Plain data: the rows of the state store and the words for their states. Imports nothing of arriero.

Instants are whole microseconds since 1970 by the store's clock. Payloads are JSON text.
"""

from enum import StrEnum
from typing import Any, Literal, NewType

import msgspec

Instant = NewType("Instant", int)
MICROSECONDS = 1_000_000


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
    happened; ``undo`` a compensation failed.
    """

    kind: Literal["step", "refused", "limit", "bug", "replay", "unawaited", "lost", "in_doubt", "undo"]
    reason: str
    step: str = ""
    code: str = ""
    nothing_to_undo: tuple[str, ...] = ()


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
