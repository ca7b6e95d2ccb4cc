"""Signals of a task: one is sent to it, and those that it got are listed.

To send needs the scope ``submit``. A signal is input for the code of a workflow, as its arguments are, and comes from programs. The
verbs of operators, which need ``operate``, act against the code.
"""

from typing import Annotated

import msgspec
from fastapi import Path
from pydantic import AfterValidator

from ...client.json_signals import ShownSignal, build_json_send, load_signals
from ...client.signals import send
from ...client.task_shapes import Payloads
from ...client.task_verbs import load_task, load_task_to_act
from ...operations.problems import SIGNAL_REFUSED, TASK_UNKNOWN, UNREADABLE
from ...payloads.codec import check_id
from ..calls import Call
from ..cursors import CURSOR_INVALID, open_cursors
from ..parameters import LIMIT, Cursor, Limit, TaskId, read_id
from ..routing import RouteGroup
from ..scopes import Needs, Scope

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
