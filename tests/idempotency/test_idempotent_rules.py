"""``arriero.idempotent``: misuse is refused, and of several calls at once only one has its effect."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from postgres_servers import server, worker
from psycopg import IsolationLevel

import arriero
from arriero import App, IdempotencyKeyBarred, InvalidInput, TransactionConflict, workflow
from arriero.idempotency import SCHEMA, BarredKey, bar_key, drop_keys

SECONDS_MAX = 60.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = str(tmp_path / "service.db")
    with closing(sqlite3.connect(place)) as file, file:
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("CREATE TABLE effects (no INTEGER)")
    return place


@pytest.fixture
def file(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


_urls: dict[str, str] = {}


@pytest.fixture
def url() -> str:
    name = f"idempotent_rules_{worker()}"
    if name not in _urls:
        _urls[name] = server(16).create_database(name)
    with psycopg.connect(_urls[name], autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS effects, arriero_idempotent_call")
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE TABLE effects (no INTEGER)")
    return _urls[name]


def effects(connection: Any) -> int:
    return int(connection.execute("SELECT count(*) FROM effects").fetchone()[0])


def call(connection: Any, key: str = "k-1", answer: Any = 1) -> bool:
    """One whole call in a transaction of its own. Returns: whether it was new."""
    with connection, arriero.idempotent(connection, key, request=None) as one:
        if one.is_new:
            connection.execute("INSERT INTO effects VALUES (1)")
            one.keep(answer)
        assert one.answer == answer
        return bool(one.is_new)


# --- misuse
def test_a_call_that_is_not_new_cannot_keep_an_answer(file: sqlite3.Connection) -> None:
    call(file)
    message = r"has an answer already, so nothing may be done; ask `call\.is_new`"
    with file, pytest.raises(InvalidInput, match=message), arriero.idempotent(file, "k-1", request=None) as one:
        one.keep(2)


def test_an_answer_is_kept_once_and_not_read_before(file: sqlite3.Connection) -> None:
    with file, arriero.idempotent(file, "k-1", request=None) as one:
        with pytest.raises(InvalidInput, match="no answer under 'k-1' yet; keep the answer first"):
            one.answer  # noqa: B018
        one.keep((1, 2))
        assert one.answer == [1, 2]  # as the second call sees it
        with pytest.raises(InvalidInput, match="was kept already"):
            one.keep(2)


@pytest.mark.parametrize("answer", [float("nan"), object(), "\ud800", "x" * 1_000_001])
def test_an_answer_without_a_json_form_is_refused_and_the_work_is_rolled_back(
    file: sqlite3.Connection, answer: Any
) -> None:
    with pytest.raises(InvalidInput, match="answer of an idempotent call"):
        call(file, answer=answer)
    assert effects(file) == 0


@pytest.mark.parametrize("key", [None, "", "k" * 256, "a\0b", "a\nb", b"k", 7])
def test_a_key_that_is_none_is_refused(file: sqlite3.Connection, key: Any) -> None:
    with pytest.raises(InvalidInput, match="give the text of the header Idempotency-Key"):
        arriero.idempotent(file, key, request=None)
    with pytest.raises(InvalidInput, match="give the text of the header Idempotency-Key"):
        bar_key(file, key)


def test_a_call_is_used_once_and_in_a_with_block(file: sqlite3.Connection) -> None:
    one = arriero.idempotent(file, "k-1", request=None)
    with pytest.raises(InvalidInput, match="use it as `with"):
        one.is_new  # noqa: B018
    with file, one:
        one.keep(1)
    with pytest.raises(InvalidInput, match="a call is used once"), file, one:
        pass


async def test_a_sync_connection_takes_with_and_an_async_one_async_with(file: sqlite3.Connection, url: str) -> None:
    with pytest.raises(InvalidInput, match="is a sync one; use `with`"):
        async with arriero.idempotent(file, "k-1", request=None):
            pass
    async with await psycopg.AsyncConnection.connect(url) as connection:
        asked = arriero.idempotent(connection, "k-1", request=None)
        with pytest.raises(InvalidInput, match="is an async one; use `async with`"), asked:
            pass


def test_a_key_that_is_used_inside_of_its_own_block_is_refused(file: sqlite3.Connection) -> None:
    with (
        pytest.raises(InvalidInput, match="is begun and has no answer"),
        file,
        arriero.idempotent(file, "k-1", request=None) as one,
    ):
        with arriero.idempotent(file, "k-1", request=None):
            pass
        one.keep(1)
    with (
        pytest.raises(InvalidInput, match="is begun and has no answer"),
        file,
        arriero.idempotent(file, "k-1", request=None),
    ):
        bar_key(file, "k-1")


def test_other_keys_may_be_used_inside_of_a_block(file: sqlite3.Connection) -> None:
    call(file, "k-1", 7)
    with file, arriero.idempotent(file, "undo-1", request="k-1") as undo:
        charged = bar_key(file, "k-1")
        with arriero.idempotent(file, "k-3", request=None) as inner:
            inner.keep(3)
        undo.keep(charged.answer)
    with file, arriero.idempotent(file, "undo-1", request="k-1") as again:
        assert (again.is_new, again.answer) == (False, 7)


def test_a_block_that_fails_after_a_known_call_inside_of_it_leaves_nothing(file: sqlite3.Connection) -> None:
    call(file, "k-2")
    with file, suppress(ZeroDivisionError), arriero.idempotent(file, "k-1", request=None):
        file.execute("INSERT INTO effects VALUES (1)")
        with arriero.idempotent(file, "k-2", request=None) as inner:
            assert not inner.is_new
        raise ZeroDivisionError
    assert effects(file) == 1
    assert call(file, "k-1")


def test_a_block_that_commits_by_itself_is_found_out_and_never_done_again(file: sqlite3.Connection) -> None:
    with (
        pytest.raises(sqlite3.OperationalError, match="no such savepoint"),
        arriero.idempotent(file, "k-1", request=None) as one,
    ):
        file.execute("INSERT INTO effects VALUES (1)")
        file.commit()
        one.keep(1)
    file.rollback()
    with pytest.raises(InvalidInput, match="is begun and has no answer.*correct the row in arriero_idempotent_call"):
        call(file)
    assert effects(file) == 1


@pytest.mark.parametrize("connection", [None, "sqlite:///service.db", object()])
def test_what_is_no_connection_is_refused(connection: Any) -> None:
    with pytest.raises(InvalidInput, match=r"takes a sqlite3\.Connection, one of psycopg"):
        bar_key(connection, "k-1")


def test_a_connection_that_commits_each_statement_is_refused(path: str, url: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        with pytest.raises(InvalidInput, match="execute BEGIN IMMEDIATE first"):
            bar_key(file, "k-1")
        file.execute("BEGIN IMMEDIATE")
        assert bar_key(file, "k-1") == BarredKey(False, None)
        assert file.in_transaction
        file.execute("ROLLBACK")
        file.execute("BEGIN IMMEDIATE")
        assert bar_key(file, "k-1") == BarredKey(False, None)
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(InvalidInput, match="commits each statement; use it inside connection.transaction"):
            bar_key(connection, "k-1")
        with connection.transaction():
            assert bar_key(connection, "k-1") == BarredKey(False, None)
        assert bar_after(connection) == BarredKey(False, None)
    engine = sqlalchemy.create_engine(
        url.replace("postgresql:", "postgresql+psycopg:", 1), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as alchemy, pytest.raises(InvalidInput, match="without isolation_level='AUTOCOMMIT'"):
        bar_key(alchemy, "k-1")
    engine.dispose()


def test_a_file_that_is_opened_with_autocommit_is_refused(path: str) -> None:
    """An attribute of connections since Python 3.12."""

    class Committing(sqlite3.Connection):
        autocommit = True

    with (
        closing(sqlite3.connect(path, factory=Committing)) as file,
        pytest.raises(InvalidInput, match="execute BEGIN IMMEDIATE first"),
    ):
        bar_key(file, "k-1")


def test_a_call_and_a_task_share_a_transaction(tmp_path: Path) -> None:
    """The service starts a task of its own, once for each key, by the connection of ``arriero.connect``."""

    @workflow
    async def greet(name: str) -> str:
        return f"hello {name}"

    app = App("greeter", workflows=[greet], store=f"sqlite:///{tmp_path / 'store.db'}")
    with app.sync:
        for _ in range(2):
            with closing(arriero.connect(app.store)) as connection, connection:
                connection.row_factory = sqlite3.Row
                with arriero.idempotent(connection, "k-1", request="ada") as one:
                    if one.is_new:
                        one.keep(app.sync.submit(greet("ada"), connection=connection).id)
        assert app.sync.task(one.answer).view().state == "pending"
        assert len(list(app.sync.tasks())) == 1


def bar_after(connection: psycopg.Connection[Any]) -> Any:
    with connection.transaction():
        return bar_key(connection, "k-1")


def test_a_connection_that_is_closed_or_has_failed_is_refused(path: str, url: str) -> None:
    file = sqlite3.connect(path)
    file.close()
    with pytest.raises(InvalidInput, match="use an open connection"):
        bar_key(file, "k-1")
    with psycopg.connect(url) as connection:
        with suppress(psycopg.Error):
            connection.execute("SELECT 1/0")
        with pytest.raises(InvalidInput, match="has failed before"):
            bar_key(connection, "k-1")
        connection.rollback()
        connection.close()
        with pytest.raises(InvalidInput, match="is closed"):
            bar_key(connection, "k-1")


def test_a_transaction_that_reads_only_is_refused(url: str) -> None:
    with psycopg.connect(url) as connection:
        call(connection)
    with psycopg.connect(url) as connection:
        connection.read_only = True
        with pytest.raises(InvalidInput, match="the transaction is read-only"):
            bar_key(connection, "k-1")


def test_who_may_not_create_the_table_is_shown_its_statement(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest")
    with psycopg.connect(url) as connection:
        connection.execute("SET ROLE guest")
        with pytest.raises(
            InvalidInput, match=r"may not be created here; create it:\n.*CREATE TABLE IF NOT EXISTS|create it"
        ):
            bar_key(connection, "k-1")


def test_the_printed_statement_creates_the_table_that_is_used(file: sqlite3.Connection, url: str) -> None:
    file.executescript(SCHEMA)
    assert call(file)
    with psycopg.connect(url) as connection:
        connection.execute(SCHEMA.encode())
        connection.commit()
        assert bar_key(connection, "k-1") == BarredKey(False, None)


def test_an_error_of_the_block_s_own_sql_leaves_as_it_is(url: str) -> None:
    with psycopg.connect(url) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero), arriero.idempotent(connection, "k-1", request=None):
            connection.execute("SELECT 1/0")
        assert call(connection)  # the transaction goes on: the block was inside of a savepoint


def test_a_lost_connection_does_not_hide_what_the_block_raised(url: str) -> None:
    connection = psycopg.connect(url)
    with pytest.raises(ZeroDivisionError), arriero.idempotent(connection, "k-1", request=None):
        connection.close()
        raise ZeroDivisionError


@pytest.mark.parametrize("older_than", [timedelta(), timedelta(seconds=-1), 5, None])
def test_keys_are_dropped_by_an_age_above_zero(file: sqlite3.Connection, older_than: Any) -> None:
    with pytest.raises(InvalidInput, match="give a timedelta above 0"):
        drop_keys(file, older_than=older_than)


# --- several at once
def at_once(count: int, work: Callable[[], bool]) -> list[bool]:
    """Let threads do the same work at the same time. A conflict is run again, as its message says."""
    start = threading.Barrier(count)

    def run() -> bool:
        start.wait(SECONDS_MAX)
        while True:
            with suppress(TransactionConflict, psycopg.errors.SerializationFailure):  # the latter from COMMIT
                return work()

    with ThreadPoolExecutor(count) as pool:
        return [future.result(SECONDS_MAX) for future in [pool.submit(run) for _ in range(count)]]


@pytest.mark.parametrize("has_table", [True, False])
def test_of_eight_calls_at_once_one_has_its_effect_on_a_file(path: str, has_table: bool) -> None:
    def work() -> bool:
        with closing(sqlite3.connect(path, timeout=SECONDS_MAX)) as connection:
            return call(connection)

    with closing(sqlite3.connect(path)) as file:
        if has_table:
            file.executescript(SCHEMA)
        assert sorted(at_once(8, work)) == [False] * 7 + [True]
        assert effects(file) == 1


@pytest.mark.parametrize(
    "level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]
)
@pytest.mark.parametrize("has_table", [True, False])
def test_of_eight_calls_at_once_one_has_its_effect_on_a_server(
    url: str, level: IsolationLevel, has_table: bool
) -> None:
    def work() -> bool:
        with closing(psycopg.connect(url)) as connection:
            connection.isolation_level = level
            return call(connection)

    with psycopg.connect(url) as connection:
        if has_table:
            connection.execute(SCHEMA.encode())
            connection.commit()
        assert sorted(at_once(8, work)) == [False] * 7 + [True]
        assert effects(connection) == 1


def wait_until_blocked(watching: psycopg.Connection[Any]) -> None:
    """Wait until a connection of this database waits for a lock."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while watching.execute(sql).fetchone() == (0,):
        pass


