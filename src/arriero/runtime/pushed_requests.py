"""Requests that arriero sends to the program of an Agent: one call is one try, and a program may promise its report for later."""

from typing import Any, Protocol, runtime_checkable

import msgspec

from ..errors import StoreError, Transient
from .agent_requests import RemoteRequest, build_request
from .remote_calls import RemoteAttempt
from .remote_dispatcher import RemoteDispatcher
from .reported_outcomes import ReportedResult


@runtime_checkable
class SendingAgent(Protocol):
    """An Agent that can send requests."""

    async def send_request(self, request: RemoteRequest, body: bytes, message_id: str) -> bytes | None:
        """Send a request. Returns the JSON of its result; None: the program will report.

        Raises: StepError - it failed; see ``http.meaning``.
        """
        ...


async def push_request(dispatcher: RemoteDispatcher, remote_attempt: RemoteAttempt) -> Any:
    """Make one try: send the request, and wait for the report if the program promises one.

    Returns: the result as plain JSON values, or as it was reported. Raises: StepError, ReportedFailure.
    """
    agent, context = remote_attempt.definition.agent, dispatcher.context
    assert isinstance(agent, SendingAgent)
    try:
        secret = await dispatcher.read_secret()
    except StoreError as error:  # nothing was sent
        raise Transient(f"the store did not answer: {error}", code="no_store") from error
    request = build_request(remote_attempt, context.store.store_id, secret, context.app)
    step = remote_attempt.dispatch.step
    body = msgspec.json.encode(request)
    answer = await agent.send_request(request, body, f"{step.idempotency_key}-{step.fence}")
    if answer is None:
        remote_attempt.is_delivered = True
        return await dispatcher.wait_for_report(remote_attempt)
    if request.kind == "compensation":
        return ReportedResult("null")
    return msgspec.json.decode(answer)
