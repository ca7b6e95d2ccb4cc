"""Operations of a store for Agents outside of Python, the same for all stores."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeVar

from ..contract_parts import SECRET_BYTES, HeldAttempt
from .transactions import Lane, Transactions, UnreadableRows


class RemoteAgentRows(UnreadableRows, Protocol):
    """Secrets, and running attempts."""

    def select_secret(self, name: str) -> str | None:
        """A secret in hexadecimal; None: there is none yet."""
        ...

    def add_secret(self, name: str, value: str) -> None:
        """Keep a secret, unless there is one under its name."""
        ...

    def select_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]: ...


R = TypeVar("R", bound=RemoteAgentRows)


class RemoteAgentEngine(Transactions[R]):
    """``store.contract_parts.RemoteAgentStore``, the same for all stores."""

    async def read_secret(self, name: str) -> bytes:
        """Two processes may make one at once: what is kept first counts, and each reads what is kept."""
        kept = await self._read(lambda rows: rows.select_secret(name))
        if kept is None:
            value = secrets.token_hex(SECRET_BYTES)
            await self._write(lambda rows: rows.add_secret(name, value), Lane.OUTBOX)
            kept = await self._read(lambda rows: rows.select_secret(name))
        assert kept is not None
        return bytes.fromhex(kept)

    async def list_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        return await self._read(partial(_select_running, step_nos=step_nos))


def _select_running(rows: RemoteAgentRows, step_nos: Sequence[int]) -> list[HeldAttempt]:
    return rows.select_running_attempts(step_nos)
