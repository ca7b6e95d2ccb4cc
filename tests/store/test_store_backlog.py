"""What waits in a store, as monitors count it, in every store."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_world import FAILED, LEASE, NOON, TestClock, World, submission

from arriero.inspection.facts import Backlog
from arriero.model import Instant
from arriero.model.moves import Hold
from arriero.store.sqlite.store import SqliteStore
from arriero.store.sqlite.task_rows import query


async def test_an_empty_store_has_nothing_that_waits(world: World) -> None:
    assert await world.store.measure_backlog() == build(world)


def build(world: World, **changes: object) -> Backlog:
    """A backlog without anything in it but what is given."""
    counts = {name: 0 for name in Backlog.__struct_fields__ if not name.endswith("_at") and name != "now"}
    instants = {name: None for name in Backlog.__struct_fields__ if name.endswith("_at")}
    return Backlog(**{"now": world.store.now(), **counts, **instants, **changes})  # type: ignore[arg-type]


async def test_free_tasks_are_due_or_later_and_those_behind_another_one_wait_for_their_turn(world: World) -> None:
    await world.store.submit([submission("old", priority=2)])
    world.clock.move(5.0)
    await world.store.submit([submission("new", priority=9), submission("delayed", delay=60.0)])
    await world.store.submit([submission(f"in-convoy-{number}", convoy="k") for number in range(3)])
    expected = build(world, due=3, oldest_due_at=Instant(NOON), later=1, in_convoy=2)
    assert await world.store.measure_backlog() == expected


async def test_a_claimed_task_is_held_and_one_held_has_an_alert(world: World) -> None:
    await world.store.submit([submission("bad", reply_to="web"), submission("good")])
    process_no = await world.process()
    bad, _ = await world.claim(process_no)
    await world.advance(bad.task, ending=Hold(FAILED))
    found = await world.store.measure_backlog()
    assert (found.running, found.due, found.held, found.alerts) == (1, 0, 1, 1)
    assert found.statuses > 0
    assert found.oldest_status_at == Instant(NOON)


async def test_a_lease_counts_while_somebody_holds_it(world: World) -> None:
    process_no = await world.store.register("leading", LEASE)
    await world.store.acquire_lease("supervisor", process_no, "leading", 6.0)
    assert (await world.store.measure_backlog()).leases == 1
    world.clock.move(7.0)
    assert (await world.store.measure_backlog()).leases == 0


async def test_no_kind_is_counted_beyond_the_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.store.engine.agents.COUNTED_MAX", 3)
    await world.store.submit([submission(f"due-{number}", priority=number % 2) for number in range(6)])
    await world.store.submit([submission(f"later-{number}", delay=9.0, priority=number % 2) for number in range(6)])
    await world.store.submit([submission(f"in-convoy-{number}", convoy="k") for number in range(6)])
    found = await world.store.measure_backlog()
    assert (found.due, found.later, found.in_convoy) == (3, 3, 3)


async def test_sqlite_counts_by_indexes_and_reads_no_table_of_tasks_through(tmp_path: Path, clock: TestClock) -> None:
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await store.open()
    await store.close()
    asked = {"now": 1, "limit": 9, "priorities": "[0,1]"}
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query('measure_backlog')}", asked)]
    growing = ("arriero_task", "arriero_convoy", "arriero_alert", "arriero_schedule")
    scans = [step for step in plan if step.startswith("SCAN") and step.split()[1] in growing and "INDEX" not in step]
    assert len(plan) > 15
    assert scans == []
