"""Finished tasks by the hundred thousand, straight into the tables: copies of one that has ended."""

import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

NUMBER = "numbers.number"
COPIED: dict[str, dict[str, str]] = {
    "task": {"task_no": NUMBER, "task_id": f"'finished-' || {NUMBER}"},
    "body": {"task_no": NUMBER},
    "step": {"task_no": NUMBER, "step_no": f"({NUMBER} << 20) + model.ordinal"},
    "history": {"task_no": NUMBER},
}  # each with what differs from one copy to the next
GIVEN = {"history": "no"}  # columns that the database itself fills
SOURCE = "SELECT max(task_no) FROM {task} WHERE state = 'processed' AND opened_count = 3"


def fill(url: str, tasks: int, *, with_history: bool = True, vacuum: bool = True) -> None:
    """Copy the last task that ended well, with its steps and history; numbers of tasks to come are higher.

    Args:
        url: of a store on which a task of three steps has ended.
        vacuum: on PostgreSQL, whether the tables are vacuumed and analyzed afterwards.
    """
    tables = [table for table in COPIED if with_history or table != "history"]
    if url.startswith("sqlite:"):
        _fill_file(url.removeprefix("sqlite:///"), tasks, tables)
        return
    import psycopg  # only here: what a file is measured for does not pay for the driver of a server

    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        _fill_server(cursor, tasks, tables)
    if vacuum:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")


def _fill_file(path: str, tasks: int, tables: list[str]) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("BEGIN IMMEDIATE")
    (model,) = connection.execute(SOURCE.format(task="arriero_task")).fetchone()
    (last,) = connection.execute("SELECT max(task_no) FROM arriero_task").fetchone()
    numbers = (
        f"(WITH RECURSIVE n(number) AS (SELECT {last + 1} UNION ALL SELECT number + 1 FROM n WHERE number < {last + tasks})"
        " SELECT number FROM n) AS numbers"
    )
    for table in tables:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info(arriero_{table})")]
        connection.execute(_copy(table, f"arriero_{table}", columns, numbers, model))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _fill_server(cursor: "psycopg.Cursor[Any]", tasks: int, tables: list[str]) -> None:
    cursor.execute("SET LOCAL synchronous_commit = off")
    cursor.execute(SOURCE.format(task="arriero.task").encode())
    (model,) = cursor.fetchone() or (None,)
    assert model is not None
    cursor.execute("SELECT last_value FROM arriero.task_number")
    (last,) = cursor.fetchone() or (0,)
    numbers = f"generate_series({last + 1}::bigint, {last + tasks}) AS numbers(number)"
    for table in tables:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'arriero' AND table_name = %s",
            (table,),
        )
        columns = [name for (name,) in cursor.fetchall()]
        cursor.execute(_copy(table, f"arriero.{table}", columns, numbers, model).encode())
    cursor.execute("SELECT setval('arriero.task_number', %s)", (last + tasks,))


def _copy(table: str, name: str, columns: list[str], numbers: str, model: int) -> str:
    copied = [column for column in columns if column != GIVEN.get(table)]
    values = ", ".join(COPIED[table].get(column, f"model.{column}") for column in copied)
    return (
        f"INSERT INTO {name} ({', '.join(copied)}) SELECT {values} FROM {numbers}, {name} AS model"
        f" WHERE model.task_no = {model} ORDER BY {NUMBER}"
    )
