"""What a file may be, what opening it says, and what it keeps."""

import asyncio
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from store_world import NOON, TestClock, World, step, submission

from arriero.errors import IllegalTransition, InvalidInput, SchemaOutdated, StoreError
from arriero.model import Instant
from arriero.model.answers import Submitted
from arriero.model.moves import Process
from arriero.store import existing_store, open_store
from arriero.store.memory import MemoryStore
from arriero.store.migrate import list_columns_of_schema, migrate_sqlite, migrations
from arriero.store.sqlite import connection
from arriero.store.sqlite import store as sqlite_store
from arriero.store.sqlite.store import SqliteStore

OpenSqlite = Callable[[], Awaitable[SqliteStore]]


async def _refused(path: Path, error: type[StoreError] = StoreError) -> str:
    store = SqliteStore(str(path))
    with pytest.raises(error) as raised:
        await store.open()
    text = str(raised.value)
    assert text.startswith(f"store {path}: ")
    assert "\n" not in text
    with pytest.raises(StoreError, match="it is not open"):
        await store.counts()
    return text


# --- what is refused, by name and with the remedy
async def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 1_000)
    before = path.read_bytes()
    assert "it is not a SQLite file: name another file, or move this one away" in await _refused(path)
    assert path.read_bytes() == before


async def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    assert "it is not a file; name a file" in await _refused(tmp_path)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    text = await _refused(tmp_path / "nowhere" / "store.db")
    assert f"the folder {tmp_path / 'nowhere'} does not exist; create it" in text


async def test_a_file_this_user_may_not_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(str(path))
    await store.open()
    await store.close()
    path.chmod(0o400)
    if os.access(path, os.W_OK):  # root may write it all the same; what the system would say to others:
        monkeypatch.setattr(os, "access", lambda *_: False)
    assert "it cannot be written; give this user the right to write the file and its folder" in await _refused(path)


async def test_what_sqlite_finds_unwritable_only_when_it_writes_is_refused_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite_store.connect

    def read_only(path: str, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.execute("PRAGMA query_only=ON")
        return connection

    monkeypatch.setattr(sqlite_store, "connect", read_only)
    assert "it cannot be written: give this user the right to write the file and its folder" in await _refused(
        tmp_path / "s.db"
    )


async def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path, open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    await store.submit([submission()])
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("INSERT INTO arriero_migration VALUES (99, '0099_from_the_future', 0)")
    connection.close()
    text = await _refused(tmp_path / "store.db", SchemaOutdated)
    assert "its schema is number 99" in text
    assert "install the newer release that wrote it" in text


async def test_a_file_that_is_only_read_is_never_written_and_never_migrated(
    tmp_path: Path, open_sqlite: OpenSqlite
) -> None:
    store = await open_sqlite()
    await store.submit([submission()])
    await store.close()
    path = tmp_path / "store.db"
    reading = existing_store(f"sqlite:///{path}", reads_only=True)
    await reading.open()
    assert [task.task_id for task in await reading.list_tasks()] == [submission().task_id]
    with pytest.raises(StoreError, match="it cannot be written"):
        await reading.submit([submission()])
    await reading.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM arriero_migration WHERE number = (SELECT max(number) FROM arriero_migration)")
    connection.close()
    before = path.read_bytes()
    outdated = existing_store(f"sqlite:///{path}", reads_only=True)
    with pytest.raises(SchemaOutdated, match="copy it, and let a command migrate the copy"):
        await outdated.open()
    assert path.read_bytes() == before


async def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path, open_sqlite: OpenSqlite) -> None:
    store = await open_sqlite()
    await store.submit([submission(f"order-{n}") for n in range(200)])
    await store.close()
    path = tmp_path / "store.db"
    with path.open("r+b") as file:
        size = path.stat().st_size
        file.seek(4096)
        file.write(b"\x5a" * (size - 4096))
    assert "restore it from a backup" in await _refused(path)


async def test_after_a_refusal_the_same_store_opens_once_the_cause_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("not a database, but long enough to be looked at" * 100)
    store = SqliteStore(str(path))
    with pytest.raises(StoreError):
        await store.open()
    path.unlink()
    await store.open()
    assert await store.submit([submission()]) == [Submitted(1, True)]
    await store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:store.db", "mysql://x", "", "store.db"])
def test_a_url_that_names_no_store_is_refused_with_the_form_it_should_have(url: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape("use sqlite:///PATH")):
        open_store(url)


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:////:memory:"])
def test_a_database_in_memory_is_refused_with_what_stands_for_it_in_tests(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InvalidInput, match=r"in memory cannot be shared .*sqlite:///PATH; in tests use arriero\.testing"
    ):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


