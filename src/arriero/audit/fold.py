"""The fold of one task's events, and the violations found in them.

The single events are folded in ``fold_task``, ``fold_steps``, ``fold_people`` and ``fold_convoys``;
``check`` joins them.
"""

import msgspec

from ..errors import ArrieroError
from ..events.signal import SignalSent
from ..events.step import StepOpened, StepReopened
from ..model import StepState, TaskState, Turn
from ..model.policies import StepPolicy

ENDED = (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD)
STEP_IS_OPEN = (StepState.PENDING, StepState.RUNNING)
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError, ArrieroError)  # by an event


_read_policy = msgspec.json.Decoder(StepPolicy).decode


class _Failed(msgspec.Struct):
    code: str = ""


_read_failed = msgspec.json.Decoder(_Failed).decode


def read_failure_code(failure: msgspec.Raw) -> str:
    """Read the code of a failure of a task or a step."""
    return _read_failed(failure).code


class Violation(msgspec.Struct, frozen=True):
    """One invariant that does not hold. ``task``: business id, empty for the store itself."""

    invariant: str
    task: str
    detail: str


class StepFold:
    """The fold of one step's events."""

    def __init__(self, event: StepOpened) -> None:
        self.ordinal = event.step
        self.kind = event.kind
        self.name = event.name
        self.idempotency_key = event.idempotency_key
        self.arguments = event.arguments  # hash of those that it is sent
        self.undoes = event.undoes
        self.declare(event)
        self.state = StepState.PLANNED if event.planned else self.state_when_due
        self.attempt = 1
        self.fence = 0
        self.failure_count = 0
        self.lost_count = 0
        self.in_doubt = False
        self.complete_by: int | None = None
        self.is_at_program = False  # its program holds the attempt, and no process
        self.latest: int | None = None  # to which its attempt may be extended
        self.checkpoint: str | None = None  # hash of what its attempts kept
        self.dispatched: set[int] = set()
        self.applied: set[int] = set()
        self.recovered: set[int] = set()
        self.failure_code = ""
        self.not_before: int | None = None  # of its next attempt, after a failure
        self.is_answered = False  # an operator gave its result
        self.result: str | None = None  # hash of what it ended with
        self.copied_from: tuple[int, int] | None = (
            None  # of a copy: number of the task and ordinal of the step that has done it
        )

    def declare(self, event: StepOpened | StepReopened) -> None:
        """Take the step's declaration by today's code; a resubmission may bring another."""
        self.agent = event.agent
        self.key = event.key
        self.pivot = event.pivot
        self.effect_free = event.effect_free
        self.undoable = event.undoable
        self.agent = event.agent
        self.routing = event.routing
        self.policy = None if event.policy is msgspec.UNSET else _read_policy(event.policy)

    @property
    def is_of_child(self) -> bool:
        """Returns True for what another task does: the step that it is, and the undo of it. It runs once its turn has come."""
        return self.kind == "child" or (self.kind == "compensation" and not self.agent)

    @property
    def state_when_due(self) -> StepState:
        """Its state once its turn has come: what a child does waits for no Agent."""
        return StepState.RUNNING if self.is_of_child else StepState.PENDING

    @property
    def is_detached(self) -> bool:
        """Returns True for a child that its parent neither waits for nor undoes."""
        return self.policy is not None and self.policy.child is not None and self.policy.child.is_detached

    @property
    def is_due_for_undo(self) -> bool:
        """Returns True if an undo has to take it back. A child that failed may have been resubmitted alone since."""
        return self.state is StepState.COMPLETED or (
            self.kind == "child" and self.state is StepState.FAILED and self.fence > 0
        )

    @property
    def may_have_happened(self) -> bool:
        """Returns True if the step is in doubt or running."""
        return self.state is not StepState.COMPLETED and (self.in_doubt or self.state is StepState.RUNNING)


