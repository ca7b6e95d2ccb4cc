"""The fold of events of steps and compensations, and their invariants."""

from typing import assert_never

import msgspec

from ..events.step import (
    AttemptCheckpoint,
    AttemptDelivered,
    AttemptExtended,
    AttemptReleased,
    AttemptRevoked,
    AttemptTried,
    CompensationDispatched,
    CompensationFailedEvent,
    CompensationReached,
    CompensationRecorded,
    EventOfStep,
    RecoverApplied,
    StepAdjusted,
    StepAnswered,
    StepAttemptsReturned,
    StepDispatched,
    StepEdited,
    StepExpired,
    StepFailedEvent,
    StepLost,
    StepOpened,
    StepParked,
    StepRecorded,
    StepReopened,
    StepReport,
    StepSetBack,
    StepWithdrawn,
    TimerFired,
)
from ..model import StepState, TaskState, Turn
from ..model.signals import PATCH
from . import fold_people
from .fold import StepFold, TaskFold
from .fold_agents import judge_dispatch, judge_opening

_DAY_SECONDS = 86_400.0  # to which the time of later attempts grows
_MICROSECONDS = 1_000_000


def judge_time(task: TaskFold, step: StepFold, event: StepDispatched | CompensationDispatched) -> None:
    """Judge the time that an attempt gets as it begins."""
    if event.complete_by <= task.at:
        task.convict("I19", f"step {step.ordinal} was dispatched with a deadline that had passed")
    step.latest = None
    if step.policy is None:
        return
    within = seconds = step.policy.complete_within
    factor = step.policy.supervision.complete_within_factor
    for _ in range(event.attempt - 1 if factor > 1 else 0):
        seconds = min(seconds * factor, max(within, _DAY_SECONDS))
    most_of_all = 10 * seconds if step.policy.extend_max is None else step.policy.extend_max
    step.latest = task.at + round(max(seconds, most_of_all) * (1 + 1e-9) * _MICROSECONDS) + 2
    # The product of many factors may differ in its last digits from their power.
    most, given = round(seconds * (1 + 1e-9) * _MICROSECONDS) + 1, event.complete_by - task.at
    if given > most:
        task.convict(
            "I67", f"attempt {event.attempt} of step {step.ordinal} got {given} us, its policy gives it {most}"
        )


def extend(task: TaskFold, event: AttemptExtended) -> None:
    """Fold more time for an attempt."""
    step = _judge_running(task, event, "I68")
    if step.complete_by is not None and event.complete_by <= step.complete_by:
        task.convict(
            "I19", f"the deadline of step {step.ordinal} was moved back from {step.complete_by} to {event.complete_by}"
        )
    if step.latest is not None and event.complete_by > step.latest:
        task.convict("I68", f"step {step.ordinal} was extended to {event.complete_by}, its policy allows {step.latest}")
    step.complete_by = event.complete_by


def keep_checkpoint(task: TaskFold, event: AttemptCheckpoint) -> None:
    """Fold a value that an attempt kept."""
    step = _judge_running(task, event, "I69")
    step.checkpoint = event.value


def judge_try(task: TaskFold, event: AttemptTried) -> None:
    """Judge another call of an attempt; whether its rate allows it is judged beside all others. A doubt is kept from here on."""
    step = _judge_running(task, event, "I73")
    step.in_doubt = step.in_doubt or event.in_doubt


def deliver(task: TaskFold, event: AttemptDelivered) -> None:
    """Fold the delivery of a request: its program holds the attempt from here on."""
    step = _judge_running(task, event, "I78")
    step.is_at_program = True


def revoke(task: TaskFold, event: AttemptRevoked) -> None:
    """Fold the end of an attempt by an operator. Only a program's can be ended so, and it may have happened."""
    step = task.steps[event.step]
    if step.state is not StepState.RUNNING or not step.is_at_program:
        task.convict("I78", f"the attempt of step {step.ordinal} was revoked, and no program held it")
    _put_back(task, step, event.fence)
    step.in_doubt = True


def _judge_running(
    task: TaskFold, event: AttemptExtended | AttemptCheckpoint | AttemptTried | AttemptDelivered, invariant: str
) -> StepFold:
    """Judge that the attempt which speaks is the running one, and in time."""
    step = task.steps[event.step]
    if step.state is not StepState.RUNNING or event.fence != step.fence:
        task.convict(invariant, f"{event.type} of step {step.ordinal} under fence {event.fence}, which is not running")
    elif step.complete_by is None or task.at >= step.complete_by:
        task.convict(invariant, f"{event.type} of step {step.ordinal} after its deadline")
    return step


