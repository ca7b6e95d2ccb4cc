"""Values of the wrong type in tables of the file besides a task's own: each stops what needs it, by name, and nothing else."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from store_world import TestClock, submission

from arriero.errors import UnreadableRow
from arriero.model import AlertRow, Instant
from arriero.model.answers import Submitted
from arriero.store.sqlite.inspection import file_facts
from arriero.store.sqlite.store import SqliteStore

LEASE = 3.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, clock: TestClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(path), clock=clock)
    await store.open()
    yield store
    await store.close()


def change(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount


@pytest.mark.parametrize("column", ["placed", "last_rank"])
async def test_a_damaged_end_of_a_convoy_refuses_what_comes_to_its_key_by_name_and_nothing_beside_it(
    store: SqliteStore, path: Path, column: str
) -> None:
    await store.submit([submission("first", convoy="damaged"), submission("other", convoy="sound")])
    change(path, f"UPDATE arriero_convoy_tail SET {column} = 'q' WHERE key = 'damaged'")
    named = f"column {column} of table convoy_tail"
    (refused,) = await store.submit([submission("next", convoy="damaged")])
    assert isinstance(refused, UnreadableRow)
    assert named in str(refused)
    assert refused.convoy_no == 1
    assert await store.submit([submission("beside", convoy="sound"), submission("alone")]) == [
        Submitted(3, True),
        Submitted(4, True),
    ]
    assert [f"{named} (row 1)"] == list(file_facts(str(path)).damaged)


async def test_submissions_that_share_a_commit_with_a_damaged_key_are_kept(path: Path, clock: TestClock) -> None:
    from arriero import Agent, App, Attempt, workflow

    bank = Agent("bank")

    @bank.step
    async def book(attempt: Attempt, key: str) -> str:
        return key

    @workflow
    async def booked(key: str) -> str:
        return await book(key)

    app = App("shop", agents=[bank], workflows=[booked], store=f"sqlite:///{path}")
    async with app:
        await app.submit(booked("damaged"), convoy="damaged")
        change(path, "UPDATE arriero_convoy_tail SET placed = 'q'")
        asked = (app.submit(booked(key), task_id=key, convoy=key) for key in ("damaged", "a", "b"))
        damaged, *kept = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(damaged, UnreadableRow)
    assert [task.id for task in kept if not isinstance(task, BaseException)] == ["a", "b"]


async def test_a_ledger_whose_row_is_damaged_is_named(store: SqliteStore, path: Path) -> None:
    change(
        path,
        "INSERT INTO arriero_ledger SELECT 1, 'orders', 'opened', '', 'many', 0, 0, 0, 0, 0, 1, 1, 1, 0",
    )
    with pytest.raises(UnreadableRow, match="column written of table ledger"):
        await store.find_ledger("orders")


async def test_a_process_whose_lease_cannot_be_read_has_lapsed_unless_it_renews_it(
    store: SqliteStore, path: Path
) -> None:
    alive, dead = await store.register("alive", LEASE), await store.register("dead", LEASE)
    change(path, "UPDATE arriero_process SET lease_until = 'soon', about = 'nothing'")
    _, processes = await store.known_processes()
    assert [(row.lease_until, row.about) for row in processes] == [(Instant(0), "{}")] * 2
    assert (await store.renew(alive, LEASE)).renewed
    assert not await store.retire(alive, by="another", known_dead=False)
    assert await store.retire(dead, by="another", known_dead=False)
    assert (await store.survey()).processes[0].instance == "alive"


@pytest.mark.parametrize(("column", "shown"), [("told", ()), ("opened_at", Instant(0))])
async def test_a_damaged_alert_is_told_as_far_as_it_can_be_read_and_hides_no_other(
    store: SqliteStore, path: Path, clock: TestClock, column: str, shown: object
) -> None:
    await store.submit([submission("one"), submission("two")])
    for no in (1, 2):
        change(
            path,
            "INSERT INTO arriero_alert (no, task_no, incarnation, cause, reason, step, code, opened_at, told, attempts,"
            " next_at, error) VALUES (?, ?, 1, 'bug', 'it broke', '', '', ?, '[]', 0, ?, '')",
            *(no, no, clock(), clock()),
        )
    change(path, f"UPDATE arriero_alert SET {column} = ? WHERE no = 1", b"\x00")  # bytes keep their type in any column
    taken: list[AlertRow] = await store.take_alerts(10, 60.0)
    assert [alert.task_id for alert in taken] == ["one", "two"]
    assert getattr(taken[0], column) == shown
    assert [alert.no for alert in await store.alerts()] == [1, 2]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("task SET not_before = 'soon'", "column not_before of table task (row 1)"),
        ("task SET rank = NULL", "column rank of table task (row 1)"),
        ("task SET turn = 'next'", "column turn of table task (row 1)"),
        ("task SET undoing = 2", "column undoing of table task (row 1)"),
        ("task SET due_at = -1", "column due_at of table task (row 1)"),
        ("convoy SET gap_within = 'long'", "column gap_within of table convoy (row 1)"),
        ("body SET asked = asked", None),
    ],
)
async def test_a_look_at_the_file_names_rows_that_no_statement_would_find(
    store: SqliteStore, path: Path, damage: str, told: str | None
) -> None:
    await store.submit([submission("one", convoy="k")])
    assert file_facts(str(path)).damaged == ()
    change(path, f"UPDATE arriero_{damage}")
    assert file_facts(str(path)).damaged == (() if told is None else (told,))


async def test_of_many_damaged_rows_a_look_at_the_file_names_some(store: SqliteStore, path: Path) -> None:
    await store.submit([submission(f"task-{number}") for number in range(30)])
    change(path, "UPDATE arriero_task SET not_before = 'soon'")
    assert len(file_facts(str(path)).damaged) == 20
