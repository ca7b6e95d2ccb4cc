"""How users declare Agents, steps, compensations, resources and workflows. Nothing is opened or read here."""

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

import msgspec

from . import codec
from .attempt import Attempt, Undo
from .calls import StepCall, WorkflowCall, current_run
from .errors import ArrieroError, DefinitionError, InvalidInput
from .policies import (
    DEFAULT_CONVOY_POLICY,
    ConvoyPolicy,
    Duration,
    Retry,
    StepPolicy,
    Supervision,
    TaskPolicy,
    checked,
    seconds,
)
from .signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DEFAULT_RETRY = Retry()
DEFAULT_SUPERVISION = Supervision()
COMPLETE_WITHIN = 30.0
MAX_IN_FLIGHT_MAX = 100_000

open_resources: ContextVar[Mapping["Resource[Any]", Any]] = ContextVar("arriero_open_resources")


def _name(given: str | None, function: Callable[..., Any], what: str) -> str:
    try:
        return codec.checked_id(given if given is not None else getattr(function, "__name__", ""), f"name of {what}")
    except InvalidInput as error:
        raise DefinitionError(str(error)) from error


def _scope() -> Mapping[str, Any]:
    """Names where the user's decorator stands, so that types defined inside a function resolve."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame.f_locals


class Declared:
    """What a decorator makes of a function: ``help()`` and editors show the function as its author wrote it."""

    def _show_as(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(cast(Any, self), function, updated=())  # its attributes stay its own

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        """As an attribute of a class it is itself. That it may be one makes ``help()`` show it as a function."""
        return self


class Resource(Declared, Generic[T]):
    """Something an Agent's steps share: opened where the Agent is hosted, closed after drain, used by calling it."""

    def __init__(self, function: Callable[[], AsyncIterator[T]] | Callable[[], Iterator[T]], agent: str) -> None:
        self.name = getattr(function, "__name__", "resource")
        self.agent = agent
        self.function = function
        self._show_as(function)
        self._is_async = inspect.isasyncgenfunction(function)
        if not self._is_async and not inspect.isgeneratorfunction(function):
            raise DefinitionError(
                f"resource {self.name} of Agent {agent}: write it as a function that yields the resource once"
            )

    def __call__(self) -> T:
        """The open resource. Raises ArrieroError outside of the Agent's steps."""
        resources = open_resources.get(None)
        if resources is None or self not in resources:
            raise ArrieroError(
                f"{self.name}() is open only inside steps of Agent {self.agent!r} while an App runs them; "
                f"in a test of a plain function use `with arriero.testing.resource({self.name}, value):`"
            )
        return cast(T, resources[self])

    def opened(self) -> AbstractAsyncContextManager[T] | AbstractContextManager[T]:
        """A context that holds it open; the Agent's host enters it."""
        if self._is_async:
            return asynccontextmanager(cast(Callable[[], AsyncIterator[T]], self.function))()
        return contextmanager(cast(Callable[[], Iterator[T]], self.function))()


class Compensation:
    """How a step is undone."""

    def __init__(self, function: Callable[..., Any], step: "Step[Any, Any]", policy: StepPolicy) -> None:
        self.function = function
        self.policy = policy
        self.policy_text = msgspec.json.encode(policy).decode()
        self.signature = Signature(function, f"compensation of {step.name}", given=1, scope=_scope())
        self.is_async = inspect.iscoroutinefunction(function)


