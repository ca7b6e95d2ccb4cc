"""The journal, its checkpoints, a full disk, a stranger's lock, and the plans of statements that run all the time."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from store_world import TestClock, World, step, submission

from arriero.errors import StoreError
from arriero.model.answers import Submitted
from arriero.store.columns import load_statements
from arriero.store.sqlite import connection as sqlite_connection
from arriero.store.sqlite import store as sqlite_store
from arriero.store.sqlite.connection import connect
from arriero.store.sqlite.store import SqliteStore
from arriero.store.sqlite.task_rows import query

Connections = list[sqlite3.Connection]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Every connection the store opens: the writer's first."""
    opened: Connections = []

    def remembering(path: str, **options: Any) -> sqlite3.Connection:
        opened.append(connect(path, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite_store, "connect", remembering)
    return opened


@pytest.fixture
async def sqlite(connections: Connections, clock: TestClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await store.open()
    yield store
    await store.close()


def _setting(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


# --- the journal
async def test_every_connection_keeps_a_log_waits_for_the_disk_and_never_checkpoints_by_itself(
    sqlite: SqliteStore, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_COMMITS", 1)
    await sqlite.submit([submission()])
    await sqlite.counts()
    await sqlite.submit([submission()])
    assert len(connections) == 3  # writer, reader, checkpointer
    for connection in connections:
        assert _setting(connection, "journal_mode") == "wal"
        assert _setting(connection, "synchronous") == 2  # FULL
        assert _setting(connection, "wal_autocheckpoint") == 0
    assert [_setting(connection, "query_only") for connection in connections].count(1) == 1


async def _write(store: SqliteStore, commits: int, size: int = 1) -> None:
    for number in range(commits):
        await store.submit(
            [
                submission(f"{number}-{part}-{await _count(store)}", arguments='"' + "x" * 4_000 + '"')
                for part in range(size)
            ]
        )


async def _count(store: SqliteStore) -> int:
    return sum((await store.counts()).values())


@pytest.mark.parametrize(("commits_between", "rows_between", "size"), [(10, 10**9, 1), (10**9, 100, 10)])
async def test_checkpoints_keep_the_log_bounded_with_small_and_with_large_commits(
    sqlite: SqliteStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commits_between: int,
    rows_between: int,
    size: int,
) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_COMMITS", commits_between)
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_ROWS", rows_between)
    log = tmp_path / "store.db-wal"
    await _write(sqlite, 40 // size, size)
    small = log.stat().st_size
    await _write(sqlite, 200 // size, size)
    assert log.stat().st_size < small * 1.5 + 200_000
    assert (tmp_path / "store.db").stat().st_size > 200 * 4_000
    assert await _count(sqlite) == 240


async def test_a_checkpoint_that_fails_costs_nobody_anything_and_is_tried_again(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_COMMITS", 1)
    tried: list[int] = []

    def failing(*_: object) -> None:
        tried.append(len(tried))
        if len(tried) < 3:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite_store, "checkpoint", failing)
    for number in range(4):
        await sqlite.submit([submission(f"order-{number}")])
    await sqlite.close()
    assert len(tried) >= 3


async def test_nobody_commits_while_a_checkpoint_runs(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_COMMITS", 1)
    refused: list[str] = []

    def meanwhile(
        writer: sqlite3.Connection, checkpointer: sqlite3.Connection, begin: Callable[[sqlite3.Connection], None]
    ) -> None:
        stranger = sqlite3.connect(sqlite.path, timeout=0, isolation_level=None)

        class Checkpointer:
            def execute(self, sql: str) -> sqlite3.Cursor:
                try:
                    stranger.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    refused.append(str(error))
                return checkpointer.execute(sql)

        sqlite_connection.checkpoint(writer, Checkpointer(), begin)  # type: ignore[arg-type]
        stranger.close()

    monkeypatch.setattr(sqlite_store, "checkpoint", meanwhile)
    await sqlite.submit([submission()])
    await sqlite.close()
    assert set(refused) == {"database is locked"}


# --- a full disk
async def test_on_a_full_disk_what_was_accepted_stays_and_work_goes_on_once_there_is_room(
    sqlite: SqliteStore, connections: Connections, clock: TestClock
) -> None:
    world = World(sqlite, clock)
    task, (charge,) = await world.running(await world.held("order-1"), "charge")
    before = (await world.rows(), [row async for row in sqlite.history()])
    writer = connections[0]
    pages = int(str(_setting(writer, "page_count")))
    writer.execute(f"PRAGMA max_page_count={pages}")
    large = '"' + "x" * 200_000 + '"'
    with pytest.raises(StoreError, match="no space is left: free some; nothing that was accepted is lost") as raised:
        await sqlite.submit([submission("order-2", arguments=large)])
    assert str(raised.value).startswith(f"store {sqlite.path}: ")
    with pytest.raises(StoreError):
        await sqlite.apply([world.advance_command(task, opened=[step("reserve", arguments=large)])])
    assert (await world.rows(), [row async for row in sqlite.history()]) == before
    assert not writer.in_transaction
    writer.execute("PRAGMA max_page_count=1073741823")
    assert await sqlite.submit([submission("order-2", arguments=large)]) == [Submitted(2, True)]
    await world.report(charge)
    await world.check_chains()


async def test_of_a_batch_that_does_not_fit_nothing_is_kept(sqlite: SqliteStore, connections: Connections) -> None:
    writer = connections[0]
    writer.execute(f"PRAGMA max_page_count={int(str(_setting(writer, 'page_count'))) + 2}")
    batch = [submission(f"order-{n}", arguments='"' + "x" * 3_000 + '"') for n in range(100)]
    with pytest.raises(StoreError, match="disk is full"):
        await sqlite.submit(batch)
    assert await sqlite.list_tasks() == []
    assert [row async for row in sqlite.history()] == []


# --- a stranger's lock
@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.0)


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another program's connection."""
    connection = sqlite3.connect(tmp_path / "store.db", timeout=0, isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.usefixtures("impatient")
async def test_another_program_s_open_transaction_is_named_and_work_goes_on_after_it(
    sqlite: SqliteStore, stranger: sqlite3.Connection
) -> None:
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another program keeps the file locked: end its transaction"):
        await sqlite.submit([submission()])
    assert await sqlite.list_tasks() == []  # readers are not held up
    stranger.execute("ROLLBACK")
    assert await sqlite.submit([submission()]) == [Submitted(1, True)]


@pytest.mark.usefixtures("impatient")
async def test_a_stranger_that_only_reads_holds_nobody_up(sqlite: SqliteStore, stranger: sqlite3.Connection) -> None:
    stranger.execute("BEGIN")
    stranger.execute("SELECT count(*) FROM arriero_task").fetchone()
    assert await sqlite.submit([submission()]) == [Submitted(1, True)]
    assert stranger.execute("SELECT count(*) FROM arriero_task").fetchone() == (0,)


# --- plans
class _AnyParameter(dict[str, object]):
    def __missing__(self, name: str) -> object:
        return "[]" if name in {"workflows", "names", "agents", "task_nos"} else 0


INDEX_OF = {
    "select_claimable": "arriero_task_due",
    "select_takeable": "arriero_step_takeable",
    "select_movable": "arriero_step_takeable",
    "select_due": "arriero_step_takeable",
    "select_held": "arriero_step_held",
    "select_news": "arriero_task_unseen",
    "select_expired": "arriero_step_running",
    "select_starved": "arriero_step_starving",
    "select_next_deadline": "arriero_step_running",
    "select_past_limit": "arriero_task_limit",
    "select_stuck": "arriero_task_unseen",
    "select_task_history": "arriero_history_of_task",
}
# What an operator asks, rarely, and outside the writer's transactions.
READS_ALL = {"count_tasks", "select_filtered", "survey_requests", "measure_requests"} | {
    f"survey_{what}" for what in ("tasks", "workflows", "steps", "not_undoable")
}
READS_ALL |= {
    "select_retrying",
    "select_history_last",
}  # keys of all that waits; and as many of the last commits as wanted
READS_ALL |= {"select_of_convoy", "select_naming_ledger"}  # of a purge by name
READS_ALL |= {"count_versions"}  # for operators
READS_ALL |= {"count_unsaid"}  # of a process that starts beside another App with code of the same name


# Of one row, or of an index that holds only what is unfinished, up to a limit.
SCANS_ALLOWED = {
    "select_latest_instant": ("SCAN arriero_history",),
    "measure_backlog": (
        "SCAN arriero_task USING INDEX arriero_task_waiting",
        "SCAN arriero_task USING INDEX arriero_task_error",
    ),
    # Once a minute: all requests that wait under keys, by the index that holds nothing else.
    "select_missing_keys": ("SCAN step USING INDEX arriero_step_waiting_keys",),
}


def _queries() -> list[str]:
    return sorted(load_statements("arriero.store.sqlite"))


@pytest.fixture
def explain(sqlite: SqliteStore) -> Iterator[Callable[[str], list[str]]]:
    connection = connect(sqlite.path)

    def plan(name: str) -> list[str]:
        sql = f"EXPLAIN QUERY PLAN {query(name)}"
        return [row[3] for row in connection.execute(sql, _AnyParameter())]

    yield plan
    connection.close()


@pytest.mark.parametrize("name", _queries())
async def test_no_statement_reads_a_table_of_tasks_or_steps_from_end_to_end(
    name: str, explain: Callable[[str], list[str]]
) -> None:
    tables = ("arriero_task", "arriero_step", "arriero_body", "task", "step", "arriero_history", "history")
    scans = [line for line in explain(name) if line.split()[0] == "SCAN" and line.split()[1] in tables]
    allowed = [line for line in scans if line in SCANS_ALLOWED.get(name, ())]
    assert scans == allowed or name in READS_ALL, scans


@pytest.mark.parametrize(("name", "index"), INDEX_OF.items())
async def test_what_runs_all_the_time_uses_its_index_and_sorts_nothing(
    name: str, index: str, explain: Callable[[str], list[str]]
) -> None:
    plan = explain(name)
    assert any(index in line for line in plan), plan
    sorts = [line for line in plan if "TEMP B-TREE FOR ORDER BY" in line]
    # Held by one process: few, and of two tables. Claimable, takeable: the first of each priority, at most as many as asked for.
    assert not sorts or name in {"select_held", "select_claimable", "select_takeable", "select_movable"}, plan
