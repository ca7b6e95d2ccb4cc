"""Workflows and their call values."""

import asyncio
import datetime
import dis
import functools
import inspect
import random
import time
import types
import uuid
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NoReturn, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from ..errors import ArrieroError, DefinitionError, InvalidInput
from ..model.policies import (
    DEFAULT_CONVOY_POLICY,
    ChildOptions,
    ConvoyPolicy,
    Duration,
    Supervision,
    TaskPolicy,
    UndoOnDoubt,
    check_count,
    check_type,
    encode_policy,
    seconds,
)
from ..model.processes import VERSION_MAX
from ..model.tags import check_tags, encode_tags
from ..payloads.codec import check_id
from .declared import CallValue, Declared, WorkflowRun, caller_scope, choose_name, current_run, find_run
from .option_checks import explain_options
from .signals import AnySignal, MentionedSignals, Request, Signal, find_mentioned_signals
from .signature import Signature
from .step_options import DEFAULT_SUPERVISION

SHARE_MAX = 1_000  # more would be no division, but one workflow alone

_CALLABLES = (types.BuiltinFunctionType, types.FunctionType, types.MethodType)  # whose hash runs no code of users
_MODULES_AND_CLASSES = (datetime, random, time, uuid, datetime.datetime, datetime.date)
_AGAIN = "its value differs when arriero runs the code again; use {}, or call it in a step"
# What workflow code must not call, and why.
_UNRECORDED: dict[Any, str] = {
    **dict.fromkeys(
        (datetime.datetime.now, datetime.datetime.today, datetime.date.today), _AGAIN.format("arriero.now()")
    ),
    **dict.fromkeys((time.time, time.time_ns, time.monotonic, time.perf_counter), _AGAIN.format("arriero.now()")),
    **dict.fromkeys((random.random, random.randint, random.choice, random.uniform), _AGAIN.format("arriero.random()")),
    **dict.fromkeys((random.sample, random.shuffle, random.randrange), _AGAIN.format("arriero.random()")),
    **dict.fromkeys((uuid.uuid1, uuid.uuid4), _AGAIN.format("arriero.uuid()")),
    time.sleep: "it blocks all tasks of this process; use `await arriero.sleep(...)`",
}

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


def warn_of_unrecorded_calls(name: str, function: Callable[..., Any]) -> None:
    """Warn of calls in workflow code that cannot be replayed, such as ``datetime.now()``, with their lines."""
    path, value, line = "", None, 0
    for instruction in dis.get_instructions(function):
        line = (instruction.positions and instruction.positions.lineno) or line
        if instruction.opname == "LOAD_GLOBAL":
            path = str(instruction.argval)
            value = function.__globals__.get(path)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and any(value is one for one in _MODULES_AND_CLASSES):
            path = f"{path}.{instruction.argval}"
            value = getattr(value, instruction.argval, None)
        else:
            value = None
        if type(value) in _CALLABLES and (why := _UNRECORDED.get(value)) is not None:
            text = f"workflow {name} calls {path}(): {why}"
            warnings.warn_explicit(text, UserWarning, function.__code__.co_filename, line)


