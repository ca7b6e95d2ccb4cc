"""Plain data: the rows of the state store and the words for their states. Imports no decision.

Instants are whole microseconds since 1970 by the store's clock. Payloads are JSON text.
"""

from enum import StrEnum
from typing import Literal, NewType

import msgspec

Instant = NewType("Instant", int)
NUMBER_MAX = 2**63 - 1  # of any row
MICROSECONDS = 1_000_000
INSTANT_END = Instant(253_402_300_800 * MICROSECONDS)  # the year 10000, which no calendar of ours can show
# A task that waits because its workflow is paused is due then: so its row leaves what claims read, and an index finds it.
WAITS_FOR_WORKFLOW = Instant(INSTANT_END - 1)
STEP_BITS = 20  # a step's number is its task's number and its ordinal, so that a task's steps lie side by side


def later(instant: Instant, seconds: float) -> Instant:
    """The instant ``seconds`` after ``instant``."""
    return Instant(instant + round(seconds * MICROSECONDS))


def seconds_between(start: Instant, end: Instant) -> float:
    """Seconds from ``start`` to ``end``; negative when ``end`` lies before."""
    return (end - start) / MICROSECONDS


ProcessState = Literal["pending", "processing", "processed", "held", "compensating", "compensated"]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class TaskState(StrEnum):
    """``process_state`` of a task."""

    PENDING = "pending"
    PROCESSING = "processing"
    PROCESSED = "processed"
    HELD = "held"  # it waits for an operator
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"

    @classmethod
    def _missing_(cls, value: object) -> "TaskState | None":  # histories of releases to 0.4 have the other word
        return cls.HELD if value == "error" else None

    def __init__(self, word: str) -> None:
        self.stored = "error" if word == "held" else word  # in tables: release 0.4 reads it there (docs/adr/0077)


class StepState(StrEnum):
    """State of a step, a compensation or a timer."""

    PLANNED = "planned"  # a compensation whose turn has not come
    PENDING = "pending"  # a request: may be taken when its time has come
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class StepKind(StrEnum):
    """The kinds of rows in the step table."""

    STEP = "step"
    COMPENSATION = "compensation"
    TIMER = "timer"
    CHILD = "child"  # another task, which the code awaits; see core.children


class Verb(StrEnum):
    """The verbs of an operator on a task; ``model.verb_rules`` says which state allows them, ``core.verbs`` what they do."""

    RESUBMIT = "resubmit"
    COMPENSATE = "compensate"
    CANCEL = "cancel"
    EXTEND = "extend"
    ADJUST = "adjust"
    ANSWER = "answer"
    PAUSE = "pause"
    RESUME = "resume"
    SNOOZE = "snooze"
    TAG = "tag"
    PIN = "pin"


class Turn(StrEnum):
    """The place of a task in its convoy."""

    WAITING = "waiting"  # its turn has not come: nobody claims it
    OPEN = "open"  # it is its turn, until it has ended; if it is held, the key is blocked on it
    ENDED = "ended"  # processed or compensated
    SET_ASIDE = "set_aside"  # passed over; only an operator brings it back
    BATCHED = "batched"  # another task handles its message: ``TaskRow.batch_no``; it ends as that one ends


class ConvoyState(StrEnum):
    """The state of a convoy; an operator or a policy may have parked it, too."""

    IDLE = "idle"  # nothing is open; when something arrives it is its turn
    OPEN = "open"  # a task has its turn
    STOPPED = "stopped"  # the task whose turn it is needs an operator
    GAP = "gap"  # what comes next in the producer's sequence is missing


class ConvoyVerb(StrEnum):
    """The verbs of an operator on a convoy; their effects are in ``core.convoy_verbs``."""

    SET = "set"
    RELEASE = "release"
    SKIP = "skip"
    PARK = "park"
    MOVE_TO_HEAD = "move_to_head"


Ordering = Literal["place", "sequence"]
TASK_OPEN = frozenset({TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING})
TASK_FORWARD = frozenset({TaskState.PENDING, TaskState.PROCESSING})
TASK_ENDED = frozenset({TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD})
STEP_OPEN = frozenset({StepState.PENDING, StepState.RUNNING})


