"""Ledgers as people and programs see them: how far each is, and whether its tasks have ended."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from .. import codec
from ..core.ledgers import have_all_ended
from ..errors import UnknownName
from ..model import LedgerRow, LedgerState
from ..store.state_store import StateStore
from .row_shapes import build_output, to_datetime

UNFINISHED = (LedgerState.WRITING, LedgerState.DISCARDING, LedgerState.OPENED)


class LedgerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ledger as it stands. Lists leave out ``tasks`` and what follows it: to count them, all its tasks are read.

    Args:
        state: ``writing``, ``discarding``, ``opened`` (its tasks are there, some are still to be released) or ``done``.
        written: entries. Of them ``accepted`` became tasks, ``duplicates`` were tasks before, ``aside`` became none.
        let_go: tasks that were released.
        ended: whether all tasks that it brought have ended, in whatever state; duplicates do not count. None: that
            cannot be known, because a release before 0.5 wrote some of them.
        tasks: how many of these tasks are in each state that occurs.
        purged: how many of them have ended and were purged.
        ended_at: when the last one ended, if all have.
        set_aside: entries that became no tasks, each with its reason.
    """

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
    ended: bool | None
    tasks: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    purged: int | msgspec.UnsetType = msgspec.UNSET
    ended_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    set_aside: list[str] | msgspec.UnsetType = msgspec.UNSET


async def find_ledger(store: StateStore, ledger_id: str) -> LedgerRow:
    """Find a ledger. Raises UnknownName, StoreError."""
    row = await store.find_ledger(codec.check_id(ledger_id, "ledger_id"))
    if row is None:
        raise UnknownName(
            f"there is no ledger {ledger_id!r} in the store {store.url}; `arriero ledger list --all` lists them"
        )
    return row


async def list_ledger_views(store: StateStore, rows: Sequence[LedgerRow]) -> list[LedgerView]:
    """Build the views of a list, without counts of tasks. Raises StoreError."""
    is_open = await store.find_open_of_ledgers([row.ledger_no for row in rows if row.is_open])
    return [
        build_output(
            LedgerView,
            row,
            ledger=row.ledger_id,
            begun_at=to_datetime(row.created_at),
            ended=have_all_ended(row, is_any_open=row.ledger_no in is_open),
        )
        for row in rows
    ]


async def load_ledger_view(store: StateStore, ledger_id: str) -> LedgerView:
    """Load a ledger with the counts of its tasks and its entries that were set aside. Raises UnknownName, StoreError."""
    row = await find_ledger(store, ledger_id)
    lines = await store.ledger_aside(row.ledger_no) if row.aside else []
    counts: dict[str, int] = {}
    last = None
    if row.is_open:
        found = await store.count_of_ledger(row.ledger_no)
        counts, last = found.counts, found.ended_at
    (view,) = await list_ledger_views(store, [row])
    return msgspec.structs.replace(
        view,
        tasks=counts,
        purged=row.linked - sum(counts.values()) if row.is_open else 0,
        ended_at=to_datetime(last) if view.ended else None,
        set_aside=[f"line {line}: {reason}" for line, reason in lines],
    )
