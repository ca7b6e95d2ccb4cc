"""A store restored from a backup while the processes of the lost time still run, on real files and databases."""

import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from postgres_servers import server, worker
from psycopg import sql
from store_checks import broken_links, disagreements, history_violations
from store_world import TestClock, World, step
from test_store_ledgers import Ledgers, entry

from arriero.model import LedgerState, StepState
from arriero.model.answers import Refusal
from arriero.model.moves import Reported
from arriero.model.processes import compute_first_number
from arriero.store.postgres.store import PostgresStore
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore
from arriero.store.task_filter import TaskFilter


class Kept(NamedTuple):
    """How a kind of store is opened, saved and brought back."""

    opened: Callable[[], StateStore]
    save: Callable[[], None]
    bring_back: Callable[[], None]


def _file(folder: Path, clock: TestClock) -> Kept:
    path, backup = folder / "store.db", folder / "backup.db"

    def save() -> None:
        source, target = sqlite3.connect(path), sqlite3.connect(backup)
        source.backup(target)
        source.close()
        target.close()

    def bring_back() -> None:
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        shutil.copy(backup, path)

    return Kept(lambda: SqliteStore(str(path), clock=clock), save, bring_back)


def _database(clock: TestClock) -> Kept:
    running, name = server(16), f"restored_{worker()}"
    running.drop_database(name)
    url = running.create_database(name)
    running.drop_database(f"{name}_backup")

    def administer(*statements: sql.Composed) -> None:
        with psycopg.connect(running.url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    names = {"name": sql.Identifier(name), "backup": sql.Identifier(f"{name}_backup")}

    def save() -> None:
        kicked_out = sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}").format(
            sql.Literal(name)
        )
        administer(
            sql.SQL("ALTER DATABASE {name} ALLOW_CONNECTIONS false").format(**names),
            kicked_out,
            sql.SQL("CREATE DATABASE {backup} TEMPLATE {name}").format(**names),
            sql.SQL("ALTER DATABASE {name} ALLOW_CONNECTIONS true").format(**names),
        )

    def bring_back() -> None:
        administer(
            sql.SQL("DROP DATABASE {name} WITH (FORCE)").format(**names),
            sql.SQL("ALTER DATABASE {backup} RENAME TO {name}").format(**names),
        )

    return Kept(lambda: PostgresStore(f"{url}?listen=off", clock=clock), save, bring_back)


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, clock: TestClock, tmp_path: Path) -> Kept:
    return _file(tmp_path, clock) if request.param == "sqlite" else _database(clock)


@pytest.fixture
async def opened(kept: Kept) -> AsyncIterator[Callable[[], object]]:
    stores: list[StateStore] = []

    async def another() -> StateStore:
        store = kept.opened()
        stores.append(store)
        await store.open()
        return store

    yield another
    for store in stores:
        await store.close()


async def test_what_was_dispatched_after_the_backup_cannot_be_applied_after_the_restore(
    kept: Kept, opened: Callable[[], object], clock: TestClock
) -> None:
    lost_time = World(await opened(), clock)  # type: ignore[misc]
    old = await lost_time.store.register("of the lost time", 3600.0)
    await lost_time.submit("order-1")
    await lost_time.store.close()
    kept.save()

    await lost_time.store.open()
    await lost_time.store.register("also of the lost time", 3600.0)
    (loaded,) = await lost_time.claim(old)
    task, (charge,) = await lost_time.running(loaded.task, "charge")
    await lost_time.store.close()
    kept.bring_back()

    restored = World(await opened(), clock)  # type: ignore[misc]
    assert await restored.store.new_epoch("operator") == 2
    new = await restored.store.register("of the new epoch", 3600.0)
    assert new >= compute_first_number(2)
    (again,) = await restored.claim(new)
    same_task, (same_charge,) = await restored.running(again.task, "charge")
    assert (same_task.task_no, same_charge.step_no, same_charge.fence) == (task.task_no, charge.step_no, charge.fence)

    await lost_time.store.open()  # it wakes up and finds the store again; its reports carry numbers that fit
    report = Reported(charge.step_no, charge.fence, lost_time.reported(charge).outcome, clock())
    late = lost_time.advance_command(task, delivered=(report,))
    alone = lost_time.report_command(charge)
    for command in (late, alone, lost_time.claim_command(old)):
        (answer,) = await lost_time.store.apply([command])
        assert isinstance(answer, Refusal), command
        assert answer.verdict == "old_epoch"
    assert not (await lost_time.store.renew(old, 3600.0)).renewed
    assert (await restored.step(same_charge.step_no)).state is StepState.RUNNING

    done = await restored.advance(same_task, delivered=(restored.reported(same_charge),), opened=(step("ship"),))
    assert done.task.result_count == 1
    assert await history_violations(restored.store) == []
    assert await disagreements(restored.store) == []
    assert await broken_links(restored.store) == []


@pytest.mark.parametrize("state", ["done", "opened", "written"])
async def test_the_tasks_of_a_ledger_stay_its_own_after_a_restore_and_a_lost_one_may_come_again(
    kept: Kept, opened: Callable[[], object], clock: TestClock, state: str
) -> None:
    """Also one that was cut at any point of its way: what the backup has of it continues, and nothing of it is there twice."""
    before = World(await opened(), clock)  # type: ignore[misc]
    ledgers = Ledgers(before)
    may = await ledgers.written(entry(1), entry(2, convoy="a"), entry(3, convoy="a"))
    if state != "written":
        may = await ledgers.open(may)
    if state == "done":
        may = await ledgers.let_go(may)
    await before.store.close()
    kept.save()

    await before.store.open()
    await ledgers.submitted(entry(1, "j1"), entry(2, "j2"), ledger_id="june")
    await before.store.close()
    kept.bring_back()

    restored = World(await opened(), clock)  # type: ignore[misc]
    assert await restored.store.new_epoch("operator") == 2
    again = Ledgers(restored)
    if state == "written":
        may = await again.open(await again.begun())
    if state != "done":
        assert (await again.let_go(may)).state is LedgerState.DONE
    june = await again.submitted(entry(1, "j1"), entry(2, "j2"), ledger_id="june")
    for ledger, name, ids in ((may, "may", ["t1", "t2", "t3"]), (june, "june", ["j1", "j2"])):
        tasks = await restored.store.list_tasks(TaskFilter(ledger=name))
        assert [task.task_id for task in tasks] == ids
        assert {task.from_ledger for task in tasks} == {ledger.ledger_no}
        assert {task.ledger_no for task in tasks} == {None}
    assert (await again.task("j1")).task_no >= compute_first_number(2) > (await again.task("t3")).task_no
    process = await restored.store.register("of the new epoch", 3600.0)
    assert {loaded.task.task_id for loaded in await restored.claim(process)} == {"t1", "t2", "j1", "j2"}
    assert await history_violations(restored.store) == []
    assert await disagreements(restored.store) == []
    assert await broken_links(restored.store) == []
