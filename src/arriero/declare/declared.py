"""The base of everything that a decorator makes of a user's function, and the running workflow that call values look up."""

import asyncio
import functools
import inspect
import random
import sys
import uuid
from collections.abc import Callable, Coroutine, Generator, Mapping
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar, cast

from ..errors import ArrieroError, DefinitionError, InvalidInput
from ..payloads import codec


class WorkflowRun(Protocol):
    """The running workflow, as a call value sees it (core.replay implements it)."""

    def note_created(self, call: Any) -> None: ...
    def note_replaced(self, call: Any, by: Any) -> None: ...
    def note_continued(self, call: Any) -> None: ...
    def open(self, call: Any) -> "asyncio.Future[Any]": ...
    def open_child(self, call: Any) -> "asyncio.Future[Any]": ...
    def open_timer(self, seconds: float) -> "asyncio.Future[Any]": ...
    def number_wait(self, name: str) -> str: ...
    def open_wait(self, wait: Any, key: str = "") -> "asyncio.Future[Any]": ...
    def reply(self, request: Any, signal: int, reply: str) -> None: ...
    def current_time(self) -> "datetime": ...
    def random(self) -> "random.Random": ...
    def uuid(self) -> "uuid.UUID": ...
    @property
    def convoy_state(self) -> str | None: ...
    def keep_convoy_state(self, text: str) -> None: ...
    def publish(self, text: str) -> None: ...
    def patched(self, name: str) -> bool: ...
    @property
    def tags(self) -> str | None: ...


def current_run() -> WorkflowRun | None:
    """The workflow whose code is running right now; None outside of one."""
    return getattr(asyncio._get_running_loop(), "workflow_run", None)


def find_run(what: str, elsewhere: str = "") -> WorkflowRun:
    """The workflow whose code runs. Raises ArrieroError: none does; ``elsewhere`` says what to do there."""
    run = current_run()
    if run is None:
        raise ArrieroError(f"{what} works only inside a workflow{elsewhere and f': elsewhere {elsewhere}'}")
    return run


R_co = TypeVar("R_co", covariant=True)


class CallValue(Coroutine[Any, Any, R_co]):
    """A coroutine in full, so that gather, TaskGroup and wait take it; it begins when it is first driven."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: Coroutine[Any, Any, R_co] | None = None

    async def _run_call(self) -> R_co:
        """Run the call, when it is awaited."""
        raise NotImplementedError

    def _begin_run(self) -> Coroutine[Any, Any, R_co]:
        if self._running is None:
            self._running = self._run_call()
        return self._running

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._run_call().__await__()

    def send(self, value: Any, /) -> Any:
        return self._begin_run().send(value)

    def throw(self, *exception: Any) -> Any:
        return self._begin_run().throw(*exception)

    def close(self) -> None:
        if self._running is not None:
            self._running.close()


_PACKAGE = __name__.rpartition(".")[0]


def choose_name(given: str | None, function: Callable[..., Any], what: str) -> str:
    """The name that a definition is kept under: the one given, else the function's. Raises DefinitionError."""
    if isinstance(function, Declared):
        raise DefinitionError(
            f"{function!r} is declared already: write a function of its own for each step and workflow"
        )
    if not callable(function):
        raise DefinitionError(
            f"{what} is made of a function, and {function!r} is none: give its name as name={function!r}"
        )
    name = given if given is not None else getattr(function, "__name__", "")
    if name == "<lambda>":
        raise DefinitionError(f"{what} needs a name, which the store keeps, and a lambda has none: write a `def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{what} returns one value, and {name} yields several: return them as a list")
    return check_name(name, what)


def check_name(name: str, what: str) -> str:
    """The name of what is declared. Raises DefinitionError: it is unfit."""
    try:
        return codec.check_id(name, f"name of {what}")
    except InvalidInput as error:
        raise DefinitionError(str(error)) from error


def caller_scope() -> Mapping[str, Any]:
    """Names where the user's decorator stands, so that types defined inside a function resolve."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").rpartition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return frame.f_locals


class Declared:
    """The definition that a decorator makes of a function. ``help()`` and editors show it as its author wrote it."""

    def _show_as(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(cast(Any, self), function, updated=())  # its attributes stay its own

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        """Return itself as an attribute of a class. This method makes ``help()`` show the definition as a function."""
        return self
