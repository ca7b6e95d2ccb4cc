"""Requests of Agents outside of Python: their programs take them and report how they ended."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...client.remote_agents import BATCH_MAX, AttemptTerm, RemoteAgents, RemoteReport, RemoteRequest
from ...client.session import Session
from ...errors import AgentRequestRefused, ArrieroError
from ...operations.problems import INVALID_REQUEST, UNREADABLE, ProblemDocument, ProblemType, declare_problem
from ..calls import Call, HttpCall
from ..parameters import AgentName
from ..problems import Problem, build_problem, build_problem_document, build_shutdown_problem
from ..routing import RouteGroup
from ..scopes import AGENT

agent_requests = RouteGroup("agent requests")

_REFUSALS = tuple(
    declare_problem(*declared)
    for declared in (
        ("agent-unknown", 404, "No such Agent", "Look at the name, and at the App of the server."),
        ("agent-not-remote", 409, "The steps of the Agent are Python code", "Declare its steps with remote=True."),
        ("agent-not-pulled", 409, "arriero sends the requests of the Agent", "Wait for them at the URL of the HttpAgent."),
        ("gateway-not-running", 503, "This process hosts no Agents outside of Python", "Run it with the role http."),
        ("gateway-draining", 503, "This process ends", "Ask again; another process answers."),
        ("capability-invalid", 403, "The capability does not speak for this attempt", "Send the one that came with the request."),
        ("result-invalid", 422, "The result does not fit the step's type", "Send a result that fits; nothing was changed."),
        ("report-stale", 409, "The attempt is over", "Drop the report: the step was recovered, released or taken again."),
        ("report-duplicate", 409, "The attempt is reported already", "Drop the report: the first one is recorded."),
        ("report-expired", 409, "The deadline has passed", "Drop the report; a result is kept for operators."),
        ("report-ended", 409, "The task is not there any longer", "Drop the report."),
        ("report-unanswered", 503, "Nobody knows yet if the report is recorded", "Send the same report again."),
    )
)  # fmt: skip
_BY_CODE = {kind.code: kind for kind in _REFUSALS}


def _choose(*codes: str) -> tuple[ProblemType, ...]:
    return tuple(_BY_CODE[code] for code in codes)


_OF_AGENT = ("agent-unknown", "agent-not-remote", "gateway-not-running")
_OF_ATTEMPT = (*_OF_AGENT, "capability-invalid", "report-stale", "report-duplicate", "report-expired", "report-ended")


class TakeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request of a program for work.

    Args:
        limit: requests at most, 1 to 100.
        wait_seconds: until there is one, 0 to 60.
    """

    limit: int = 1
    wait_seconds: float = 20.0


class TakeAnswer(msgspec.Struct, frozen=True):
    """The requests; none: ask again."""

    requests: tuple[RemoteRequest, ...]


class ReportBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reports of 1 to 100 attempts. Each report is recorded or refused by itself."""

    reports: list[RemoteReport]


class ReportVerdict(msgspec.Struct, frozen=True):
    """Verdict on one report of a batch. ``problem`` None: it is committed."""

    problem: ProblemDocument | None


class ReportBatchAnswer(msgspec.Struct, frozen=True):
    """Verdicts in the order of the reports. ``refused``: number of those with a problem."""

    results: tuple[ReportVerdict, ...]
    refused: int


class ExtendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt that needs more time: it shall end this many seconds from now."""

    task: str
    capability: str
    seconds: float


class ReleaseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attempt that the program has definitely not begun."""

    task: str
    capability: str


class CheckpointBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that later attempts of the step get with their requests."""

    task: str
    capability: str
    checkpoint: msgspec.Raw


class PublishBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that shows how far the attempt is, up to 10 kB."""

    task: str
    capability: str
    value: msgspec.Raw


@contextmanager
def _translating_refusals() -> Iterator[None]:
    """Context in which what RemoteAgents refuses becomes a problem."""
    try:
        yield
    except AgentRequestRefused as error:
        raise _build_refusal(error) from error


def _build_refusal(error: AgentRequestRefused) -> Problem:
    kind = _BY_CODE[error.code]
    return Problem(kind, str(error), headers={"Retry-After": "1"} if kind.status == 503 else {})


def _get_agents(call: HttpCall) -> RemoteAgents:
    state = call.request.app.state
    if not hasattr(state, "remote_agents"):
        state.remote_agents = RemoteAgents(call.client.session)
    found: RemoteAgents = state.remote_agents
    return found


class TakenResponse(Response):
    """Waits for requests and answers with them. They count as delivered once they are written to a caller who is still there.

    Args:
        call: its ``confirm`` raises Problem if the caller's token is no longer valid, before a caller that waited long gets requests.
    """

    def __init__(
        self,
        agents: RemoteAgents,
        agent: str,
        body: TakeBody,
        call: HttpCall,
    ) -> None:
        super().__init__()
        self._agents = agents
        self._agent = agent
        self._asked = body
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or stop waiting when the caller has gone. Raises Problem - also if the server is about to end."""
        loop = asyncio.get_running_loop()
        leaving = loop.create_task(_wait_until_gone(receive))
        ending = loop.create_task(self._call.shutdown.wait())
        answering = loop.create_task(self._answer(send, leaving))
        try:
            await asyncio.wait({leaving, ending, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_ending = ending.done()
            for task in (leaving, ending, answering):
                task.cancel()
            await asyncio.wait({leaving, ending, answering})
        if not answering.cancelled():
            answering.result()
        elif is_ending:
            raise build_shutdown_problem()

    async def _answer(self, send: Send, leaving: "asyncio.Task[None]") -> None:
        began_at = asyncio.get_running_loop().time()
        with _translating_refusals():
            async with self._agents.taking(self._agent, self._asked.limit, self._asked.wait_seconds) as requests:
                await self._call.confirm(asyncio.get_running_loop().time() - began_at)
                body = self._call.encode(TakeAnswer(requests))
                if leaving.done():
                    raise asyncio.CancelledError  # nobody is there: the requests go to the next program
                await _send_json(send, body)


async def _wait_until_gone(receive: Receive) -> None:
    message: Message = {}
    while message.get("type") != "http.disconnect":
        message = await receive()


async def _send_json(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_CAPABILITY = "1.WyJzdG9yZSIsInNoaXBwaW5nIl0.c2lnbmF0dXJl"
_REQUEST = {
    "task": "order-1001",
    "step": "book",
    "key": "#1",
    "kind": "step",
    "arguments": {"parcel": "P-7"},
    "attempt": 1,
    "idempotency_key": "3f2c9a0d8e7b6c5a",
    "complete_by": "2026-03-01T12:00:30+00:00",
    "remaining_ms": 29_000,
    "headers": {"Idempotency-Key": "3f2c9a0d8e7b6c5a", "Arriero-Task": "order-1001"},
    "capability": _CAPABILITY,
}
_OF_TASK = {"task": "order-1001", "capability": _CAPABILITY}
_SUCCEEDED = {**_OF_TASK, "status": "succeeded", "result": {"number": "B-1"}}


@agent_requests.operation(
    "POST",
    "/v1/agents/{agent}/requests:take",
    AGENT,
    summary="Wait for requests of an Agent outside of Python, and take them.",
    body=TakeBody,
    body_max=10_000,
    answer=TakeAnswer,
    problems=_choose(*_OF_AGENT, "agent-not-pulled", "gateway-draining"),
    examples={"ten at a time": {"limit": 10, "wait_seconds": 20}},
    answer_example={"requests": [_REQUEST]},
)
async def take_requests(call: Call, agent: AgentName) -> Response:
    wanted = call.read(TakeBody)
    if wanted.wait_seconds > 0:
        call.place.begin_wait()
    return TakenResponse(_get_agents(call), agent, wanted, call)


@agent_requests.operation(
    "POST",
    "/v1/agents/{agent}/requests:report",
    AGENT,
    summary="Report how an attempt ended. The answer comes after the commit.",
    body=RemoteReport,
    status=204,
    problems=(*_choose(*_OF_ATTEMPT, "result-invalid", "report-unanswered"), UNREADABLE),
    examples={
        "it succeeded": _SUCCEEDED,
        "it did not happen": {**_OF_TASK, "status": "transient", "message": "busy", "retry_after": 5},
        "it never will": {**_OF_TASK, "status": "permanent", "message": "no such street", "code": "address"},
        "nobody knows": {**_OF_TASK, "status": "unknown", "message": "the connection was cut"},
    },
)
async def report_request(call: Call, agent: AgentName) -> None:
    with _translating_refusals():
        await _get_agents(call).report(agent, call.read(RemoteReport))


@agent_requests.operation(
    "POST",
    "/v1/agents/{agent}/requests:report-batch",
    AGENT,
    summary="Report how up to 100 attempts ended, each recorded or refused by itself. The answer comes after all commits.",
    body=ReportBatch,
    problems=_choose(*_OF_AGENT),
    examples={"two": {"reports": [_SUCCEEDED, {**_OF_TASK, "task": "order-1002", "status": "unknown"}]}},
    answer_example={
        "results": [
            {"problem": None},
            {
                "problem": {
                    "type": _BY_CODE["capability-invalid"].uri,
                    "title": _BY_CODE["capability-invalid"].title,
                    "status": 403,
                    "detail": "the capability is of another task than 'order-1002'",
                    "code": "capability-invalid",
                }
            },
        ],
        "refused": 1,
    },
)
async def report_requests(call: Call, agent: AgentName) -> ReportBatchAnswer:
    reports = call.read(ReportBatch).reports
    if not 1 <= len(reports) <= BATCH_MAX:
        raise Problem(INVALID_REQUEST, f"the body has {len(reports)} reports; it may have 1 to {BATCH_MAX}")
    agents = _get_agents(call)
    with _translating_refusals():
        agents.check_agent(agent)
    verdicts = await asyncio.gather(*(_report_one(call.session, agents, agent, one) for one in reports))
    return ReportBatchAnswer(tuple(verdicts), sum(verdict.problem is not None for verdict in verdicts))


async def _report_one(session: Session, agents: RemoteAgents, agent: str, report: RemoteReport) -> ReportVerdict:
    try:
        await agents.report(agent, report)
    except ArrieroError as error:
        problem = _build_refusal(error) if isinstance(error, AgentRequestRefused) else build_problem(error, session)
        if problem is None:
            raise
        return ReportVerdict(build_problem_document(problem))
    return ReportVerdict(None)


@agent_requests.operation(
    "POST",
    "/v1/agents/{agent}/requests:extend",
    AGENT,
    summary="Ask for more time for an attempt.",
    body=ExtendBody,
    body_max=10_000,
    problems=(*_choose(*_OF_ATTEMPT), UNREADABLE),
    examples={"a minute": {**_OF_TASK, "seconds": 60}},
    answer_example={
        "capability": _CAPABILITY,
        "complete_by": "2026-03-01T12:01:00+00:00",
        "remaining_ms": 60_000,
    },
)
async def extend_request(call: Call, agent: AgentName) -> AttemptTerm:
    body = call.read(ExtendBody)
    with _translating_refusals():
        return await _get_agents(call).extend(agent, body.task, body.capability, body.seconds)


@agent_requests.operation(
    "POST",
    "/v1/agents/{agent}/requests:release",
    AGENT,
    summary="Give an attempt back that definitely was not begun. It costs no attempt.",
    body=ReleaseBody,
    body_max=10_000,
    status=204,
    problems=(*_choose(*_OF_ATTEMPT), UNREADABLE),
    examples={"it was not begun": _OF_TASK},
)
async def release_request(call: Call, agent: AgentName) -> None:
    body = call.read(ReleaseBody)
    with _translating_refusals():
        await _get_agents(call).release(agent, body.task, body.capability)


@agent_requests.operation(
    "POST",
    "/v1/agents/{agent}/requests:checkpoint",
    AGENT,
    summary="Keep a value for the later attempts of a step. The answer comes after the commit.",
    body=CheckpointBody,
    status=204,
    problems=(*_choose(*_OF_ATTEMPT), UNREADABLE),
    examples={"the third page": {**_OF_TASK, "checkpoint": {"page": 3}}},
)
async def checkpoint_request(call: Call, agent: AgentName) -> None:
    body = call.read(CheckpointBody)
    with _translating_refusals():
        await _get_agents(call).save_checkpoint(agent, body.task, body.capability, body.checkpoint)


@agent_requests.operation(
    "POST",
    "/v1/agents/{agent}/requests:publish",
    AGENT,
    summary="Publish how far an attempt is. Values are merged, and the answer comes after the commit: after a second at most.",
    body=PublishBody,
    body_max=100_000,
    status=204,
    problems=(*_choose(*_OF_ATTEMPT), UNREADABLE),
    examples={"the third page": {**_OF_TASK, "value": {"page": 3}}},
)
async def publish_request(call: Call, agent: AgentName) -> None:
    body = call.read(PublishBody)
    with _translating_refusals():
        await _get_agents(call).publish(agent, body.task, body.capability, body.value)
