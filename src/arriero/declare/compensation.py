"""The function that undoes a step, as it was declared."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ..errors import DefinitionError
from ..model.policies import StepPolicy, encode_policy
from .attempt import Undo
from .declared import caller_scope
from .signature import Signature

P = ParamSpec("P")
R = TypeVar("R")


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


class CompensationDecorator(Generic[P, R]):
    """The decorator that ``step.compensation(...)`` with options returns."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]], /
    ) -> Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Undo[R], P], None], /) -> Callable[Concatenate[Undo[R], P], None]: ...
    def __call__(self, fn: Any, /) -> Any:
        raise NotImplementedError  # only its type is used: compensation() returns a plain function
