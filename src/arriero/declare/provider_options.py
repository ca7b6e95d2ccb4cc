"""Checks of the options by which an Agent provides the steps of another one."""

from typing import Any

from ..errors import DefinitionError

WEIGHT_MAX = 1_000_000
PREFERENCE_MAX = 1_000


def check_weight(agent: str, weight: Any) -> float:
    """The weight of ``Agent(weight=)``. Raises DefinitionError."""
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 < weight <= WEIGHT_MAX:
        raise DefinitionError(
            f"Agent {agent}: weight is {weight!r}; it must be a number above 0 and at most {WEIGHT_MAX:,}"
        )
    return float(weight)


def check_preference(agent: str, preference: Any) -> int:
    """The preference of ``Agent(preference=)``. Raises DefinitionError."""
    if isinstance(preference, bool) or not isinstance(preference, int) or not 0 <= preference <= PREFERENCE_MAX:
        raise DefinitionError(
            f"Agent {agent}: preference is {preference!r}; it must be a whole number from 0 to {PREFERENCE_MAX:,}; 0 goes first"
        )
    return preference


def check_base(agent: str, base: Any, *, breaker_key: object) -> None:
    """Check ``Agent(provides=)``. Raises DefinitionError.

    Args:
        base: an Agent, or None.
        breaker_key: of the provider: what it says must hold for all providers, so only the base has one.
    """
    if base is None:
        return
    if base.provides is not None:
        raise DefinitionError(
            f"Agent {agent} provides {base.name}, which itself provides {base.provides.name}; give provides= the Agent whose"
            " steps the workflows call"
        )
    if base.name == agent:
        raise DefinitionError(f"Agent {agent} provides an Agent of its own name; give it another name")
    if breaker_key is not None:
        raise DefinitionError(
            f"Agent {agent}: the breaker_key of {base.name}, whose steps it provides, holds for it too; leave it out here"
        )
