"""Ledgers, a part of the contract in ``store.contract``; ``core.ledgers`` defines them."""

from collections.abc import Sequence
from typing import Protocol

from ..core.ledgers import ASIDE_MAX, LedgerBatch, LedgerOpened, LedgerWritten
from ..model import LedgerRow, LedgerState


class LedgerStore(Protocol):
    """Ledgers. Every call is one guarded transaction, so repeating it is safe."""

    async def begin_ledger(self, ledger_id: str) -> LedgerRow:
        """The ledger of that id, as far as it is written; a new one when there is none."""
        ...

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        """Keep entries as tasks that nobody sees. Changes nothing when others wrote or opened it meanwhile."""
        ...

    async def open_ledger(self, ledger_no: int, written: int, digest: str, actor: str) -> LedgerOpened:
        """Make all its tasks visible, if it is written so far and no further."""
        ...

    async def let_go(self, ledger_no: int, limit: int, actor: str) -> LedgerRow | None:
        """Let the next tasks of an opened ledger go, in their order; answers how it stands.

        None: somebody else is doing that just now, or it is gone.
        """
        ...

    async def discard_ledger(self, ledger_no: int, limit: int, actor: str, reason: str) -> LedgerRow | None:
        """Remove some of its tasks, unless it is opened; answers what is left of it. None: it is gone."""
        ...

    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        """One ledger by its id."""
        ...

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        """Ledgers in some states, in the order in which they were begun, after a ledger_no."""
        ...

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        """Entries that were set aside, after a line: its number and the reason."""
        ...
