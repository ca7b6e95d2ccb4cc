"""Events in the history of a task that report its steps, compensations and timers. ``step`` is always the ordinal."""

from msgspec import UNSET, Raw, UnsetType

from ..model import Instant
from ..model.failures import read_step_failure
from ..text.format import (
    format_count,
    format_failure_with_line,
    format_instant,
    format_late_answer,
    format_limit_changes,
)
from .base import Hash, HistoryEvent, HistoryNames

_REFUSED_REPORTS = {
    "late": "it came after the attempt's time was over",
    "stale": "it is of an attempt that no longer counts",
    "duplicate": "no attempt was running any longer",
    "unknown": "there is no such step",
    "malformed": "it could not be read",
}
_DECISIONS = {
    "retry": "tried again not before {at}",
    "cool_off": "its round of attempts is spent, tried again after a cool-off, not before {at}",
    "error": "not tried again, for the task is being undone or needs an operator",
}


def _format_doubt(*, in_doubt: bool) -> str:
    return "; it is in doubt: it may have happened" if in_doubt else ""


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

    def describe(self, names: HistoryNames) -> str:
        label = self.name if self.key == "#1" else f"{self.name}[{self.key}]"
        kind, colon, awaited = label.partition(":")
        if self.kind == "timer" and colon:
            return self._describe_wait(kind, awaited, names)
        prefix = {"step": "step ", "compensation": "the undo of ", "timer": "timer ", "child": "child "}[self.kind]
        names.steps[self.step] = step = prefix + label
        if self.kind == "timer" and self.fire_at is not None:
            return f"{step} is set to {format_instant(self.fire_at)}"
        of_agent = f" (Agent {self.agent})" if self.agent else ""
        if self.planned:
            return f"{step} is planned{of_agent}"
        pivot = ", a pivot: past it nothing is undone" if self.pivot else ""
        return f"{step} is asked for{of_agent}{pivot}"

    def _describe_wait(self, kind: str, awaited: str, names: HistoryNames) -> str:
        """Describe the row of a wait, or of a reply to a request, by the two parts of its name."""
        if kind == "patch":
            names.steps[self.step] = f"the mark of patch {self.name.partition(':')[2]}"
            return f"from here on its code runs with patch {self.name.partition(':')[2]}"
        if kind == "reply":
            names.steps[self.step] = f"the reply to request {awaited}"
            return f"its code replies to request {awaited}"
        names.steps[self.step] = f"the wait for {kind} {awaited}"
        limit = "without a limit" if self.fire_at is None else f"until {format_instant(self.fire_at)}"
        return f"it waits for {kind} {awaited}, {limit}"


class StepReopened(_Declared, frozen=True, kw_only=True, tag="step.reopened"):
    """The code of a resubmitted task asks again for a step that was withdrawn or set back."""

    attempt: int

    def describe(self, names: HistoryNames) -> str:
        number = f", as attempt {self.attempt}" if self.attempt > 1 else ""
        return f"{names.name_step(self.step)} is asked for again{number}"


class _AttemptBegun(HistoryEvent, frozen=True):
    """An attempt begins. ``key``: its idempotency key.

    ``model.agents``: those it is counted under, with hashes of their keys. ``agent``: the one that takes it over from another one.
    """

    step: int
    attempt: int
    fence: int
    complete_by: Instant
    process: int
    key: str
    limits: dict[str, str] | None = None
    agent: str = ""

    def describe(self, names: HistoryNames) -> str:
        names.attempts[self.step] = self.attempt
        where, until = names.name_process(self.process), format_instant(self.complete_by)
        moved = f"Agent {self.agent} takes it over, " if self.agent else ""
        return f"{names.name_step(self.step)}: {moved}attempt {self.attempt} begins at {where}, to end by {until}"


class StepDispatched(_AttemptBegun, frozen=True, tag="step.dispatched"):
    """An attempt of a step begins."""


class CompensationDispatched(_AttemptBegun, frozen=True, tag="compensation.dispatched"):
    """An attempt of a compensation begins."""


class AttemptExtended(HistoryEvent, frozen=True, tag="attempt.extended"):
    """A running attempt gets more time."""

    step: int
    fence: int
    complete_by: Instant

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)}: its attempt gets more time, to end by {format_instant(self.complete_by)}"


