"""The shop's own table of orders, in the same file as the state store, so that a row and its task share a transaction."""

from __future__ import annotations

import sqlite3

from .ledger import Order


def make_table(database: sqlite3.Connection) -> None:
    """Make the table, if it is not there."""
    database.execute(
        "CREATE TABLE IF NOT EXISTS shop_order (id TEXT PRIMARY KEY, kind TEXT NOT NULL, pence INTEGER NOT NULL)"
    )
    database.commit()


def keep_order(database: sqlite3.Connection, order: Order) -> None:
    """Keep an order's row; one that is there stays as it is."""
    database.execute("INSERT OR IGNORE INTO shop_order VALUES (?, ?, ?)", (order.id, order.kind.value, order.pence))


def without_partner(database: sqlite3.Connection) -> tuple[list[str], list[str]]:
    """Orders that have no task, and tasks that have no order; both empty, or the transactions were not one."""
    rows = [id_ for (id_,) in database.execute("SELECT id FROM shop_order ORDER BY id")]
    tasks = [id_ for (id_,) in database.execute("SELECT task_id FROM arriero_task ORDER BY task_id")]
    return sorted(set(rows) - set(tasks)), sorted(set(tasks) - set(rows))
