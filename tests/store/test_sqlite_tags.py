"""The plan of a filter by tags on SQLite: a page of a tenant reads its tasks only, in their order."""

import sqlite3
from pathlib import Path

import pytest

from arriero import App
from arriero.store.sqlite import store
from arriero.store.sqlite.inspection import find_damaged_columns
from arriero.store.task_filter import TaskFilter, build_count, order_newest_first

TAGGED = TaskFilter(tags={"region": "eu", "tenant": "acme"})


@pytest.mark.parametrize("form", [str, order_newest_first, build_count], ids=["oldest", "newest", "count"])
async def test_a_filter_by_tags_walks_the_index_in_order_and_sorts_nothing(tmp_path: Path, form: object) -> None:
    assert callable(form)
    path = tmp_path / "shop.db"
    async with App("shop", store=f"sqlite:///{path}"):
        pass
    connection = sqlite3.connect(path)
    connection.create_function("arriero_folded", 1, str)
    asked = store._build_parameters(TAGGED, 0, None, 10)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {form(store._build_statement(TAGGED))}", asked)]
    connection.close()
    searches = [line for line in plan if line.startswith("SEARCH ta")]
    assert searches[0].startswith("SEARCH tagged USING PRIMARY KEY (name=? AND value=? AND tagged_no>?")
    assert searches[1] == "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)"
    assert not any("TEMP B-TREE" in line for line in plan)


async def test_the_damage_of_columns_is_looked_for_in_tables_that_have_them(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with App("shop", store=f"sqlite:///{path}"):
        pass
    connection = sqlite3.connect(path)
    assert find_damaged_columns(connection) == ()
    connection.close()
