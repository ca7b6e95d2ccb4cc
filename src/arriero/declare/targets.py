"""Which part of its Agent's service a call concerns: what the Agent's functions of the arguments say."""

from typing import Any

from .. import codec
from ..errors import DefinitionError, InvalidInput
from .steps import Step


def compute_target(step: Step[Any, Any], arguments: str) -> str:
    """Return the part of the Agent's service that a call concerns; empty if the Agent has no ``breaker_key``.

    Raises: DefinitionError - ``breaker_key`` failed, or did not return an id.
    """
    key = step.agent.breaker_key
    if key is None:
        return ""
    try:
        target = key(*step.signature.arguments(arguments).values())
    except Exception as error:
        raise DefinitionError(
            f"Agent {step.agent.name}: breaker_key failed for step {step.name}: {codec.error_text(error)}"
        ) from error
    try:
        return codec.check_id(target, f"breaker_key of Agent {step.agent.name} for step {step.name}")
    except InvalidInput as error:
        raise DefinitionError(str(error)) from error
