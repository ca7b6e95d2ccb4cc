"""The fold of what an attempt does while it runs, and the invariants of its time."""

from ..events.step import (
    AttemptCheckpoint,
    AttemptDelivered,
    AttemptExtended,
    AttemptReleased,
    AttemptRevoked,
    AttemptTried,
    CompensationDispatched,
    StepDispatched,
)
from ..model import StepState
from .fold import StepFold, TaskFold

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
    """Fold the end of an attempt by a person. Only a program's can be ended so, and it may have happened."""
    step = task.steps[event.step]
    if step.state is not StepState.RUNNING or not step.is_at_program:
        task.convict("I78", f"the attempt of step {step.ordinal} was revoked, and no program held it")
    _put_back(task, step, event.fence)
    step.in_doubt = True


def _judge_running(
    task: TaskFold, event: AttemptExtended | AttemptCheckpoint | AttemptTried | AttemptDelivered, invariant: str
) -> StepFold:
    """Judge that the attempt which speaks is the one under way, and in time."""
    step = task.steps[event.step]
    if step.state is not StepState.RUNNING or event.fence != step.fence:
        task.convict(
            invariant, f"{event.type} of step {step.ordinal} under fence {event.fence}, which is not under way"
        )
    elif step.complete_by is None or task.at >= step.complete_by:
        task.convict(invariant, f"{event.type} of step {step.ordinal} after its deadline")
    return step


def release(task: TaskFold, event: AttemptReleased) -> None:
    """Fold an attempt that went back before its work began: the next one begins under a higher fence, in no more doubt."""
    step = task.steps[event.step]
    if step.state is not StepState.RUNNING:
        task.convict("I6", f"an attempt of step {step.ordinal} went back, and none was under way")
    _put_back(task, step, event.fence)


def _put_back(task: TaskFold, step: StepFold, fence: int) -> None:
    if fence <= step.fence:
        task.convict("I6", f"step {step.ordinal} went back under fence {fence}, the highest was {step.fence}")
    step.fence, step.complete_by, step.not_before = max(step.fence, fence), None, None
    step.state = StepState.PENDING
