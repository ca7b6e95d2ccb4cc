"""Ledgers as the command line and the HTTP API show them."""

from datetime import datetime

import msgspec

from .. import codec
from ..errors import UnknownName
from ..model import LedgerRow, LedgerState
from ..store.contract import StateStore
from .row_shapes import build_output, to_datetime

UNFINISHED = (LedgerState.WRITING, LedgerState.DISCARDING, LedgerState.OPENED)


class ShownLedger(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ledger in the output of ``ledger list --json`` and ``ledger show --json``; ``set_aside`` only in the latter."""

    ledger: str
    state: str
    written: int
    accepted: int
    duplicates: int
    aside: int
    let_go: int
    begun_at: datetime | None
    written_at: datetime | None
    opened_at: datetime | None
    set_aside: list[str] | msgspec.UnsetType = msgspec.UNSET


def build_shown_ledger(row: LedgerRow, aside: list[str] | msgspec.UnsetType = msgspec.UNSET) -> ShownLedger:
    """Build a ledger as it is shown. ``aside``: its entries that were set aside, each with its reason."""
    begun_at = to_datetime(row.created_at)
    return build_output(ShownLedger, row, ledger=row.ledger_id, begun_at=begun_at, set_aside=aside)


async def load_ledger(store: StateStore, ledger_id: str) -> tuple[LedgerRow, list[str]]:
    """Load a ledger, and its entries that were set aside, as ``line 7: reason``. Raises UnknownName, StoreError."""
    row = await store.find_ledger(codec.check_id(ledger_id, "ledger_id"))
    if row is None:
        raise UnknownName(
            f"there is no ledger {ledger_id!r} in the store {store.url}; `arriero ledger list --all` tells which"
        )
    lines = await store.ledger_aside(row.ledger_no) if row.aside else []
    return row, [f"line {line}: {reason}" for line, reason in lines]