class SignalFold:
    """The fold of one signal's events. ``taken_by``: ordinal of the wait that took it, ``SET_ASIDE`` or ``PASSED_ON``."""

    def __init__(self, event: SignalSent) -> None:
        self.name = event.name
        self.signal_id = event.signal_id
        self.value = event.value  # as a hash
        self.is_request = event.is_request
        self.taken_by: int | None = None
        self.reply: str | None = None  # hash of the first reply


class TaskFold:
    """The fold of one task's events. ``violations``: of its invariants."""

    def __init__(self, task_no: int, task_id: str) -> None:
        self.task_no = task_no
        self.task_id = task_id
        self.state: TaskState | None = None
        self.incarnation = 1
        self.past_count = 0
        self.fence = 0
        self.holder: int | None = None
        self.not_before: int | None = None
        self.complete_by: int | None = None
        self.paused = False
        self.snoozed_until: int | None = None  # nothing new begins before
        self.failure_count = 0
        self.lost_count = 0
        self.open_alerts = 0
        self.approvals: list[tuple[str, str]] = []  # since the last verb: verb and person
        self.undo_began = False
        self.plan: list[int] | None = None
        self.steps: dict[int, StepFold] = {}
        self.signals: dict[int, SignalFold] = {}  # by number
        self.keys: dict[str, int] = {}
        self.reply_to: str | None = None
        self.app = ""
        self.tags: dict[str, str] = {}
        self.workflow = ""
        self.has_begun = False  # in this life
        self.code_version: str | None = None  # of the code that began it, or to which an operator moved it
        self.parent_step: tuple[int, int] | None = None  # number of the task and ordinal of the step that it is
        self.origin: tuple[int, int] | None = (
            None  # of a fork: number of the other task, and the step from which on it does it again
        )
        self.output: str | None = None  # hash of what it ended with
        self.failure_code = ""  # of the failure that it ended with
        self.claims = 0  # in all incarnations
        self.status_count = 0
        self.last_status = ""
        self.convoy_no: int | None = None
        self.place: int | None = None
        self.sequence: int | None = None
        self.rank: int | None = None
        self.turn: Turn | None = None
        self.batch: int | None = None  # number of the task that handles its message, which may be itself
        self.is_stopped = False  # its key is blocked on it, and it is held
        self.turn_fits = True  # to its state, as of the last commit
        self.gap_alert = False  # an operator was informed that it waits for numbers that are missing
        self.violations: list[Violation] = []
        self.at = 0

    def convict(self, invariant: str, detail: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(invariant, self.task_id, detail))

    @property
    def life(self) -> list[StepFold]:
        """The steps that count: without those of a life that was undone as a whole."""
        return [step for step in self.steps.values() if step.ordinal > self.past_count]

    def refuse_after_end(self, what: str) -> None:
        """Convict an event of a task that has ended in this incarnation."""
        if self.state in ENDED:
            self.convict("I2", f"{what} after the task was {self.state}")

    def grow_fence(self, fence: int, what: str) -> None:
        """Check that the task's fence grows."""
        if fence <= self.fence:
            self.convict("I6", f"{what} under fence {fence}, the highest was {self.fence}")
        self.fence = max(self.fence, fence)

    def judge_snooze(self, what: str) -> None:
        """Convict what begins before the end of a snooze."""
        if self.snoozed_until is not None and self.at < self.snoozed_until:
            self.convict("I10", f"{what} at {self.at}, though an operator had snoozed it until {self.snoozed_until}")

    def judge_pivot(self, what: str) -> None:
        """Convict an undo after a pivot has, or may have, happened."""
        for step in self.life:
            if step.kind == "step" and step.pivot and (step.state is StepState.COMPLETED or step.in_doubt):
                self.convict("I31", f"{what} although the pivot {step.ordinal} ({step.name}) has or may have happened")

    def note_news(self) -> None:
        """Note an event that wakes the task, if nobody holds it and its turn in a convoy has come."""
        if self.turn is Turn.WAITING:
            return
        if self.holder is None and self.state in (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING):
            due = self.at if self.not_before is None else min(self.not_before, self.at)
            self.not_before = max(due, self.snoozed_until or due)
