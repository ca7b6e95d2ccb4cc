"""Convoys as people look at them: functions on one transaction that only reads."""

from collections.abc import Sequence

import msgspec

from ...model import ConvoyRow, TailRow
from ..contract import ConvoyLoaded
from ..engine.convoys import KNOWN_MAX, find_missing
from ..readable import legible
from ..sql.rows import SqlRows
from .row_decoding import task_as_is


def find(rows: SqlRows, key: str, limit: int) -> ConvoyLoaded | None:
    """A convoy with the first of its members."""
    convoy = next(iter(rows.read_shared(ConvoyRow, rows.ask("select_convoy_by_key", {"key": key}).fetchall())), None)
    if convoy is None:
        return None
    asked = {"convoy_no": convoy.convoy_no, "limit": limit}
    open_task = rows.ask("select_task", {"task_no": convoy.open_task})
    waiting = rows.ask("select_waiting", asked)
    aside = rows.ask("select_set_aside", asked)
    known = rows.ask("select_sequences", asked | {"start": convoy.expected, "limit": KNOWN_MAX})
    rows.arrive()
    (loaded,) = _count_members(rows, [convoy])
    return msgspec.structs.replace(
        loaded,
        members=tuple(legible(task_as_is(found)) for found in (*open_task.fetchall(), *waiting.fetchall()))[:limit],
        passed_over=tuple(map(legible, map(task_as_is, aside.fetchall()))),
        missing=find_missing((number for (number,) in known.fetchall()), convoy.expected, loaded.tail, limit),
    )


def _count_members(rows: SqlRows, convoys: Sequence[ConvoyRow]) -> list[ConvoyLoaded]:
    asked = {"convoy_nos": [convoy.convoy_no for convoy in convoys]}
    tails, counts = rows.ask("select_tails", asked), rows.ask("count_members", asked)
    rows.arrive()
    tail = {found.convoy_no: found for found in rows.read_shared(TailRow, tails.fetchall())}
    count = {number: (waiting, aside) for number, waiting, aside in counts.fetchall()}
    return [ConvoyLoaded(convoy, tail[convoy.convoy_no], *count[convoy.convoy_no]) for convoy in convoys]


def list_convoys(rows: SqlRows, shown: str | None, after: int, limit: int) -> list[ConvoyLoaded]:
    """Convoys in the order of their numbers, without members."""
    found = rows.ask("select_convoys", {"after": after, "shown": shown, "limit": limit}).fetchall()
    return _count_members(rows, rows.read_shared(ConvoyRow, found))
