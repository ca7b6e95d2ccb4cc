"""The function that undoes a step, as it was declared."""

import inspect
from collections.abc import Callable
from typing import Any

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
