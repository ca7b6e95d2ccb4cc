"""Operations on tokens of the HTTP API: list them, and revoke one."""

import msgspec

from ..client.session import Session
from ..client.tokens import Tokens, TokenView, UnknownToken
from ..model.tokens import Scope
from .declaration import Done, NoArguments, OperationDeclaration, ReasonRequest, Subject


class TokenListAnswer(msgspec.Struct, frozen=True):
    """All tokens by the time of their creation, without their secrets."""

    tokens: tuple[TokenView, ...]


async def list_tokens(session: Session, _: NoArguments) -> TokenListAnswer:
    """List the tokens of the store, also those that are revoked or have expired."""
    return TokenListAnswer(tuple(await Tokens(session).list()))


async def revoke_token(session: Session, token_id: str, by: str, asked: ReasonRequest) -> Done:
    """Refuse a token from now on; servers do so within a second. The ID is in `arriero token list` and in the token."""
    view = await Tokens(session).revoke(token_id, by=by, reason=asked.reason)
    token = f"token {view.id} of {view.name}"
    if (view.revoked_by, view.revoked_reason) != (by, asked.reason):
        return Done(view, (f'{token} was revoked before, by {view.revoked_by}: "{view.revoked_reason}"',))
    return Done(view, (f"{token} is revoked; servers refuse it within a second",))


LIST = OperationDeclaration(
    noun="token",
    name="list",
    function=list_tokens,
    summary="List all tokens, also those that are revoked or have expired.",
    arguments=NoArguments,
    answer=TokenListAnswer,
    scopes=(Scope.ADMIN,),
)
REVOKE = OperationDeclaration(
    noun="token",
    name="revoke",
    function=revoke_token,
    summary="Refuse a token from now on.",
    arguments=ReasonRequest,
    answer=TokenView,
    scopes=(Scope.ADMIN,),
    subject=Subject("token_id", "The middle part of the token", "ID"),
    raises=(UnknownToken,),
    example={"reason": "the laptop is lost"},
    history="the store's history, and with the token",
)