class Step(Declared, Generic[P, R]):
    """A step of an Agent. Calling it gives a call value, from all its arguments but the first, the Attempt."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        agent: "Agent",
        name: str | None,
        policy: StepPolicy,
        supervision: Supervision | None,
        pivot: bool,
        effect_free: bool,
    ) -> None:
        self.name = _name(name, function, "a step")
        self.agent = agent
        self.policy = policy
        self.supervision = supervision  # None: the workflow's attempts and rounds hold
        self.pivot = pivot
        self.effect_free = effect_free
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(function, f"step {self.name}", given=1, scope=_scope())
        self.undone_by: Compensation | None = None
        self._show_as(function)
        self._function = function

    @property
    def function(self) -> Callable[Concatenate[Attempt, P], Any]:
        """The plain function, for tests."""
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> StepCall[R]:
        """Bind and check the arguments. Raises InvalidInput when they do not fit."""
        call: StepCall[R] = StepCall(self, self.signature.bind(args, kwargs))
        if (run := current_run()) is not None:
            run.created(call)
        return call

    @overload
    def compensation(
        self, fn: Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]], /
    ) -> Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]]: ...
    @overload
    def compensation(
        self, fn: Callable[Concatenate[Undo[R], P], None], /
    ) -> Callable[Concatenate[Undo[R], P], None]: ...
    @overload
    def compensation(
        self, /, *, complete_within: Duration = ..., retry: Retry = ..., supervision: Supervision = ...
    ) -> "CompensationDecorator[P, R]": ...
    def compensation(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        complete_within: Duration = COMPLETE_WITHIN,
        retry: Retry = DEFAULT_RETRY,
        supervision: Supervision = DEFAULT_SUPERVISION,
    ) -> Any:
        """Declare how this step is undone: decorates a function whose first parameter is the ``Undo``.

        arriero calls it, with the step's own arguments, also after a crash.

        Args:
            fn: the function, async or plain.
            complete_within: seconds or timedelta that one attempt of it may take, 30 by default.
            retry: tries inside one attempt, and the delays between them.
            supervision: attempts and rounds; when they are spent, the task is held.
        Returns: the function itself.
        Raises: DefinitionError - a second one, parameters other than the step's, or ``then`` in its supervision.
        """
        if checked(supervision, Supervision, "supervision").then != DEFAULT_SUPERVISION.then:
            raise DefinitionError(
                f"compensation of {self.name}: `then` has no meaning here; a compensation that fails holds the task"
            )
        policy = StepPolicy(
            seconds(complete_within, "complete_within", at_least=0.001),
            None,
            checked(retry, Retry, "retry"),
            supervision,
        )

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            if self.undone_by is not None:
                raise DefinitionError(
                    f"step {self.name} has a compensation already: {self.undone_by.function.__qualname__}"
                )
            wanted, found = (list(inspect.signature(f).parameters)[1:] for f in (self._function, function))
            if wanted != found:
                raise DefinitionError(
                    f"compensation of {self.name} takes ({', '.join(found)}); it gets the step's own arguments: ({', '.join(wanted)})"
                )
            self.undone_by = Compensation(function, self, policy)
            return function

        return declare if fn is None else declare(fn)

    def __repr__(self) -> str:
        policy = self.policy
        limits = f"up to {policy.calls_max} calls, each attempt within {policy.complete_within:g} s"
        return f"<step {self.name} of Agent {self.agent.name}: {limits}>"


class AsyncStep(Step[P, R]):
    """A step written as ``async def``."""

    @property
    def function(self) -> Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]]:
        """The plain function, for tests."""
        return self._function


class SyncStep(Step[P, R]):
    """A step written as a plain function; it runs in a thread."""

    @property
    def function(self) -> Callable[Concatenate[Attempt, P], R]:
        """The plain function, for tests."""
        return self._function


class CompensationDecorator(Generic[P, R]):
    """What ``step.compensation(...)`` with options gives."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]], /
    ) -> Callable[Concatenate[Undo[R], P], Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Undo[R], P], None], /) -> Callable[Concatenate[Undo[R], P], None]: ...
    def __call__(self, fn: Any, /) -> Any:
        raise NotImplementedError  # only its type is used: compensation() returns a plain function


