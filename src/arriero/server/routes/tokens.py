"""Tokens: who may use this API. The one who holds the scope admin may make a token of any scope."""

from typing import Annotated

import msgspec
from msgspec.structs import asdict

from ...client.tokens import CreatedToken
from ...operations import tokens as operations
from ...operations.declaration import say
from ...operations.problems import INVALID_REQUEST
from ..calls import Call
from ..operation_routes import add_operations_of
from ..routing import RouteGroup
from ..scopes import Needs, Scope

tokens = RouteGroup("tokens")


class NewTokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be made."""

    name: Annotated[str, say("Signs in the history what its holder does.")]
    scopes: Annotated[
        tuple[str, ...],
        say(
            "Some of submit, read, read-payloads, operate, admin, `agent:NAME`, `replies:QUEUE`; `agent:*` and `replies:*` are for any."
        ),
    ]
    expires_in: Annotated[float | None, say("In seconds. By default it never expires.")] = None
    apps: Annotated[tuple[str, ...], say("Restrict it to tasks of these Apps. By default it is not restricted.")] = ()
    workflows: Annotated[tuple[str, ...], say("Restrict it to tasks of these workflows.")] = ()
    open_tasks_max: Annotated[int | None, say("Tasks submitted with it that may be open. By default any number.")] = (
        None
    )


@tokens.operation(
    "POST",
    "/v1/tokens",
    Needs(Scope.ADMIN),
    summary="Make a token. Its secret is in this answer alone.",
    body=NewTokenBody,
    status=201,
    problems=(INVALID_REQUEST,),
    examples={"ci": {"name": "ci", "scopes": ["read", "submit"], "expires_in": 7_776_000}},
)
async def create_token(call: Call) -> CreatedToken:
    return await call.client.tokens.create(**asdict(call.read(NewTokenBody)), by=call.caller.name)


add_operations_of(tokens, operations.LIST, operations.REVOKE)