class WorkflowCall(CallValue[R_co]):
    """A workflow with its arguments. Submit it, or await it in a workflow: there it runs as a child task."""

    __slots__ = ("__weakref__", "_awaited_before", "_child", "arguments", "key", "number", "workflow")

    def __init__(
        self,
        workflow: "Workflow[Any, R_co]",
        arguments: str,
        key: str | None = None,
        child: ChildOptions | None = None,
    ) -> None:
        self._running = None  # without a call of the base, as in ``StepCall``
        self.workflow = workflow
        self.arguments = arguments
        self.key = key
        self._child = child
        self.number = 0  # in workflow code: its place among the calls made there
        self._awaited_before = False

    def options(
        self,
        *,
        key: str | None = None,
        task_id: str | None = None,
        convoy: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        detach: bool | None = None,
    ) -> "WorkflowCall[R_co]":
        """The same call with options for the child task; what is not given stays.

        Args:
            key: its name among the parent's calls of the workflow; they are numbered if none is given.
            task_id: of the child; it is made of the parent's if none is given.
            convoy: its key; tasks of one key are handled one after the other.
            priority: 0 to 9; its parent's if none is given. So it is with the tags.
            detach: the await returns once the child is submitted; the parent neither waits for its end nor undoes it.
        Raises: InvalidInput - an option is wrong.
        """
        changes = build_child_options(task_id=task_id, convoy=convoy, priority=priority, tags=tags, detach=detach)
        key = self.key if key is None else check_id(key, "key")
        call = WorkflowCall(self.workflow, self.arguments, key, msgspec.structs.replace(self.child, **changes))
        if (run := current_run()) is not None:
            run.note_replaced(self, call)
        return call

    @property
    def child(self) -> ChildOptions:
        """Its options as a child task."""
        return self._child or ChildOptions(self.workflow.policy_text)

    @property
    def has_options(self) -> bool:
        """True if ``options`` gave it a key, or any option of a child task."""
        return self.key is not None or self._child is not None

    async def _run_call(self) -> R_co:
        name = self.workflow.name
        if (run := current_run()) is None:
            raise DefinitionError(
                f"{name}(...) is a call value: start it with app.submit({name}(...)), then await task.result(), or do both"
                f" with app.execute({name}(...))"
            )
        if self.workflow.handles_batches:
            raise DefinitionError(
                f"{name} handles batches of a convoy: it cannot be a child task, which has an end of its own; submit it from a"
                " step, by app.submit(..., convoy=...)"
            )
        if self._awaited_before:
            raise ArrieroError(
                f"a call value of {name} was awaited twice; call {name}(...) again for a second child task"
            )
        self._awaited_before = True
        result: R_co = await run.open_child(self)
        return result

    def __hash__(self) -> int:
        """Hash by number, as of calls of steps."""
        return self.number or id(self)

    def __repr__(self) -> str:
        return f"<call of workflow {self.workflow.name}>"


class ContinueAs(BaseException):
    """Raised by workflow code, it ends this run of the task and begins the next one under the same task id, in one commit.

    ``raise arriero.ContinueAs(watch(total))`` at the end of a workflow ``watch`` keeps the record of a task short that never
    ends: each run has its own steps. Signals that no wait has taken go along, and so do convoy, priority and tags. An undo
    undoes the steps of its run alone. ``except Exception`` does not catch it.

    Args:
        call: of the same workflow, with the arguments of the next run and without options.
    Raises: InvalidInput - it is another value, or has options; ArrieroError - no workflow code runs.
    """

    def __init__(self, call: "WorkflowCall[Any]") -> None:
        run = find_run("arriero.ContinueAs", "submit a task")
        if not isinstance(call, WorkflowCall):
            raise InvalidInput(
                f"ContinueAs takes a call of the workflow with the arguments of its next run, not {call!r}"
            )
        if call.has_options:
            raise InvalidInput(
                f"ContinueAs takes a call of {call.workflow.name} without options: the next run keeps those of its task"
            )
        super().__init__(
            "raise ContinueAs where only the workflow's own function is left by it, not inside of a TaskGroup"
        )
        self.call = call
        run.note_continued(call)


