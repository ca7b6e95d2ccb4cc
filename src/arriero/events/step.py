"""Events in the history of a task that tell of its steps, compensations and timers. ``step`` is always the ordinal."""

from msgspec import UNSET, Raw, UnsetType

from ..model import Instant
from .base import Hash, HistoryEvent


class _Declared(HistoryEvent, frozen=True):
    """The declaration of a step by the code. A timer has only ``fire_at``. ``undoes``: ordinal of what a compensation undoes.

    ``routing``: if it may go to another Agent; see ``core.routing``.
    """

    step: int
    kind: str
    name: str
    key: str
    fire_at: Instant | None = None
    agent: str = ""
    idempotency_key: str = ""
    arguments: Hash = None
    policy: Raw | UnsetType = UNSET  # a policies.StepPolicy
    pivot: bool = False
    effect_free: bool = False
    undoable: bool = False
    undoes: int | None = None
    planned: bool = False
    routing: str = ""


class StepOpened(_Declared, frozen=True, tag="step.opened"):
    """The code asks for a step or a timer; or an undo opens a compensation, first ``planned`` where it must wait."""


class StepReopened(_Declared, frozen=True, kw_only=True, tag="step.reopened"):
    """The code of a resubmitted task asks again for a step that was withdrawn or set back."""

    attempt: int


class _AttemptBegun(HistoryEvent, frozen=True):
    """An attempt begins. ``key``: its idempotency key.

    ``limits``: those it is counted under, with hashes of their keys. ``agent``: the one that takes it over from another one.
    """

    step: int
    attempt: int
    fence: int
    complete_by: Instant
    process: int
    key: str
    limits: dict[str, str] | None = None
    agent: str = ""


class StepDispatched(_AttemptBegun, frozen=True, tag="step.dispatched"):
    """An attempt of a step begins."""


class CompensationDispatched(_AttemptBegun, frozen=True, tag="compensation.dispatched"):
    """An attempt of a compensation begins."""


class AttemptExtended(HistoryEvent, frozen=True, tag="attempt.extended"):
    """A running attempt gets more time."""

    step: int
    fence: int
    complete_by: Instant


class AttemptCheckpoint(HistoryEvent, frozen=True, tag="attempt.checkpoint"):
    """A running attempt keeps a value for the attempts after it. ``value``: its hash."""

    step: int
    fence: int
    value: Hash


class AttemptDelivered(HistoryEvent, frozen=True, tag="attempt.delivered"):
    """The request of a running attempt has reached its program, which holds the attempt from now on: no process does."""

    step: int
    fence: int


class AttemptTried(HistoryEvent, frozen=True, tag="attempt.tried"):
    """A running attempt makes another call. It is kept if the call counts under a rate, or if the attempt is in doubt by now.

    ``limits``: rates, with hashes of their keys. ``in_doubt``: a call before this one may have happened.
    """

    step: int
    fence: int
    limits: dict[str, str]
    in_doubt: bool = False


class StepReport(HistoryEvent, frozen=True, kw_only=True, tag="step.report"):
    """An Agent reported the end of an attempt.

    Args:
        verdict: ``applied``, or why the report changes nothing.
        outcome: ``succeeded`` or ``failed``.
        tries: calls in this attempt.
        result: hash of the result or of the failure's message; of a kept answer that of the answer.
        attempt, answered_at, complete_by: of a refused report how late it was.
        kept: a refused answer is kept beside the history.
    """

    step: int
    fence: int
    verdict: str
    outcome: str
    tries: int | UnsetType = UNSET
    result: Hash
    attempt: int | UnsetType = UNSET
    answered_at: Instant | UnsetType = UNSET
    complete_by: Instant | UnsetType = UNSET
    kept: bool = False


class _ResultRecorded(HistoryEvent, frozen=True):
    """A step or compensation is completed. ``number``: of the result in its task; ``result``: its hash."""

    step: int
    number: int
    result: Hash


class StepRecorded(_ResultRecorded, frozen=True, tag="step.recorded"):
    """A step is completed."""


class CompensationRecorded(_ResultRecorded, frozen=True, tag="compensation.recorded"):
    """A compensation is completed."""


