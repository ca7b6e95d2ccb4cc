"""Operations of a store for Agents outside of Python, the same for all stores."""

import secrets
from collections.abc import Sequence

from ..contract import SECRET_BYTES, HeldAttempt
from .transactions import Lane, Transactions


class RemoteAgentOperations(Transactions):
    """Secrets of the store, and attempts that are under way outside."""

    async def read_secret(self, name: str) -> bytes:
        """``SECRET_BYTES`` random bytes, the same for all processes; made when they are first asked for, and again in each epoch.

        Raises: MissingRight - who may only read the store reads no secret.
        """
        kept = await self._read(lambda rows: rows.select_secret(name))
        if kept is None:  # two processes may make one at once: what is kept first counts, and each reads what is kept
            value = secrets.token_hex(SECRET_BYTES)
            await self._write(lambda rows: rows.add_secret(name, value), Lane.OUTBOX)
            kept = await self._read(lambda rows: rows.select_secret(name))
        assert kept is not None
        return bytes.fromhex(kept)

    async def list_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        """The attempts of these steps that are under way, whoever holds them, by step_no."""
        return await self._read(lambda rows: rows.select_running_attempts(step_nos))
