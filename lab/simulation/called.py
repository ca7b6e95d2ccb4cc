"""A program that arriero calls, in some of the worlds with programs: it has instances that know nothing of each other.

One of them has an effect, and its answer is lost. Another one answers the next call with a promise, and then says by way of a gateway
that it has not begun. Both are honest. What the second one says must not hide what the first one did.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.client.remote_agents import RemoteAgents, RemoteReport, RemoteRequest
from arriero.declare.attempt import Attempt, Undo
from arriero.declare.steps import Agent
from arriero.declare.workflows import workflow
from arriero.errors import AgentRequestRefused, InDoubt
from arriero.model.policies import Retry, Supervision

from .gateways import NoAnswer

if TYPE_CHECKING:
    from .programs import Programs

TRIES = 3  # in one attempt
CALLED: ContextVar["CalledProgram"] = ContextVar("called")
BEGINS_SECONDS_MAX = 1.0  # until an instance knows that it cannot begin
SAID_AGAIN_MAX = 8


class CalledAgent(Agent):
    """An Agent whose requests arriero sends, to the program of the world that runs."""

    pushes = True

    async def send_request(self, request: RemoteRequest, body: bytes, message_id: str) -> bytes | None:
        """See ``runtime.pushed_requests.SendingAgent``."""
        return await CALLED.get().answer(request)


called = CalledAgent("called", breaker=None)


@called.step(complete_within=6, retry=Retry(tries=TRIES, delay=0.2), supervision=Supervision(attempts=50))
def post(attempt: Attempt, n: int, refuse: bool = False) -> int: ...  # type: ignore[empty-body]


@post.compensation(complete_within=6, supervision=Supervision(attempts=50))
def recall(undo: Undo[int], n: int, refuse: bool = False) -> None: ...


@workflow
async def by_calls(n: int, refuse: bool) -> int:
    first = await post(n)
    return await post(first, refuse)


class CalledProgram:
    """The program that ``called`` calls."""

    def __init__(self, programs: "Programs") -> None:
        self._programs = programs
        self._random = programs.deploy_random

    async def answer(self, request: RemoteRequest) -> bytes | None:
        """Carry a request out, or promise a report."""
        remote = self._programs.remote
        if request.kind == "compensation":
            assert request.forward_key is not None
            await remote.undo_under_key(request.forward_key, request.task)
            return b"null"
        if self._programs.deploys("other_instance"):
            self._programs.spawn(self._say_not_begun(request))
            return None
        arguments = msgspec.json.decode(request.arguments)
        value = await remote.do_under_key(request.idempotency_key, request.task, arguments["refuse"])
        if self._programs.deploys("answer_lost"):
            raise InDoubt("the connection was cut")
        return msgspec.json.encode(value + arguments["n"])

    async def _say_not_begun(self, request: RemoteRequest) -> None:
        """Give a request back that definitely was not begun here, or report that it never will be. Else it expires."""
        gives_back = self._random.random() < 0.5
        said = RemoteReport(task=request.task, capability=request.capability, status="permanent", message="not begun")

        async def say(agents: RemoteAgents) -> None:
            if gives_back:
                await agents.release(called.name, request.task, request.capability)
            else:
                await agents.report(called.name, said)

        for _ in range(SAID_AGAIN_MAX):
            await asyncio.sleep(self._random.uniform(0.05, BEGINS_SECONDS_MAX))
            if await self._is_heard(say):
                return

    async def _is_heard(self, say: Callable[[RemoteAgents], Awaitable[Any]]) -> bool:
        gateway = self._programs.network.choose()
        if gateway is None:
            return False
        try:
            await self._programs.network.ask(gateway, say)
        except AgentRequestRefused as refusal:
            return refusal.code not in ("gateway-not-running", "gateway-draining", "report-unanswered")
        except NoAnswer:
            return False
        return True
