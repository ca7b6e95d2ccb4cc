"""The fold of the Agents that did a step, and the invariant that a step which was taken stays with its Agent.

The service of another Agent may not know the step's idempotency key. So only a step moves whose services share the key.
"""

from ..events.step import CompensationDispatched, StepDispatched, StepOpened, StepReopened
from .fold import StepFold, TaskFold

_SHARES_KEY = "interchangeable"
_STAYS = "pinned"


def judge_dispatch(task: TaskFold, step: StepFold, event: StepDispatched | CompensationDispatched) -> None:
    """Judge the Agent that begins an attempt, and keep it."""
    if not event.agent or event.agent == step.agent:
        return
    if step.routing != _SHARES_KEY and (step.dispatched or step.kind == "compensation"):
        task.convict(
            "I74",
            f"attempt {event.attempt} of step {step.ordinal} was dispatched to Agent {event.agent}; it belongs to {step.agent}"
            " and is not interchangeable",
        )
    step.agent = event.agent


def judge_compensation(task: TaskFold, step: StepFold) -> None:
    """Judge that a compensation goes to the Agent that did its step."""
    forward = None if step.undoes is None else task.steps.get(step.undoes)
    if forward is None or forward.routing == _SHARES_KEY:
        return
    if step.agent != forward.agent:
        task.convict(
            "I74",
            f"compensation {step.ordinal} was opened for Agent {step.agent}; Agent {forward.agent} did step {forward.ordinal}",
        )
    if step.routing == _SHARES_KEY:
        task.convict("I74", f"compensation {step.ordinal} may move to other Agents, its step {forward.ordinal} may not")


def judge_reopening(task: TaskFold, step: StepFold, event: StepReopened) -> None:
    """Judge that a step which was taken is asked for again where it was taken. ``step``: as it was declared before."""
    moved = event.agent != step.agent and step.routing == _STAYS and event.routing != _SHARES_KEY
    if moved and step.dispatched:
        task.convict(
            "I74",
            f"step {step.ordinal} was opened again for Agent {event.agent}; it was taken by {step.agent} and is not"
            " interchangeable",
        )


def judge_opening(task: TaskFold, step: StepFold, event: StepOpened) -> None:
    """Judge the Agent of a new step."""
    if event.kind == "compensation":
        judge_compensation(task, step)