class AttemptCheckpoint(HistoryEvent, frozen=True, tag="attempt.checkpoint"):
    """A running attempt keeps a value for the attempts after it. ``value``: its hash."""

    step: int
    fence: int
    value: Hash

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)}: its attempt keeps a checkpoint"


class AttemptDelivered(HistoryEvent, frozen=True, tag="attempt.delivered"):
    """The request of a running attempt has reached its program, which holds the attempt from now on: no process does."""

    step: int
    fence: int

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)}: its request has reached the program, which holds the attempt from now on"


class AttemptTried(HistoryEvent, frozen=True, tag="attempt.tried"):
    """A running attempt makes another call. It is kept if the call counts under a rate, or if the attempt is in doubt by now.

    ``model.agents``: rates, with hashes of their keys. ``in_doubt``: a call before this one may have happened.
    """

    step: int
    fence: int
    limits: dict[str, str]
    in_doubt: bool = False

    def describe(self, names: HistoryNames) -> str:
        why = (
            "; a call before may have happened, so it is in doubt"
            if self.in_doubt
            else ", within the rate of its Agent"
        )
        return f"{names.name_step(self.step)} is called again{why}"


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

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)}: {self._describe_verdict()}"

    def _describe_verdict(self) -> str:
        what = "a result" if self.outcome == "succeeded" else "a failure"
        if self.tries is not UNSET and self.tries > 1:
            what += f" after {self.tries} tries"
        if self.verdict == "applied":
            return f"its attempt reports {what}"
        if self.kept and self.attempt is not UNSET and self.answered_at is not UNSET and self.complete_by is not UNSET:
            answered = format_late_answer(self.attempt, self.answered_at, self.complete_by)
            return f"{answered} ({what}, refused as {self.verdict})"
        why = _REFUSED_REPORTS.get(self.verdict, self.verdict)
        return f"a report of {what} was refused as {self.verdict}, nothing changed: {why}"


class _ResultRecorded(HistoryEvent, frozen=True):
    """A step or compensation is completed. ``number``: of the result in its task; ``result``: its hash.

    ``fence``: of what a child does, the incarnation of the child; 0 of all others.
    """

    step: int
    number: int
    result: Hash
    fence: int = 0


class StepRecorded(_ResultRecorded, frozen=True, tag="step.recorded"):
    """A step is completed."""

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)} is completed"


class CompensationRecorded(_ResultRecorded, frozen=True, tag="compensation.recorded"):
    """A compensation is completed."""

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)} is done"


class _FailureRecorded(HistoryEvent, frozen=True):
    """A step or compensation failed and is not tried again. ``failure``: a ``model.StepFailure`` as JSON."""

    step: int
    number: int
    failure: Raw
    in_doubt: bool
    failure_count: int
    fence: int

    def describe(self, names: HistoryNames) -> str:
        failure = format_failure_with_line(read_step_failure(self.failure))
        after = f" after {format_count(self.failure_count, 'attempt')}" if self.failure_count else ""
        doubt = _format_doubt(in_doubt=self.in_doubt)
        return f"{names.name_step(self.step)} has failed permanently{after}: {failure}{doubt}"


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

    def describe(self, names: HistoryNames) -> str:
        failure = format_failure_with_line(read_step_failure(self.failure))
        number = names.attempts.get(self.step)
        attempt = "an attempt" if number is None else f"attempt {number}"
        doubt = ", and is in doubt" if self.in_doubt else ""
        decision = _DECISIONS[self.what].format(at=format_instant(self.not_before))
        if not self.is_charged:
            decision += "; its Agent's service is down, so the attempt is not counted"
        return f"{names.name_step(self.step)}: {attempt} failed{doubt} ({failure}); {decision}"


class StepAttemptsReturned(HistoryEvent, frozen=True, tag="step.attempts_returned"):
    """Failures of a step that an outage has burnt do not count any longer. ``failure_count``: what is left."""

    step: int
    count: int
    failure_count: int

    def describe(self, names: HistoryNames) -> str:
        verb = "is" if self.count == 1 else "are"
        attempts = format_count(self.count, "failed attempt")
        return f"{names.name_step(self.step)}: {attempts} of the outage {verb} no longer counted"