class StepDecorator:
    """What ``agent.step(...)`` with options gives."""

    def __init__(self, declare: Callable[[Callable[..., Any]], Step[Any, Any]]) -> None:
        self._declare = declare

    @overload
    def __call__(self, fn: Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...  # type: ignore[overload-overlap]  # async first
    @overload
    def __call__(self, fn: Callable[Concatenate[Attempt, P], R], /) -> SyncStep[P, R]: ...
    def __call__(self, fn: Any, /) -> Any:
        return self._declare(fn)


class Agent:
    """The object for one remote service: its steps, deadlines, limits and resources.

    Args:
        name: 1 to 255 characters.
        max_in_flight: attempts at once in one process.
    """

    def __init__(self, name: str, *, max_in_flight: int = 10) -> None:
        try:
            self.name = codec.checked_id(name, "name of an Agent")
        except InvalidInput as error:
            raise DefinitionError(str(error)) from error
        if (
            isinstance(max_in_flight, bool)
            or not isinstance(max_in_flight, int)
            or not 1 <= max_in_flight <= MAX_IN_FLIGHT_MAX
        ):
            raise DefinitionError(
                f"Agent {name}: max_in_flight is {max_in_flight!r}; it must be from 1 to {MAX_IN_FLIGHT_MAX:,}"
            )
        self.max_in_flight = max_in_flight
        self.steps: dict[str, Step[Any, Any]] = {}
        self.resources: list[Resource[Any]] = []

    @overload
    def step(self, fn: Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...  # type: ignore[overload-overlap]  # async first
    @overload
    def step(self, fn: Callable[Concatenate[Attempt, P], R], /) -> SyncStep[P, R]: ...
    @overload
    def step(
        self,
        /,
        *,
        name: str = ...,
        complete_within: Duration = COMPLETE_WITHIN,
        wait_within: Duration | None = None,
        retry: Retry = ...,
        supervision: Supervision = ...,
        pivot: bool = False,
        effect_free: bool = False,
    ) -> StepDecorator: ...
    def step(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        complete_within: Duration = COMPLETE_WITHIN,
        wait_within: Duration | None = None,
        retry: Retry = DEFAULT_RETRY,
        supervision: Supervision | None = None,
        pivot: bool = False,
        effect_free: bool = False,
    ) -> Any:
        """Declare a step: decorates a function, async or plain, whose first parameter is the ``Attempt``.

        With or without options: ``@agent.step`` and ``@agent.step(complete_within=10)``.

        Args:
            fn: the function. A plain one runs in a thread.
            name: kept in the store, 1 to 255 characters; give it when you rename the function. The function's by default.
            complete_within: seconds or timedelta that one attempt may take, 30 by default; a later answer never counts.
            wait_within: seconds or timedelta that a request may wait for an Agent before its first attempt; None: without
                limit.
            retry: tries inside one attempt, and the delays between them; 3 by default, after 0.2 s and more.
            supervision: attempts, rounds, and what follows when they are spent: ``then="compensate"`` or ``"hold"``. None:
                the workflow's holds.
            pivot: once completed or in doubt, the task is never undone.
            effect_free: leaves no trace, so that an attempt in doubt needs no undo.
        Returns: the step. Calling it in workflow code, without the Attempt, gives a call to await; ``step.function`` is the
            plain function, for tests.
        Raises: DefinitionError - a name that is taken or unfit, a parameter that has no name or no JSON type, or an option
            that cannot work.
        """
        policy = StepPolicy(
            seconds(complete_within, "complete_within", at_least=0.001),
            None if wait_within is None else seconds(wait_within, "wait_within", at_least=0.001),
            checked(retry, Retry, "retry"),
            DEFAULT_SUPERVISION if supervision is None else checked(supervision, Supervision, "supervision"),
        )
        checked(pivot, bool, "pivot")
        checked(effect_free, bool, "effect_free")

        def declare(function: Callable[..., Any]) -> Step[Any, Any]:
            kind = AsyncStep if inspect.iscoroutinefunction(function) else SyncStep
            step: Step[Any, Any] = kind(
                function,
                agent=self,
                name=name,
                policy=policy,
                supervision=supervision,
                pivot=pivot,
                effect_free=effect_free,
            )
            if step.name in self.steps:
                raise DefinitionError(
                    f"Agent {self.name} has a step {step.name} already; give one of them another name="
                )
            self.steps[step.name] = step
            return step

        return StepDecorator(declare) if fn is None else declare(fn)

    @overload
    def resource(self, fn: Callable[[], AsyncIterator[T]], /) -> Resource[T]: ...
    @overload
    def resource(self, fn: Callable[[], Iterator[T]], /) -> Resource[T]: ...
    def resource(self, fn: Any, /) -> Any:
        """Declare a resource that the Agent's steps share: decorates a function that yields it once, async or plain.

        It is opened before the first attempt in each process that hosts the Agent, and closed after the drain. Calling the
        resource inside a step gives what was yielded. Raises DefinitionError - the function does not yield.
        """
        resource: Resource[Any] = Resource(fn, self.name)
        self.resources.append(resource)
        return resource

    def __repr__(self) -> str:
        return f"<Agent {self.name}: {len(self.steps)} steps, {self.max_in_flight} in flight>"


class Workflow(Declared, Generic[P, R]):
    """A workflow. Calling it gives a call value to submit."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        complete_within: float | None,
        supervision: Supervision | None,
        convoy_policy: ConvoyPolicy | None = None,
    ) -> None:
        self.name = _name(name, function, "a workflow")
        if not inspect.iscoroutinefunction(function):
            raise DefinitionError(f"workflow {self.name} must be an `async def`: it awaits its steps")
        self.signature = Signature(function, f"workflow {self.name}", given=0, scope=_scope())
        self.supervision = supervision or DEFAULT_SUPERVISION
        self.policy = TaskPolicy(complete_within, self.supervision, convoy_policy or DEFAULT_CONVOY_POLICY)
        self.policy_text = msgspec.json.encode(self.policy).decode()
        self._show_as(function)
        self._function = function

    @property
    def function(self) -> Callable[P, Coroutine[Any, Any, R]]:
        """The plain function."""
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowCall[R]:
        """Bind and check the arguments. Raises InvalidInput when they do not fit."""
        return WorkflowCall(self, self.signature.bind(args, kwargs))

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


class WorkflowDecorator:
    """What ``workflow(...)`` with options gives."""

    def __init__(self, declare: Callable[[Callable[..., Any]], Workflow[Any, Any]]) -> None:
        self._declare = declare

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]:
        return self._declare(fn)


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str = ...,
    complete_within: Duration = ...,
    supervision: Supervision = ...,
    convoy_policy: ConvoyPolicy = ...,
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    complete_within: Duration | None = None,
    supervision: Supervision | None = None,
    convoy_policy: ConvoyPolicy | None = None,
) -> Any:
    """Declare a workflow: an ``async def`` whose awaits of steps are recorded.

    Args:
        name: kept in the store; give it when you rename the function.
        complete_within: seconds the whole task may take, counted from submission.
        supervision: attempts and rounds for steps without their own; ``then`` for the task.
        convoy_policy: what its convoys do when their head fails for good, and when a sequence number is missing.
    Raises: DefinitionError.
    """
    limit = None if complete_within is None else seconds(complete_within, "complete_within", at_least=0.001)
    if supervision is not None:
        checked(supervision, Supervision, "supervision")
    if convoy_policy is not None:
        checked(convoy_policy, ConvoyPolicy, "convoy_policy")

    def declare(function: Callable[..., Any]) -> Workflow[Any, Any]:
        return Workflow(
            function, name=name, complete_within=limit, supervision=supervision, convoy_policy=convoy_policy
        )

    return WorkflowDecorator(declare) if fn is None else declare(fn)
