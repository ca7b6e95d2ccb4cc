"""Requests as programs outside of Python get them: plain JSON with a capability to report by."""

from typing import Literal

import msgspec

from ..core.attempts import find_latest_complete_by
from ..core.capabilities import Capability, seal_capability
from ..declare.attempt import Undo
from .remote_calls import RemoteAttempt


class RemoteRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt for a program to carry out.

    Args:
        step, key: the step's name, and the key that tells several calls of it in one task apart.
        kind: ``compensation``: the step is to be undone.
        arguments: a JSON object, by the names of the step's parameters.
        attempt: 1 for the first one.
        idempotency_key: to be sent to the service, so that it does it once.
        complete_by: the deadline by the store's clock, as RFC 3339 in UTC. A later report does not count.
        remaining_ms: until then, as of now.
        headers: of HTTP, to be passed on to the service.
        checkpoint: what an earlier attempt kept last, as JSON.
        capability: to be given back with the report.
        outcome, forward_key, result, forward_checkpoint: of a compensation: ``completed`` or ``unknown``; the idempotency key
            of the step; its result as JSON; what its attempts kept last.
        callback: where to report, if arriero sends the request and was told.
    """

    task: str
    step: str
    key: str
    kind: Literal["step", "compensation"]
    arguments: msgspec.Raw
    attempt: int
    idempotency_key: str
    complete_by: str
    remaining_ms: int
    headers: dict[str, str]
    capability: str
    checkpoint: msgspec.Raw | None = None
    outcome: Literal["completed", "unknown"] | None = None
    forward_key: str | None = None
    result: msgspec.Raw | None = None
    forward_checkpoint: msgspec.Raw | None = None
    callback: str | None = None


def build_capability(remote_attempt: RemoteAttempt, store_id: str, app: str) -> Capability:
    """Build the capability of an attempt until its deadline as it is now."""
    step = remote_attempt.dispatch.step
    return Capability(
        store_id=store_id,
        agent=step.agent,
        task_id=remote_attempt.dispatch.task_id,
        step_no=step.step_no,
        attempt=step.attempt,
        fence=step.fence,
        complete_by=remote_attempt.time.complete_by,
        latest=find_latest_complete_by(step),
        app=app,
    )


def build_request(remote_attempt: RemoteAttempt, store_id: str, secret: bytes, app: str) -> RemoteRequest:
    """Build the request of an attempt, as a process of an App gives it out."""
    step, attempt = remote_attempt.dispatch.step, remote_attempt.attempt
    signature = remote_attempt.definition.signature
    arguments = signature.encode_arguments(signature.arguments_with_defaults(step.arguments))
    undo = remote_attempt.read_undo()
    return RemoteRequest(
        task=remote_attempt.dispatch.task_id,
        step=step.name,
        key=step.key,
        kind="compensation" if isinstance(attempt, Undo) else "step",
        arguments=msgspec.Raw(arguments.encode()),
        attempt=step.attempt,
        idempotency_key=step.idempotency_key,
        complete_by=attempt.complete_by.isoformat(),
        remaining_ms=int(attempt.remaining * 1000),
        headers=dict(attempt.headers),
        capability=seal_capability(build_capability(remote_attempt, store_id, app), secret),
        checkpoint=_as_raw(remote_attempt.time.checkpoint),
        outcome=None if undo is None else undo.outcome,
        forward_key=None if undo is None else undo.forward_key,
        result=None if undo is None else _as_raw(undo.result),
        forward_checkpoint=None if undo is None else _as_raw(undo.checkpoint),
    )


def _as_raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
