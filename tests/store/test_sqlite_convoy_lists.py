"""Lists of convoys in a file: which index finds them beside many idle ones."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from arriero import App
from arriero.store.sqlite.task_rows import query


@pytest.mark.parametrize(
    ("name", "found_by"),
    [
        ("select_convoys_still", "USING INDEX arriero_convoy_still"),
        ("select_convoys_busy", "USING INDEX arriero_convoy_busy"),
        ("select_convoys_idle", "USING INTEGER PRIMARY KEY"),
    ],
)
async def test_convoys_in_a_state_are_found_by_an_index_however_many_others_are_idle(
    tmp_path: Path, name: str, found_by: str
) -> None:
    async with App("shop", store=f"sqlite:///{tmp_path / 'store.db'}"):
        pass
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        asked = {"after": 0, "shown": "stopped", "limit": 12}
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query(name)}", asked)]
    assert found_by in plan[0]
    assert not any("TEMP B-TREE" in step for step in plan)
