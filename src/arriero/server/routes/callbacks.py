"""Callbacks: a service sends the value that a task waits for. The token in the path is all that it needs."""

from collections.abc import Awaitable
from typing import Annotated, Any

import msgspec
from fastapi import Header, Path
from pydantic import AfterValidator

from ...client.callbacks import complete, complete_named
from ...errors import CallbackRefused
from ...model.signals import VALUE_BYTES_MAX
from ...operations.problems import CALLBACK_CLOSED, TASK_UNKNOWN, UNREADABLE, declare_problem
from ...payloads.codec import check_id
from ..authentication import CALLBACK_UNKNOWN, get_callback_token
from ..calls import Call
from ..parameters import TaskId, read_id
from ..problems import Problem
from ..routing import RouteGroup
from ..scopes import Needs, Scope

callbacks = RouteGroup("callbacks")

ANSWERED = declare_problem(
    "callback-answered",
    409,
    "The callback was completed by another value",
    "Nothing: the first value counts. The same value, or the same Idempotency-Key, is answered as before.",
)
UNFIT = declare_problem(
    "callback-unfit",
    422,
    "The value does not fit the callback",
    "Send a value of the type that `detail` asks for, under another Idempotency-Key. The callback stays open.",
)
BUSY = declare_problem(
    "callback-busy",
    503,
    "The task cannot take the value now",
    "Send the same again after `Retry-After` seconds. `because` is `undecided` while the task has not read the value that was"
    " sent before, `inbox_full` while it takes others first, and `unreadable` while a row of it cannot be read.",
)
_BUSY = ("undecided", "inbox_full", "unreadable")
_PROBLEMS = {"unknown": CALLBACK_UNKNOWN, "answered": ANSWERED, "unfit": UNFIT, **dict.fromkeys(_BUSY, BUSY)}
RETRY_SECONDS = 10

DeliveryKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Names the delivery, 1 to 255 characters: the same key again changes nothing, whatever its body. Left out: the"
        " same value is the same delivery.",
    ),
]

CallbackName = Annotated[
    str,
    Path(description="The callback's name, percent-encoded; of several that wait, NAME%232."),
    AfterValidator(read_id),
]


class CallbackAnswer(msgspec.Struct, frozen=True):
    """The value is kept. ``created``: False: it was, before."""

    created: bool


@callbacks.operation(
    "POST",
    "/v1/callbacks/{token}",
    Needs(public="the token in the path gives the one right to complete this callback", credential="token"),
    summary="Complete a callback: send the value that a task waits for, as the whole body.",
    body=Any,
    body_max=VALUE_BYTES_MAX,
    problems=(CALLBACK_UNKNOWN, ANSWERED, UNFIT, CALLBACK_CLOSED, BUSY),
    examples={"a receipt": {"id": "r-1001", "amount": 5000}},
    answer_example={"created": True},
)
async def complete_callback(
    call: Call, token: Annotated[str, Path(description="Of the callback's URL.")], idempotency_key: DeliveryKey = None
) -> CallbackAnswer:
    key = None if idempotency_key is None else check_id(idempotency_key, "the header Idempotency-Key")
    return await _answer(complete(call.session, get_callback_token(call.request), call.body.decode(), key))


async def _answer(completing: Awaitable[bool]) -> CallbackAnswer:
    try:
        return CallbackAnswer(await completing)
    except CallbackRefused as error:
        kind = _PROBLEMS.get(error.because, CALLBACK_CLOSED)
        headers = {"Retry-After": str(RETRY_SECONDS)} if kind is BUSY else {}
        raise Problem(kind, str(error), headers=headers, because=error.because) from error


class CallbackRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a callback. Who completes it is the token's name; the body cannot say it."""

    value: msgspec.Raw


@callbacks.operation(
    "POST",
    "/v1/tasks/{task_id}/callbacks/{name}",
    Needs(Scope.OPERATE),
    is_narrowed=True,
    summary="Complete a callback of a task by its name, in place of the service that has its URL.",
    body=CallbackRequest,
    problems=(TASK_UNKNOWN, ANSWERED, UNFIT, CALLBACK_CLOSED, BUSY, UNREADABLE),
    examples={"a receipt": {"value": {"id": "r-1001", "amount": 5000}}},
    answer_example={"created": True},
)
async def complete_callback_of_task(call: Call, task_id: TaskId, name: CallbackName) -> CallbackAnswer:
    value = bytes(call.read(CallbackRequest).value).decode()
    return await _answer(
        complete_named(call.session, check_id(task_id, "task_id"), check_id(name, "name"), value, call.caller.name)
    )
