"""Tokens of the HTTP API, for operators and programs that manage them."""

import secrets
from collections.abc import Iterable
from datetime import datetime

import msgspec

from ..core.tokens import (
    ID_BYTES,
    SECRET_BYTES,
    TokenParts,
    build_parts,
    check_open_tasks_max,
    check_reach,
    check_scopes,
    compute_digest,
    find_state,
    format_token,
)
from ..errors import InvalidInput, UnknownName
from ..model import Instant
from ..model.policies import Duration, check_seconds
from ..model.tokens import ANY_REACH, NewToken, Reach, TokenRow
from ..payloads.codec import check_id
from ..store.state_store import StateStore
from .row_shapes import build_output
from .session import Session
from .task_verbs import check_signature, check_signer


class UnknownToken(UnknownName):
    """No token has this id; over HTTP a code of its own says so."""


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it stands. The secret in it is kept nowhere.

    Attributes:
        id: the part of the token by which it is named to operators.
        name: signs what its holder does.
        state: ``valid``, ``expired`` or ``revoked``.
        expires_at: None: never.
        last_used_at: within a minute; None: it was never used.
        apps, workflows: to which it is restricted; empty: it is not.
        open_tasks_max: tasks of its holder that may be open; None: any number.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str
    revoked_reason: str
    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    open_tasks_max: int | None = None


class CreatedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new token. ``token``: what its holder sends; it is shown here and never again."""

    token: str
    about: TokenView

    def __repr__(self) -> str:  # a secret is in no log, nor in a traceback
        return f"<new token {self.about.id}>"


def build_token_view(row: TokenRow, now: Instant) -> TokenView:
    """Build the view of a token as of an instant."""
    return build_output(TokenView, row, id=row.token_id, state=str(find_state(row, now)))


def draw_token() -> TokenParts:
    """Draw a new token. Its bytes come from the system: no seed of a test may ever repeat a secret."""
    return build_parts(secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES))


async def keep_token(
    store: StateStore,
    parts: TokenParts,
    *,
    name: str,
    scopes: tuple[str, ...],
    by: str,
    expires_in: float | None,
    reach: Reach = ANY_REACH,
    open_tasks_max: int | None = None,
) -> CreatedToken:
    """Keep a token that was drawn; repeated it changes nothing. Raises StoreError."""
    row = await store.add_token(
        NewToken(
            token_id=parts.token_id,
            name=name,
            digest=compute_digest(parts.secret),
            scopes=scopes,
            created_by=by,
            expires_in=expires_in,
            reach=reach,
            open_tasks_max=open_tasks_max,
        )
    )
    return CreatedToken(token=format_token(parts), about=build_token_view(row, store.now()))


class Tokens:
    """The tokens of the HTTP API. ``App.tokens`` makes it; nothing is asked of the store by that."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(
        self,
        name: str,
        *,
        scopes: Iterable[str],
        by: str,
        expires_in: Duration | None = None,
        apps: Iterable[str] = (),
        workflows: Iterable[str] = (),
        open_tasks_max: int | None = None,
    ) -> CreatedToken:
        """Create a token. Only this answer holds its secret.

        Args:
            name: signs each act of its holder in the history. It need not be unique: a token is replaced by a second one of
                the same name.
            scopes: some of submit, read, read-payloads, operate, admin, ``agent:NAME``, ``replies:QUEUE``; ``agent:*`` and
                ``replies:*`` are for any.
            by: who creates it.
            expires_in: seconds or timedelta; None: never.
            apps, workflows: restrict it to tasks of these Apps, and of these workflows (``step:NAME`` for tasks of one step):
                everything else is not there for its holder. None: it is not restricted.
            open_tasks_max: tasks submitted with it that may be open; a submission beyond them is refused. None: any number.
        Raises: InvalidInput - no fit name, scope, duration or cap, or nobody signs; StoreError.
        """
        check_signer(name, "name of a token")
        if not name.strip():
            raise InvalidInput("the name of a token is blank; it signs what its holder does")
        wanted = check_scopes(scopes)
        reach, cap = check_reach(apps, workflows), check_open_tasks_max(open_tasks_max)
        check_signature(by, "creates a token")
        seconds = None if expires_in is None else check_seconds(expires_in, "expires_in")
        if seconds is not None and seconds <= 0:
            raise InvalidInput(f"expires_in is {seconds:g} s; a token that has expired is of no use")
        return await keep_token(
            self._session.store,
            draw_token(),
            name=name,
            scopes=wanted,
            by=by,
            expires_in=seconds,
            reach=reach,
            open_tasks_max=cap,
        )

    async def list(self) -> list[TokenView]:
        """All tokens by the time of their creation, also those that are refused by now. Raises InvalidInput, StoreError."""
        store = self._session.store
        rows = await store.list_tokens()
        now = store.now()
        return [build_token_view(row, now) for row in rows]

    async def revoke(self, token_id: str, *, by: str, reason: str) -> TokenView:
        """Revoke a token: each server refuses it within a second. One that is revoked stays as it is.

        Raises: InvalidInput - there is none of this id, or nobody signs; StoreError.
        """
        by, reason = check_signature(by, reason)
        store = self._session.store
        row = await store.revoke_token(check_id(token_id, "id of a token"), by, reason)
        if row is None:
            raise UnknownToken(
                f"no token has the id {token_id!r} in the store {store.url}; `arriero token list` shows all"
            )
        return build_token_view(row, store.now())