class _FailureRecorded(HistoryEvent, frozen=True):
    """A step or compensation failed and is not tried again. ``failure``: a ``model.StepFailure`` as JSON."""

    step: int
    number: int
    failure: Raw
    in_doubt: bool
    failure_count: int
    fence: int


class StepFailedEvent(_FailureRecorded, frozen=True, tag="step.failed"):
    """A step failed and is not tried again."""


class CompensationFailedEvent(_FailureRecorded, frozen=True, tag="compensation.failed"):
    """A compensation failed and is not tried again by itself."""


class RecoverApplied(HistoryEvent, frozen=True, tag="recover.applied"):
    """An attempt failed. ``what``: ``retry``, ``cool_off`` or ``error``; ``failure``: a ``model.StepFailure`` as JSON.

    ``is_charged`` False: it failed in an outage, so ``failure_count`` stays as it was.
    """

    step: int
    what: str
    fence: int
    failure_count: int
    not_before: Instant
    in_doubt: bool
    failure: Raw
    is_charged: bool = True


class StepAttemptsReturned(HistoryEvent, frozen=True, tag="step.attempts_returned"):
    """Failures of a step that an outage has burnt do not count any more. ``failure_count``: what is left."""

    step: int
    count: int
    failure_count: int


class StepExpired(HistoryEvent, frozen=True, tag="step.expired"):
    """The Supervisor found that an attempt (``why`` expired) or a request (``starved``) waited too long."""

    step: int
    fence: int
    why: str
    term: int | None


class StepLost(HistoryEvent, frozen=True, tag="step.lost"):
    """The process of an attempt was lost."""

    step: int
    fence: int
    lost_count: int


class AttemptReleased(HistoryEvent, frozen=True, tag="attempt.released"):
    """An attempt went back before its work began. It costs nothing and leaves no doubt; ``fence``: the new one."""

    step: int
    fence: int


class AttemptRevoked(HistoryEvent, frozen=True, tag="attempt.revoked"):
    """A person ends an attempt that its program holds. The program may be at work, so the step is in doubt; ``fence``: the new one."""

    step: int
    fence: int


class StepWithdrawn(HistoryEvent, frozen=True, tag="step.withdrawn"):
    """A step that was asked for will not be done."""

    step: int
    in_doubt: bool


class StepParked(HistoryEvent, frozen=True, tag="step.parked"):
    """A compensation stays open until the task is resubmitted."""

    step: int
    in_doubt: bool


class CompensationReached(HistoryEvent, frozen=True, tag="compensation.reached"):
    """A planned compensation has its turn."""

    step: int


class TimerFired(HistoryEvent, frozen=True, tag="timer.fired"):
    """A timer's time has come. ``number``: of its result in its task."""

    step: int
    number: int


# --- by a person's verb
class StepSetBack(HistoryEvent, frozen=True, tag="step.set_back"):
    """A failed step is to be done again. ``attempt``: its next one."""

    step: int
    attempt: int


class StepEdited(HistoryEvent, frozen=True, kw_only=True, tag="step.edited"):
    """A step gets other arguments, under a new key. ``arguments``, ``replaces``: hashes of the new and the old ones."""

    step: int
    attempt: int | UnsetType = UNSET
    arguments: Hash | UnsetType = UNSET
    replaces: Hash | UnsetType = UNSET
    idempotency_key: str


class StepAnswered(HistoryEvent, frozen=True, tag="step.answered"):
    """A person gave a step's result, or said that it did not happen."""

    step: int
    fence: int
    happened: bool
    number: int | UnsetType = UNSET
    result: Hash | UnsetType = UNSET


EventOfStep = (
    StepOpened
    | StepReopened
    | StepDispatched
    | CompensationDispatched
    | AttemptExtended
    | AttemptCheckpoint
    | AttemptTried
    | AttemptDelivered
    | StepReport
    | StepRecorded
    | CompensationRecorded
    | StepFailedEvent
    | CompensationFailedEvent
    | RecoverApplied
    | StepAttemptsReturned
    | StepExpired
    | StepLost
    | AttemptReleased
    | AttemptRevoked
    | StepWithdrawn
    | StepParked
    | CompensationReached
    | TimerFired
    | StepSetBack
    | StepEdited
    | StepAnswered
)
