"""Damages one column of one row in a store, as a stray statement or a newer release would, and mends it again."""

import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from arriero.model import STEP_BITS
from arriero.store.contract import StateStore
from arriero.store.memory import MemoryStore
from arriero.store.postgres.store import PostgresStore
from arriero.store.sqlite.store import SqliteStore

KEYS = {"task": "task_no", "step": "step_no", "convoy": "convoy_no"}
NO_POLICY = '{"x": 1}'


class Damage:
    """A column that holds ``value`` from now on; ``mend`` puts back what stood there."""

    def __init__(self, store: StateStore, table: str, number: int, column: str, value: Any) -> None:
        self._store = store
        self._place = (table, number, column)
        self._before = self._put(value)

    def mend(self) -> None:
        self._put(self._before)

    def _put(self, value: Any) -> Any:
        match self._store:
            case MemoryStore() as memory:
                return _in_memory(memory, *self._place, value)
            case SqliteStore() as file:
                return _in_file(file.path, *self._place, value)
            case PostgresStore() as server:
                return _on_server(server, *self._place, value)
            case other:
                raise AssertionError(other)


def _in_memory(store: MemoryStore, table: str, number: int, column: str, value: Any) -> Any:
    rows: dict[int, Any] = {"task": store.tasks, "convoy": store.convoys}.get(table) or store.steps[number >> STEP_BITS]  # type: ignore[attr-defined]
    row = rows[number]
    rows[number] = msgspec.structs.replace(row, **{column: value})
    return getattr(row, column)


def _in_file(path: str, table: str, number: int, column: str, value: Any) -> Any:
    with closing(sqlite3.connect(path)) as connection, connection:
        asked = f"FROM arriero_{table} WHERE {KEYS[table]} = ?"
        (before,) = connection.execute(f"SELECT {column} {asked}", (number,)).fetchone()
        connection.execute(f"UPDATE arriero_{table} SET {column} = ? WHERE {KEYS[table]} = ?", (value, number))
    return before


def _on_server(store: PostgresStore, table: str, number: int, column: str, value: Any) -> Any:
    target = store._target
    names = {
        "table": sql.Identifier(target.schema, table),
        "key": sql.Identifier(KEYS[table]),
        "column": sql.Identifier(column),
    }
    with psycopg.connect(target.conninfo) as connection:
        found = connection.execute(sql.SQL("SELECT {column} FROM {table} WHERE {key} = %s").format(**names), (number,))
        (before,) = found.fetchone() or (None,)
        change = sql.SQL("UPDATE {table} SET {column} = %s WHERE {key} = %s").format(**names)
        connection.execute(change, (value, number))
    return before
