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

from arriero.answers import Refusal
from arriero.commands import Reported
from arriero.epoch import compute_first_number
from arriero.model import StepState
from arriero.store.contract import StateStore
from arriero.store.postgres.store import PostgresStore
from arriero.store.sqlite.store import SqliteStore


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
