"""A lease renewal that waits for the file has it next, whoever else wants to write: in its process and in all others."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from store_world import LEASE, submission

from arriero.store.sqlite import write_lock
from arriero.store.sqlite.store import SqliteStore
from arriero.store.sqlite.write_lock import FILE, LOOK_SECONDS, SET_SECONDS, RenewalFlag
from arriero.store.threads import ConnectionThread

Opens = Callable[[], Awaitable[SqliteStore]]


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of another program."""
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> dict[str, threading.Event]:
    """Set when a ``write``, or a ``renewal``, was told that the file is locked, and looks again."""
    monkeypatch.setattr(write_lock, "SET_SECONDS", 60.0)  # not by the clock of a busy machine
    monkeypatch.setattr("arriero.store.sqlite.connection.BUSY_SECONDS", 60.0)
    told = {"write": threading.Event(), "renewal": threading.Event()}
    wait, sleep = ConnectionThread.wait, time.sleep

    def waits(thread: ConnectionThread[sqlite3.Connection], seconds: float) -> None:
        told["write"].set()
        wait(thread, seconds)

    def sleeps(seconds: float) -> None:
        told["renewal"].set()
        sleep(seconds)

    monkeypatch.setattr(ConnectionThread, "wait", waits)
    monkeypatch.setattr("arriero.store.sqlite.store.time.sleep", sleeps)
    return told


async def is_told(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 60)


async def traced(store: SqliteStore, name: str, committed: list[str]) -> None:
    """Have ``committed`` tell what a store writes, as it commits."""
    assert store._writer is not None
    what = ""

    def trace(sql: str) -> None:
        nonlocal what
        if sql.startswith("-- renew_process"):
            what = "renewal"
        elif sql.startswith("INSERT INTO arriero_task"):
            what = "submission"
        elif sql == "COMMIT":
            committed.append(f"{what} of {name}")

    await store._writer.run(lambda connection: connection.set_trace_callback(trace))


async def test_a_renewal_comes_before_a_write_of_another_process_that_has_waited_longer(
    open_sqlite: Opens, stranger: sqlite3.Connection, waiting: dict[str, threading.Event]
) -> None:
    one, other = await open_sqlite(), await open_sqlite()
    process_no = await one.register("p1", LEASE)
    committed: list[str] = []
    await traced(one, "one", committed)
    await traced(other, "other", committed)
    stranger.execute("BEGIN IMMEDIATE")
    submitting = asyncio.create_task(other.submit([submission()]))
    await is_told(waiting["write"])
    renewing = asyncio.create_task(one.renew(process_no, LEASE))
    await is_told(waiting["renewal"])
    stranger.execute("ROLLBACK")
    await asyncio.gather(submitting, renewing)
    assert committed == ["renewal of one", "submission of other"]


async def test_a_renewal_comes_before_a_write_of_its_own_process_that_waits_for_the_file(
    open_sqlite: Opens, stranger: sqlite3.Connection, waiting: dict[str, threading.Event]
) -> None:
    store = await open_sqlite()
    process_no = await store.register("p1", LEASE)
    committed: list[str] = []
    await traced(store, "one", committed)
    stranger.execute("BEGIN IMMEDIATE")
    submitting = asyncio.create_task(store.submit([submission()]))
    await is_told(waiting["write"])
    renewing = asyncio.create_task(store.renew(process_no, LEASE))
    await is_told(waiting["renewal"])
    stranger.execute("ROLLBACK")
    await asyncio.gather(submitting, renewing)
    assert committed == ["renewal of one", "submission of one"]


async def test_a_renewal_that_fails_waits_no_more(
    open_sqlite: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_sqlite()
    process_no = await store.register("p1", LEASE)
    monkeypatch.setattr("arriero.store.sqlite.store.begin_writing", None)
    with pytest.raises(TypeError):
        await store.renew(process_no, LEASE)
    assert not RenewalFlag(tmp_path / "store.db.processes").is_set()


def test_a_process_that_was_stopped_as_its_renewal_waited_holds_nobody_up_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = [10**12]  # microseconds since boot
    monkeypatch.setattr(write_lock, "nanoseconds_since_boot", lambda: machine[0] * 1000)
    one, other = RenewalFlag(tmp_path), RenewalFlag(tmp_path)
    assert not other.is_set()
    machine[0] += round(LOOK_SECONDS * 1_000_000)
    one.set()
    assert other.is_set()
    one.clear()
    assert not other.is_set()
    one.set()
    assert not other.is_set()  # it has just looked: a renewal waits for so long at most
    machine[0] += round(LOOK_SECONDS * 1_000_000)
    assert other.is_set()
    machine[0] += round(SET_SECONDS * 1_000_000)
    assert not other.is_set()


@pytest.mark.parametrize("left", [b"", b"\0", b"\xff" * 8, (2 * 10**12).to_bytes(8, "big")], ids=repr)
def test_what_another_start_of_the_machine_has_left_in_the_file_says_nothing(
    left: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_lock, "nanoseconds_since_boot", lambda: 10**15)
    (tmp_path / FILE).write_bytes(left)
    assert not RenewalFlag(tmp_path).is_set()
