"""Agents, their steps, and the call values of steps. Nothing is opened or read here."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import msgspec

from ..errors import ArrieroError, DefinitionError, InvalidInput
from ..model.policies import Adaptive, Breaker, Duration, Retry, StepPolicy, Supervision, check_calls, check_type
from ..text.format import format_count
from . import option_checks
from .agent_parts import AgentParts, refuse_when_open
from .attempt import Attempt, Undo
from .compensation import Compensation, CompensationDecorator
from .declared import CallValue, Declared, WorkflowRun, caller_scope, check_name, choose_name, current_run
from .limits import Limit, check_limits
from .remote import (
    PLACES_MAX,
    check_step_function,
    choose_remote_retry,
    refuse_body,
    refuse_local_part,
    refuse_mixture,
    refuse_options,
)
from .signature import Signature, takes_given
from .step_options import (
    COMPLETE_WITHIN,
    DEFAULT_RETRY,
    DEFAULT_SUPERVISION,
    NO_OPTIONS,
    RunIn,
    StepOptions,
    build_step_policy,
    change_options,
)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BREAKER = Breaker()
RETRY_BUDGET = 0.2


class StepCall(CallValue[R_co]):
    """A step with its arguments. Await it in a workflow, or submit it as a separate task."""

    __slots__ = ("__weakref__", "_awaited_before", "arguments", "changed", "number", "step")

    def __init__(self, step: "Step[Any, R_co]", arguments: str, changed: StepOptions = NO_OPTIONS) -> None:
        self._running = None  # without a call of the base: steps are called often
        self.step = step
        self.arguments = arguments
        self.changed = changed
        self.number = 0  # in workflow code: its place among the calls made there
        self._awaited_before = False

    def options(
        self,
        *,
        key: str | None = None,
        complete_within: Duration | None = None,
        wait_within: Duration | None = None,
        retry: Retry | None = None,
        supervision: Supervision | None = None,
        pivot: bool | None = None,
    ) -> "StepCall[R_co]":
        """The same call with changes for this one time; what is not given stays.

        Raises: InvalidInput for a bad key; DefinitionError for a bad duration or policy.
        """
        if retry is not None and self.step.is_pulled:
            refuse_options(f"step {self.step.name}", retry=retry)
        changed = change_options(
            self.changed,
            self.step.name,
            key=key,
            complete_within=complete_within,
            wait_within=wait_within,
            retry=retry,
            supervision=supervision,
            pivot=pivot,
        )
        call = StepCall(self.step, self.arguments, changed)
        if (run := current_run()) is not None:
            run.note_replaced(self, call)
        return call

    async def _run_call(self) -> R_co:
        run: WorkflowRun | None = getattr(asyncio._get_running_loop(), "workflow_run", None)  # steps are called often
        if run is None:
            name, first = self.step.name, "attempt, " if self.step.signature.is_given else ""
            raise ArrieroError(
                f"{name}(...) is a call value and runs only inside a workflow: await it there, submit it as a task with "
                f"app.submit({name}(...)), or call {name}.function({first}...) in a test"
            )
        if self._awaited_before:  # a second step unasked could be a second charge; a coroutine refuses that too
            raise ArrieroError(
                f"a call value of {self.step.name} was awaited twice; call {self.step.name}(...) again for a second step"
            )
        self._awaited_before = True
        result: R_co = await run.open(self)
        return result

    def __hash__(self) -> int:
        """Hash by number, so that sets of calls (asyncio.as_completed) iterate alike in every replay."""
        return self.number or id(self)

    def __repr__(self) -> str:
        return f"<call of step {self.step.name}>"


class Step(Declared, Generic[P, R]):
    """A step of an Agent. Calling it gives a call value, from the arguments that arriero does not give (the Attempt)."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        agent: "Agent",
        name: str,
        scope: Mapping[str, Any],
        takes_attempt: bool,
        policy: StepPolicy,
        supervision: Supervision | None,
        max_calls: int | None,
        pivot: bool,
        effect_free: bool,
        interchangeable: bool,
        run_in: RunIn,
        is_remote: bool = False,
    ) -> None:
        self.name = name
        self.is_remote = is_remote
        self.agent = agent
        self.policy = policy
        self.supervision = supervision  # None: the workflow's attempts and rounds hold
        self.max_calls = max_calls  # of Retry(max_calls=): then its number holds for attempts and rounds
        self.pivot = pivot
        self.effect_free = effect_free
        self.interchangeable = interchangeable
        self.run_in = run_in
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(function, f"step {name}", is_given=takes_attempt, may_be_given=True, scope=scope)
        self.undone_by: Compensation | None = None
        self._show_as(function)
        self._function = function

    @property
    def function(self) -> Callable[..., Any]:
        """The plain function, for tests."""
        return self._function

    @property
    def is_pulled(self) -> bool:
        """Returns True if a program outside of Python asks for its requests."""
        return self.is_remote and not self.agent.pushes

    @property
    def lacks_undo(self) -> bool:
        """Returns True if it says neither how it is undone, nor that it needs no undo. A pivot is never undone."""
        return self.undone_by is None and not (self.effect_free or self.pivot)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> StepCall[R]:
        """Bind and check the arguments. Raises InvalidInput when they do not fit, or the step is a provider's."""
        if self.agent.provides is not None:
            base = self.agent.provides.name
            raise InvalidInput(
                f"step {self.name} of Agent {self.agent.name} provides that of {base}: call the step of {base}, arriero chooses"
                " the Agent"
            )
        call: StepCall[R] = StepCall(self, self.signature.bind(args, kwargs))
        if (run := getattr(asyncio._get_running_loop(), "workflow_run", None)) is not None:  # as ``current_run``
            run.note_created(call)
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
    def compensation(self, fn: Callable[P, Coroutine[Any, Any, None]], /) -> Callable[P, Coroutine[Any, Any, None]]: ...
    @overload
    def compensation(self, fn: Callable[P, None], /) -> Callable[P, None]: ...
    @overload
    def compensation(
        self,
        /,
        *,
        complete_within: Duration = ...,
        extend_max: Duration | None = ...,
        retry: Retry = ...,
        supervision: Supervision = ...,
    ) -> "CompensationDecorator[P, R]": ...
    @option_checks.explain_options
    def compensation(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        complete_within: Duration = COMPLETE_WITHIN,
        extend_max: Duration | None = None,
        retry: Retry = DEFAULT_RETRY,
        supervision: Supervision = DEFAULT_SUPERVISION,
    ) -> Any:
        """Declare how this step is undone: decorates a function that takes the step's own arguments.

        arriero calls it, also after a crash. If its first parameter is annotated ``Undo``, it gets that before the arguments.

        Args:
            fn: the function, async or plain.
            complete_within: seconds or timedelta that one attempt of it may take, 30 by default.
            extend_max: seconds or timedelta that one attempt may take at most by ``undo.extend``; None: ten times its time.
            retry: tries inside one attempt, and the delays between them.
            supervision: attempts and rounds; when they are spent, the task is held.
        Returns: the function itself.
        Raises: DefinitionError - a second one, parameters other than the step's, or ``then`` in its supervision.
        """
        if check_type(supervision, Supervision, "supervision").then != DEFAULT_SUPERVISION.then:
            raise DefinitionError(
                f"compensation of {self.name}: `then` has no meaning here; a compensation that fails holds the task"
            )
        max_calls = check_calls(retry, supervision, f"compensation of {self.name}")
        if self.is_remote:
            retry = choose_remote_retry(f"compensation of {self.name}", "thread", retry, pushes=self.agent.pushes)
        policy = build_step_policy(complete_within, None, retry, supervision, extend_max, max_calls)

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            refuse_when_open(self.agent.sessions, f"the compensation of step {self.name}")
            if (old := self.undone_by) is not None:
                raise DefinitionError(
                    f"step {self.name} has a compensation already: {old.function.__name__}; remove one"
                )
            if self.is_remote:
                refuse_body(function, f"compensation of {self.name}")
            self.undone_by = Compensation(function, self.name, self.signature.list_names(), policy)
            return function

        return declare if fn is None else declare(fn)

    def __repr__(self) -> str:
        limits = f"up to {format_count(self.policy.calls_max, 'call')}, each attempt within {self.policy.complete_within:g} s"
        return f"<step {self.name} of Agent {self.agent.name}: {limits}>"


