"""The base of call values: they bind and check arguments and do nothing until awaited or submitted."""

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

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
