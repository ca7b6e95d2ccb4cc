"""The policy of one call of a step."""

import msgspec

from ..calls import StepCall
from ..policies import StepPolicy, Supervision


def policy_of(call: StepCall[object], of_workflow: Supervision) -> StepPolicy:
    """The policy of one call: its options, else the step's, else (attempts, rounds, cool-off) the workflow's."""
    step, changed = call.step, call.changed
    return StepPolicy(
        changed.complete_within or step.policy.complete_within,
        changed.wait_within or step.policy.wait_within,
        changed.retry or step.policy.retry,
        changed.supervision or step.supervision or msgspec.structs.replace(of_workflow, then="compensate"),
    )
