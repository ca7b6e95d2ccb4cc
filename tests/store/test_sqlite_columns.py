"""Many rows travel to SQLite with few statements: the same rows, whatever their number and the release of SQLite."""

import sqlite3

import pytest

from arriero.store.sqlite import columns
from arriero.store.sqlite.columns import in_statements, insert_rows, update_rows
from arriero.store.sqlite.task_rows import (
    INSERT_TASK,
    PUT_CONVOY,
    PUT_TAIL,
    REWRITE_STEP,
    REWRITE_TASK,
    UPDATE_TASK,
)

ROWS = "CREATE TABLE arriero_shelf (number INTEGER PRIMARY KEY, label TEXT, pieces INTEGER)"
INSERT = insert_rows("shelf", ("number", "label", "pieces"))
PUT = insert_rows("shelf", ("number", "label", "pieces"), or_update=("pieces",))
UPDATE = update_rows("shelf", "number", ("label", "pieces"))


@pytest.fixture(params=["today's release", "a release before 3.33"])
def connection(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> sqlite3.Connection:
    if "before" in request.param:
        monkeypatch.setattr(columns, "ROWS_AT_ONCE", (1,))
    made = sqlite3.connect(":memory:")
    made.execute(ROWS)
    return made


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 63, 64, 65, 84, 85, 149, 300])
def test_all_rows_arrive_and_all_changes_of_them(connection: sqlite3.Connection, count: int) -> None:
    def run(statement: columns.Statement, rows: list[tuple[object, ...]]) -> None:
        for sql, parameters in in_statements(statement, rows):
            connection.execute(sql, parameters)

    rows: list[tuple[object, ...]] = [(number, f"0{number}", None) for number in range(count)]
    run(INSERT, rows)
    assert connection.execute("SELECT * FROM arriero_shelf ORDER BY number").fetchall() == rows
    run(UPDATE, [(None if number % 2 else f"{number}e5", 2**62 + number, number) for number in range(count)])
    changed = connection.execute("SELECT * FROM arriero_shelf ORDER BY number").fetchall()
    assert changed == [(number, None if number % 2 else f"{number}e5", 2**62 + number) for number in range(count)]
    run(PUT, [(number, "new", -number) for number in range(count // 2, count * 2)])
    put = dict(connection.execute("SELECT number, pieces FROM arriero_shelf WHERE pieces <= 0").fetchall())
    assert put == {number: -number for number in range(count // 2, count * 2)}


def test_a_batch_takes_few_statements(connection: sqlite3.Connection) -> None:
    statements = list(in_statements(INSERT, [(number, "", 0) for number in range(100)]))
    assert len(statements) == (100 if columns.ROWS_AT_ONCE == (1,) else 4)  # 64, 16, 16, 4
    assert sum(len(parameters) for _, parameters in statements) == 300


def test_no_statement_has_more_parameters_than_sqlite_takes() -> None:
    most = sqlite3.connect(":memory:").getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    for statement in (INSERT_TASK, UPDATE_TASK, REWRITE_TASK, REWRITE_STEP, PUT_CONVOY, PUT_TAIL):
        assert 0 < statement(columns.ROWS_AT_ONCE[0]).count("?") <= min(most, 32_766)
