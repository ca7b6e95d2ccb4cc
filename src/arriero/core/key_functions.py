"""Functions of Agents that name a key: of the part of its service that a call concerns, and of its limits."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..declare.steps import Step
from ..errors import DefinitionError, InvalidInput
from ..model.agents import encode_limit_keys
from ..payloads import codec

LIMIT_KEYS_BYTES_MAX = 1_500  # an entry of an index of PostgreSQL holds 2,704 bytes, with the names of Agent and App


class KeyFunctionFailed(DefinitionError):
    """A function of an Agent that names a key failed, or did not return an id. ``code``: of the task's failure."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def compute_target(step: Step[Any, Any], arguments: str) -> str:
    """Return the part of the Agent's service that a call concerns. The Agent has a ``breaker_key``.

    Raises: KeyFunctionFailed.
    """
    assert step.agent.breaker_key is not None
    return _compute_key(step.agent.breaker_key, "breaker_key", "breaker_key", step, arguments)


def compute_limit_keys(step: Step[Any, Any], arguments: str) -> str:
    """Return the keys of the Agent's limits that a call is counted under, as JSON text.

    Raises: KeyFunctionFailed.
    """
    text = encode_limit_keys(
        {
            limit.policy.name: _compute_key(
                limit.key, f"the key of limit {limit.policy.name!r}", "limit_key", step, arguments
            )
            for limit in step.agent.limits
            if limit.key is not None
        }
    )
    if (size := len(text.encode())) > LIMIT_KEYS_BYTES_MAX:
        raise KeyFunctionFailed(
            f"the keys of the limits of Agent {step.agent.name} for step {step.name} have {size:,} bytes together with the"
            f" names of the limits; at most {LIMIT_KEYS_BYTES_MAX:,} are kept: return shorter keys, such as a hash",
            "limit_key",
        )
    return text


@lru_cache(maxsize=256)
def _count_taken(key: Callable[..., str]) -> int | None:
    """Count the arguments that a key function takes; it gets the first ones of its step. None: any number."""
    parameters = inspect.signature(key).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _compute_key(key: Callable[..., str], what: str, code: str, step: Step[Any, Any], arguments: str) -> str:
    try:
        values = tuple(step.signature.arguments_with_defaults(arguments).values())
        found = key(*values[: _count_taken(key)])
    except Exception as error:
        raise KeyFunctionFailed(
            f"Agent {step.agent.name}: {what} failed for step {step.name}: {codec.error_text(error)}", code
        ) from error
    try:
        return codec.check_id(found, f"{what} of Agent {step.agent.name} for step {step.name}")
    except InvalidInput as error:
        raise KeyFunctionFailed(str(error), code) from error
