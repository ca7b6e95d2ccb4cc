"""What is removed is in none of the store's files any more; and those files are their owner's."""

import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from store_checks import disagreements, history_violations
from store_world import TestClock, World, step
from test_store_ledgers import Ledgers, entry
from test_store_purging_by_name import NEVER, fill, on_key, purge

from arriero import StoreError, connect
from arriero.model import ConvoyVerb, TaskState
from arriero.model.moves import Process
from arriero.store.contract import Purge
from arriero.store.sqlite import connection
from arriero.store.sqlite.inspection import file_facts
from arriero.store.sqlite.store import SqliteStore

SECRET = "4012-8888-8888-1881"
TASKS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def world(path: Path, clock: TestClock) -> AsyncIterator[World]:
    store = SqliteStore(str(path), clock=clock)
    await store.open()
    yield World(store, clock, looks_often=False)
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    await store.close()


def found_in(folder: Path, secret: str = SECRET) -> list[str]:
    """Files of the folder, and of those below, in which the bytes stand."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(file.name for file in files if secret.encode() in file.read_bytes())


async def fill_with_payloads(world: World) -> None:
    """Tasks of all sizes, each with the secret in arguments, steps, results, output, id, queue and key."""
    await world.process()
    sizes = random.Random(7)
    for number in range(TASKS):
        body = f'{{"card":"{SECRET}","more":"{"x" * sizes.choice((1, 300, 5_000, 40_000))}"}}'
        task_id = f"{number} of {SECRET}" if number % 2 else f"keep-{number}"
        payload = body if number % 2 else "{}"
        await world.submit(task_id, arguments=payload, convoy=f"{SECRET}-{number % 3}" if number % 2 else None)
        for loaded in await world.claim():
            theirs = payload if loaded.task.task_id == task_id else "{}"
            task, (one,) = await world.opened(loaded.task, step(arguments=theirs, take=True))
            answer = await world.advance(task, [world.reported(one)])
            await world.advance(answer.task, ending=Process(theirs, convoy_state=theirs if number % 2 else None))


async def test_no_byte_of_a_purged_payload_is_in_any_file(world: World, path: Path) -> None:
    await fill_with_payloads(world)
    assert found_in(path.parent)
    for number in range(1, TASKS, 2):
        assert (await purge(world, "task", f"{number} of {SECRET}")).is_done
    for number in range(3):
        assert (await purge(world, "convoy", f"{SECRET}-{number}")).is_done
    assert await world.store.empty_log()
    assert found_in(path.parent) == []
    assert Path(f"{path}-wal").stat().st_size == 0
    assert len(await world.store.list_tasks(limit=1_000)) == TASKS // 2


async def test_no_byte_of_what_was_purged_by_age_is_in_any_file(world: World, path: Path) -> None:
    await fill_with_payloads(world)
    which = Purge(states=(TaskState.PROCESSED,), ended_before=NEVER)
    assert (await world.store.purge(which, actor="janitor", limit=1_000)).count == TASKS
    for number in range(3):
        assert (await purge(world, "convoy", f"{SECRET}-{number}")).is_done
    assert await world.store.empty_log()
    assert found_in(path.parent) == []


async def test_no_byte_of_a_purged_ledger_is_in_any_file(world: World, path: Path) -> None:
    await fill(world, f"key {SECRET}")
    ledgers = Ledgers(world)
    secret = entry(1, SECRET, arguments=f'{{"card":"{SECRET}"}}', convoy=f"key {SECRET}")
    await ledgers.submitted(secret, entry(2, bad=f"{SECRET} is no card"), ledger_id=f"of {SECRET}")
    await world.store.discard_ledger((await ledgers.begun(f"not {SECRET}")).ledger_no, 10, SECRET, f"{SECRET} called")
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process("1"))
    await on_key(world, f"key {SECRET}", ConvoyVerb.PARK, reason=SECRET)
    await on_key(world, f"key {SECRET}", ConvoyVerb.RELEASE, reason=SECRET)
    for name in (f"of {SECRET}", f"not {SECRET}"):
        assert (await purge(world, "ledger", name)).is_done
    assert (await purge(world, "convoy", f"key {SECRET}")).is_done
    assert await world.store.empty_log()
    assert found_in(path.parent) == []


async def test_the_log_is_not_emptied_under_a_reader_and_that_is_said(world: World, path: Path) -> None:
    await world.submit("a")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM arriero_task").fetchone()
        await world.submit("b")
        assert not await world.store.empty_log()
        reader.execute("ROLLBACK")
    assert await world.store.empty_log()
    assert len(await world.store.list_tasks()) == 2


# --- killed in the middle
KILLED = """
import asyncio, os, signal, sys
from arriero.model import Instant
from arriero.store.contract import PurgeNamed
from arriero.store.sqlite import store as sqlite_store
from arriero.store.sqlite.store import SqliteStore

