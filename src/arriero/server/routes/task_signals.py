"""Signals of a task: one is sent to it, or a request that waits for a reply, and those that it got are listed.

To send needs the scope ``submit``. A signal is input for the code of a workflow, as its arguments are, and comes from programs. The
verbs of operators, which need ``operate``, act against the code.
"""

from typing import Annotated

import msgspec
from fastapi import Path
from pydantic import AfterValidator
from starlette.responses import Response

from ...client.json_signals import RequestAnswer, ShownSignal, build_json_send, build_request_answer, load_signals
from ...client.session import load_task
from ...client.signals import send, wait_for_reply
from ...client.task_shapes import Payloads
from ...client.task_verbs import load_task_to_act
from ...errors import RequestRefused
from ...operations.problems import REQUEST_REFUSED, SIGNAL_REFUSED, TASK_UNKNOWN, UNREADABLE
from ...payloads.codec import check_id
from ..calls import Call
from ..cursors import CURSOR_INVALID, open_cursors
from ..parameters import LIMIT, Cursor, Limit, PreferReply, TaskId, read_id, read_preferences
from ..problems import Problem
from ..routing import RouteGroup
from ..scopes import Needs, Scope, may_read_reasons
from .submissions import wait_until_shutdown

task_signals = RouteGroup("task signals")

SignalName = Annotated[str, Path(description="The signal's name, percent-encoded."), AfterValidator(read_id)]


class SignalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal to a task. Who sends it is the token's name; the body cannot say it.

    Args:
        value: fits the type of the signal.
        signal_id: sent again under the same id it changes nothing; left out: a new one, so that a lost answer cannot be repaired.
    """

    value: msgspec.Raw
    signal_id: str | None = None


class SignalAnswer(msgspec.Struct, frozen=True):
    """The place of a signal in its task.

    Args:
        id: of the task.
        number: of the task's signals, from 1, in the order of their commits.
        created: False: it was there before, under the same ``signal_id``.
    """

    id: str
    name: str
    signal_id: str
    number: int
    created: bool


class RequestOfTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to a task. Who sends it is the token's name; the body cannot say it.

    Args:
        value: fits the type of the request.
        request_id: the same again waits for the same reply; left out: a new one, so that a lost answer cannot be repaired.
    """

    value: msgspec.Raw
    request_id: str | None = None


class SignalsAnswer(msgspec.Struct, frozen=True):
    """A page of the signals of a task, the oldest first. ``next``: the cursor of the next page; None: this was the last one."""

    signals: tuple[ShownSignal, ...]
    next: str | None
    payloads: Payloads


@task_signals.operation(
    "POST",
    "/v1/tasks/{task_id}/signals/{name}",
    Needs(Scope.SUBMIT),
    is_narrowed=True,
    summary="Send a signal to a task, whose code waits for it now or later.",
    body=SignalRequest,
    problems=(TASK_UNKNOWN, SIGNAL_REFUSED, UNREADABLE),
    examples={"send it": {"value": {"by": "ana"}, "signal_id": "approval-1001"}},
    answer_example={
        "id": "order-1001",
        "name": "approved",
        "signal_id": "approval-1001",
        "number": 1,
        "created": True,
    },
)
async def send_signal(call: Call, task_id: TaskId, name: SignalName) -> SignalAnswer:
    asked, session = call.read(SignalRequest), call.session
    loaded = await load_task_to_act(session, check_id(task_id, "task_id"))
    value = bytes(asked.value).decode()
    command = build_json_send(
        session, loaded, name, value, asked.signal_id, call.caller.name, app=session.app, is_checked=True
    )
    receipt = await send(session, task_id, command)
    return SignalAnswer(task_id, name, receipt.signal_id, receipt.number, receipt.created)


REPLY_SECONDS = 10  # for which a request waits that says nothing else


@task_signals.operation(
    "POST",
    "/v1/tasks/{task_id}/requests/{name}",
    Needs(Scope.SUBMIT),
    is_narrowed=True,
    summary="Send a request to a task, and wait for the reply of its code.",
    body=RequestOfTask,
    answer=RequestAnswer,
    more_statuses={
        202: "The request is durable; its reply did not come in time. Send it again under the same `request_id`."
    },
    problems=(TASK_UNKNOWN, SIGNAL_REFUSED, REQUEST_REFUSED, UNREADABLE),
    examples={"send it": {"value": "Main Street 1", "request_id": "desk-1"}},
    answer_example={
        "id": "order-1001",
        "name": "change_address",
        "request_id": "desk-1",
        "number": 1,
        "created": True,
        "state": "replied",
        "payloads": "included",
        "reply": 1,
    },
)
async def send_request(call: Call, task_id: TaskId, name: SignalName, prefer: PreferReply = None) -> Response:
    asked, session = call.read(RequestOfTask), call.session
    loaded = await load_task_to_act(session, check_id(task_id, "task_id"))
    command = build_json_send(
        session,
        loaded,
        name,
        bytes(asked.value).decode(),
        asked.request_id,
        call.caller.name,
        app=session.app,
        kind="request",
        is_checked=True,
    )
    receipt = await send(session, task_id, command)
    preferences = read_preferences(prefer)
    seconds = preferences.wait if preferences.wait is not None else 0 if preferences.respond_async else REPLY_SECONDS
    if seconds and not call.place.may_wait():  # the request is durable, so this is not a refusal
        seconds = 0
    began_at = session.ports.clock.monotonic()
    try:
        reply = await wait_until_shutdown(call, wait_for_reply(session, task_id, command, receipt.number, seconds))
    except RequestRefused:
        if may_read_reasons(call.caller.scopes):
            raise
        raise Problem(REQUEST_REFUSED, f"task {task_id!r} refuses the request") from None
    finally:
        await call.confirm(session.ports.clock.monotonic() - began_at)
    answer = await build_request_answer(session, loaded, name, receipt, reply, payloads=call.payloads)
    applied = preferences.format_applied()
    headers = {"Preference-Applied": applied} if applied else {}
    return Response(call.encode(answer), 202 if reply is None else 200, headers, "application/json")


@task_signals.operation(
    "GET",
    "/v1/tasks/{task_id}/signals",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="The signals that a task got, in order: which wait took each, and which were set aside.",
    problems=(TASK_UNKNOWN, CURSOR_INVALID),
    answer_example={
        "signals": [
            {
                "number": 1,
                "kind": "signal",
                "name": "approved",
                "signal_id": "approval-1001",
                "by": "desk",
                "at": "2026-11-20T14:15:17.5Z",
                "state": "taken",
                "step": 2,
                "why": "",
            }
        ],
        "next": None,
        "payloads": "withheld",
    },
)
async def list_signals(call: Call, task_id: TaskId, limit: Limit = LIMIT, cursor: Cursor = None) -> SignalsAnswer:
    task = (await load_task(call.session, check_id(task_id, "task_id"))).task
    listing = ["signals", task.task_no]
    cursors = await open_cursors(call.session.store)
    signals, has_more = await load_signals(
        call.session.store, task.task_no, limit, cursors.read_number(cursor, listing)
    )
    position = cursors.write(listing, signals[-1].number) if has_more else None
    return SignalsAnswer(tuple(signals), position, call.payloads)
