"""`arriero doctor`, and the facts of the file."""

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_calls import APP, Call, Run, disk_usage, order

from arriero import __version__
from arriero.store.sqlite import connection
from arriero.store.sqlite import inspection as facts
from arriero.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.usefixtures("healthy_machine")


def findings(call: Call, *options: str) -> dict[str, dict[str, Any]]:
    """By what they are about."""
    diagnosis = json.loads(call("doctor", "--json", *options).stdout)
    return {finding["about"]: finding for finding in diagnosis["findings"]}


def empty_store(path: Path) -> None:
    async def make() -> None:
        store = SqliteStore(str(path))
        await store.open()
        await store.close()

    asyncio.run(make())


def test_a_store_in_which_all_is_well_exits_with_0_and_names_its_place(call: Call, shop: Path) -> None:
    empty_store(shop / "arriero.db")
    told = call("doctor", "--verbose")
    assert (told.exit_code, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0] == f"store sqlite:///{shop}/arriero.db"
    assert lines[-1] == "nothing needs care"
    assert f"ok    arriero {__version__}, Python " in told.stdout
    assert "journal_mode wal, synchronous full" in told.stdout
    assert json.loads(call("doctor", "--json").stdout)["healthy"] is True


def test_checks_that_found_nothing_are_one_line_unless_all_are_asked_for(sold: Call) -> None:
    short, long = (sold("doctor", *more).stdout.splitlines() for more in ([], ["--verbose"]))
    passed = [line for line in long if line.startswith("ok    ")]
    assert [line for line in short if line.startswith("ok    ")] == [
        f"ok    {len(passed)} checks passed (--verbose lists them)"
    ]
    assert [line for line in short[:-2] if line in long] == short[:-2]
    levels = [finding["level"] for finding in json.loads(sold("doctor", "--json").stdout)["findings"]]
    assert levels.count("fine") == len(passed)


def test_what_needs_care_stands_first_with_what_to_do_and_exits_with_1(sold: Call) -> None:
    told = sold("doctor")
    assert (told.exit_code, told.stderr) == (1, "")
    lines = told.stdout.splitlines()
    assert lines[1] == "CARE  no process is alive on this store, and 1 task is open"
    assert lines[2] == "      -> start one: arriero run MODULE:APP"
    assert lines[3].startswith("CARE  2 tasks are held, waiting for an operator; the first is unrefundable since ")
    assert lines[-1] == "2 things need care"
    found = findings(sold)
    assert found["held"]["level"] == "care"
    assert "6 tasks" in found["rows"]["says"]
    assert "1 pending" in found["rows"]["says"] or "1 processing" in found["rows"]["says"]


def test_a_running_app_is_seen_with_its_roles(call: Call, start: Callable[..., Run]) -> None:
    run = start("--roles", "scheduler,supervisor")
    run.until("ready: ")
    told = call("doctor", "--verbose")
    assert told.exit_code == 1
    assert "CARE  no process alive plays the role agents: steps are not attempted" in told.stdout
    assert "1 process is alive: process 1 (" in told.stdout
    second = start("--roles", "agents")
    second.until("ready: ")
    assert call("doctor").exit_code == 0


def test_code_that_nobody_runs_is_named(call: Call, start: Callable[..., Run]) -> None:
    run = start("--agents", "payments")
    run.until("ready: ")
    assert call("submit", APP, "parcel", "--arguments", order("1")).exit_code == 0
    found: dict[str, dict[str, Any]] = {}
    while "code" not in found:  # the process is at work on it
        found = findings(call)
    assert found["code"]["says"] == "step pack of Agent stock is asked for, and no process alive hosts it"


