"""Tokens: who may use this API. Whoever holds the scope admin may make a token of any scope."""

from typing import Annotated

import msgspec
from fastapi import Path
from pydantic import AfterValidator

from ...client.tokens import TokenView
from ...errors import UnknownName
from ..calls import Call
from ..paths import read_id
from ..problems import INVALID_REQUEST, Problem, declare_problem
from ..routing import RouteGroup
from ..scopes import Needs, Scope

tokens = RouteGroup("tokens")

TokenId = Annotated[str, Path(description="The middle part of the token."), AfterValidator(read_id)]
TOKEN_UNKNOWN = declare_problem("token-unknown", 404, "No such token", "Look at the id; `GET /v1/tokens` lists all.")
EXAMPLE = {
    "id": "8c1f0a5e9b7d4c32",
    "name": "ci",
    "scopes": ["read", "submit"],
    "state": "valid",
    "created_at": "2026-11-20T14:15:17Z",
    "created_by": "ana",
    "expires_at": "2027-02-18T14:15:17Z",
    "last_used_at": None,
    "revoked_at": None,
    "revoked_by": "",
    "revoked_reason": "",
    "apps": [],
    "workflows": [],
    "open_tasks_max": None,
}


class NewTokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be made.

    Args:
        name: signs in the history what its holder does.
        scopes: some of submit, read, read-payloads, operate, admin, ``agent:NAME``, ``replies:QUEUE``;
            ``agent:*`` and ``replies:*`` are for any.
        expires_in: seconds; null: it never expires.
        apps, workflows: restrict it to tasks of these; none: it is not restricted.
        open_tasks_max: tasks submitted with it that may be open; null: any number.
    """

    name: str
    scopes: tuple[str, ...]
    expires_in: float | None = None
    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    open_tasks_max: int | None = None


class NewTokenAnswer(msgspec.Struct, frozen=True):
    """The new token. ``token``: what its holder sends; no other answer holds it."""

    token: str
    about: TokenView


class TokenListAnswer(msgspec.Struct, frozen=True):
    """All tokens by the time of their creation, without their secrets."""

    tokens: tuple[TokenView, ...]


class TokenRevocationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reason for the revocation of a token."""

    reason: str


@tokens.operation(
    "POST",
    "/v1/tokens",
    Needs(Scope.ADMIN),
    summary="Make a token. Its secret is in this answer alone.",
    body=NewTokenBody,
    answer=NewTokenAnswer,
    status=201,
    problems=(INVALID_REQUEST,),
    examples={"ci": {"name": "ci", "scopes": ["read", "submit"], "expires_in": 7_776_000}},
    answer_example={"token": "arriero_8c1f0a5e9b7d4c32_...", "about": EXAMPLE},
)
async def create_token(call: Call) -> NewTokenAnswer:
    wanted = call.read(NewTokenBody)
    created = await call.client.tokens.create(
        wanted.name,
        scopes=wanted.scopes,
        by=call.caller.name,
        expires_in=wanted.expires_in,
        apps=wanted.apps,
        workflows=wanted.workflows,
        open_tasks_max=wanted.open_tasks_max,
    )
    return NewTokenAnswer(created.token, created.about)


@tokens.operation(
    "GET",
    "/v1/tokens",
    Needs(Scope.ADMIN),
    summary="All tokens, also those that are revoked or have expired.",
    answer=TokenListAnswer,
    answer_example={"tokens": [EXAMPLE]},
)
async def list_tokens(call: Call) -> TokenListAnswer:
    return TokenListAnswer(tuple(await call.client.tokens.list()))


@tokens.operation(
    "POST",
    "/v1/tokens/{token_id}:revoke",
    Needs(Scope.ADMIN),
    summary="Refuse a token from now on.",
    body=TokenRevocationBody,
    answer=TokenView,
    problems=(TOKEN_UNKNOWN, INVALID_REQUEST),
    examples={"lost": {"reason": "the laptop is lost"}},
    answer_example=EXAMPLE | {"state": "revoked", "revoked_by": "ana", "revoked_reason": "the laptop is lost"},
)
async def revoke_token(call: Call, token_id: TokenId) -> TokenView:
    reason = call.read(TokenRevocationBody).reason
    try:
        return await call.client.tokens.revoke(token_id, by=call.caller.name, reason=reason)
    except UnknownName as error:
        raise Problem(TOKEN_UNKNOWN, str(error)) from error
