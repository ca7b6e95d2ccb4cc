"""The policy of one call of a step."""

from functools import lru_cache
from typing import Any

import msgspec

from ..declare.steps import Step, StepCall
from ..declare.workflows import WorkflowCall
from ..model.policies import ONE_TRY, StepPolicy, Supervision, encode_policy, spread_calls
from .supervision import POLICIES_KEPT


def resolve_call_policy(call: StepCall[object], of_workflow: Supervision) -> StepPolicy:
    """Return the policy of one call: its options, else the step's, else (attempts, rounds, cool-off) the workflow's.

    ``Retry(max_calls=)`` holds for attempts and rounds, no matter who says the rest of the supervision.
    """
    step, changed = call.step, call.changed
    max_calls = step.max_calls if changed.retry is None else changed.retry.max_calls
    supervision = changed.supervision or step.supervision or _of_steps(of_workflow)
    retry, supervision = spread_calls(max_calls, changed.retry or step.policy.retry, supervision)
    return StepPolicy(
        changed.complete_within or step.policy.complete_within,
        changed.wait_within or step.policy.wait_within,
        retry,
        supervision,
        step.policy.extend_max,
    )


def resolve_child_policy(call: WorkflowCall[object], of_workflow: Supervision) -> StepPolicy:
    """Return the policy of a step that is another task: how that is submitted. It has the attempts of its own steps."""
    return StepPolicy(0.0, None, ONE_TRY, _of_steps(of_workflow), child=call.child)


@lru_cache(POLICIES_KEPT)
def resolve_step_policy(step: Step[Any, Any], of_workflow: Supervision) -> tuple[StepPolicy, str]:
    """Return the policy of calls of a step without options, and that as JSON text: it is the same for all of them."""
    policy = resolve_call_policy(StepCall(step, ""), of_workflow)
    return policy, encode_policy(policy)


@lru_cache(POLICIES_KEPT)
def _of_steps(of_workflow: Supervision) -> Supervision:
    return msgspec.structs.replace(of_workflow, then="compensate")
