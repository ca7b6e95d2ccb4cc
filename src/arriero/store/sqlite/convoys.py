"""Convoys of the file as people look at them."""

import msgspec

from ...model import ConvoyRow, TailRow, TaskRow
from ..contract import ConvoyLoaded
from ..engine.convoys import KNOWN_MAX, find_missing
from ..readable import legible
from ..sql.store_rows import StoreRows
from .row_decoding import task_as_is


def find(rows: StoreRows, key: str, limit: int) -> ConvoyLoaded | None:
    """A convoy with the first of its members."""
    tail = _find_tail(rows, key)
    if tail is None or not tail.placed:  # a ledger that is not opened has the key, nobody else
        return None
    asked = {"convoy_no": tail.convoy_no, "limit": limit}
    (convoy,) = rows.read_shared(ConvoyRow, rows.ask("select_convoy", asked).fetchall())
    waiting = [legible(task_as_is(row)) for row in rows.ask("select_waiting", asked).fetchall()]
    aside = tuple(legible(task_as_is(row)) for row in rows.ask("select_set_aside", asked).fetchall())
    return msgspec.structs.replace(
        _count_members(rows, convoy, tail),
        members=tuple((*_open_task(rows, convoy), *waiting)[:limit]),
        passed_over=aside,
        missing=find_missing(_select_known_sequences(rows, convoy), convoy.expected, tail, limit),
    )


def _find_tail(rows: StoreRows, key: str) -> TailRow | None:
    """The end of a convoy, as much of it as can be read."""
    return next(iter(rows.read_shared(TailRow, rows.ask("select_tail_by_key", {"key": key}).fetchall())), None)


def _open_task(rows: StoreRows, convoy: ConvoyRow) -> list[TaskRow]:
    found = rows.ask("select_task", {"task_no": convoy.open_task}).fetchall()
    return [legible(task_as_is(row)) for row in found]


def _select_known_sequences(rows: StoreRows, convoy: ConvoyRow) -> list[int]:
    if convoy.ordering == "place":
        return []
    asked = {"convoy_no": convoy.convoy_no, "start": convoy.expected, "limit": KNOWN_MAX}
    return [number for (number,) in rows.ask("select_sequences", asked).fetchall()]


def _count_members(rows: StoreRows, convoy: ConvoyRow, tail: TailRow) -> ConvoyLoaded:
    waiting, aside = rows.ask("count_members", {"convoy_no": convoy.convoy_no}).fetchone() or (0, 0)
    return ConvoyLoaded(convoy, tail, waiting, aside)


def list_convoys(rows: StoreRows, shown: str | None, after: int, limit: int) -> list[ConvoyLoaded]:
    """Convoys in the order of their numbers, without members."""
    asked = {"after": after, "shown": shown, "limit": limit}
    found = rows.read_shared(ConvoyRow, rows.ask("select_convoys", asked).fetchall())
    tails = [(convoy, _find_tail(rows, convoy.key)) for convoy in found]
    return [_count_members(rows, convoy, tail) for convoy, tail in tails if tail is not None]
