"""Tokens in one transaction. The rules are in ``core.tokens``. Shared by all stores."""

from collections.abc import Sequence

from msgspec.structs import replace

from ...core import tokens
from ...events.store import TokenCreated, TokenRevoked
from ...model import Instant
from ...model.tokens import NewToken, TokenRow
from ..sql.store_rows import StoreRows
from .batch import note_in_store
from .transactions import Lane, Transactions, writes


def add_token(rows: StoreRows, token: NewToken) -> TokenRow:
    """Keep a new token, and say it in the store's history. Repeated it changes nothing: the row answers that is there."""
    row = tokens.build_row(token, rows.read_clock())
    if not rows.add_token_row(row):
        (known,) = rows.select_tokens([token.token_id])
        return known
    limits = (row.expires_at, row.apps, row.workflows, row.open_tasks_max)
    created = TokenCreated(row.token_id, row.name, row.scopes, *limits)
    note_in_store(rows, row.created_by, created)
    return row


def revoke_token(rows: StoreRows, token_id: str, by: str, reason: str) -> TokenRow | None:
    """Revoke a token from now on, and say it in the history. One that is revoked stays as it is. None: there is none."""
    row = rows.lock_token(token_id)
    revoked = None if row is None else tokens.revoke_token(row, rows.read_clock(), by, reason)
    if revoked is None:
        return row
    rows.put_token(revoked)
    note_in_store(rows, by, TokenRevoked(token_id, revoked.name, reason))
    return revoked


def note_token_used(rows: StoreRows, token_id: str, at: Instant) -> None:
    """Write when a token was used, unless a use less than a minute older is written (``core.tokens.is_use_due``)."""
    row = rows.lock_token(token_id)
    if row is not None and tokens.is_use_due(row.last_used_at, at):
        rows.put_token(replace(row, last_used_at=at))


class TokenOperations(Transactions):
    """Tokens of the HTTP API. None is ever removed: the history names them. No secret comes here, only its digest."""

    add_token = writes(add_token)
    revoke_token = writes(revoke_token)
    note_token_used = writes(note_token_used, Lane.OUTBOX)

    async def find_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        """Read the tokens of these ids that exist, in any order."""
        return await self._read(lambda rows: rows.select_tokens(token_ids))

    async def list_tokens(self) -> list[TokenRow]:
        """All tokens by the time of their creation, also those that are revoked or have expired."""
        return await self._read(lambda rows: rows.select_all_tokens())
