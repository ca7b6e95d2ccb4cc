"""The overview of a store: bounded counts, the newest tasks, the minutes of calls, and the judgement of the doctor."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from core_rows import task_row
from store_world import FAILED, NOON, TestClock, World, retry_at, submission

from arriero.client.overview import NEWEST_MAX, load_overview, sum_up_minutes, sum_up_tasks
from arriero.core.agent_metrics import MINUTE, AgentCounts, encode_counts
from arriero.inspection.facts import AgentMeasurements, CountsRow
from arriero.model import Instant, TaskRow, TaskState, later
from arriero.model.moves import Hold
from arriero.store.sqlite.store import SqliteStore
from arriero.store.sqlite.task_rows import query


async def test_an_empty_store_has_an_overview(world: World) -> None:
    found = await load_overview(world.store)
    assert (found.tasks.running, found.tasks.held, found.newest.count, found.oldest_wait_seconds) == (0, 0, 0, None)
    assert (len(found.calls), found.hour.calls, found.agents, found.leader, found.processes) == (60, 0, (), None, ())
    assert found.healthy
    assert msgspec.json.decode(msgspec.json.encode(found))["store"] == world.store.url


async def test_the_overview_shows_what_is_held_what_is_retried_what_waits_and_who_runs(
    world: World, clock: TestClock
) -> None:
    await world.store.submit([submission("bad"), submission("trying"), submission("waiting")])
    process_no = await world.process()
    bad, trying, waiting = await world.claim(process_no)
    await world.advance(bad.task, ending=Hold(FAILED))
    _, (charge,) = await world.running(trying.task, "charge")
    await world.report(charge, retry_at(NOON + 60_000_000))
    assert waiting.task.task_id == "waiting"
    clock.move(5)
    found = await load_overview(world.store)
    assert [task.id for task in found.held] == ["bad"]
    assert [task.id for task in found.retrying] == ["trying"]
    assert found.tasks.held == 1
    assert found.newest.states == {"held": 1, "processing": 2}
    assert found.newest.failed_share == 1.0
    assert [process.no for process in found.processes] == [process_no]
    assert not found.healthy
    assert "held" in {finding.about for finding in found.findings if finding.level == "care"}
    assert "fine" not in {finding.level for finding in found.findings}


async def test_workflows_are_due_whose_free_tasks_may_begin_now(world: World, clock: TestClock) -> None:
    await world.store.submit([submission(f"order-{number}", priority=number) for number in range(3)])
    await world.store.submit([submission("bill-1", workflow="bill", app="shop"), submission("bill-2", workflow="bill")])
    await world.store.submit([submission("later-1", workflow="ship", delay=60.0)])
    due = [("", "bill"), ("", "fulfil"), ("shop", "bill")]
    assert await world.store.list_due_workflows() == due
    clock.move(61)
    assert await world.store.list_due_workflows() == [*due[:2], ("", "ship"), *due[2:]]
    assert (await world.store.survey()).workflows == tuple(await world.store.list_due_workflows())


def ended(number: int, state: TaskState, *, submitted: float, took: float | None) -> TaskRow:
    at = later(Instant(NOON), -submitted)
    return task_row(task_no=number, state=state, submitted_at=at, ended_at=None if took is None else later(at, took))


def test_the_newest_tasks_are_summed_up_by_state_rate_and_duration() -> None:
    rows = [ended(9 - number, TaskState.PROCESSED, submitted=60.0, took=number + 1.0) for number in range(3)]
    rows += [
        ended(3, TaskState.HELD, submitted=120.0, took=9.0),
        ended(2, TaskState.PENDING, submitted=120.0, took=None),
    ]
    rows += [ended(1, TaskState.PROCESSED, submitted=7_200.0, took=1.0)]
    found = sum_up_tasks(rows, Instant(NOON))
    assert (found.count, found.is_cut, found.states) == (5, False, {"processed": 3, "held": 1, "pending": 1})
    assert (found.submitted_per_minute, found.ended_per_minute, found.failed_share) == (2.5, 2.0, 0.25)
    assert (found.p50_seconds, found.p99_seconds) == (2.0, 9.0)


def test_more_tasks_than_are_looked_at_are_said_to_be_cut() -> None:
    rows = [ended(number, TaskState.PENDING, submitted=1.0, took=None) for number in range(NEWEST_MAX)]
    assert sum_up_tasks(rows, Instant(NOON)).is_cut


def test_the_minutes_of_the_last_hour_are_those_of_all_agents_and_processes() -> None:
    minute = NOON // MINUTE
    counts = AgentCounts()
    counts.add_call("succeeded", 0.2)
    counts.add_call("unknown", 2.0)

    def row(process_no: int, minute: int, text: str = encode_counts({"bank": counts, "stock": counts})) -> CountsRow:
        return CountsRow(app="shop", process_no=process_no, minute=minute, calls=4, counts=text)

    rows = (
        row(1, minute),
        row(2, minute),
        row(1, minute - 59),
        row(1, minute - 60),
        row(0, 0),
        row(3, minute, "[damaged"),
    )
    minutes, hour = sum_up_minutes(AgentMeasurements(now=Instant(NOON), counts=rows, loads=()), Instant(NOON))
    assert [(at, one.calls, one.failed) for at, one in enumerate(minutes) if one.calls] == [(0, 4, 2), (59, 8, 4)]
    assert (hour.calls, hour.failed, hour.minute) == (12, 6, minutes[0].minute)
    assert hour.p99_seconds is not None


async def test_sqlite_finds_due_workflows_by_their_index_alone(tmp_path: Path, clock: TestClock) -> None:
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await store.open()
    await store.close()
    asked = {"now": 1, "priorities": "[0,1]"}
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query('survey_workflows')}", asked)]
    of_tasks = [step for step in plan if "arriero_task" in step or "SEARCH task" in step]
    assert len(of_tasks) >= 3
    assert [step for step in of_tasks if "INDEX" not in step and "PRIMARY KEY" not in step] == []