class Gone(Exception):
    """The caller's own error."""


@pytest.mark.parametrize("first_commits", [True, False])
def test_the_second_call_waits_for_the_first_on_a_server(url: str, first_commits: bool) -> None:
    is_inside, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with psycopg.connect(url) as connection, arriero.idempotent(connection, "k-1", request=None) as one:
            connection.execute("INSERT INTO effects VALUES (1)")
            is_inside.set()
            may_end.wait(SECONDS_MAX)
            if not first_commits:
                raise Gone
            one.keep(1)

    def second() -> bool:
        with psycopg.connect(url) as connection:
            return call(connection)

    with psycopg.connect(url, autocommit=True) as watching, ThreadPoolExecutor(2) as pool:
        watching.execute(SCHEMA.encode())
        ended = pool.submit(first)
        is_inside.wait(SECONDS_MAX)
        waiting = pool.submit(second)
        wait_until_blocked(watching)
        may_end.set()
        assert waiting.result(SECONDS_MAX) is not first_commits
        assert isinstance(ended.exception(SECONDS_MAX), Gone) is not first_commits
        assert effects(watching) == 1


@pytest.mark.parametrize("first_commits", [True, False])
def test_who_bars_a_key_waits_for_the_call_that_is_under_way(url: str, first_commits: bool) -> None:
    is_inside, may_end = threading.Event(), threading.Event()

    def forward() -> None:
        with psycopg.connect(url) as connection, arriero.idempotent(connection, "k-1", request=None) as one:
            connection.execute("INSERT INTO effects VALUES (1)")
            one.keep("r-1")
            is_inside.set()
            may_end.wait(SECONDS_MAX)
            if not first_commits:
                raise Gone

    def undo() -> BarredKey:
        with psycopg.connect(url) as connection:
            barred: BarredKey = bar_key(connection, "k-1")
            return barred

    with psycopg.connect(url, autocommit=True) as watching, ThreadPoolExecutor(2) as pool:
        watching.execute(SCHEMA.encode())
        ended = pool.submit(forward)
        is_inside.wait(SECONDS_MAX)
        barring = pool.submit(undo)
        wait_until_blocked(watching)
        may_end.set()
        assert barring.result(SECONDS_MAX) == (BarredKey(True, "r-1") if first_commits else BarredKey(False, None))
        ended.exception(SECONDS_MAX)
        with psycopg.connect(url) as connection, pytest.raises(IdempotencyKeyBarred):
            call(connection)


