"""The fold of what an attempt does while it runs, and the invariants of its time."""

from ..events.step import CompensationDispatched, StepDispatched
from .fold import StepFold, TaskFold

_DAY_SECONDS = 86_400.0  # to which the time of later attempts grows
_MICROSECONDS = 1_000_000


def judge_time(task: TaskFold, step: StepFold, event: StepDispatched | CompensationDispatched) -> None:
    """Judge the time that an attempt gets as it begins."""
    if event.complete_by <= task.at:
        task.convict("I19", f"step {step.ordinal} was dispatched with a deadline that had passed")
    if step.policy is None:
        return
    within = seconds = step.policy.complete_within
    factor = step.policy.supervision.complete_within_factor
    for _ in range(event.attempt - 1 if factor > 1 else 0):
        seconds = min(seconds * factor, max(within, _DAY_SECONDS))
    # The product of many factors may differ in its last digits from their power.
    most, given = round(seconds * (1 + 1e-9) * _MICROSECONDS) + 1, event.complete_by - task.at
    if given > most:
        task.convict(
            "I67", f"attempt {event.attempt} of step {step.ordinal} got {given} us, its policy gives it {most}"
        )