def test_a_url_names_a_file_relative_or_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = open_store("sqlite:///a/b.db"), open_store("sqlite:////var/b.db")
    assert isinstance(relative, SqliteStore)
    assert relative.path == str(tmp_path / "a" / "b.db")
    assert absolute.url == "sqlite:////var/b.db"
    assert isinstance(open_store("memory://"), MemoryStore)


async def test_an_empty_file_is_a_store_not_yet_made(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    store = SqliteStore(str(path))
    await store.open()
    await store.open()  # a second time changes nothing
    await store.close()
    await store.close()


GONE = "the file was removed or replaced while this process had it open"


def _removed(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)


def _replaced(path: Path) -> None:
    other = path.with_name("restored.db")
    sqlite3.connect(path).execute("VACUUM INTO ?", (str(other),)).connection.close()
    other.replace(path)


def _log_removed(path: Path) -> None:
    Path(f"{path}-wal").unlink()


@pytest.mark.parametrize("change", [_removed, _replaced, _log_removed])
async def test_a_file_that_is_removed_or_replaced_is_neither_written_nor_read_any_more(
    tmp_path: Path, open_sqlite: OpenSqlite, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.0)
    store, path = await open_sqlite(), tmp_path / "store.db"
    process_no = await store.register("p1", 3.0)
    await store.submit([submission("before")])
    change(path)
    there = {name.name for name in tmp_path.iterdir()}
    for ask in (
        store.submit([submission("after")]),
        store.renew(process_no, 3.0),
        store.find("before"),
        store.list_tasks(),
        store.counts(),
    ):
        with pytest.raises(StoreError, match=GONE) as raised:
            await ask
        assert str(raised.value).startswith(f"store {path}: ")
        assert "start the process again" in str(raised.value)
    with closing(sqlite3.connect(path)) as own, pytest.raises(StoreError, match=GONE):
        store.submit_joined(submission("joined"), own)
    await store.close()
    assert {name.name for name in tmp_path.iterdir()} <= {*there, "store.db"}  # nothing is made in its place


async def test_a_busy_store_sees_a_removed_file_at_its_next_look_and_refuses_everything_from_then_on(
    tmp_path: Path, open_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [1_000.0]
    monkeypatch.setattr(connection, "seconds_since_boot", lambda: seconds[0])
    store = await open_sqlite()
    await store.submit([submission("before")])
    _removed(tmp_path / "store.db")
    await store.submit([submission("as if it had come before the removal")])
    seconds[0] += connection.LOOK_SECONDS
    for _ in range(2):
        with pytest.raises(StoreError, match=GONE):
            await store.submit([submission("after")])


async def test_a_file_that_went_away_and_came_back_is_refused_until_it_is_opened_again(
    tmp_path: Path, open_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.0)
    store, path = await open_sqlite(), tmp_path / "store.db"
    await store.submit([submission("before")])
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(StoreError, match=GONE):
        await store.counts()
    (tmp_path / "elsewhere.db").rename(path)
    with pytest.raises(StoreError, match=GONE):
        await store.submit([submission("after")])
    await store.close()
    await store.open()
    assert await store.submit([submission("before"), submission("after")]) == [Submitted(1, False), Submitted(2, True)]


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "store.db"))
    for _ in range(2):
        with pytest.raises(StoreError, match="it is not open"):
            await store.submit([submission()])
        with pytest.raises(StoreError, match="it is not open"):
            await store.load(1)
        await store.open()
        await store.close()


# --- what it keeps
async def test_reopening_keeps_everything(open_sqlite: OpenSqlite, clock: TestClock) -> None:
    store = await open_sqlite()
    world = World(store, clock)
    await world.process()
    task, (charge, _) = await world.running(await world.held("order-1"), "charge", "reserve")
    await world.report(charge)
    await world.held("order-2")
    await world.lead(1)
    before = (store.store_id, await world.rows(), [row async for row in store.history()], await store.renew(1, 3.0))
    await store.close()
    clock.move(1)
    again = World(await open_sqlite(), clock)
    found = (again.store.store_id, await again.rows(), [row async for row in again.store.history()])
    assert found == before[:3]
    assert (await again.store.acquire_lease("supervisor", 2, "b", 1.0)).term == 1
    await again.check_chains()
    await again.submit("order-3")
    assert task.task_no == 1


