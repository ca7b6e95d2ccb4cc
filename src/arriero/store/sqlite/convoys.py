"""Convoys of the file as people look at them."""

import sqlite3

import msgspec

from ...core.readable import legible
from ...model import ConvoyRow, TailRow, TaskRow
from ..base import ConvoyLoaded
from ..convoys import KNOWN_MAX, missing_of
from .rows import convoy_as_is, task_as_is
from .tables import Tables, query


def find(connection: sqlite3.Connection, key: str, limit: int) -> ConvoyLoaded | None:
    """A convoy with the first of its members."""
    tables = Tables(connection)
    tail = tables.tail_of(key)
    if tail is None or not tail.placed:  # a ledger that is not opened has the key, nobody else
        return None
    asked = {"convoy_no": tail.convoy_no, "limit": limit}
    convoy = convoy_as_is(connection.execute(query("select_convoy"), asked).fetchone())
    waiting = [legible(task_as_is(row)) for row in connection.execute(query("select_waiting"), asked)]
    aside = tuple(legible(task_as_is(row)) for row in connection.execute(query("select_set_aside"), asked))
    return msgspec.structs.replace(
        _counted(connection, convoy, tail),
        members=tuple((*_open_task(connection, convoy), *waiting)[:limit]),
        passed_over=aside,
        missing=missing_of(_known(connection, convoy), convoy.expected, tail, limit),
    )


def _open_task(connection: sqlite3.Connection, convoy: ConvoyRow) -> list[TaskRow]:
    found = connection.execute(query("select_task"), {"task_no": convoy.open_task}).fetchall()
    return [legible(task_as_is(row)) for row in found]


def _known(connection: sqlite3.Connection, convoy: ConvoyRow) -> list[int]:
    if convoy.ordering == "place":
        return []
    asked = {"convoy_no": convoy.convoy_no, "start": convoy.expected, "limit": KNOWN_MAX}
    return [number for (number,) in connection.execute(query("select_sequences"), asked)]


def _counted(connection: sqlite3.Connection, convoy: ConvoyRow, tail: TailRow) -> ConvoyLoaded:
    waiting, aside = connection.execute(query("count_members"), {"convoy_no": convoy.convoy_no}).fetchone()
    return ConvoyLoaded(convoy, tail, waiting, aside)


def listed(connection: sqlite3.Connection, shown: str | None, after: int, limit: int) -> list[ConvoyLoaded]:
    """Convoys in the order of their numbers, without members."""
    asked = {"after": after, "shown": shown, "limit": limit}
    tables = Tables(connection)
    found = [convoy_as_is(row) for row in connection.execute(query("select_convoys"), asked).fetchall()]
    tails = [(convoy, tables.tail_of(convoy.key)) for convoy in found]
    return [_counted(connection, convoy, tail) for convoy, tail in tails if tail is not None]
