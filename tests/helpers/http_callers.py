"""Calls of the clients of ``arriero.http``, plain and async alike."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from arriero import StepError
from arriero.http import AsyncClient, SyncClient

Answer = Callable[[httpx2.Request], httpx2.Response]


class Caller:
    """Calls of one client, plain or async, that are awaited here. ``client``: for hooks and the like."""

    def __init__(self, is_async: bool, **options: Any) -> None:
        self._runner = asyncio.Runner() if is_async else None
        options.setdefault("trust_env", False)
        self.client: Any = AsyncClient(**options) if is_async else SyncClient(**options)

    def __call__(self, method: str = "POST", url: str = "http://bank/charges", **options: Any) -> httpx2.Response:
        if self._runner is None:
            return self.client.request(method, url, **options)  # type: ignore[no-any-return]

        async def call() -> httpx2.Response:
            return await self.client.request(method, url, **options)  # type: ignore[no-any-return]

        return self._runner.run(call(), context=contextvars.copy_context())

    def close(self) -> None:
        if self._runner is None:
            self.client.close()
        else:
            self._runner.run(self.client.aclose())
            self._runner.close()


def raised_by(call: Callable[..., Any], *given: Any, **options: Any) -> StepError:
    with pytest.raises(StepError) as raised:
        call(*given, **options)
    return raised.value


def scripted(*answers: httpx2.Response | Exception) -> Answer:
    """Answer the first request with the first, and so on."""
    left = list(answers)

    def handle(request: httpx2.Request) -> httpx2.Response:
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    return handle