def test_steps_that_cannot_be_undone_are_those_of_the_app_when_one_is_named(
    sold: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "reserve of Agent stock" in findings(sold)["not_undoable"]["says"]
    assert "pack" not in findings(sold)["not_undoable"]["says"]
    assert "the App has steps" in findings(sold, "--app", APP)["not_undoable"]["says"]
    assert "pack of Agent stock" in findings(sold, "--app", APP)["not_undoable"]["says"]
    monkeypatch.setenv("ARRIERO_APP", APP)
    assert "pack of Agent stock" in findings(sold)["not_undoable"]["says"]


def test_a_named_app_that_cannot_be_loaded_is_bad_input_and_a_configured_one_needs_care(
    sold: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = sold("doctor", "--app", "nowhere:app")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "there is no module 'nowhere'" in refused.stderr
    monkeypatch.setenv("ARRIERO_APP", "nowhere:app")
    monkeypatch.setenv("ARRIERO_STORE", "sqlite:///arriero.db")
    found = findings(sold)
    assert found["app"]["level"] == "care"
    assert "nowhere" in found["app"]["says"]


def test_what_comes_from_data_moves_no_cursor(call: Call, shop: Path) -> None:
    from shopfront import Order, app, later

    async def submit() -> None:
        async with app:
            await app.submit(later(Order("e")), reply_to="web\u202e1")

    asyncio.run(submit())
    told = call("doctor", "--verbose").stdout
    assert "reply queue web\\u202e1 holds 1 unread" in told
    assert all(line.isprintable() for line in told.splitlines())


# --- what cannot be looked at
def refuse_in_one_line(call: Call, *options: str, code: int = 5) -> str:
    refused = call("doctor", *options)
    assert (refused.exit_code, refused.stdout) == (code, "")
    (line,) = refused.stderr.splitlines()
    return line


def test_no_store_and_another_programs_file_are_one_line(call: Call, shop: Path) -> None:
    assert "there is no such file" in refuse_in_one_line(call)
    assert not list(shop.glob("*.db*"))
    assert "not a SQLite file" in refuse_in_one_line(call, "--store", "sqlite:///shopfront.py")
    with closing(sqlite3.connect(shop / "other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    assert "no tasks of arriero" in refuse_in_one_line(call, "--store", "sqlite:///other.db")
    assert "dies with it" in refuse_in_one_line(call, "--store", "memory://", code=2)


def test_a_store_that_another_program_writes_to_is_looked_over_all_the_same(
    sold: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(shop / "arriero.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "journal_mode wal" in sold("doctor", "--verbose").stdout


def test_a_damaged_store_is_one_line(sold: Call, shop: Path) -> None:
    path = shop / "arriero.db"
    whole = path.read_bytes()
    size = 4096
    for page in range(8, len(whole) // size):  # one after the other: some pages are noticed by reading alone, some not
        path.write_bytes(whole[: page * size] + b"\xff" * size + whole[(page + 1) * size :])
        line = refuse_in_one_line(sold)
        assert "restore it from a backup" in line
        assert str(path) in line
    path.write_bytes(whole[: len(whole) // 2])
    assert "restore it from a backup" in refuse_in_one_line(sold)


def test_a_newer_schema_is_one_line_and_an_older_one_is_left_as_it_is(sold: Call, shop: Path) -> None:
    path = shop / "arriero.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM arriero_migration WHERE number > 1")
        other.commit()
    found = findings(sold)
    assert (found["schema"]["level"], "rows" in found) == ("care", False)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT max(number) FROM arriero_migration").fetchone() == (1,)
        other.execute("INSERT INTO arriero_migration VALUES (999, 'later', 0)")
        other.commit()
    assert "install the newer release" in refuse_in_one_line(sold)


# --- facts
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_looking_at_the_file_does_not_change_it(sold: Call, shop: Path) -> None:
    path = shop / "arriero.db"
    with closing(sqlite3.connect(path)) as other:  # so that there is a log
        other.execute("PRAGMA wal_autocheckpoint=0")
        other.execute("INSERT INTO arriero_meta VALUES ('x', 'y')")
        other.commit()
        before = digest(path), digest(shop / "arriero.db-wal")
        found = facts.file_facts(str(path))
        assert (digest(path), digest(shop / "arriero.db-wal")) == before
        assert found.log_bytes == (shop / "arriero.db-wal").stat().st_size > 0
    before_alone = digest(path)
    assert facts.file_facts(str(path)).file_bytes == path.stat().st_size
    assert digest(path) == before_alone


READER = """
import sqlite3, sys
reading = sqlite3.connect(sys.argv[1], isolation_level=None)
reading.execute("BEGIN")
reading.execute("SELECT count(*) FROM arriero_task").fetchone()
print("reads", flush=True)
sys.stdin.read()
"""


def test_a_program_that_keeps_the_log_from_being_emptied_is_named(
    sold: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop / "arriero.db"
    monkeypatch.setattr(facts, "LOG_READERS_BYTES_MIN", 0)
    monkeypatch.setattr(facts, "LOOK_SECONDS", 0.0)
    with closing(sqlite3.connect(path)) as other:  # so that there is a log
        other.execute("PRAGMA wal_autocheckpoint=0")
        other.execute("INSERT INTO arriero_meta VALUES ('x', 'y')")
        other.commit()
        assert facts.file_facts(str(path)).log_readers == ()
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"reads\n"
            found = findings(sold)["size"]
            assert (found["level"], f"process {reader.pid} (python" in found["says"]) == ("care", True)
            assert f"ps -fp {reader.pid}" in found["remedy"]
            reader.communicate()
        assert facts.file_facts(str(path)).log_readers == ()


def test_only_locks_of_readers_of_that_very_file_count(monkeypatch: pytest.MonkeyPatch) -> None:
    locks = """\
1: POSIX  ADVISORY  READ 11 08:01:77 124 124
2: POSIX  ADVISORY  READ 12 08:01:77 128 128
3: POSIX  ADVISORY  WRITE 13 08:01:77 124 124
4: POSIX  ADVISORY  READ 14 08:01:78 124 124
5: POSIX  ADVISORY  READ 15 08:02:77 124 124
6: FLOCK  ADVISORY  READ 16 08:01:77 0 EOF
7: -> POSIX  ADVISORY  READ 17 08:01:77 124 124
8: OFDLCK ADVISORY  READ -1 08:01:77 124 124
9: POSIX  ADVISORY  READ 19 08:01:77 123 127
10: POSIX  ADVISORY  READ 20 08:01:77 0 EOF
"""
    assert facts.parse_readers(locks, os.makedev(8, 1), 77) == {11, 19, 20}


def test_the_journal_is_told_as_it_was_found(sold: Call, shop: Path) -> None:
    with closing(sqlite3.connect(shop / "arriero.db")) as other:
        assert other.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    assert facts.file_facts(str(shop / "arriero.db")).journal_mode == "delete"
    assert findings(sold)["journal"]["level"] == "care"
    assert findings(sold)["journal"]["level"] == "fine"  # whoever opens it sets it again


def test_a_large_file_is_not_read_through(sold: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts.file_facts(str(shop / "arriero.db")).was_checked
    monkeypatch.setattr(facts, "CHECK_BYTES_MAX", 1_000)
    assert not facts.file_facts(str(shop / "arriero.db")).was_checked
    assert findings(sold)["damage"]["level"] == "information"


def test_the_file_system_is_that_of_the_deepest_and_last_mount_above_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "with space" / "deeper"
    place.mkdir(parents=True)
    escaped = str(tmp_path / "with space").replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(facts, "MOUNTS", mounts)
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/x {escaped} nfs4 rw 0 0\n/dev/sdb1 {tmp_path}/with xfs rw 0 0\nbroken\n"
    )
    assert facts.file_system_of(str(place / "a.db")) == ("nfs4", str(tmp_path / "with space"))
    assert facts.file_system_of(str(tmp_path / "without" / "a.db")) == ("ext4", "/")
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\none {tmp_path} xfs rw 0 0\nother {tmp_path} btrfs rw 0 0\n")
    assert facts.file_system_of(str(place / "a.db"))[0] == "btrfs"
    mounts.unlink()
    assert facts.file_system_of(str(place / "a.db")) == ("", "")


def test_a_network_file_system_and_a_full_disk_need_care(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_store(shop / "arriero.db")
    facts.MOUNTS.write_text("server:/x / nfs rw 0 0\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk_usage(total=10**12, free=10**6))
    told = call("doctor")
    assert told.exit_code == 1
    assert "CARE  the file lies on a network file system (nfs mounted at /)" in told.stdout
    assert "CARE  only 1.0 MB of 1.0 TB are free on its disk" in told.stdout