async def test_two_stores_on_one_file_see_each_other_s_commits_and_share_one_truth(
    open_sqlite: OpenSqlite, clock: TestClock
) -> None:
    one, other = World(await open_sqlite(), clock), World(await open_sqlite(), clock)
    assert one.store.store_id == other.store.store_id != ""
    assert [await one.process("a"), await other.process("b")] == [1, 2]
    await one.submit("order-1")
    assert (await other.store.submit([submission("order-1")])) == [Submitted(1, False)]
    (loaded,) = await other.claim(2)
    assert await one.claim(1) == []
    task, (charge,) = await other.opened(loaded.task, step())
    (dispatch,) = await one.take(1)
    assert await other.take(2) == []
    await one.report(dispatch.step)
    assert await other.store.load_news(2) == [(1, task.revision + 1)]
    await one.lose(2)
    assert not (await other.store.renew(2, 3.0)).renewed
    await one.written(one.free_command(await one.task(1)))
    await other.refused(other.advance_command(task, ending=Process("1")), "moved_on")
    assert await one.rows() == await other.rows()
    assert charge.state == "pending"


async def test_many_processes_may_make_the_same_new_file_at_once(tmp_path: Path, clock: TestClock) -> None:
    stores = [SqliteStore(str(tmp_path / "store.db"), clock=clock) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    assert len({store.store_id for store in stores}) == 1
    await asyncio.gather(*(store.submit([submission(f"order-{n % 4}")]) for n, store in enumerate(stores)))
    assert len(await stores[0].list_tasks()) == 4
    await World(stores[0], clock).check_chains()
    for store in stores:
        await store.close()


async def test_of_many_claims_at_once_from_many_stores_each_task_has_one_winner(
    tmp_path: Path, clock: TestClock
) -> None:
    worlds = [World(SqliteStore(str(tmp_path / "store.db"), clock=clock), clock) for _ in range(4)]
    for world in worlds:
        await world.store.open()
    await worlds[0].store.submit([submission(f"order-{n}") for n in range(40)])
    commands = [
        (world, world.claim_command(number, limit=3)) for number, world in enumerate(worlds, 1) for _ in range(4)
    ]
    answers = await asyncio.gather(*(world.store.apply([command]) for world, command in commands))
    claimed = [loaded.task.task_no for (answer,) in answers for loaded in answer.tasks]
    assert len(claimed) == len(set(claimed)) == 40
    for world in worlds:
        await world.store.close()


# --- the clock
class Machine:
    """A machine whose boot and wall clock the test sets, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.since_boot, self.wall, self.boot = 1_000.0, NOON / 1e6, "first"
        monkeypatch.setattr(sqlite_store, "nanoseconds_since_boot", lambda: round(self.since_boot * 1e9))
        monkeypatch.setattr(sqlite_store, "boot_id", lambda: self.boot)
        monkeypatch.setattr(sqlite_store, "fresh_offset", self.fresh_offset)

    def fresh_offset(self, seen: Instant) -> int:
        return max(round(self.wall * 1e6), seen) - round(self.since_boot * 1e6)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


async def _opened(path: Path) -> SqliteStore:
    store = SqliteStore(str(path))
    await store.open()
    return store


async def test_a_new_file_takes_the_wall_clock_and_then_only_the_time_since_boot(
    tmp_path: Path, machine: Machine
) -> None:
    store = await _opened(tmp_path / "s.db")
    assert store.now() == NOON
    machine.wall -= 86_400
    machine.since_boot += 5
    assert store.now() == NOON + 5_000_000
    await store.close()
    machine.since_boot += 5
    store = await _opened(tmp_path / "s.db")
    assert store.now() == NOON + 10_000_000
    await store.close()


async def test_all_processes_of_a_machine_read_the_same_clock(tmp_path: Path, machine: Machine) -> None:
    one = await _opened(tmp_path / "s.db")
    machine.wall += 1_000
    other = await _opened(tmp_path / "s.db")
    assert one.now() == other.now()
    await one.close()
    await other.close()


async def test_after_a_reboot_the_clock_goes_on_with_the_wall_clock(tmp_path: Path, machine: Machine) -> None:
    await (await _opened(tmp_path / "s.db")).close()
    machine.since_boot, machine.boot, machine.wall = 3.0, "second", machine.wall + 600
    store = await _opened(tmp_path / "s.db")
    assert store.now() == NOON + 600_000_000
    await store.close()


@pytest.mark.parametrize("boot", ["second", "first"])
async def test_the_clock_never_goes_back_behind_what_was_written_whatever_the_wall_clock_says(
    tmp_path: Path, machine: Machine, boot: str
) -> None:
    store = await _opened(tmp_path / "s.db")
    await store.register("p1", 3.0)
    machine.since_boot += 50
    await store.renew(1, 3.0)
    machine.since_boot += 7
    await store.submit([submission()])
    written = store.now()
    await store.close()
    machine.since_boot, machine.boot, machine.wall = 3.0, boot, machine.wall - 86_400
    store = await _opened(tmp_path / "s.db")
    assert store.now() >= written
    task = await store.load(1)
    assert task is not None
    assert task.task.submitted_at == written
    await store.close()


# --- the schema
def _objects(connection: sqlite3.Connection) -> list[tuple[str, str, str, list[str]]]:
    """Tables and indexes with the words of their definitions, comments left out."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return sorted(
        (kind, name, table, re.findall(r"\w+|[^\w\s]", re.sub("--.*", "", sql))) for kind, name, table, sql in rows
    )