def build_child_options(
    *,
    task_id: str | None,
    convoy: str | None,
    priority: int | None,
    tags: Mapping[str, str] | None,
    detach: bool | None,
) -> dict[str, Any]:
    """Check the options of a child task, and return those that were given as fields of ``ChildOptions``. Raises InvalidInput."""
    found: dict[str, Any] = {}
    if task_id is not None:
        found["task_id"] = check_id(task_id, "task_id")
    if convoy is not None:
        found["convoy"] = check_id(convoy, "convoy")
    if priority is not None:
        check_count(priority, "priority", least=0, most=9, error_type=InvalidInput)
        found["priority"] = priority
    if tags is not None:
        found["tags"] = encode_tags(check_tags(tags))
    if detach is not None:
        if not isinstance(detach, bool):
            raise InvalidInput(f"detach is {detach!r}; it must be True or False")
        found["is_detached"] = detach
    return found


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
        share: int | None = None,
        undo_on_doubt: UndoOnDoubt = "continue",
        signals: Sequence[AnySignal] = (),
        version: int = 1,
        replaces: "Workflow[..., Any] | None" = None,
        version_pinning: bool | None = None,
    ) -> None:
        self.name = choose_name(name, function, "a workflow")
        if not inspect.iscoroutinefunction(function):
            raise DefinitionError(f"workflow {self.name} must be an `async def`: it awaits its steps")
        warn_of_unrecorded_calls(self.name, function)
        self.signature = Signature(function, f"workflow {self.name}", scope=caller_scope())
        is_number = isinstance(share, int) and not isinstance(share, bool)
        if share is not None and not (is_number and 1 <= share <= SHARE_MAX):
            raise DefinitionError(
                f"workflow {self.name}: share is {share!r}; it must be a whole number from 1 to {SHARE_MAX:,}"
            )
        self.share = share
        if undo_on_doubt not in ("continue", "stop"):
            raise DefinitionError(
                f"workflow {self.name}: undo_on_doubt is {undo_on_doubt!r}; it must be 'continue' or 'stop'"
            )
        self.supervision = supervision or DEFAULT_SUPERVISION
        convoy_policy = convoy_policy or DEFAULT_CONVOY_POLICY
        self.policy = TaskPolicy(complete_within, self.supervision, convoy_policy, undo_on_doubt)
        self.policy_text = encode_policy(self.policy)
        self.version, self.replaces, self.version_pinning = version, replaces, version_pinning
        if type(version) is not int or version != 1 or replaces is not None:
            _check_version(self.name, function, version, replaces)
        self._show_as(function)
        self._function = function
        self._declared_signals = tuple(signals)
        for one in self._declared_signals:
            if not isinstance(one, Signal | Request):
                what = f"workflow {self.name}: each of signals"
                raise DefinitionError(f"{what} is {one!r}; it must be of the type Signal or Request")
        self.handles_batches = convoy_policy.handle_batch is not None  # one task has what many were submitted with
        if self.handles_batches:
            _check_takes_list(self.name, self.signature)

    @functools.cached_property
    def signals(self) -> MentionedSignals:
        """The signals and requests that its code waits for: those declared, and those that the code mentions."""
        found = find_mentioned_signals(
            self._function
        )  # not before it is asked for: the code may mention what stands below it
        return MentionedSignals(
            {**found.known, **{one.wait_name: one for one in self._declared_signals}}, found.are_all
        )

    @property
    def function(self) -> Callable[P, Coroutine[Any, Any, R]]:
        """The plain function."""
        return self._function

    def list_replaced(self) -> "Iterator[Workflow[..., Any]]":
        """List the versions that it replaces, the newest first."""
        older = self.replaces
        while older is not None:
            yield older
            older = older.replaces

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WorkflowCall[R]:
        """Bind and check the arguments. Raises InvalidInput when they do not fit."""
        call = WorkflowCall(self, self.signature.bind(args, kwargs))
        run: WorkflowRun | None = getattr(asyncio._get_running_loop(), "workflow_run", None)
        if run is not None:
            run.note_created(call)
        return call

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


def _check_takes_list(name: str, signature: Signature) -> None:
    """Check that a workflow that handles batches takes one list. Raises DefinitionError."""
    if not signature.takes_one_list():
        raise DefinitionError(
            f"workflow {name} handles batches: it must take one parameter that is a list and has no default, like"
            f" `async def {name}(lines: list[Line])`; each task is submitted with a separate list, and they are joined"
        )


def _check_version(
    name: str, function: Callable[..., Any], version: int, replaces: "Workflow[..., Any] | None"
) -> None:
    """Check the version of a workflow against the one that it replaces. Raises DefinitionError."""
    check_count(version, f"workflow {name}: version", least=1, most=VERSION_MAX)
    if replaces is None:
        return
    old = check_type(replaces, Workflow, f"workflow {name}: replaces")
    if old.name != name:
        raise DefinitionError(
            f"workflow {name} replaces workflow {old.name}, which has another name: give both one name by name={name!r}"
        )
    if old.function is function:
        raise DefinitionError(
            f"version {version} of workflow {name} replaces itself: its function is that of version {old.version}"
        )
    if version <= old.version:
        raise DefinitionError(
            f"version {version} of workflow {name} replaces version {old.version}: give it a greater version="
        )


