"""On PostgreSQL, too, those who live on one machine as one user see each other's death at once."""

import logging
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from postgres_servers import database, emptied

from arriero import Agent, App, Attempt, workflow
from arriero.store.postgres.store import PostgresStore
from arriero.store.process_locks import ProcessLocks, folder_of_machine

LEASE_SECONDS = 3600.0  # no test waits that long
PATIENCE_SECONDS = 60.0
DIES = """
import asyncio, os, signal
from arriero import Agent, App, Attempt, workflow
porters = Agent("porters")

@porters.step
async def carry(attempt: Attempt, load: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)

@workflow
async def journey(load: str) -> str:
    return await carry(load)

app = App("dies", agents=[porters], workflows=[journey])

async def main() -> None:
    async with app.running():
        await app.submit(journey("wool"), task_id="journey-1")
        await asyncio.Event().wait()

asyncio.run(main())
"""

porters = Agent("porters")


@porters.step
async def carry(attempt: Attempt, load: str) -> str:
    return load


@workflow
async def journey(load: str) -> str:
    return await carry(load)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, of this test and the processes that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    store = PostgresStore(emptied(database()))
    await store.open()
    yield store
    await store.close()


async def test_what_a_killed_process_held_is_freed_long_before_its_lease_ends(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_LEASE_SECONDS", str(LEASE_SECONDS))
    url = emptied(database())
    monkeypatch.setenv("ARRIERO_STORE", url)
    killed = subprocess.run([sys.executable, "-c", DIES], timeout=PATIENCE_SECONDS, check=False)
    assert killed.returncode == -9
    app = App("dies", agents=[porters], workflows=[journey])
    async with app.running(store=url):
        assert await app.task("journey-1", journey).result(PATIENCE_SECONDS) == "wool"


async def test_one_store_sees_the_process_of_another_alive_and_leaves_no_file_of_a_retired_one(
    store: PostgresStore, temporary: Path
) -> None:
    other = PostgresStore(database())
    await other.open()
    other.announce("p1")
    store.announce("p2")
    assert not store.is_known_dead("p1")
    assert not other.is_known_dead("p1")
    number = await other.register("p1", LEASE_SECONDS)
    assert await store.retire(number, by="p1", known_dead=True)
    assert [file.name for file in temporary.glob("*/*/*.lock")] == ["p2.lock"]
    await other.close()


async def test_no_path_is_made_of_the_name_that_a_row_says(store: PostgresStore, temporary: Path) -> None:
    store.announce("p1")
    (folder,) = temporary.glob("*/*")
    kept = folder.parent / "poetry.lock"
    kept.touch()
    assert not store.is_known_dead("../poetry")
    number = await store.register("../poetry", LEASE_SECONDS)
    assert await store.retire(number, by="p1", known_dead=True)
    assert kept.exists()


async def test_stores_of_different_databases_do_not_meet(store: PostgresStore) -> None:
    assert folder_of_machine(store.store_id) != folder_of_machine("another")


async def test_without_a_folder_of_its_own_a_process_works_and_its_lease_tells(
    store: PostgresStore, temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TMPDIR", str(temporary / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    caplog.set_level(logging.INFO, "arriero")
    store.announce("p1")
    assert "by its lease only" in caplog.text
    number = await store.register("p1", LEASE_SECONDS)
    assert not store.is_known_dead("p1")
    assert await store.retire(number, by="p1", known_dead=True)


@pytest.mark.parametrize("rights", [0o750, 0o705, 0o770, 0o777])
def test_a_folder_that_others_may_look_into_is_not_used(temporary: Path, rights: int) -> None:
    ours = folder_of_machine("store").parent
    ours.chmod(rights)
    with pytest.raises(PermissionError):
        folder_of_machine("store")


def test_a_link_in_the_place_of_the_folder_is_not_followed(temporary: Path) -> None:
    ours = folder_of_machine("store").parent
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    ours.rmdir()
    ours.symlink_to(elsewhere)
    with pytest.raises(PermissionError):
        folder_of_machine("store")


def test_after_the_machine_was_started_again_nobody_is_asked_in_the_old_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folder_of_machine("store")
    lives = ProcessLocks(before)
    lives.announce("p1")
    boot = temporary / "boot"
    boot.write_text("another-start\n")
    monkeypatch.setattr("arriero.store.process_locks.BOOT_ID", boot)
    assert folder_of_machine("store") != before
    lives.close()


def test_where_the_system_names_no_start_there_is_no_folder(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.store.process_locks.BOOT_ID", temporary / "missing")
    with pytest.raises(OSError, match="missing"):
        folder_of_machine("store")