class AsyncStep(Step[P, R]):
    """A step written as ``async def`` that takes its Attempt."""

    @property
    def function(self) -> Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]]:
        """The plain function, for tests."""
        return self._function


class SyncStep(Step[P, R]):
    """A step written as a plain function that takes its Attempt; it runs in a thread."""

    @property
    def function(self) -> Callable[Concatenate[Attempt, P], R]:
        """The plain function, for tests."""
        return self._function


class AsyncStepWithoutAttempt(Step[P, R]):
    """A step written as ``async def`` that takes its arguments alone."""

    @property
    def function(self) -> Callable[P, Coroutine[Any, Any, R]]:
        """The plain function, for tests."""
        return self._function


class SyncStepWithoutAttempt(Step[P, R]):
    """A step written as a plain function that takes its arguments alone; it runs in a thread."""

    @property
    def function(self) -> Callable[P, R]:
        """The plain function, for tests."""
        return self._function


STEP_KINDS: dict[tuple[bool, bool], type[Step[Any, Any]]] = {  # by: it is async, it takes its Attempt
    (True, True): AsyncStep,
    (False, True): SyncStep,
    (True, False): AsyncStepWithoutAttempt,
    (False, False): SyncStepWithoutAttempt,
}


def _build_step(function: Callable[..., Any], name: str | None, **options: Any) -> Step[Any, Any]:
    """Build the step of a function. ``options``: what all its classes take. Raises DefinitionError."""
    named, scope = choose_name(name, function, "a step"), caller_scope()
    takes_attempt = takes_given(function, f"step {named}", Attempt, scope)
    kind = STEP_KINDS[inspect.iscoroutinefunction(function), takes_attempt]
    return kind(function, name=named, scope=scope, takes_attempt=takes_attempt, **options)


