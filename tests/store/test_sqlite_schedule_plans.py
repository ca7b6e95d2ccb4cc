"""How SQLite finds what is due among many schedules: by an index, and nothing else is looked at."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_world import TestClock

from arriero.store.sqlite.store import SqliteStore
from arriero.store.sqlite.task_rows import query


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("select_due_schedules", {"now": 1, "limit": 200}),
        ("select_next_look", {"now": 1}),
        ("lock_schedules", {"app": "a", "name": "b"}),
    ],
)
async def test_a_pass_reads_no_schedule_that_is_not_due(
    tmp_path: Path, clock: TestClock, name: str, asked: dict[str, object]
) -> None:
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query(name)}", asked)]
    connection.close()
    of_schedules = [step for step in plan if " s" in step or "arriero_schedule" in step]
    assert of_schedules
    assert all(step.startswith("SEARCH") for step in of_schedules), plan
    assert not any("TEMP B-TREE" in step for step in plan if name != "lock_schedules"), plan
