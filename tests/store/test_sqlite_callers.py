"""Callers' connections on an event loop: the wait for the file's write lock never stops it, and an error names who holds it."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import arriero
from arriero import Agent, App, Attempt, InvalidInput, TransactionConflict, workflow
from arriero.store.sqlite import connection as sqlite_connection
from arriero.store.sqlite.callers import takes_write_lock

seats = Agent("seats")


@seats.step
async def reserve(attempt: Attempt, number: int) -> str:
    return f"seat {number}"


@workflow
async def booking(number: int) -> str:
    return await reserve(number)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App("shop", agents=[seats], workflows=[booking], store=url) as opened:
        yield opened


@pytest.fixture
def holder(app: App, url: str) -> Iterator[sqlite3.Connection]:
    """A transaction of this thread that holds the file's write lock."""
    with closing(arriero.connect(url)) as opened:
        opened.execute("BEGIN IMMEDIATE")
        yield opened


@pytest.fixture
def stranger(app: App, url: str) -> Iterator[sqlite3.Connection]:
    """As ``holder``, but a connection that arriero knows nothing of, as another program has it."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as opened:
        opened.execute("BEGIN IMMEDIATE")
        yield opened


NAMED = (
    r"by a transaction of this very process, open since .* begun in test_sqlite_callers\.py, line \d+: commit before"
)


# --- statements
@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "CREATE TABLE orders (id TEXT)", "begin exclusive"])
async def test_a_statement_on_a_loop_never_waits_for_a_transaction_of_its_own_thread(
    holder: sqlite3.Connection, url: str, statement: str
) -> None:
    with closing(arriero.connect(url)) as own:
        for run in (own.execute, own.cursor().execute):
            with pytest.raises(sqlite3.OperationalError, match=f"database is locked; .*{NAMED}") as refused:
                run(statement)
            assert refused.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
        holder.rollback()
        own.execute(statement)
        assert own.execute("PRAGMA busy_timeout").fetchone() == (10_000,)  # as before


async def test_many_rows_and_scripts_do_not_wait_either(holder: sqlite3.Connection, url: str) -> None:
    holder.executescript("CREATE TABLE orders (id TEXT)")
    holder.execute("INSERT INTO orders VALUES ('a')")
    with closing(arriero.connect(url)) as own:
        for connection in (own, own.cursor()):
            with pytest.raises(sqlite3.OperationalError, match=NAMED):
                connection.executemany("INSERT INTO orders VALUES (?)", [("b",), ("c",)])
            with pytest.raises(sqlite3.OperationalError, match=NAMED):
                connection.executescript("INSERT INTO orders VALUES ('d')")
        own.rollback()
        holder.commit()
        own.executemany("INSERT INTO orders VALUES (?)", [("b",), ("c",)])
        own.commit()
        assert own.execute("SELECT count(*) FROM orders").fetchone() == (3,)


async def test_off_a_loop_a_statement_waits_as_long_as_its_connection_does(
    holder: sqlite3.Connection, url: str
) -> None:
    def begin() -> None:
        with closing(arriero.connect(url)) as own:
            waits.set()
            own.execute("BEGIN IMMEDIATE")

    waits = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        begun = asyncio.wrap_future(pool.submit(begin))
        while not waits.is_set():
            await asyncio.sleep(0)
        assert not begun.done()
        holder.rollback()
        await begun


async def test_a_transaction_that_has_ended_is_named_no_more(
    stranger: sqlite3.Connection, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.store.sqlite.callers.LOOP_BUSY_SECONDS", 0)
    stranger.execute("ROLLBACK")
    with closing(arriero.connect(url)) as before, closing(arriero.connect(url)) as own:
        before.execute("BEGIN IMMEDIATE")
        before.rollback()
        before.execute("BEGIN")
        before.execute("SELECT * FROM arriero_meta").fetchall()
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="^database is locked$"):
            own.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize(
    ("sql", "takes"),
    [
        ("BEGIN IMMEDIATE", True),
        (" begin\n immediate transaction", True),
        ("BEGIN", False),
        ("BEGIN DEFERRED", False),
        ("INSERT INTO a VALUES (1)", True),
        ("with b as (select 1) insert into a select * from b", True),
        ("WITH b AS (SELECT 1) SELECT * FROM b", False),
        ("SELECT 1", False),
        ("PRAGMA user_version", False),
        ("/* shop */ insert into a values (1)", True),
        ("-- shop\n  -- booking\n UPDATE a SET b = 1", True),
        ("/* insert */ SELECT 1", False),
        ("VACUUM", True),
        ("UPDATED", False),
    ],
)
def test_which_statements_take_the_write_lock(sql: str, takes: bool) -> None:
    assert takes_write_lock(sql) == takes


# --- submissions
async def test_a_submission_waits_for_the_lock_while_the_loop_goes_on(
    app: App, holder: sqlite3.Connection, url: str
) -> None:
    with closing(arriero.connect(url)) as own:
        own.execute("BEGIN")
        submitting = asyncio.create_task(app.submit(booking(1), task_id="a", connection=own))
        for _ in range(5):  # its loop turns meanwhile
            await asyncio.sleep(0)
        assert not submitting.done()
        holder.rollback()
        await submitting
        own.commit()
    assert await app.tasks().count() == 1


@pytest.mark.parametrize("kind", ["holder", "stranger"])
async def test_a_submission_that_waited_in_vain_is_a_conflict_that_names_a_transaction_of_this_process(
    app: App, url: str, kind: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(kind)
    with closing(arriero.connect(url)) as own:
        own.execute("PRAGMA busy_timeout=1")
        own.execute("BEGIN")
        said = NAMED if kind == "holder" else r"\(BEGIN IMMEDIATE takes the lock immediately\)"
        with pytest.raises(TransactionConflict, match=f"roll yours back and run it again.*{said}"):
            await app.submit(booking(1), task_id="a", connection=own)
        assert own.in_transaction


async def test_a_submission_that_took_the_lock_is_named_to_others(app: App, url: str) -> None:
    with closing(arriero.connect(url)) as first, closing(arriero.connect(url)) as second:
        first.execute("BEGIN")
        assert (await app.submit(booking(1), task_id="a", connection=first)).created is True
        assert (await app.submit(booking(1), task_id="a", connection=first)).created is False
        with pytest.raises(sqlite3.OperationalError, match=NAMED):
            second.execute("BEGIN IMMEDIATE")
        first.commit()


# --- arriero.transaction
async def test_fifty_transactions_at_once_on_one_loop_all_commit(app: App, url: str) -> None:
    async def place(number: int) -> None:
        async with arriero.transaction(app.store) as own:
            own.execute("INSERT INTO orders VALUES (?)", (number,))
            await asyncio.sleep(0)
            await app.submit(booking(number), task_id=f"{number}", connection=own)

    async with arriero.transaction(app.store) as own:
        own.execute("CREATE TABLE orders (id INTEGER)")
    await asyncio.gather(*(place(number) for number in range(50)))
    async with arriero.transaction(app.store) as own:
        assert own.execute("SELECT count(*) FROM orders").fetchone() == (50,)
    assert await app.tasks().count() == 50


async def test_a_transaction_that_raises_leaves_nothing_and_lets_the_next_one_go(app: App, url: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with arriero.transaction(app.store) as own:
            await app.submit(booking(1), task_id="a", connection=own)
            raise ZeroDivisionError
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        own.execute("SELECT 1")
    async with arriero.transaction(app.store) as own:
        await app.submit(booking(2), task_id="b", connection=own)
    assert [view.id async for view in app.tasks()] == ["b"]


async def test_a_transaction_waits_for_the_lock_while_the_loop_goes_on(
    app: App, stranger: sqlite3.Connection, url: str
) -> None:
    begun = asyncio.Event()

    async def place() -> None:
        async with arriero.transaction(app.store):
            begun.set()

    placing = asyncio.create_task(place())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not begun.is_set()
    stranger.execute("ROLLBACK")
    await placing


async def test_a_transaction_inside_another_one_of_its_loop_says_who_is_in_the_way(
    app: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with arriero.transaction(app.store):
        monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.0)
        with pytest.raises(TransactionConflict, match=NAMED):
            async with arriero.transaction(app.store):
                pass
    async with arriero.transaction(app.store) as own:
        assert own.in_transaction


async def test_a_transaction_whose_wait_is_cancelled_is_in_nobodys_way(
    app: App, stranger: sqlite3.Connection, url: str
) -> None:
    async def place() -> None:
        async with arriero.transaction(app.store):
            pass

    placing = [asyncio.create_task(place()) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    for one in placing[:2]:
        one.cancel()
    stranger.execute("ROLLBACK")
    ended = await asyncio.gather(*placing, return_exceptions=True)
    assert [type(one) for one in ended] == [asyncio.CancelledError, asyncio.CancelledError, type(None)]


async def test_a_transaction_is_on_a_file() -> None:
    with pytest.raises(InvalidInput, match="is not a file; use sqlite:///PATH"):
        async with arriero.transaction("postgresql://localhost/shop"):
            pass