class TaskRow(msgspec.Struct, frozen=True, gc=False):
    """One task. The glossary (docs/glossary.md) explains the fields."""

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
    paused_at: Instant | None = None  # since when an operator keeps it from continuing
    undoing: bool = False  # its undo has begun in this incarnation: it never goes forward again in it
    past_count: int = 0  # steps up to this ordinal belong to a life that was undone as a whole
    branched_at: Instant | None = None  # steps opened from here on followed a failure that is done again
    reply_to: str | None = None  # the submitter's reply queue
    status_count: int = 0  # statuses written: the last one's number
    convoy_no: int | None = None
    place: int | None = None  # in its convoy, by the order of commits: 1, 2, ...
    sequence: int | None = None  # the producer's own number
    rank: int | None = None  # those that wait are taken by it: sequence, else place, unless an operator moved it
    turn: Turn | None = None
    due_at: Instant | None = None  # of one that has not started: not before, whenever its turn comes or a snooze ends
    ledger_no: int | None = None  # of the ledger that has not let it go yet: nobody may begin it
    app: str = ""  # the App that runs it; empty: not said, any App with its code does
    trace_context: str | None = None  # of who submitted it: traceparent, a space and tracestate; see tracing.context
    from_ledger: int | None = None  # number of the ledger that it came with; it stays
    submitter: str | None = None  # id of the token that submitted it, if that has a cap on open tasks; it stays
    snoozed_until: Instant | None = None  # nothing new of it begins before: so an operator wants it
    inbox: int = 0  # signals that no wait of its code has taken
    tags: str | None = None  # JSON text; see model.tags
    submitted_tags: str | None = None  # those it came with, as its code sees them, where an operator has changed them
    parent_step: int | None = None  # number of the step of another task that it is; it stays
    depth: int = 0  # how many tasks stand above it
    forked_from: int | None = None  # of a fork: number of the step from which on it does another task again; it stays
    batch_no: int | None = None  # number of the task that handles its message in a batch, which may be itself; it stays
    code_version: str | None = None  # of the code that began it; None: version 1, or nothing has begun it
    run: int = 1  # of its code has ended by ContinueAs: the number of the run that this row is
    first_no: int | None = None  # number of its first run; None: there is one run
    next_no: int | None = None  # number of the run that has the task's id since this one ended


class ConvoyRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The state of a key. It is locked to change whose turn it is; to add a task, ``TailRow`` is locked."""

    convoy_no: int
    key: str
    ordering: Ordering
    state: ConvoyState = ConvoyState.IDLE
    open_task: int | None = None  # whose turn it is
    fence: int = 0  # grows with every turn that begins or ends
    number: int = 0  # of its last event
    from_rank: int = 1  # nothing that waits stands before it
    reached: int = 0  # the highest rank whose turn has come
    expected: int = 1  # the next number of the producer's sequence
    gap_since: Instant | None = None
    alerted_task: int | None = None  # the task whose alert notifies an operator of the gap
    look_at: Instant | None = None  # when it is to be decided again whose turn it is
    parked_at: Instant | None = None  # since when nothing begins until an operator releases it
    parked_why: str = ""
    on_head: str | None = None  # overrides of the workflows' ConvoyPolicy
    on_gap: str | None = None
    gap_within: float | None = None
    value: str | None = None  # the state of the key, as JSON text
    created_at: Instant = Instant(0)
    link: int = 0  # of its own stream in the history
    head: str = ""
    trace_link: str | None = None  # to the span of the last task that ended in its turn; see trace_context.encode_link
    full_at: int | None = None  # the batch that its open task gathers is full once that number of tasks was placed

    @property
    def shown(self) -> str:
        """Its state in the word that operators see."""
        return "parked" if self.parked_at is not None else str(self.state)


class TailRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The end of a convoy, where new tasks are placed. Locked until the submitter's commit, so places are in its order."""

    convoy_no: int
    key: str
    ordering: Ordering
    placed: int = 0  # the last place
    last_rank: int = 0  # the greatest place or sequence
    end_rank: int | None = None  # the producer's end mark: nothing comes behind it
    asks: bool = True  # nothing can be opened as things stand: a task that comes may change that


