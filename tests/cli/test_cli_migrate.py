"""`arriero migrate` on a file; on a server see tests/postgres."""

import json
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, json_lines

from arriero.errors import SchemaOutdated
from arriero.store import migrate, schema_of
from arriero.store.migrate import Migration, migrate_sqlite, migrations
from arriero.store.sqlite import schema
from arriero.store.sqlite.store import SqliteStore

KNOWN = migrations("arriero.store.sqlite")
LATEST = KNOWN[-1]
NAMES = [migration.name for migration in KNOWN]
BROKEN = Migration(LATEST.number + 1, "9001_broken", "CREATE TABLE half (x);\nINSERT INTO nowhere VALUES (1);\n")
SECONDS_MAX = 60.0


def made(path: Path, known: list[Migration]) -> Path:
    """A file with these migrations applied."""
    with closing(sqlite3.connect(path)) as connection:
        migrate_sqlite(connection, known, 0)
        connection.commit()
    return path


def objects(path: Path) -> list[tuple[Any, ...]]:
    """What a file is made of, and what was applied to it."""
    with closing(sqlite3.connect(path)) as connection:
        made_of = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        applied = connection.execute("SELECT number, name FROM arriero_migration").fetchall()
    words = [(kind, name, re.findall(r"\w+|[^\w\s]", re.sub("--.*", "", sql or ""))) for kind, name, sql in made_of]
    return sorted([*words, *applied], key=repr)


def with_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "migrations", lambda package: [*KNOWN, BROKEN])


def test_it_makes_a_store_and_then_finds_nothing_to_do(call: Call, shop: Path) -> None:
    done = call("migrate")
    assert (done.exit_code, done.stderr) == (0, "")
    told = f"the schema of store sqlite:///{shop}/arriero.db is number {LATEST.number}"
    assert done.stdout.splitlines() == [*(f"applied {name}" for name in NAMES), told]
    assert call("migrate").stdout == f"nothing was to do: {told}\n"
    assert call("task", "list").exit_code == 0


def test_as_json_it_prints_what_was_applied(call: Call, shop: Path) -> None:
    made(shop / "arriero.db", KNOWN[:1])
    url = f"sqlite:///{shop}/arriero.db"
    for applied in (NAMES[1:], []):
        (line,) = json_lines(call("migrate", "--json").stdout)
        assert line == {"store": url, "number": LATEST.number, "applied": applied}


def test_to_check_exits_with_1_and_names_what_is_missing_and_changes_nothing(call: Call, shop: Path) -> None:
    absent = call("migrate", "--check")
    assert (absent.exit_code, absent.stdout) == (5, "")
    assert "there is no such file" in absent.stderr or "no state store" in absent.stderr
    assert not (shop / "arriero.db").exists()
    made(shop / "arriero.db", KNOWN[:1])
    before = objects(shop / "arriero.db")
    older = call("migrate", "--check")
    assert older.exit_code == 1
    assert f"the schema is number 1; arriero migrate brings it to number {LATEST.number}" in older.stdout
    assert older.stdout.splitlines()[1:] == [f"missing {name}" for name in NAMES[1:]]
    (line,) = json_lines(call("migrate", "--check", "--json").stdout)
    assert (line["number"], line["number_known"], line["missing"]) == (1, LATEST.number, NAMES[1:])
    assert objects(shop / "arriero.db") == before
    assert call("migrate").exit_code == 0
    current = call("migrate", "--check")
    assert (current.exit_code, current.stderr) == (0, "")
    assert "up to date" in current.stdout


def test_the_sql_makes_the_same_schema_as_migrate(call: Call, shop: Path) -> None:
    for begun in (0, 1):
        path, scripted = shop / f"{begun}.db", shop / f"{begun}_scripted.db"
        if begun:
            made(path, KNOWN[:begun])
            shutil.copy(path, scripted)
        written = call("migrate", "--sql", "--store", f"sqlite:///{scripted}")
        assert (written.exit_code, written.stderr) == (0, "")
        assert json_lines(call("migrate", "--sql", "--json", "--store", f"sqlite:///{scripted}").stdout)[0]["sql"] == (
            written.stdout
        )
        assert scripted.exists() == bool(begun)
        with closing(sqlite3.connect(scripted)) as connection:
            connection.executescript(written.stdout)
            (youngest,) = connection.execute("SELECT max(applied_at) FROM arriero_migration").fetchone()
            (now,) = connection.execute("SELECT strftime('%s') * 1000000").fetchone()
        assert abs(now - youngest) < 3_600_000_000
        assert call("migrate", "--store", f"sqlite:///{path}").exit_code == 0
        assert objects(scripted) == objects(path)
        assert "nothing to do" in call("migrate", "--sql", "--store", f"sqlite:///{scripted}").stdout