class StepDecorator:
    """The decorator that ``agent.step(...)`` with options returns."""

    def __init__(self, declare: Callable[[Callable[..., Any]], Step[Any, Any]]) -> None:
        self._declare = declare

    @overload
    def __call__(self, fn: Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...  # type: ignore[overload-overlap]  # async first
    @overload
    def __call__(self, fn: Callable[Concatenate[Attempt, P], R], /) -> SyncStep[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStepWithoutAttempt[P, R]: ...  # type: ignore[overload-overlap]  # async first
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncStepWithoutAttempt[P, R]: ...
    def __call__(self, fn: Any, /) -> Any:
        return self._declare(fn)


class Agent(AgentParts):
    """The object for one remote service: its steps, deadlines, limits and resources.

    Args:
        name: 1 to 255 characters.
        max_in_flight: attempts at a time in one process, 10 by default. Of an Agent outside of Python: None bounds nothing but
            what its programs ask for.
        reserve: how many of these are kept for tasks of priority 8 and 9; a number below 1 is a share, rounded up.
        breaker: when the service counts as down, for all processes; None: never.
        limits: ``Concurrent`` and ``Rate`` limits, which all processes share. They need one commit more for each attempt.
        breaker_key: for a service with parts that fail by themselves. It gets the arguments of the step and returns the name
            of the part, as ``lambda order: order.bank``; each part has a separate breaker.
        retry_budget: which share of the calls of a process may be retries, above 0 and at most 1; others wait. None: no limit.
        adaptive: True, or Adaptive(...): there are fewer places while the service slows down or fails.
        provides: the Agent whose steps this one can do as well. Workflows call that one's steps; arriero chooses.
        weight: share of the calls among Agents of one preference, above 0.
        preference: 0 goes first; others get calls when those before them are not well or have no room.
    """

    pushes = False  # of one whose steps are remote: whether arriero sends their requests, or a program asks for them

    @option_checks.explain_options
    def __init__(
        self,
        name: str,
        *,
        max_in_flight: int | None = None,
        reserve: float = 0,
        breaker: Breaker | None = DEFAULT_BREAKER,
        breaker_key: Callable[..., str] | None = None,
        limits: Sequence[Limit] = (),
        retry_budget: float | None = RETRY_BUDGET,
        adaptive: bool | Adaptive = False,
        provides: "Agent | None" = None,
        weight: float = 1.0,
        preference: int = 0,
    ) -> None:
        super().__init__()
        self.name = check_name(name, "an Agent")
        self._is_bounded = max_in_flight is not None
        self.max_in_flight = option_checks.check_max_in_flight(name, max_in_flight)
        self.reserved = option_checks.count_reserved(name, reserve, self.max_in_flight)
        self.breaker = None if breaker is None else check_type(breaker, Breaker, f"Agent {name}: breaker")
        self.breaker_key = option_checks.check_key_function(f"Agent {name}: breaker_key", breaker_key)
        self.breaker_text = "" if breaker is None else msgspec.json.encode(breaker).decode()
        self.limits = check_limits(self.name, limits)
        self.adaptive = option_checks.check_adaptive(name, adaptive, self.max_in_flight)
        self.retry_budget = option_checks.check_retry_budget(name, retry_budget)
        self.provides = None if provides is None else check_type(provides, Agent, f"Agent {name}: provides")
        option_checks.check_base(name, provides, breaker_key=breaker_key)
        self.weight = option_checks.check_weight(name, weight)
        self.preference = option_checks.check_preference(name, preference)
        self.steps: dict[str, Step[Any, Any]] = {}

    @overload
    def step(self, fn: Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...  # type: ignore[overload-overlap]  # async first
    @overload
    def step(self, fn: Callable[Concatenate[Attempt, P], R], /) -> SyncStep[P, R]: ...
    @overload
    def step(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStepWithoutAttempt[P, R]: ...  # type: ignore[overload-overlap]  # async first
    @overload
    def step(self, fn: Callable[P, R], /) -> SyncStepWithoutAttempt[P, R]: ...
    @overload
    def step(
        self,
        /,
        *,
        name: str = ...,
        complete_within: Duration = COMPLETE_WITHIN,
        extend_max: Duration | None = None,
        wait_within: Duration | None = None,
        retry: Retry = ...,
        supervision: Supervision = ...,
        pivot: bool = False,
        effect_free: bool = False,
        interchangeable: bool = False,
        run_in: RunIn = "thread",
        remote: bool = False,
    ) -> StepDecorator: ...
    @option_checks.explain_options
    def step(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        complete_within: Duration = COMPLETE_WITHIN,
        extend_max: Duration | None = None,
        wait_within: Duration | None = None,
        retry: Retry = DEFAULT_RETRY,
        supervision: Supervision | None = None,
        pivot: bool = False,
        effect_free: bool = False,
        interchangeable: bool = False,
        run_in: RunIn = "thread",
        remote: bool = False,
    ) -> Any:
        """Declare a step: decorates a function, async or plain. It gets its ``Attempt`` if its first parameter is annotated so.

        With or without options: ``@agent.step`` and ``@agent.step(complete_within=10)``.

        Args:
            fn: the function. A plain one runs in a thread, or in a child process.
            name: kept in the store, 1 to 255 characters; give it when you rename the function. The function's by default.
            complete_within: seconds or timedelta that one attempt may take, 30 by default; a later answer never counts.
            extend_max: seconds or timedelta that one attempt may take at most by ``attempt.extend``; None: ten times its time.
            wait_within: seconds or timedelta that a request may wait for an Agent before its first attempt; None: without
                limit.
            retry: tries inside one attempt, and the delays between them; 3 by default, after 0.2 s and more. Or
                ``Retry(max_calls=5)``: at most 5 calls in all.
            supervision: attempts, rounds, and what follows when they are spent: ``then="compensate"`` or ``"hold"``. None:
                the workflow's holds.
            pivot: once completed or in doubt, the task is never undone.
            effect_free: leaves no trace, so that an attempt in doubt needs no undo.
            interchangeable: the services of all Agents that provide this step share the idempotency key: they are one service
                under several addresses. Then a step moves to another of these Agents also between its attempts.
            run_in: of a plain function: ``"thread"``, or ``"process"`` for a separate child process, which is killed at
                ``complete_by``. That needs a function at the top of a module that can be imported.
            remote: a program outside of Python carries the step out, so the function has no body. So are all steps of the Agent
                then; see docs/how-to/agents-in-any-language.md.
        Returns: the step. Calling it in workflow code, without the Attempt, gives a call to await; ``step.function`` is for tests.
        Raises: DefinitionError - a name that is taken or unfit, a parameter that has no name or no JSON type, or an option
            that cannot work.
        """
        remote = check_type(remote, bool, "remote") or self.pushes
        max_calls = check_calls(retry, supervision, f"a step of Agent {self.name}")
        if remote:
            retry = choose_remote_retry(f"a step of Agent {self.name}", run_in, retry, pushes=self.pushes)
        policy = build_step_policy(complete_within, wait_within, retry, supervision, extend_max, max_calls)
        option_checks.check_flags(pivot=pivot, effect_free=effect_free, interchangeable=interchangeable)

        def declare(function: Callable[..., Any]) -> Step[Any, Any]:
            check_step_function(function, run_in, is_remote=remote)
            declared = _build_step(
                function,
                name,
                agent=self,
                policy=policy,
                supervision=supervision,
                max_calls=max_calls,
                pivot=pivot,
                effect_free=effect_free,
                interchangeable=interchangeable,
                run_in=run_in,
                is_remote=remote,
            )
            return self._add_step(declared)

        return StepDecorator(declare) if fn is None else declare(fn)

    def _add_step(self, step: Step[Any, Any]) -> Step[Any, Any]:
        refuse_when_open(self.sessions, f"step {step.name}")
        if step.name in self.steps:
            raise DefinitionError(f"Agent {self.name} has a step {step.name} already; give one of them another name=")
        refuse_mixture(self.name, step.name, [(one.name, one.is_remote) for one in self.steps.values()], step.is_remote)
        self.steps[step.name] = step
        if step.is_remote and not self.pushes:
            self.max_in_flight = self.max_in_flight if self._is_bounded else PLACES_MAX
            if self.resources or self.declared_probe is not None:
                refuse_local_part(self.name, "resource" if self.resources else "probe")
        return step

    @property
    def is_remote(self) -> bool:
        """Returns True if programs outside of Python carry its steps out."""
        return any(step.is_remote for step in self.steps.values())

    @property
    def is_pulled(self) -> bool:
        """True if programs outside of Python ask for its requests."""
        return self.is_remote and not self.pushes

    def __repr__(self) -> str:
        return f"<Agent {self.name}: {len(self.steps)} steps, {self.max_in_flight} in flight>"
