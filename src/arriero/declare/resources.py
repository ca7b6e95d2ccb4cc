"""Resources: what the steps of an Agent share, like a client or a pool of connections."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, cast

from ..errors import ArrieroError, DefinitionError
from .declared import Declared

T = TypeVar("T")

open_resources: ContextVar[Mapping["Resource[Any]", Any]] = ContextVar("arriero_open_resources")


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


class ResourcePool:
    """The resources that are open in one process. ``opened``: what the steps get."""

    def __init__(self) -> None:
        self.opened: dict[Resource[Any], Any] = {}
        self._exits = AsyncExitStack()

    async def open(self, resources: Iterable[Resource[Any]]) -> None:
        """Open those that are not open yet."""
        for resource in resources:
            if resource in self.opened:
                continue
            context = resource.opened()
            if isinstance(context, AbstractAsyncContextManager):
                self.opened[resource] = await self._exits.enter_async_context(context)
            else:
                self.opened[resource] = self._exits.enter_context(context)

    async def close(self) -> None:
        """Close all of them."""
        await self._exits.aclose()