class LedgerState(StrEnum):
    """The state of a ledger."""

    WRITING = "writing"  # nothing of it is visible; who submits it again continues
    DISCARDING = "discarding"  # what was written of it is being removed
    OPENED = "opened"  # all its tasks are there; they are let go one after the other
    DONE = "done"  # all its tasks are let go


class LedgerRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One message with operations on many keys."""

    ledger_no: int
    ledger_id: str
    state: LedgerState = LedgerState.WRITING
    digest: str = ""  # over the entries written so far, chained
    written: int = 0  # entries
    accepted: int = 0  # of them new tasks
    duplicates: int = 0  # tasks that were there before
    aside: int = 0  # entries set aside
    let_go: int = 0  # tasks let go
    reached: int = 0  # task_no of the last one let go, or removed
    created_at: Instant = Instant(0)
    written_at: Instant = Instant(0)  # when the last entries were written
    opened_at: Instant | None = None
    linked: int = 0  # of the accepted tasks: those whose rows keep its number; before release 0.5 none did

    @property
    def is_open(self) -> bool:
        """True if its tasks are visible to everybody."""
        return self.opened_at is not None


class StepRow(msgspec.Struct, frozen=True, gc=False):
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
    asked: str | None = None  # what the code asks with, where an operator had other arguments sent
    app: str = ""  # as of its task
    target: str = ""  # the part of its Agent's service that it calls, with a separate breaker
    canary: int | None = None  # the fence of the breaker that lets this attempt through, or FAILED_IN_OUTAGE
    charged_at: str | None = None  # when its last counted failures were, oldest first, as JSON text
    checkpoint: str | None = None  # what an attempt kept for those after it, as JSON text
    limit_keys: str | None = None  # what its Agent's limits count it under; None: the Agent had none when it was kept
    routing: str = ""  # whether it may go to other Agents that provide it; see core.routing

    @property
    def label(self) -> str:
        """The name that operators see, with the key if one was given or the name occurred again."""
        return self.name if self.key == "#1" else f"{self.name}[{self.key}]"

    @property
    def is_of_child(self) -> bool:
        """True for what another task does, and no Agent: a child is that step, or the step is undone by it."""
        return self.kind is StepKind.CHILD or (self.kind is StepKind.COMPENSATION and not self.agent)

    @property
    def is_canary(self) -> bool:
        """True if its attempt is a canary: a breaker waits for the end of it."""
        return self.canary is not None and self.canary != FAILED_IN_OUTAGE

    @property
    def failed_in_outage(self) -> bool:
        """True if its last attempt failed, or was lost, while the breaker of its Agent was not closed."""
        return self.canary == FAILED_IN_OUTAGE


class SignalRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One signal to a task. Kept until the task is purged.

    Args:
        number: 1, 2, ... in the order of commits.
        name: of the waits that may take it, see ``model.signals.name_wait``; for one wait alone, see ``address_wait`` there.
        signal_id: given by the sender; sent again it changes nothing.
        step: ordinal of the wait that took it; None: it is in the inbox; ``SET_ASIDE``.
        reply: of a request, JSON text of a ``model.signals.Reply``; None: there is none yet.
    """

    task_no: int
    number: int
    name: str
    signal_id: str
    value: str
    sent_by: str
    sent_at: Instant
    step: int | None = None
    wants_reply: bool = False
    reply: str | None = None
    replied_at: Instant | None = None


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """A task with all that is recorded of it; steps in the order they were opened."""

    task: TaskRow
    arguments: str
    steps: tuple[StepRow, ...]
    convoy: ConvoyRow | None = None
    signals: tuple[SignalRow, ...] = ()  # that no wait of its code has taken, in the order of their commits

    @property
    def life(self) -> tuple[StepRow, ...]:
        """The steps that count: without those of a life that was undone as a whole before the task was resubmitted."""
        return life_of(self.task, self.steps)

    def find_step(self, step_no: int) -> StepRow | None:
        """Find a step by its number; None: the task has no such step."""
        return next((step for step in self.steps if step.step_no == step_no), None)

    def as_begun(self, at: Instant, convoy: ConvoyRow | None) -> "Loaded":
        """The task as it will be when it begins: ``at``, with this state of its key."""
        task = msgspec.structs.replace(self.task, state=TaskState.PROCESSING, started_at=at)
        return Loaded(task, self.arguments, self.steps, convoy, self.signals)


