"""The policy of one call of a step."""

from functools import lru_cache

import msgspec

from ..declare.steps import StepCall
from ..policies import StepPolicy, Supervision
from .supervision import POLICIES_KEPT


def resolve_call_policy(call: StepCall[object], of_workflow: Supervision) -> StepPolicy:
    """Return the policy of one call: its options, else the step's, else (attempts, rounds, cool-off) the workflow's."""
    step, changed = call.step, call.changed
    supervision = changed.supervision or step.supervision or _of_steps(of_workflow)
    return StepPolicy(
        changed.complete_within or step.policy.complete_within,
        changed.wait_within or step.policy.wait_within,
        changed.retry or step.policy.retry,
        supervision,
    )


@lru_cache(POLICIES_KEPT)
def _of_steps(of_workflow: Supervision) -> Supervision:
    return msgspec.structs.replace(of_workflow, then="compensate")