def find_newest(workflows: Iterable[Workflow[..., Any]]) -> list[Workflow[..., Any]]:
    """Find the newest version of each workflow, which has the versions that it replaces. Raises DefinitionError.

    Of one name each must replace the one before: 3 replaces 2, and 2 replaces 1. Replaced versions need not be given.
    """
    found: dict[str, Workflow[..., Any]] = {}
    for one in workflows:
        known = found.get(one.name)
        if known is None or known in list(one.list_replaced()):
            found[one.name] = one
        elif one is known or one not in list(known.list_replaced()):
            _refuse_doubled(known, one)
    return list(found.values())


def _refuse_doubled(one: Workflow[..., Any], other: Workflow[..., Any]) -> NoReturn:
    older, newer = sorted((one, other), key=lambda each: each.version)
    name, shared = one.name, [each for each in one.list_replaced() if each in list(other.list_replaced())]
    if shared and older.version != newer.version:
        raise DefinitionError(
            f"versions {older.version} and {newer.version} of workflow {name} both replace version {shared[0].version}: let version"
            f" {newer.version} replace version {older.version}"
        )
    raise DefinitionError(
        f"two workflows are named {name!r}; give one of them another name=, or if it is a newer version of the other,"
        " version= and replaces="
    )


class WorkflowOptions(TypedDict, total=False):
    """The options of ``workflow``, which describes them."""

    name: str
    complete_within: Duration
    supervision: Supervision
    convoy_policy: ConvoyPolicy
    share: int
    undo_on_doubt: UndoOnDoubt
    signals: Sequence[AnySignal]
    version: int
    replaces: Workflow[..., Any]
    version_pinning: bool


class WorkflowDecorator:
    """The decorator that ``workflow(...)`` with options returns."""

    def __init__(self, declare: Callable[[Callable[..., Any]], Workflow[Any, Any]]) -> None:
        self._declare = declare

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]:
        return self._declare(fn)


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(**options: Unpack[WorkflowOptions]) -> WorkflowDecorator: ...
@explain_options
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    complete_within: Duration | None = None,
    supervision: Supervision | None = None,
    convoy_policy: ConvoyPolicy | None = None,
    share: int | None = None,
    undo_on_doubt: UndoOnDoubt = "continue",
    signals: Sequence[AnySignal] = (),
    version: int = 1,
    replaces: Workflow[..., Any] | None = None,
    version_pinning: bool | None = None,
) -> Any:
    """Declare a workflow: an ``async def`` whose awaits of steps are recorded.

    Args:
        name: kept in the store; give it when you rename the function.
        complete_within: seconds the whole task may take, counted from submission.
        supervision: attempts and rounds for steps without their own; ``then`` for the task.
        convoy_policy: what its convoys do when their head fails permanently, and when a sequence number is missing.
        share: its weight when the room of a process for tasks is divided between workflows that have due tasks. Workflows
            without a share, and tasks of one step, have one share of weight 1 together. If none has a share, what is due
            goes in one order.
        undo_on_doubt: what the undo does about a step that may have happened and has no compensation. ``continue``: it
            undoes the rest, and the task is held then, naming that step. ``stop``: it undoes nothing before an operator
            has answered that step; for compensations that must not run while a later effect may stand.
        signals: and requests that its code waits for, beside those that its code mentions. JSON for them is checked when it is sent.
        version: of the code, 1 to 1,000,000. New tasks begin with the newest version of their workflow.
        replaces: the workflow of the same name with the version before. Its tasks end on its code while an App has it.
        version_pinning: tasks are continued only by processes of the deployment that began them; by default as the App says.
    Raises: DefinitionError.
    """
    limit = None if complete_within is None else seconds(complete_within, "complete_within", at_least=0.001)
    if supervision is not None:
        check_type(supervision, Supervision, "supervision")
    if convoy_policy is not None:
        check_type(convoy_policy, ConvoyPolicy, "convoy_policy")

    def declare(function: Callable[..., Any]) -> Workflow[Any, Any]:
        return Workflow(
            function,
            name=name,
            complete_within=limit,
            supervision=supervision,
            convoy_policy=convoy_policy,
            share=share,
            undo_on_doubt=undo_on_doubt,
            signals=signals,
            version=version,
            replaces=replaces,
            version_pinning=version_pinning,
        )

    return WorkflowDecorator(declare) if fn is None else declare(fn)
