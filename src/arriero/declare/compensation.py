"""The function that undoes a step, as it was declared."""

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ..errors import DefinitionError
from ..model.policies import StepPolicy, encode_policy
from .attempt import Undo
from .declared import caller_scope
from .signature import Signature, read_signature, takes_given

P = ParamSpec("P")
R = TypeVar("R")


class Compensation:
    """The compensation of a step.

    Args:
        step_names: names of the step's own arguments; its function takes the same.
    Raises: DefinitionError - it does not.
    """

    def __init__(
        self, function: Callable[..., Any], step_name: str, step_names: Sequence[str], policy: StepPolicy
    ) -> None:
        self.function = function
        self.policy = policy
        self.policy_text = encode_policy(policy)
        what, scope = f"compensation of {step_name}", caller_scope()
        is_given = _is_untyped_undo(function, step_names) or takes_given(function, what, Undo, scope)
        self.signature = Signature(function, what, is_given=is_given, may_be_given=True, scope=scope)
        if (found := self.signature.list_names()) != list(step_names):
            raise DefinitionError(
                f"{what} takes ({', '.join(found)}); it gets the step's own arguments: ({', '.join(step_names)}), after an Undo if"
                " its first parameter is annotated so"
            )
        self.is_async = inspect.iscoroutinefunction(function)


def _is_untyped_undo(function: Callable[..., Any], step_names: Sequence[str]) -> bool:
    """Returns True if a first parameter without a type, or of any, stands before the step's own arguments."""
    found = list(read_signature(function).parameters.values())
    names = [one.name for one in found[1:]]
    return bool(found) and found[0].annotation in (inspect.Parameter.empty, Any, "Any") and names == list(step_names)


class CompensationDecorator(Generic[P, R]):
    """The decorator that ``step.compensation(...)`` with options returns."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]], /
    ) -> Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Undo[R], P], None], /) -> Callable[Concatenate[Undo[R], P], None]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, None]], /) -> Callable[P, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, fn: Callable[P, None], /) -> Callable[P, None]: ...
    def __call__(self, fn: Any, /) -> Any:
        raise NotImplementedError  # only its type is used: compensation() returns a plain function
