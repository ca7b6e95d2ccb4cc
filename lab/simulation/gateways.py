"""Processes of a simulated world that give requests of remote steps out, as programs reach them over a network that loses answers."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import msgspec

from arriero.client.remote_agents import RemoteAgents
from arriero.client.session import Session
from arriero.errors import AgentRequestRefused, StoreError, UnreadableRow

from .loop import SimulatedLoop
from .store import UNEXPECTED

T = TypeVar("T")

ANSWER_SECONDS = 8.0  # that a program waits beyond what it asked for: shorter than most freezes

# The HTTP API has an answer for each.
_EXPECTED = (AgentRequestRefused, StoreError, UnreadableRow, ConnectionResetError)


class NoAnswer(Exception):
    """The request or its answer was lost, the process has ended or is blocked, or its store does not answer."""


class Gateway(msgspec.Struct, frozen=True, eq=False):
    """One process start that has the role ``http``."""

    process: int
    agents: RemoteAgents
    session: Session


class GatewayNetwork:
    """What stands between programs and gateways.

    Args:
        spawn: runs a coroutine in a process.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        spawn: Callable[[Coroutine[Any, Any, None], int], "list[asyncio.Task[None]]"],
    ) -> None:
        self._loop = loop
        self._random = random
        self._spawn = spawn
        self._gateways: dict[int, Gateway] = {}  # by node
        self.broken: list[str] = []  # calls that raised what no program may meet

    def open(self, number: int, gateway: Gateway) -> None:
        """A process has started on a node, and answers from now on."""
        self._gateways[number] = gateway

    def choose(self, *, other_than: Gateway | None = None) -> Gateway | None:
        """Draw one of those that live, if possible another one; None: none lives."""
        living = [gateway for gateway in self._gateways.values() if not self._loop.is_dead(gateway.process)]
        others = [gateway for gateway in living if gateway is not other_than]
        return self._random.choice(others or living) if living else None

    async def ask(
        self, gateway: Gateway, request: Callable[[RemoteAgents], Awaitable[T]], *, wait_seconds: float = 0.0
    ) -> T:
        """Send a request and wait for its answer. A program that waits no more closes its connection.

        Raises: NoAnswer; AgentRequestRefused.
        """
        await self._travel()
        if self._loop.is_dead(gateway.process):
            raise NoAnswer
        answer: asyncio.Future[T | Exception] = self._loop.create_future()
        (serving,) = self._spawn(self._serve(gateway, request, answer), gateway.process)
        try:
            told = await asyncio.wait_for(answer, wait_seconds + ANSWER_SECONDS)
        except TimeoutError:
            serving.cancel()
            raise NoAnswer from None
        await self._travel()
        if isinstance(told, AgentRequestRefused):
            raise told
        if isinstance(told, Exception):
            raise NoAnswer from told
        return told

    async def _travel(self) -> None:
        await asyncio.sleep(self._random.expovariate(100))

    async def _serve(
        self,
        gateway: Gateway,
        request: Callable[[RemoteAgents], Awaitable[T]],
        answer: "asyncio.Future[T | Exception]",
    ) -> None:
        told: T | Exception
        try:
            told = await request(gateway.agents)
        except Exception as error:
            is_simulated = isinstance(error, UNEXPECTED) and str(error) == "simulated"
            if not is_simulated and not isinstance(error, _EXPECTED):
                self.broken.append(f"a call of a program raised {error!r}")
            told = error
        if not answer.done():
            answer.set_result(told)