def life_of(task: TaskRow, steps: tuple[StepRow, ...]) -> tuple[StepRow, ...]:
    """See ``Loaded.life``."""
    return steps if not task.past_count else tuple(step for step in steps if step.ordinal > task.past_count)


StatusKind = Literal[
    "received", "started", "completed", "failed", "compensated", "held", "dropped", "progress", "asked"
]


class StatusRow(msgspec.Struct, frozen=True, gc=False):
    """A message in a reply queue. ``no`` orders the queue; 0: not kept yet. ``data`` is JSON text.

    ``dropped``: a gap mark, for messages nobody acknowledged in time; its ``task_no`` and ``number`` are 0. ``progress``: a
    task or a step has published a value; its ``number`` is 0, and it may be read from ``at`` on, or once its task has ended.
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


class AlertRow(msgspec.Struct, frozen=True, gc=False):
    """An alert that a task needs an operator: opened when the task is held, closed when that ends."""

    no: int
    task_no: int
    task_id: str
    workflow: str
    incarnation: int
    cause: str  # the kind of its TaskFailure; ``unreadable``: a row of it cannot be read
    reason: str
    step: str
    code: str
    opened_at: Instant
    closed_at: Instant | None
    told: tuple[str, ...]  # sinks that know its present state
    attempts: int  # how often it was taken to be delivered
    next_at: Instant | None  # when it is to be delivered (again); None: every sink knows
    error: str  # why reporting it failed last
    trace: str | None = (
        None  # where in the code the failure was, as JSON text of a CapturedTraceback; None: nobody knows
    )
    tags: str | None = None  # of its task, as they are now
    parent: str | None = None  # id of the task whose child its task is
    step_no: int | None = None  # of the row that waits for an answer; None: it is of no question, or not read here


class EditRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A payload that an operator gave or replaced, and the one it replaced. Kept until the task is purged.

    Payloads are JSON text. ``before`` None: there was none; ``after`` None: it was taken away.
    """

    task_no: int
    link: int  # of the commit in the task's history that reports it
    ordinal: int  # of the step; 0: the task itself
    what: Literal["arguments", "result", "output"]
    incarnation: int  # of the task from this edit on
    attempt: int  # of the step: the first one that this edit concerns; 0: the task itself
    at: Instant
    edited_by: str
    reason: str
    before: str | None
    after: str | None
    key_before: str = ""  # of the step: its idempotency key until then
    key_after: str = ""  # and from then on


class LateAnswerRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer of an attempt that came too late to count. Kept until the task is purged; nothing else reads it.

    ``answer`` is JSON text: of ``succeeded`` the result, of ``failed`` a StepFailure.
    """

    task_no: int
    ordinal: int
    fence: int  # of the step, when the attempt was dispatched
    attempt: int
    verdict: Literal["late", "stale"]
    outcome: Literal["succeeded", "failed"]
    answer: str
    answered_at: Instant
    complete_by: Instant  # of that attempt
    link: int  # of the commit in the task's history that reports it


class HistoryRow(msgspec.Struct, frozen=True, gc=False):
    """One commit's events of one task (or of the store itself: ``task_no`` 0), one link of its hash chain."""

    no: int
    task_no: int
    task_id: str
    link: int
    at: Instant
    actor: str
    events: msgspec.Raw
    hash: str


def step_number(task_no: int, ordinal: int) -> int:
    """The key of a step's row."""
    return task_no << STEP_BITS | ordinal


def split_number(step_no: int) -> tuple[int, int]:
    """Split the number of a step into that of its task and its ordinal."""
    return step_no >> STEP_BITS, step_no & ((1 << STEP_BITS) - 1)


FAILED_IN_OUTAGE = 0  # as ``StepRow.canary``; fences of breakers begin with 1
STEP_PREFIX = "step:"  # of the workflow name of a task of one step
UNDO_PREFIX = "undo:"  # how a compensation is named to a verb


NOT_SAID = ""
