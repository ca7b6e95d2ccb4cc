"""Lists of tasks in a file: which index finds them."""

import sqlite3
from pathlib import Path

import pytest

from arriero import App
from arriero.model import TaskState
from arriero.store.sqlite import store
from arriero.store.task_filter import TaskFilter, order_newest_first

HELD = TaskFilter(state=TaskState.HELD)


@pytest.mark.parametrize("newest_first", [False, True], ids=["oldest first", "newest first"])
async def test_held_tasks_are_found_by_their_index_however_many_others_there_are(
    tmp_path: Path, newest_first: bool
) -> None:
    async with App("shop", store=f"sqlite:///{tmp_path / 'store.db'}"):
        pass
    statement = store._build_statement(HELD)
    asked = store._build_parameters(HELD, 0, None, 50)
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.create_function("arriero_folded", 1, str)
    sql = order_newest_first(statement) if newest_first else statement
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", asked)]
    connection.close()
    assert plan[0] == "SEARCH task USING INDEX arriero_task_error (task_no>?)"
    assert not any("TEMP B-TREE" in step for step in plan)