left = int(sys.argv[2])
class Dies(sqlite_store.SqliteRows):
    def _run(self, name, asked=()):
        global left
        if name.startswith(("purge_", "delete_", "erase_")):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super()._run(name, asked)
sqlite_store.SqliteRows = Dies

async def main():
    store = SqliteStore(sys.argv[1], clock=lambda: Instant(int(sys.argv[3])))
    await store.open()
    which = PurgeNamed(what="convoy", name="k", ended_before=Instant(int(sys.argv[3])))
    while not (await store.purge_named(which, actor="janitor", limit=1)).is_done:
        pass
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.parametrize("statements", [0, 3, 5, 9, 14, 17, 99])
async def test_a_purge_that_is_killed_leaves_whole_tasks_and_is_gone_on_with(
    world: World, path: Path, statements: int
) -> None:
    await fill(world, "k")
    world.clock.move(1)
    given = [sys.executable, "-c", KILLED, str(path), str(statements), str(world.clock.at)]
    killed = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)
    assert (killed.returncode, killed.stderr) == (-9, "")
    assert await history_violations(world.store) == []
    assert await disagreements(world.store) == []
    is_left = await world.store.find_convoy("k") is not None
    assert is_left == (statements < 99)
    answer = await purge(world, "convoy", "k")
    assert answer.is_done
    assert [row.task_no async for row in world.store.history() if row.task_no != 0] == []


# --- modes
@pytest.fixture
def careless() -> Iterator[None]:
    """A user whose new files everybody may read."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path | str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.mark.parametrize("connects", [None, connect])
async def test_new_files_are_their_owners_alone(
    path: Path, careless: None, connects: Callable[[str], sqlite3.Connection] | None
) -> None:
    if connects is not None:
        connects(f"sqlite:///{path}").close()
        assert mode(path) == 0o600
    store = SqliteStore(str(path))
    await store.open()
    store.announce("somebody")
    await store.register("somebody", 3.0)
    modes = {file.name: mode(file) for file in path.parent.rglob("*")}
    assert modes == {
        "store.db": 0o600,
        "store.db-wal": 0o600,
        "store.db-shm": 0o600,
        "store.db.processes": 0o700,
        "somebody.lock": 0o600,
    }
    assert file_facts(str(path)).readable == ()
    await store.close()


@pytest.mark.parametrize("connects", [None, connect])
async def test_a_file_that_a_link_names_before_it_is_there_is_its_owners_alone(
    path: Path, careless: None, connects: Callable[[str], sqlite3.Connection] | None
) -> None:
    elsewhere = path.parent / "else where#1"
    elsewhere.mkdir()
    (path.parent / "second.db").symlink_to("else where#1/real.db")
    path.symlink_to("second.db")
    if connects is not None:
        connects(f"sqlite:///{path}").close()
    store = SqliteStore(str(path))
    await store.open()
    await store.register("somebody", 3.0)
    modes = {file.name: mode(file) for file in elsewhere.iterdir()}
    assert modes == {"real.db": 0o600, "real.db-wal": 0o600, "real.db-shm": 0o600}
    await store.close()


async def test_sqlite_itself_makes_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_make_private", lambda path: None)
    with pytest.raises(StoreError, match="it cannot be opened: create its folder"):
        await SqliteStore(str(path)).open()
    assert list(path.parent.iterdir()) == []


async def test_a_file_that_was_there_keeps_its_mode_and_the_doctor_is_told(path: Path, careless: None) -> None:
    path.touch(mode=0o664)
    store = SqliteStore(str(path))
    await store.open()
    assert {mode(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")} == {0o664}
    assert file_facts(str(path)).readable == (f"{path}", f"{path}-wal", f"{path}-shm")
    await store.close()
