"""Tokens in the memory store."""

from collections.abc import Sequence

from ...tokens import TokenRow
from ..sql.store_rows import TokenRows
from .rows import MemoryUpkeep


class MemoryTokens(MemoryUpkeep, TokenRows):
    """See ``TokenRows``."""

    def add_token_row(self, row: TokenRow) -> bool:
        if row.token_id in self.token_rows:
            return False
        self.put_token(row)
        return True

    def lock_token(self, token_id: str) -> TokenRow | None:
        return next(iter(self.select_tokens([token_id])), None)

    def put_token(self, row: TokenRow) -> None:
        self._put(self.token_rows, row.token_id, row)

    def select_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        found = [self.token_rows[token_id] for token_id in token_ids if token_id in self.token_rows]
        return [self._quarantine.read_shared(row) for row in found]

    def select_all_tokens(self) -> list[TokenRow]:
        found = sorted(self.token_rows.values(), key=lambda row: (row.created_at, row.token_id))
        return [self._quarantine.read_shared(row) for row in found]
