"""A row that this release cannot read, under a running App: the others go on, an operator is told, and it goes on when mended."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from runtime_world import Machine, eventually, session_of, until, within

from arriero import Agent, Attempt, UnreadableRow, workflow
from arriero.core.alerts import Alert
from arriero.runtime import upkeep
from arriero.store import quarantine as apart

one = Agent("one", max_in_flight=3)


@one.step(complete_within=60)
async def work(attempt: Attempt) -> str:
    return "done"


@workflow
async def flow() -> str:
    return await work()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set apart is looked at again soon."""
    monkeypatch.setattr(apart, "APART_SECONDS", 0.2)
    monkeypatch.setattr(upkeep, "UNREADABLE_SECONDS", 0.05)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "store.db")


def change(machine: Machine, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(machine.path)) as connection, connection:
        assert connection.execute(statement, values).rowcount


async def test_a_step_that_cannot_be_read_keeps_no_request_waiting_and_no_place_taken(machine: Machine) -> None:
    scheduler = machine.app([one], [flow])
    async with scheduler.running(roles=["scheduler"]):
        for n in range(4):
            await scheduler.submit(flow(), task_id=f"t{n}")

        async def asked_for() -> bool | None:
            return True if len(await machine.events("step.opened")) == 4 else None

        await eventually(asked_for)
    change(machine, "UPDATE arriero_step SET policy = ? WHERE task_no = 1", '{"x": 1}')
    app = machine.app([one], [flow])
    async with app.running():
        assert [await within(app.task(f"t{n}").result()) for n in (1, 2, 3)] == ["done"] * 3
        new = await app.submit(flow(), task_id="new")
        assert await within(new.result()) == "done"
        await until(lambda: not sum(hosted.used for hosted in session_of(app).agents.hosted.values()))
        (alert,) = await app.session.store.alerts()
        assert (alert.task_id, alert.cause, alert.code) == ("t0", "unreadable", "step.policy")


async def test_a_task_goes_on_once_a_person_has_corrected_its_row_and_its_alert_is_closed(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Alert] = []
    app = machine.app([one], [flow])
    async with app:
        for n in range(3):
            await app.submit(flow(), task_id=f"t{n}")
    change(machine, "UPDATE arriero_task SET state = 'archived' WHERE task_id = 't0'")
    caplog.set_level(logging.INFO, logger="arriero")
    async with app.running():
        assert [await within(app.task(f"t{n}").result()) for n in (1, 2)] == ["done"] * 2

        async def is_told() -> bool | None:
            return bool(await app.session.store.alerts()) or None

        await eventually(is_told)
        view = await app.task("t0").view()
        assert view.state == "archived"
        assert "column state of table task" in view.waiting_for
        with pytest.raises(UnreadableRow, match="task 't0' cannot be read: column state of table task"):
            await app.task("t0").cancel(by="ann", reason="test")
        change(machine, "UPDATE arriero_task SET state = 'pending' WHERE task_id = 't0'")
        assert await within(app.task("t0").result()) == "done"

        async def is_closed() -> bool | None:
            return None if await app.session.store.alerts() else True

        await eventually(is_closed)
    said = [record.message for record in caplog.records if "set apart" in record.message]
    assert said[0].startswith("task t0 is set apart, it cannot be read: column state of table task")
    assert len(said) == 1
    assert told == []
    await machine.check()


async def test_a_row_that_cannot_be_read_is_no_busy_loop(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "APART_SECONDS", 3600.0)
    app = machine.app([one], [flow])
    async with app:
        await app.submit(flow(), task_id="t0")
    change(machine, "UPDATE arriero_task SET policy = '{}'")
    async with app.running():
        store = app.session.store

        async def is_told() -> bool | None:
            return bool(await store.alerts()) or None

        await eventually(is_told)
        due = await store.due(("flow",), ("one",))
        assert (due.tasks, due.steps, due.next_at) == (False, False, None)
        assert session_of(app).scheduler.drivers == {}


async def test_what_a_lost_process_held_is_freed_though_one_row_of_it_cannot_be_read(machine: Machine) -> None:
    first = machine.app([one], [flow])
    async with first.running(roles=["scheduler"]):
        for n in range(2):
            await first.submit(flow(), task_id=f"t{n}")

        async def asked_for() -> bool | None:
            return True if len(await machine.events("step.opened")) == 2 else None

        await eventually(asked_for)
        session = session_of(first)
        await first.session.store.retire(session.context.process_no, by="test", known_dead=True)
        change(machine, "UPDATE arriero_task SET locked_by = ?, not_before = NULL", session.context.process_no)
        change(machine, "UPDATE arriero_task SET policy = '?' WHERE task_id = 't0'")
        other = machine.app([one], [flow])
        async with other.running():
            assert await within(other.task("t1").result()) == "done"
    await asyncio.sleep(0)
