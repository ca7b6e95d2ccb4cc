"""The shop's own table of orders, in the same database as the state store: a row and its task share a transaction."""

from __future__ import annotations

from .ledger import Order
from .places import Connection, Place


def make_table(connection: Connection, place: Place) -> None:
    """Make the table, if it is not there."""
    for statement in place.space_statements():
        connection.execute(statement)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS {shop_order} (id TEXT PRIMARY KEY, kind TEXT NOT NULL, pence BIGINT NOT NULL)".format(
            **place.tables
        )
    )


def keep_order(connection: Connection, place: Place, order: Order) -> None:
    """Keep an order's row; one that is there stays as it is."""
    connection.execute(
        "INSERT INTO {shop_order} VALUES ({mark}, {mark}, {mark}) ON CONFLICT DO NOTHING".format(**place.tables),
        (order.id, order.kind.value, order.pence),
    )


def without_partner(connection: Connection, place: Place) -> tuple[list[str], list[str]]:
    """Orders that have no task, and tasks that have no order; both empty, or the transactions were not one."""
    rows = {id_ for (id_,) in connection.execute("SELECT id FROM {shop_order}".format(**place.tables)).fetchall()}
    tasks = {id_ for (id_,) in connection.execute("SELECT task_id FROM {task}".format(**place.tables)).fetchall()}
    return sorted(rows - tasks), sorted(tasks - rows)
