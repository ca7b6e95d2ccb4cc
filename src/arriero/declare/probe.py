"""The probe of an Agent: a function of the user that asks the service if it is well."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import DefinitionError
from ..model.policies import Duration, seconds
from .signature import read_signature

COMPLETE_WITHIN = 5.0  # seconds of a probe: a service that is well answers a health check much sooner
COMPLETE_WITHIN_MAX = 300.0  # seconds: nobody else probes meanwhile


class Probe:
    """The probe of one Agent.

    Args:
        takes_target: the Agent has a ``breaker_key``: the function gets the name of the part that is asked.
    Raises: DefinitionError - other parameters, or a time that cannot work.
    """

    def __init__(
        self, function: Callable[..., Any], agent: str, *, takes_target: bool, complete_within: Duration
    ) -> None:
        self.complete_within = seconds(complete_within, f"Agent {agent}: complete_within of its probe", at_least=0.001)
        if self.complete_within > COMPLETE_WITHIN_MAX:
            raise DefinitionError(
                f"Agent {agent}: complete_within of its probe is {self.complete_within:g} s; it must be at most"
                f" {COMPLETE_WITHIN_MAX:g} s, because no other process asks meanwhile"
            )
        self.function = function
        self.takes_target = takes_target
        self.is_async = inspect.iscoroutinefunction(function)
        name = getattr(function, "__qualname__", repr(function))
        wanted = "one parameter, the name of the part that is asked" if takes_target else "no parameters"
        try:
            read_signature(function).bind(*([""] if takes_target else []))
        except (TypeError, ValueError) as error:
            why = "it has a breaker_key" if takes_target else "it has no breaker_key"
            raise DefinitionError(f"Agent {agent}: its probe {name} must take {wanted}, because {why}") from error


def check_may_have_probe(agent: str, declared: Probe | None, *, has_breaker: bool) -> None:
    """Refuse a probe of an Agent that has one already, or has no breaker. Raises DefinitionError."""
    if declared is not None:
        first = declared.function.__qualname__
        raise DefinitionError(f"Agent {agent} has a probe already: {first}; remove one of the two")
    if not has_breaker:
        raise DefinitionError(
            f"Agent {agent} has no breaker, so nothing would ask its probe; remove breaker=None or the probe"
        )


def mark_probe(breaker_text: str) -> str:
    """Return the text of a breaker's policy with the mark that its Agent has a probe; ``core.breaker`` reads it."""
    return msgspec.json.encode(msgspec.json.decode(breaker_text) | {"has_probe": True}).decode()