def release(task: TaskFold, event: AttemptReleased) -> None:
    """Fold an attempt that went back before its work began: the next one begins under a higher fence, in no more doubt."""
    step = task.steps[event.step]
    if step.state is not StepState.RUNNING:
        task.convict("I6", f"an attempt of step {step.ordinal} went back, and none was running")
    _put_back(task, step, event.fence)


def _put_back(task: TaskFold, step: StepFold, fence: int) -> None:
    if fence <= step.fence:
        task.convict("I6", f"step {step.ordinal} went back under fence {fence}, the highest was {step.fence}")
    step.fence, step.complete_by, step.not_before = max(step.fence, fence), None, None
    step.state = StepState.PENDING


class _Failure(msgspec.Struct):
    """The part of a failure that is judged; a release may write more into it."""

    cause: str
    code: str = ""


_read_failure = msgspec.json.Decoder(_Failure).decode


def fold_step_event(task: TaskFold, event: EventOfStep) -> None:
    """Fold one event of a step, a compensation or a timer."""
    match event:
        case StepOpened():
            open_step(task, event)
        case StepDispatched() | CompensationDispatched():
            _dispatch(task, event)
        case AttemptTried():
            judge_try(task, event)
        case AttemptExtended():
            extend(task, event)
        case AttemptCheckpoint():
            keep_checkpoint(task, event)
        case StepReport():
            _report(task, event)
        case StepRecorded() | CompensationRecorded():
            _record(task, event)
        case StepFailedEvent() | CompensationFailedEvent():
            _fail(task, event)
        case StepExpired():
            _expire(task, event)
        case RecoverApplied():
            _recover(task, event)
        case StepAttemptsReturned():
            _return_attempts(task, event)
        case StepLost():
            _count_loss(task, event)
        case AttemptDelivered():
            deliver(task, event)
        case AttemptReleased():
            release(task, event)
        case AttemptRevoked():
            revoke(task, event)
        case StepWithdrawn():
            _withdraw(task, event)
        case StepParked():
            _park(task, event)
        case CompensationReached():
            step = task.steps[event.step]
            step.state = step.state_when_due
        case TimerFired():
            _fire(task, event)
        case StepSetBack() | StepEdited() | StepReopened() | StepAnswered() | StepAdjusted():
            fold_people.fold_verb_on_step(task, event)
        case _:
            assert_never(event)


def open_step(task: TaskFold, event: StepOpened) -> None:
    """Fold a step, compensation or timer that is opened."""
    step = StepFold(event)
    if step.ordinal != len(task.steps) + 1:
        task.convict("I22", f"step {step.ordinal} was opened after {len(task.steps)}")
    if step.idempotency_key:
        before = task.keys.setdefault(step.idempotency_key, step.ordinal)
        if before != step.ordinal:
            task.convict("I18", f"steps {before} and {step.ordinal} share an idempotency key")
    if step.kind != "compensation" and task.undo_began:
        task.convict("I31", f"step {step.ordinal} was opened after the undo began")
    if step.kind == "timer" and step.name.startswith(f"{PATCH}:"):
        if any(known.name == step.name for known in task.life):
            task.convict("I85", f"step {step.ordinal} marks {step.name}, which is marked already")
        step.state = StepState.COMPLETED
    judge_opening(task, step, event)
    task.steps[step.ordinal] = step


def _dispatch(task: TaskFold, event: StepDispatched | CompensationDispatched) -> None:
    step = task.steps[event.step]
    task.refuse_after_end(f"step {step.ordinal} dispatched")
    if step.state is StepState.PLANNED and step.kind == "compensation":
        step.state = StepState.PENDING  # its turn came in the same commit
    if step.state is not StepState.PENDING:
        task.convict("I7", f"step {step.ordinal} was dispatched while {step.state}")
    if event.fence <= step.fence:
        task.convict(
            "I11", f"step {step.ordinal} was dispatched under fence {event.fence}, the highest was {step.fence}"
        )
    if task.paused:
        task.convict("I10", f"step {step.ordinal} was dispatched while an operator kept the task paused")
    if task.turn is Turn.WAITING:
        task.convict("I40", f"step {step.ordinal} was dispatched while the task waited for its turn")
    task.judge_snooze(f"step {step.ordinal} was dispatched")
    if step.not_before is not None and task.at < step.not_before:
        task.convict("I10", f"step {step.ordinal} was dispatched at {task.at}, due at {step.not_before}")
    if event.attempt != step.attempt:
        task.convict("I22", f"step {step.ordinal}: attempt {event.attempt} was dispatched, {step.attempt} was due")
    if event.key != step.idempotency_key:
        task.convict("I18", f"step {step.ordinal} was dispatched under another key than it was opened with")
    judge_time(task, step, event)
    judge_dispatch(task, step, event)
    if step.kind == "compensation":
        _judge_undo_order(task, step)
    elif task.undo_began:
        task.convict("I31", f"step {step.ordinal} was dispatched after the undo began")
    step.state, step.fence, step.complete_by = (
        StepState.RUNNING,
        max(step.fence, event.fence),
        event.complete_by,
    )
    step.is_at_program = False
    step.dispatched.add(event.fence)


