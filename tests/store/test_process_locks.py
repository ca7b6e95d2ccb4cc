"""On one machine death is known at once: a lock on a file per process start, released by the system."""

import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from store_world import TestClock

from arriero.errors import InvalidInput, StoreError
from arriero.runtime.ports import SystemPorts
from arriero.store.memory import MemoryStore
from arriero.store.process_locks import ProcessLocks, folder_of_file, lock_file_of
from arriero.store.sqlite.store import SqliteStore
from arriero.store.sqlite.store_rows import SqliteRows

LIVE = """
import sys
from arriero.store.process_locks import ProcessLocks, folder_of_file
lives = ProcessLocks(folder_of_file(sys.argv[1]))
lives.announce("other")
print("alive", flush=True)
sys.stdin.read()
"""
FORKS = """
import os, sys
from arriero.store.process_locks import ProcessLocks, folder_of_file
lives = ProcessLocks(folder_of_file(sys.argv[1]))
lives.announce("other")
if os.fork():
    print("parent gone", flush=True)
    os._exit(0)
sys.stdin.read()
"""
EXECS = """
import subprocess, sys
from arriero.store.process_locks import ProcessLocks, folder_of_file
lives = ProcessLocks(folder_of_file(sys.argv[1]))
lives.announce("other")
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], close_fds=False)
print("parent gone", flush=True)
"""


def _start(script: str, path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in ("alive", "parent gone")
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_process_lives_until_it_is_killed_and_then_is_known_dead_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    process = _start(LIVE, path)
    lives = ProcessLocks(folder_of_file(str(path)))
    assert not lives.is_known_dead("other")
    _end(process)
    assert lives.is_known_dead("other")
    assert lives.is_known_dead("other")


def test_a_forked_child_keeps_its_parent_from_being_called_dead_so_only_the_lease_tells(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    process = _start(FORKS, path)
    process.wait()
    lives = ProcessLocks(folder_of_file(str(path)))
    assert not lives.is_known_dead("other")
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdout is not None
    process.stdout.read()  # ends when the child has
    process.stdout.close()
    assert lives.is_known_dead("other")


def test_a_program_started_by_a_process_does_not_inherit_its_life(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    process = _start(EXECS, path)
    process.wait()
    assert ProcessLocks(folder_of_file(str(path))).is_known_dead("other")
    process.communicate()


def test_of_a_process_without_a_file_nobody_can_tell(tmp_path: Path) -> None:
    assert not ProcessLocks(folder_of_file(str(tmp_path / "store.db"))).is_known_dead("never-heard-of")


async def test_a_store_s_own_process_and_one_that_closed_are_not_dead(
    open_sqlite: Callable[[], Awaitable[SqliteStore]], tmp_path: Path
) -> None:
    one, other = await open_sqlite(), await open_sqlite()
    one.announce("p1")
    assert (tmp_path / "store.db.processes" / "p1.lock").exists()
    assert not one.is_known_dead("p1")
    assert not other.is_known_dead("p1")
    await one.close()
    assert not other.is_known_dead("p1")
    assert list((tmp_path / "store.db.processes").iterdir()) == []


async def test_what_was_retired_leaves_no_file_behind(
    open_sqlite: Callable[[], Awaitable[SqliteStore]], tmp_path: Path
) -> None:
    store = await open_sqlite()
    process = _start(LIVE, tmp_path / "store.db")
    number = await store.register("other", 3.0)
    _end(process)
    assert store.is_known_dead("other")
    assert await store.retire(number, by="me", known_dead=True)
    assert list((tmp_path / "store.db.processes").iterdir()) == []


HOSTILE_NAMES = (
    "../poetry",
    "../../poetry",
    "/{folder}/poetry",
    "",
    ".",
    "..",
    ".hidden",
    "a/b",
    "a\x00b",
    "p1\n",
    "caf\u00e9",
    "x" * 101,
)


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
async def test_no_path_is_made_of_the_name_that_a_row_says(
    open_sqlite: Callable[[], Awaitable[SqliteStore]], tmp_path: Path, name: str
) -> None:
    store = await open_sqlite()
    store.announce("p1")
    name = name.format(folder=tmp_path)
    kept = [tmp_path / "poetry.lock", tmp_path.parent / "poetry.lock", tmp_path / "store.db.processes" / ".lock"]
    for file in kept:
        file.touch()
    assert not store.is_known_dead(name)
    number = await store.register(name, 3.0)
    assert await store.retire(number, by="me", known_dead=True)
    assert all(file.exists() for file in kept)
    with pytest.raises(InvalidInput, match="is not a name for a process start"):
        store.announce(name)


def test_a_link_in_the_place_of_a_lock_file_is_not_followed(tmp_path: Path) -> None:
    folder = folder_of_file(str(tmp_path / "store.db"))
    folder.mkdir()
    (folder / "p1.lock").symlink_to(tmp_path / "elsewhere")
    lives = ProcessLocks(folder)
    with pytest.raises(OSError, match="symbolic links"):
        lives.announce("p1")
    assert not lives.is_known_dead("p1")
    assert not (tmp_path / "elsewhere").exists()


def test_every_host_s_name_makes_a_name_that_a_lock_file_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("caf\u00e9.local", "..", "-x", "h" * 300, ""):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        assert lock_file_of(Path("folder"), SystemPorts().new_instance()) is not None


async def test_a_retirement_that_could_not_be_committed_leaves_the_death_to_be_seen_at_once(
    open_sqlite: Callable[[], Awaitable[SqliteStore]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: SqliteRows) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    store = await open_sqlite()
    process = _start(LIVE, tmp_path / "store.db")
    number = await store.register("other", 3.0)
    _end(process)
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="disk is full"):
        patched.setattr(SqliteRows, "write_rest", fail)
        await store.retire(number, by="me", known_dead=True)
    assert store.is_known_dead("other")
    assert await store.retire(number, by="me", known_dead=True)
    assert list((tmp_path / "store.db.processes").iterdir()) == []


async def test_a_file_that_its_remover_left_behind_goes_when_the_retirement_is_asked_for_again(
    open_sqlite: Callable[[], Awaitable[SqliteStore]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_sqlite()
    process = _start(LIVE, tmp_path / "store.db")
    number = await store.register("other", 3.0)
    _end(process)
    with monkeypatch.context() as patched:
        patched.setattr(ProcessLocks, "forget", lambda *_: None)  # as if the remover died just before
        assert await store.retire(number, by="me", known_dead=True)
    assert [file.name for file in (tmp_path / "store.db.processes").iterdir()] == ["other.lock"]
    assert await store.retire(number, by="me", known_dead=True)
    assert list((tmp_path / "store.db.processes").iterdir()) == []


def test_in_memory_nobody_is_known_to_be_dead() -> None:
    store = MemoryStore(TestClock())
    store.announce("p1")
    assert not store.is_known_dead("p1")
