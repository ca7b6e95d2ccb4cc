"""Convoys of the file as people look at them."""

import sqlite3

import msgspec

from ...model import ConvoyRow, TailRow, TaskRow
from ..base import ConvoyLoaded
from ..convoys import KNOWN_MAX, missing_of
from .rows import convoy_of, task_of
from .tables import Tables, query


def find(connection: sqlite3.Connection, key: str, limit: int) -> ConvoyLoaded | None:
    """A convoy with the first of its members."""
    tables = Tables(connection)
    tail = tables.tail_of(key)
    if tail is None or not tail.placed:  # a ledger that is not opened has the key, nobody else
        return None
    convoy = tables.convoy(tail.convoy_no)
    asked = {"convoy_no": convoy.convoy_no, "limit": limit}
    waiting = [task_of(row) for row in connection.execute(query("select_waiting"), asked)]
    aside = tuple(task_of(row) for row in connection.execute(query("select_set_aside"), asked))
    return msgspec.structs.replace(
        _counted(connection, convoy, tail),
        members=tuple((*_open_task(tables, convoy), *waiting)[:limit]),
        passed_over=aside,
        missing=missing_of(_known(connection, convoy), convoy.expected, tail, limit),
    )


def _open_task(tables: Tables, convoy: ConvoyRow) -> list[TaskRow]:
    task = None if convoy.open_task is None else tables.task(convoy.open_task)
    return [] if task is None else [task]


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
    found = [convoy_of(row) for row in connection.execute(query("select_convoys"), asked).fetchall()]
    tails = [(convoy, tables.seal(convoy.convoy_no)) for convoy in found]
    return [_counted(connection, convoy, tail) for convoy, tail in tails if tail is not None]