def _judge_undo_order(task: TaskFold, step: StepFold) -> None:
    plan = task.plan or []
    if step.ordinal not in plan:
        task.convict("I27", f"compensation {step.ordinal} was dispatched before it was planned")
        return
    for before in plan[: plan.index(step.ordinal)]:
        if task.steps[before].state is not StepState.COMPLETED:
            task.convict("I28", f"compensation {step.ordinal} was dispatched before {before} was done")


def _report(task: TaskFold, event: StepReport) -> None:
    verdict, fence = event.verdict, event.fence
    if verdict not in ("applied", "late", "stale", "duplicate", "unknown", "malformed"):
        task.convict("I16", f"a report has the verdict {verdict!r}")
    if verdict != "applied":
        return
    if event.kept:
        task.convict("I13", f"a report of step {event.step} was applied, and kept as a late answer besides")
    step = task.steps[event.step]
    if fence not in step.dispatched:
        task.convict("I16", f"a report of step {step.ordinal} under fence {fence} matches no dispatch")
    if fence != step.fence:
        task.convict(
            "I8", f"a report of step {step.ordinal} under fence {fence} was applied, the highest was {step.fence}"
        )
    if fence in step.applied:
        task.convict("I15", f"a report of step {step.ordinal} under fence {fence} was applied twice")
    if step.complete_by is not None and task.at >= step.complete_by:
        task.convict("I13", f"a report of step {step.ordinal} was applied after its deadline")
    step.applied.add(fence)


def _record(task: TaskFold, event: StepRecorded | CompensationRecorded) -> None:
    step = task.steps[event.step]
    _end_step(task, step, "recorded")
    if step.is_of_child:
        step.fence = max(step.fence, event.fence)
        if step.kind == "compensation":
            _judge_undo_order(task, step)
    step.state, step.in_doubt, step.result = StepState.COMPLETED, False, event.result


def _fail(task: TaskFold, event: StepFailedEvent | CompensationFailedEvent) -> None:
    step = task.steps[event.step]
    _end_step(task, step, "failed")
    if step.state is StepState.RUNNING:
        _count_failure(task, step, event)
    failure = _read_failure(event.failure)
    if failure.cause != "permanent" and failure.code not in ("not_taken", "unrecordable_result"):
        _judge_rounds(task, step, "failed")
    _keep_doubt(task, step, "failed", in_doubt=event.in_doubt)
    step.failure_code = failure.code
    step.state = StepState.FAILED


def _end_step(task: TaskFold, step: StepFold, what: str) -> None:
    if step.state is StepState.COMPLETED:
        task.convict("I14" if what == "recorded" else "I20", f"step {step.ordinal} was {what} after it had a result")
    if task.state in (TaskState.PROCESSED, TaskState.COMPENSATED):
        task.convict("I2", f"step {step.ordinal} was {what} after the task was {task.state}")
    task.lost_count = 0
    step.complete_by = None
    task.note_news()


def _count_failure(
    task: TaskFold, step: StepFold, event: StepFailedEvent | CompensationFailedEvent | RecoverApplied
) -> None:
    step.failure_count += 1
    task.failure_count += 1
    if event.failure_count != step.failure_count:
        task.convict(
            "I23",
            f"step {step.ordinal}: failure_count is {event.failure_count}, {step.failure_count} failures are recorded",
        )
    step.fence = max(step.fence, event.fence)


