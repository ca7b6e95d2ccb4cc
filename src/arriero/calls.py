"""Call values: what calling a definition gives. They bind and check arguments and do nothing until awaited or submitted."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from . import codec
from .errors import ArrieroError, DefinitionError, NotYetBuilt
from .policies import Duration, Retry, Supervision, checked, seconds

if TYPE_CHECKING:
    import random
    import uuid
    from datetime import datetime

    from .definitions import Step, Workflow

R_co = TypeVar("R_co", covariant=True)


class StepOptions(msgspec.Struct, frozen=True):
    """What ``options()`` changed of one call; None leaves what the definition says."""

    key: str | None = None
    complete_within: float | None = None
    wait_within: float | None = None
    retry: Retry | None = None
    supervision: Supervision | None = None
    pivot: bool | None = None


NO_OPTIONS = StepOptions()


class WorkflowRun(Protocol):
    """The running workflow, as a call value sees it (core.replay implements it)."""

    def created(self, call: "StepCall[Any]") -> None: ...
    def replaced(self, call: "StepCall[Any]", by: "StepCall[Any]") -> None: ...
    def open(self, call: "StepCall[Any]") -> "asyncio.Future[Any]": ...
    def open_timer(self, seconds: float) -> "asyncio.Future[Any]": ...
    def current_time(self) -> "datetime": ...
    def random(self) -> "random.Random": ...
    def uuid(self) -> "uuid.UUID": ...
    @property
    def convoy_state(self) -> str | None: ...
    def keep_convoy_state(self, text: str) -> None: ...


def current_run() -> WorkflowRun | None:
    """The workflow whose code is running right now; None outside of one."""
    return getattr(asyncio._get_running_loop(), "workflow_run", None)


class _CallValue(Coroutine[Any, Any, R_co]):
    """A coroutine in full, so that gather, TaskGroup and wait take it; it begins when it is first driven."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: Coroutine[Any, Any, R_co] | None = None

    async def _awaited(self) -> R_co:
        """What awaiting it does."""
        raise NotImplementedError

    def _begun(self) -> Coroutine[Any, Any, R_co]:
        if self._running is None:
            self._running = self._awaited()
        return self._running

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._awaited().__await__()

    def send(self, value: Any, /) -> Any:
        return self._begun().send(value)

    def throw(self, *exception: Any) -> Any:
        return self._begun().throw(*exception)

    def close(self) -> None:
        if self._running is not None:
            self._running.close()


class StepCall(_CallValue[R_co]):
    """A step with its arguments. Await it in a workflow, or submit it as a task of its own."""

    __slots__ = ("__weakref__", "_awaited_before", "arguments", "changed", "number", "step")

    def __init__(self, step: "Step[Any, R_co]", arguments: str, changed: StepOptions = NO_OPTIONS) -> None:
        super().__init__()
        self.step = step
        self.arguments = arguments
        self.changed = changed
        self.number = id(self)  # in workflow code: its place among the calls made there
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
        old = self.changed
        changed = StepOptions(
            key=old.key if key is None else codec.checked_id(key, f"key of {self.step.name}"),
            complete_within=old.complete_within
            if complete_within is None
            else seconds(complete_within, "complete_within", at_least=0.001),
            wait_within=old.wait_within if wait_within is None else seconds(wait_within, "wait_within", at_least=0.001),
            retry=old.retry if retry is None else checked(retry, Retry, "retry"),
            supervision=old.supervision if supervision is None else checked(supervision, Supervision, "supervision"),
            pivot=old.pivot if pivot is None else checked(pivot, bool, "pivot"),
        )
        call = StepCall(self.step, self.arguments, changed)
        if (run := current_run()) is not None:
            run.replaced(self, call)
        return call

    async def _awaited(self) -> R_co:
        run = current_run()
        if run is None:
            name = self.step.name
            raise ArrieroError(
                f"{name}(...) is a call value and runs only inside a workflow: await it there, submit it as a task with "
                f"app.submit({name}(...)), or call {name}.function(attempt, ...) in a test"
            )
        if self._awaited_before:  # a second step unasked could be a second charge; a coroutine refuses that too
            raise ArrieroError(
                f"a call value of {self.step.name} was awaited twice; call {self.step.name}(...) again for a second step"
            )
        self._awaited_before = True
        result: R_co = await run.open(self)
        return result

    def __hash__(self) -> int:
        """So that sets of calls (asyncio.as_completed) iterate alike in every replay."""
        return self.number

    def __repr__(self) -> str:
        return f"<call of step {self.step.name}>"


class WorkflowOptions(msgspec.Struct, frozen=True):
    """What ``options()`` says of a child task."""

    task_id: str | None = None


class WorkflowCall(_CallValue[R_co]):
    """A workflow with its arguments: submit it."""

    __slots__ = ("arguments", "workflow")

    def __init__(self, workflow: "Workflow[Any, R_co]", arguments: str) -> None:
        super().__init__()
        self.workflow = workflow
        self.arguments = arguments

    def options(
        self,
        *,
        key: str | None = None,
        task_id: str | None = None,
        convoy: str | None = None,
        priority: int | None = None,
    ) -> "WorkflowCall[R_co]":
        """For child tasks. Raises: NotYetBuilt - this release has none; submit the workflow instead."""
        raise NotYetBuilt("child tasks come with a later release; submit each workflow with app.submit(..., task_id=)")

    async def _awaited(self) -> R_co:
        name = self.workflow.name
        if current_run() is not None:
            raise NotYetBuilt(
                f"{name}(...) was awaited in a workflow: child tasks come with a later release; await its steps instead"
            )
        raise DefinitionError(
            f"{name}(...) is a call value: start it with app.submit({name}(...)), then await task.result()"
        )

    def __repr__(self) -> str:
        return f"<call of workflow {self.workflow.name}>"
