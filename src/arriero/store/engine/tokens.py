"""Tokens in one transaction. The rules are in ``core.tokens``. Shared by all stores."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from ...core import tokens
from ...events.store import TokenCreated, TokenRevoked
from ...model import Instant
from ...tokens import NewToken, TokenRow
from .batch import note_in_store
from .transactions import Lane, Transactions, UnreadableRows


class TokenRows(UnreadableRows, Protocol):
    """Rows of tokens inside one transaction."""

    def add_token_row(self, row: TokenRow) -> bool:
        """Keep a new row. False: there is one under its id."""
        ...

    def lock_token(self, token_id: str) -> TokenRow | None:
        """A token, ours until the transaction ends."""
        ...

    def put_token(self, row: TokenRow) -> None:
        """Keep what changes of a row that this transaction has locked: its last use, and its revocation."""
        ...

    def select_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]: ...

    def select_all_tokens(self) -> list[TokenRow]:
        """List tokens by the time of their creation."""
        ...


def add_token(rows: TokenRows, token: NewToken) -> TokenRow:
    """See ``TokenStore.add_token``."""
    row = tokens.build_row(token, rows.read_clock())
    if not rows.add_token_row(row):
        (known,) = rows.select_tokens([token.token_id])
        return known
    limits = (row.expires_at, row.apps, row.workflows, row.open_tasks_max)
    created = TokenCreated(row.token_id, row.name, row.scopes, *limits)
    note_in_store(rows, row.created_by, created)
    return row


def revoke_token(rows: TokenRows, token_id: str, by: str, reason: str) -> TokenRow | None:
    """See ``TokenStore.revoke_token``."""
    row = rows.lock_token(token_id)
    revoked = None if row is None else tokens.revoke_token(row, rows.read_clock(), by, reason)
    if revoked is None:
        return row
    rows.put_token(revoked)
    note_in_store(rows, by, TokenRevoked(token_id, revoked.name, reason))
    return revoked


def note_token_used(rows: TokenRows, token_id: str, at: Instant) -> None:
    """See ``TokenStore.note_token_used``."""
    row = rows.lock_token(token_id)
    if row is not None and tokens.is_use_due(row.last_used_at, at):
        rows.put_token(replace(row, last_used_at=at))


R = TypeVar("R", bound=TokenRows)


class TokenEngine(Transactions[R]):
    """``store.contract_parts.TokenStore`` over any store's rows."""

    async def add_token(self, token: NewToken) -> TokenRow:
        return await self._write(lambda rows: add_token(rows, token))

    async def find_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        return await self._read(lambda rows: rows.select_tokens(token_ids))

    async def list_tokens(self) -> list[TokenRow]:
        return await self._read(lambda rows: rows.select_all_tokens())

    async def revoke_token(self, token_id: str, by: str, reason: str) -> TokenRow | None:
        return await self._write(lambda rows: revoke_token(rows, token_id, by, reason))

    async def note_token_used(self, token_id: str, at: Instant) -> None:
        await self._write(lambda rows: note_token_used(rows, token_id, at), Lane.OUTBOX)
