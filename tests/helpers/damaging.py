"""Damages one column of one row in a store, as a stray statement or a newer release would, and mends it again."""

import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from arriero.model import STEP_BITS
from arriero.store.memory import MemoryStore
from arriero.store.postgres.store import PostgresStore
from arriero.store.readable import KEYS as ROW_KEYS
from arriero.store.readable import TABLES
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore

KEYS = {TABLES[row]: names for row, names in ROW_KEYS.items()}
NO_POLICY = '{"x": 1}'


class Damage:
    """A column that holds ``value`` from now on; ``mend`` puts back what stood there."""

    def __init__(self, store: StateStore, table: str, key: int | tuple[Any, ...], column: str, value: Any) -> None:
        self._store = store
        self._place = (table, key if isinstance(key, tuple) else (key,), column)
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


def _in_memory(store: MemoryStore, table: str, key: tuple[Any, ...], column: str, value: Any) -> Any:
    rows: dict[Any, Any] = {
        "task": store.tasks,
        "convoy": store.convoys,
        "convoy_tail": store.tails,
        "ledger": store.ledgers,
        "process": store.processes,
        "breaker": store.breaker_rows,
        "agent_limits": store.limit_rows,
        "rate": store.rate_rows,
        "lease": store.leases,
        "token": store.token_rows,
        "agent_metrics": store.count_rows,
        "schedule": store.schedule_rows,
        "workflow_pause": store.pause_rows,
        "step": store.steps[key[0] >> STEP_BITS] if table == "step" else {},
        "signal": store.signal_rows[key[0]],
        "published": store.published_rows[key[0]],
    }[table]
    at = key[1] if table in ("signal", "published") else key if len(key) > 1 else key[0]
    if at not in rows:
        return None  # it was removed meanwhile
    row = rows[at]
    rows[at] = msgspec.structs.replace(row, **{column: value})
    return getattr(row, column)


def _in_file(path: str, table: str, key: tuple[Any, ...], column: str, value: Any) -> Any:
    with closing(sqlite3.connect(path)) as connection, connection:
        asked = f"FROM arriero_{table} WHERE {' AND '.join(f'{name} = ?' for name in KEYS[table])}"
        (before,) = connection.execute(f"SELECT {column} {asked}", key).fetchone() or (
            None,
        )  # it was removed meanwhile
        where = asked.partition(" WHERE ")[2]
        connection.execute(f"UPDATE arriero_{table} SET {column} = ? WHERE {where}", (value, *key))
    return before


def _on_server(store: PostgresStore, table: str, key: tuple[Any, ...], column: str, value: Any) -> Any:
    target = store._target
    where = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in KEYS[table])
    names = {"table": sql.Identifier(target.schema, table), "column": sql.Identifier(column), "where": where}
    with psycopg.connect(target.conninfo) as connection:
        found = connection.execute(sql.SQL("SELECT {column} FROM {table} WHERE {where}").format(**names), key)
        (before,) = found.fetchone() or (None,)
        change = sql.SQL("UPDATE {table} SET {column} = %s WHERE {where}").format(**names)
        connection.execute(change, (value, *key))
    return before