def test_a_call_that_may_not_wait_any_longer_is_told_to_run_again(url: str, path: str) -> None:
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        first.execute(SCHEMA.encode())
        first.commit()
        with arriero.idempotent(first, "k-1", request=None) as one:
            second.execute("SET lock_timeout = 1")
            with pytest.raises(TransactionConflict, match=r"roll yours back and run it again"):
                bar_key(second, "k-1")
            one.keep(1)
    with closing(sqlite3.connect(path)) as holder, closing(sqlite3.connect(path, timeout=0)) as other:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransactionConflict, match="database is locked"):
            call(other)
        holder.rollback()
        assert call(other)
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM effects").fetchall()
        assert call(other, "k-2")
        with pytest.raises(TransactionConflict, match="database is locked"):  # its snapshot is out of date
            call(holder, "k-2")
        engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
        other.execute("BEGIN IMMEDIATE")
        with engine.connect() as alchemy, pytest.raises(TransactionConflict, match="database is locked"):
            bar_key(alchemy, "k-1")
        engine.dispose()


async def test_a_block_that_is_cancelled_leaves_nothing(url: str) -> None:
    inserted = asyncio.Event()
    async with await psycopg.AsyncConnection.connect(url) as connection:

        async def insert_and_wait() -> None:
            async with arriero.idempotent(connection, "k-1", request=None):
                await connection.execute("INSERT INTO effects VALUES (1)")
                inserted.set()
                await asyncio.Event().wait()

        block = asyncio.create_task(insert_and_wait())
        await inserted.wait()
        block.cancel()
        with pytest.raises(asyncio.CancelledError):
            await block
        await connection.commit()
        async with arriero.idempotent(connection, "k-1", request=None) as one:
            assert one.is_new
            one.keep(1)
    with psycopg.connect(url) as connection_after:
        assert effects(connection_after) == 0