async def test_the_columns_that_are_looked_for_are_those_that_a_new_file_has(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "store.db"))
    await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as written:
        found = set(
            written.execute(
                "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
                " WHERE t.type = 'table' AND t.name LIKE 'arriero%' AND t.name <> 'arriero_migration'"
            )
        )
    assert found == {one for one in list_columns_of_schema("arriero.store.sqlite") if one[0] != "arriero_migration"}


def test_schema_sql_is_the_sum_of_the_migrations() -> None:
    package = "arriero.store.sqlite"
    migrated, written = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    migrate_sqlite(migrated, migrations(package), 0)
    written.executescript(resources.files(package).joinpath("schema.sql").read_text())
    found, wanted = _objects(migrated), _objects(written)
    differ = [(one, other) for one, other in zip(found, wanted, strict=True) if one != other]
    assert [d for d in differ if d[0][1] != "arriero_migration"] == []
    columns = [c.execute("PRAGMA table_info(arriero_migration)").fetchall() for c in (migrated, written)]
    assert columns[0] == columns[1]
    migrated.close()
    written.close()


@pytest.mark.parametrize(
    ("state", "kind", "has_plan", "undoing"),
    [
        ("compensating", "step", True, True),
        ("compensated", "step", True, True),
        ("error", "undo", True, True),
        ("error", "in_doubt", False, True),
        ("error", "lost", True, True),
        ("error", "step", False, False),
        ("error", "lost", False, False),
        ("processing", "", False, False),
    ],
)
def test_tasks_of_the_first_release_are_known_to_be_undone_where_their_undo_had_begun(
    state: str, kind: str, has_plan: bool, undoing: bool
) -> None:
    known = migrations("arriero.store.sqlite")
    connection = sqlite3.connect(":memory:")
    migrate_sqlite(connection, known[:1], 0)
    task = {
        "task_no": 1,
        "task_id": "t",
        "state": state,
        "failure": None if not kind else f'{{"kind":"{kind}","reason":""}}',
    }
    _insert(connection, "arriero_task", task)
    if has_plan:
        _insert(connection, "arriero_step", {"step_no": 1 << 20 | 1, "task_no": 1, "kind": "compensation"})
    migrate_sqlite(connection, known, 0)
    assert connection.execute("SELECT undoing FROM arriero_task").fetchone() == (undoing,)
    connection.close()


def _insert(connection: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    """A row with these values, and with zero or nothing in every other column."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    row = {name: values.get(name, 0 if required else None) for _, name, _, required, *_ in columns}
    marks = ", ".join(f":{name}" for name in row)
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", row)


def test_migrations_are_numbered_without_a_gap_and_applied_once() -> None:
    known = migrations("arriero.store.sqlite")
    assert [one.number for one in known] == list(range(1, len(known) + 1))
    connection = sqlite3.connect(":memory:")
    for now in (5, 6):
        migrate_sqlite(connection, known, now)
    applied = connection.execute("SELECT number, name, applied_at FROM arriero_migration").fetchall()
    assert applied == [(one.number, one.name, 5) for one in known]
    connection.close()


async def test_errors_that_are_not_the_store_s_keep_their_type(open_sqlite: OpenSqlite, clock: TestClock) -> None:
    world = World(await open_sqlite(), clock)
    task = await world.held()
    undone = (await world.advance(task, opened=[step(take=True)])).task
    again = world.advance_command(undone, opened=[step("reserve")], state=undone.state)
    (charge,) = (await world.load(1)).steps
    done = world.reported(charge)
    with pytest.raises(IllegalTransition):
        await world.store.apply(
            [again, world.advance_command(undone, [done], revision=undone.revision + 1, ending=_undone())]
        )
    assert (await world.load(1)).steps == (charge,)


def _undone() -> Any:
    from arriero.model.moves import NextUndo

    return NextUndo((1 << 20) | 1, False, 1.0)
