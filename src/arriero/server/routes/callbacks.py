"""Callbacks: a service sends the value that a task waits for. The token in the path is all that it needs."""

from typing import Annotated, Any

import msgspec
from fastapi import Header, Path

from ...client.callbacks import complete
from ...errors import CallbackRefused
from ...model.signals import VALUE_BYTES_MAX
from ...operations.problems import CALLBACK_CLOSED, declare_problem
from ...payloads.codec import check_id
from ..authentication import CALLBACK_UNKNOWN, get_callback_token
from ..calls import Call
from ..problems import Problem
from ..routing import RouteGroup
from ..scopes import Needs

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
    "The task has no room for the value now",
    "Send the same again after `Retry-After` seconds: its task takes others first.",
)
_PROBLEMS = {"unknown": CALLBACK_UNKNOWN, "answered": ANSWERED, "unfit": UNFIT, "inbox_full": BUSY}
RETRY_SECONDS = 10

DeliveryKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Names the delivery, 1 to 255 characters: the same key again changes nothing, whatever its body. Left out: the"
        " same value is the same delivery.",
    ),
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
    try:
        created = await complete(call.session, get_callback_token(call.request), call.body.decode(), key)
    except CallbackRefused as error:
        kind = _PROBLEMS.get(error.because, CALLBACK_CLOSED)
        headers = {"Retry-After": str(RETRY_SECONDS)} if kind is BUSY else {}
        raise Problem(kind, str(error), headers=headers, because=error.because) from error
    return CallbackAnswer(created)
