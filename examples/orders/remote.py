"""Speaks to one remote service for its Agent, and says what each outcome means.

| what came back | what the step raises | what it means |
|---|---|---|
| no connection, nothing sent | `Transient` | surely did not happen, try again |
| 4xx: declined, out of stock, barred | `Permanent` with the service's code | surely did not, and never will |
| 5xx, a connection lost, no answer in time | an ordinary exception | it may have happened: in doubt |

Without a server, ``arriero run examples.orders.shop:app`` alone, a stand-in in this process answers instead.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from arriero import Attempt, Permanent, Transient, Undo

from .operations import Operation
from .variables import SERVICES_VARIABLE

if TYPE_CHECKING:
    import httpx2

CONNECTIONS_MAX = 200
SECONDS_LEFT_MIN = 0.01
"""A client takes a timeout of 0 for an error of its caller; a call this late is given up at once either way."""


class InDoubt(Exception):
    """The service answered, but not in a way that tells whether the call had its effect."""


class Service(Protocol):
    """What a step needs of its service."""

    async def perform(self, operation: Operation, attempt: Attempt, order_id: str, amount: int) -> str:
        """Returns: the service's own number for what it did."""

    async def undo(self, operation: Operation, undo: Undo[Any], order_id: str) -> None:
        """Undo what the service finds under the forward key, if anything, and bar that key."""


@asynccontextmanager
async def open_service() -> AsyncIterator[Service]:
    """A service for as long as its Agent is hosted: the one the environment names, else the stand-in."""
    base_url = os.environ.get(SERVICES_VARIABLE)
    if not base_url:
        yield StandIn()
        return
    # Not at the top: the stand-in needs no client, and so no more than arriero itself to be installed.
    import httpx2

    limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX)
    async with httpx2.AsyncClient(base_url=base_url, limits=limits, trust_env=False) as client:
        yield HttpService(client, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))


class HttpService:
    """The real one, over HTTP.

    Args:
        nothing_sent: the client's exceptions after which the service cannot have heard of the call.
    """

    def __init__(self, client: httpx2.AsyncClient, nothing_sent: tuple[type[Exception], ...]) -> None:
        self._client = client
        self._nothing_sent = nothing_sent

    async def perform(self, operation: Operation, attempt: Attempt, order_id: str, amount: int) -> str:
        answer = await self._post(operation.path, attempt, {"order_id": order_id, "amount": amount})
        return str(answer["number"])

    async def undo(self, operation: Operation, undo: Undo[Any], order_id: str) -> None:
        await self._post(operation.undo_path, undo, {"order_id": order_id, "forward_key": undo.forward_key})

    async def _post(self, path: str, attempt: Attempt, body: Mapping[str, object]) -> dict[str, object]:
        timeout = max(attempt.remaining, SECONDS_LEFT_MIN)
        try:
            reply = await self._client.post(path, json=body, headers=attempt.headers, timeout=timeout)
        except self._nothing_sent as error:
            raise Transient(f"the service could not be reached: {error}", code="unreachable") from error
        if reply.status_code >= 500:
            raise InDoubt(f"the service answered {reply.status_code}")
        answer: dict[str, object] = reply.json()
        if reply.status_code >= 400:
            raise Permanent(str(answer.get("message", "")), code=str(answer.get("code", reply.status_code)))
        return answer


class StandIn:
    """Three services in one process, forgetful over restarts: good for a first look, not for a balance."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}
        self._barred: set[str] = set()

    async def perform(self, operation: Operation, attempt: Attempt, order_id: str, amount: int) -> str:
        if attempt.idempotency_key in self._barred:
            raise Permanent("this key was undone, nothing may land under it any more", code="barred")
        number = f"{operation.name}-{len(self._numbers) + 1}"
        return self._numbers.setdefault(attempt.idempotency_key, number)

    async def undo(self, operation: Operation, undo: Undo[Any], order_id: str) -> None:
        self._barred.add(undo.forward_key)
