"""The function that undoes a step, as it was declared."""

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import DefinitionError
from ..policies import StepPolicy, encode_policy
from .declared import caller_scope
from .signature import Signature


class Compensation:
    """The compensation of a step."""

    def __init__(self, function: Callable[..., Any], step_name: str, policy: StepPolicy) -> None:
        self.function = function
        self.policy = policy
        self.policy_text = encode_policy(policy)
        self.signature = Signature(function, f"compensation of {step_name}", given=1, scope=caller_scope())
        self.is_async = inspect.iscoroutinefunction(function)


def check_parameters(function: Callable[..., Any], step_name: str, step_function: Callable[..., Any]) -> None:
    """Refuse a compensation that does not take the step's own arguments. Raises DefinitionError."""
    wanted, found = (list(inspect.signature(f).parameters)[1:] for f in (step_function, function))
    if wanted != found:
        raise DefinitionError(
            f"compensation of {step_name} takes ({', '.join(found)}); it gets the step's own arguments: ({', '.join(wanted)})"
        )