def test_a_migration_that_fails_leaves_nothing(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(shop / "arriero.db", KNOWN[:1])
    before = objects(shop / "arriero.db")
    with_broken(monkeypatch)
    refused = call("migrate")
    assert (refused.exit_code, refused.stdout) == (5, "")
    assert "no such table: nowhere" in refused.stderr
    assert objects(shop / "arriero.db") == before


def test_of_two_at_once_one_applies_and_the_other_waits_and_finds_nothing_to_do(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    applying, may_go_on = threading.Event(), threading.Event()
    build_parts = migrate.build_parts

    def slowly(*arguments: Any) -> Iterator[str]:
        applying.set()
        assert may_go_on.wait(SECONDS_MAX)
        yield from build_parts(*arguments)

    monkeypatch.setattr(migrate, "build_parts", slowly)
    url = f"sqlite:///{shop}/arriero.db"
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(schema_of(url).migrate)
        assert applying.wait(SECONDS_MAX)
        second = pool.submit(schema_of(url).migrate)
        may_go_on.set()
        assert (first.result(SECONDS_MAX), second.result(SECONDS_MAX)) == (NAMES, [])


def newer(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO arriero_migration VALUES (?, 'later', 0)", (number,))
        connection.commit()


async def test_a_file_newer_by_one_is_worked_with_and_by_two_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "store.db", KNOWN)
    newer(path, LATEST.number + 1)
    for _ in range(2):  # also once it is ready, when nothing is written
        store = SqliteStore(str(path))
        await store.open()
        assert await store.counts() is not None
        await store.close()
    assert schema_of(f"sqlite:///{path}").migrate() == []
    assert schema_of(f"sqlite:///{path}").state().missing == []
    newer(path, LATEST.number + 2)
    with pytest.raises(SchemaOutdated, match="install the newer release that wrote it"):
        await SqliteStore(str(path)).open()
    with pytest.raises(SchemaOutdated, match=f"store {path}: its schema is number {LATEST.number + 2}, this release"):
        schema_of(f"sqlite:///{path}").migrate()


def test_a_newer_file_is_told_of_by_check_and_doctor(call: Call, shop: Path) -> None:
    assert call("migrate").exit_code == 0
    newer(shop / "arriero.db", LATEST.number + 1)
    checked = call("migrate", "--check")
    assert (checked.exit_code, "one more than this release knows" in checked.stdout) == (0, True)
    found = {finding["about"]: finding for finding in json.loads(call("doctor", "--json").stdout)["findings"]}
    assert (found["schema"]["level"], "rows" in found) == ("information", True)
    newer(shop / "arriero.db", LATEST.number + 2)
    for options in (["--check"], ["--sql"], []):
        refused = call("migrate", *options)
        assert (refused.exit_code, refused.stdout) == (5, "")
        assert "install the newer release" in refused.stderr


@pytest.mark.parametrize(
    ("options", "part", "code"),
    [
        (["--role", "run", "clerk"], "a file has no roles", 2),
        (["--sql", "--role", "run", "clerk"], "a file has no roles", 2),
        (["--check", "--sql"], "--check only looks: leave out --sql and --role", 2),
        (["--check", "--role", "run", "clerk"], "--check only looks", 2),
        (["--store", "memory://"], "dies with it", 2),
        (["--store", "sqlite:///nowhere/s.db"], "it cannot be opened: create its folder", 5),
        (["--store", "sqlite:///shopfront.py"], "it is not a SQLite file", 5),
        (["--store", "mysql://a:secret@b/c"], "store 'mysql://***@b/c' is not known; use sqlite:///PATH", 2),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_code(call: Call, options: list[str], part: str, code: int) -> None:
    refused = call("migrate", *options)
    assert (refused.exit_code, refused.stdout) == (code, "")
    (line,) = refused.stderr.splitlines()
    assert part in line