def _judge_rounds(task: TaskFold, step: StepFold, what: str) -> None:
    """Judge the decision after ``step.failure_count`` failures: a retry in a round, then a cool-off, the end after the last."""
    if step.policy is None:
        return
    rounds, in_round = divmod(step.failure_count, step.policy.supervision.attempts)
    due = "retry" if in_round else "cool_off" if rounds < step.policy.supervision.rounds else "failed"
    if what != due:
        task.convict("I25", f"step {step.ordinal}: {what} after {step.failure_count} failures, its policy says {due}")


def _expire(task: TaskFold, event: StepExpired) -> None:
    step = task.steps[event.step]
    if event.why == "expired" and (step.complete_by is None or step.complete_by > task.at):
        task.convict("I24", f"step {step.ordinal} was recovered before its deadline")
    if event.fence <= step.fence:
        task.convict("I6", f"step {step.ordinal} was recovered under fence {event.fence}, the highest was {step.fence}")
    step.fence = max(step.fence, event.fence)


def _recover(task: TaskFold, event: RecoverApplied) -> None:
    step = task.steps[event.step]
    fence, what = event.fence, event.what
    if fence in step.recovered:
        task.convict("I24", f"step {step.ordinal} was recovered twice under fence {fence}")
    step.recovered.add(fence)
    if event.is_charged:
        _count_failure(task, step, event)
    else:
        _judge_uncharged(task, step, event)
    if _read_failure(event.failure).cause == "permanent":
        task.convict("I26", f"step {step.ordinal} is retried after a permanent failure")
    step.attempt += 1
    _keep_doubt(task, step, "tried again", in_doubt=event.in_doubt)
    step.complete_by = None
    step.not_before = event.not_before
    if what != "error":
        if event.is_charged:
            _judge_rounds(task, step, what)
        step.state = StepState.PENDING


def _judge_uncharged(task: TaskFold, step: StepFold, event: RecoverApplied) -> None:
    """Judge a failure in an outage: it counts for nothing, and the policy of the step allows that."""
    step.fence = max(step.fence, event.fence)
    if event.failure_count != step.failure_count:
        task.convict(
            "I23", f"step {step.ordinal}: failure_count moved to {event.failure_count} by an uncharged failure"
        )
    if step.policy is not None and step.policy.supervision.charge_outages:
        task.convict("I25", f"step {step.ordinal}: a failure was not charged, its policy charges outages")


def _return_attempts(task: TaskFold, event: StepAttemptsReturned) -> None:
    step = task.steps[event.step]
    step.failure_count -= event.count
    task.failure_count -= event.count
    if event.count < 1 or step.failure_count < 0 or event.failure_count != step.failure_count:
        task.convict(
            "I64",
            f"step {step.ordinal}: {event.count} failures were given back, which leaves {event.failure_count}; its history "
            f"says {step.failure_count}",
        )


def _count_loss(task: TaskFold, event: StepLost) -> None:
    step = task.steps[event.step]
    if event.fence <= step.fence:
        task.convict("I6", f"step {step.ordinal} was freed under fence {event.fence}, the highest was {step.fence}")
    if step.is_at_program:
        task.convict("I78", f"step {step.ordinal} was freed with a process, its program holds the attempt")
    step.not_before = None
    step.lost_count += 1
    if event.lost_count != step.lost_count:
        task.convict(
            "I23",
            f"step {step.ordinal}: lost_count is {event.lost_count}, {step.lost_count} losses are recorded",
        )
    step.fence, step.in_doubt, step.complete_by = max(step.fence, event.fence), True, None
    step.state = StepState.PENDING


def _keep_doubt(task: TaskFold, step: StepFold, what: str, *, in_doubt: bool) -> None:
    """Judge that only a result, or an operator, settles a doubt."""
    if step.in_doubt and not in_doubt:
        task.convict("I30", f"step {step.ordinal} was {what} and its doubt forgotten")
    step.in_doubt = in_doubt


def _withdraw(task: TaskFold, event: StepWithdrawn) -> None:
    step = task.steps[event.step]
    _keep_doubt(task, step, "withdrawn", in_doubt=event.in_doubt)
    step.state, step.complete_by = StepState.WITHDRAWN, None
    task.note_news()


def _park(task: TaskFold, event: StepParked) -> None:
    step = task.steps[event.step]
    step.state, step.complete_by = StepState.PLANNED, None


def _fire(task: TaskFold, event: TimerFired) -> None:
    step = task.steps[event.step]
    task.refuse_after_end(f"timer {step.ordinal} fired")
    step.state = StepState.COMPLETED
