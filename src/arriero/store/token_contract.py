"""Tokens of the HTTP API, a part of the contract in ``store.contract``. No secret comes here, only its digest."""

from collections.abc import Sequence
from typing import Protocol

from ..model import Instant
from ..tokens import NewToken, TokenRow


class TokenStore(Protocol):
    """Tokens. None is ever removed: the history names them."""

    async def add_token(self, token: NewToken) -> TokenRow:
        """Keep a new token, and tell it in the store's history. Repeated it changes nothing: the row answers that is there."""
        ...

    async def find_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        """Read the tokens of these ids that exist, in any order."""
        ...

    async def list_tokens(self) -> list[TokenRow]:
        """All tokens by the time of their creation, also those that are revoked or have expired."""
        ...

    async def revoke_token(self, token_id: str, by: str, reason: str) -> TokenRow | None:
        """Revoke a token from now on, and tell it in the history. One that is revoked stays as it is. None: there is none."""
        ...

    async def note_token_used(self, token_id: str, at: Instant) -> None:
        """Write when a token was used, unless a use less than a minute older is written (``core.tokens.is_use_due``)."""
        ...
