"""Speaks to one remote service for its Agent. The client of ``arriero.http`` raises what each of its answers means.

Without a server, ``arriero run examples.orders.shop:app`` alone, a stand-in in this process answers instead.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from arriero import Attempt, Permanent, Undo

from .operations import DOWN_STATUS, Operation
from .variables import SERVICES_VARIABLE

if TYPE_CHECKING:
    from arriero.http import AsyncClient

CONNECTIONS_MAX = 200


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

    from arriero.http import AsyncClient

    limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX)
    # A 503 leaves open whether the call happened. These services say that it did not.
    meanings = {DOWN_STATUS: "transient"}
    async with AsyncClient(base_url=base_url, meanings=meanings, limits=limits, trust_env=False) as client:
        yield HttpService(client)


class HttpService:
    """The real one, over HTTP. The client sends the key and the time that is left, and raises what an error means."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def perform(self, operation: Operation, attempt: Attempt, order_id: str, amount: int) -> str:
        answer = await self._client.post(operation.path, json={"order_id": order_id, "amount": amount})
        return str(answer.json()["number"])

    async def undo(self, operation: Operation, undo: Undo[Any], order_id: str) -> None:
        await self._client.post(operation.undo_path, json={"order_id": order_id, "forward_key": undo.forward_key})


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