class StepExpired(HistoryEvent, frozen=True, tag="step.expired"):
    """The Supervisor found that an attempt (``why`` expired) or a request (``starved``) waited too long."""

    step: int
    fence: int
    why: str
    term: int | None

    def describe(self, names: HistoryNames) -> str:
        step = names.name_step(self.step)
        if self.why == "starved":
            return f"the Supervisor finds that no Agent took {step} within its wait_within"
        return f"the Supervisor finds that {step} gave no answer in time"


class StepLost(HistoryEvent, frozen=True, tag="step.lost"):
    """The process of an attempt was lost."""

    step: int
    fence: int
    lost_count: int

    def describe(self, names: HistoryNames) -> str:
        return (
            f"{names.name_step(self.step)}: its attempt was lost with its process; it is in doubt, and costs no attempt"
        )


class AttemptReleased(HistoryEvent, frozen=True, tag="attempt.released"):
    """An attempt went back before its work began. It costs nothing and leaves no doubt; ``fence``: the new one."""

    step: int
    fence: int

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)}: its attempt goes back before its work began; it costs no attempt"


class AttemptRevoked(HistoryEvent, frozen=True, tag="attempt.revoked"):
    """An operator ends an attempt that its program holds. The program may be at work, so the step is in doubt; ``fence``: the new one."""

    step: int
    fence: int

    def describe(self, names: HistoryNames) -> str:
        return (
            f"{names.name_step(self.step)}: its attempt is taken from the program, which may be at work; it is in doubt"
        )


class StepWithdrawn(HistoryEvent, frozen=True, tag="step.withdrawn"):
    """A step that was asked for will not be done."""

    step: int
    in_doubt: bool

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)} is withdrawn{_format_doubt(in_doubt=self.in_doubt)}"


class StepParked(HistoryEvent, frozen=True, tag="step.parked"):
    """A compensation stays open until the task is resubmitted."""

    step: int
    in_doubt: bool

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)} is set aside: it stays open until the task is resubmitted"


class CompensationReached(HistoryEvent, frozen=True, tag="compensation.reached"):
    """A planned compensation has its turn."""

    step: int

    def describe(self, names: HistoryNames) -> str:
        return f"it is the turn of {names.name_step(self.step)}"


class TimerFired(HistoryEvent, frozen=True, tag="timer.fired"):
    """A timer's time has come. ``number``: of its result in its task."""

    step: int
    number: int

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)} has fired"


# --- by an operator's verb
class _FromVerb(HistoryEvent, frozen=True):
    """An operator's verb changed a step."""

    step: int


class StepSetBack(_FromVerb, frozen=True, tag="step.set_back"):
    """A failed step is to be done again. ``attempt``: its next one."""

    attempt: int

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)} is to be done again, as attempt {self.attempt}"


class StepEdited(_FromVerb, frozen=True, kw_only=True, tag="step.edited"):
    """A step gets other arguments, under a new key. ``arguments``, ``replaces``: hashes of the new and the old ones."""

    attempt: int | UnsetType = UNSET
    arguments: Hash | UnsetType = UNSET
    replaces: Hash | UnsetType = UNSET
    idempotency_key: str

    def describe(self, names: HistoryNames) -> str:
        since = "" if self.attempt is UNSET else f" from attempt {self.attempt} on"
        kept = "" if self.replaces is UNSET else "; those it had are kept"
        return f"{names.name_step(self.step)} gets other arguments{since}, and a new key with them{kept}"


class StepAdjusted(_FromVerb, frozen=True, kw_only=True, tag="step.adjusted"):
    """An operator changed limits of a step. ``limits``, ``before``: the new and the old value of each; ``not_before`` is an instant."""

    limits: dict[str, int | float | None]
    before: dict[str, int | float | None]

    def describe(self, names: HistoryNames) -> str:
        changes = format_limit_changes(self.limits, self.before)
        return f"{names.name_step(self.step)}: {changes}"


class StepAnswered(_FromVerb, frozen=True, tag="step.answered"):
    """An operator gave a step's result, or said that it did not happen."""

    fence: int
    happened: bool
    number: int | UnsetType = UNSET
    result: Hash | UnsetType = UNSET

    def describe(self, names: HistoryNames) -> str:
        if self.happened:
            return f"{names.name_step(self.step)} is done, says an operator: its result was given by hand"
        return f"{names.name_step(self.step)} did not happen, says an operator: it is no longer in doubt"


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
    | StepAdjusted
    | StepAnswered
)
