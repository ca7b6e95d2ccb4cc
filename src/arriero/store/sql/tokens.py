"""Tokens that both databases find and keep by statements of the same names."""

from collections.abc import Sequence

import msgspec

from ...tokens import TokenRow
from .rows import SqlRows


class SqlTokenRows(SqlRows):
    """``engine.tokens.TokenRows`` inside one transaction."""

    def add_token_row(self, row: TokenRow) -> bool:
        fields = msgspec.structs.asdict(row)
        names = {name: msgspec.json.encode(fields[name]).decode() for name in ("scopes", "apps", "workflows")}
        return self.ask("add_token", {**fields, **names}).rowcount == 1

    def lock_token(self, token_id: str) -> TokenRow | None:
        found = self.ask("lock_token", {"token_id": token_id}).fetchall()
        return next(iter(self.read_shared(TokenRow, found)), None)

    def put_token(self, row: TokenRow) -> None:
        names = ("token_id", "last_used_at", "revoked_at", "revoked_by", "revoked_reason")
        self.ask("put_token", {name: getattr(row, name) for name in names})

    def select_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        return self.read_shared(TokenRow, self.ask("select_tokens", {"token_ids": list(token_ids)}).fetchall())

    def select_all_tokens(self) -> list[TokenRow]:
        return self.read_shared(TokenRow, self.ask("select_all_tokens").fetchall())
