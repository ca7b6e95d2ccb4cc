"""submit(connection=) on PostgreSQL: the caller's rows and the task stand or fall together, whoever made the connection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from typing import Any

import msgspec
import psycopg
import pytest
import sqlalchemy
from callers_transactions import (
    SYNC,
    Begins,
    engine_of,
    every_kind,
    of_sqlalchemy,
    psycopg_async,
    psycopg_plain,
    sqlalchemy_async_session,
    sqlalchemy_session,
)
from django_databases import configure_django
from postgres_servers import database, emptied, pooled, server
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from psycopg.types.numeric import IntLoader
from psycopg.types.string import StrDumper, TextLoader
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool
from store_checks import broken_links, disagreements, history_violations
from store_world import NOON, submission

from arriero import Agent, App, Attempt, InvalidInput, StoreError, TransactionConflict, workflow
from arriero.audit.check import check
from arriero.core import transitions
from arriero.events.base import START, fits_link, link_hash
from arriero.model import Instant
from arriero.runtime.settings import Settings
from arriero.store.postgres.store import PostgresStore

SECONDS_MAX = 60.0
ONLY_WHEN_TOLD = Settings(poll_seconds=1_000.0, lease_seconds=9_000.0)  # no poll of it falls into a test

payments = Agent("payments")


@payments.step
async def charge(attempt: Attempt, amount: int) -> str:
    return f"charged {amount}"


@workflow
async def order(amount: int) -> str:
    return await charge(amount)


def shop(url: str) -> App:
    return App("shop", agents=[payments], workflows=[order], store=url)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    found = emptied(database(kind="joined"))
    with psycopg.connect(found) as connection:
        connection.execute("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id text PRIMARY KEY)")
    return found


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    """A client of the store; at the end of every test its history is clean and equals the tables."""
    async with shop(url) as opened:
        yield opened
        await is_sound(opened.session.store)


async def is_sound(store: Any) -> None:
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []


def asked(url: str, sql: str) -> list[Any]:
    """The first column, as everybody sees it."""
    with psycopg.connect(url, row_factory=scalar_row) as connection:
        return connection.execute(sql.encode()).fetchall()


def orders(url: str) -> list[str]:
    return asked(url, "SELECT id FROM orders ORDER BY id")


def tasks(url: str) -> list[str]:
    return asked(url, "SELECT task_id FROM arriero.task ORDER BY task_no")


INSERT = "INSERT INTO orders VALUES ('a')"


# --- whoever made the connection
@every_kind
async def test_neither_is_seen_before_the_commit_and_both_after_it(app: App, url: str, begins: Begins) -> None:
    async with begins(url) as transaction:
        await transaction.execute(INSERT)
        task = await app.submit(order(1), task_id="a", reply_to="web", connection=transaction.connection)
        assert task.id == "a"
        assert (orders(url), tasks(url)) == ([], [])
    assert (orders(url), tasks(url)) == (["a"], ["a"])
    assert (await task.view()).state == "pending"


@every_kind
async def test_a_submission_may_be_the_first_statement(app: App, url: str, begins: Begins) -> None:
    async with begins(url) as transaction:
        await app.submit(order(1), task_id="a", connection=transaction.connection)
        await transaction.execute(INSERT)
    assert (orders(url), tasks(url)) == (["a"], ["a"])


class Changed(Exception):
    """The caller's mind."""


@contextmanager
def notifications(url: str) -> Iterator[Callable[[], list[str]]]:
    """What is told on the store's channel until one looks."""
    with psycopg.connect(url, autocommit=True) as listening:
        listening.execute("LISTEN arriero_wake_up")
        with psycopg.connect(url, autocommit=True) as marking:

            def told() -> list[str]:
                marking.execute("SELECT pg_notify('arriero_wake_up', 'the end')")
                found: list[str] = []
                for notification in listening.notifies(timeout=SECONDS_MAX):
                    if notification.payload == "the end":
                        return found
                    found.append(notification.payload)
                raise AssertionError("the end was not told")

            yield told


@every_kind
async def test_a_rollback_leaves_nothing_not_even_a_wake_up(app: App, url: str, begins: Begins) -> None:
    with notifications(url) as told:
        with suppress(Changed):
            async with begins(url) as transaction:
                await transaction.execute(INSERT)
                await app.submit(order(1), task_id="a", reply_to="web", connection=transaction.connection)
                raise Changed
        assert told() == []
        for table in ("task", "body", "history", "status"):
            assert asked(url, f"SELECT count(*) FROM arriero.{table}") == [0]
        assert orders(url) == []
        async with begins(url) as transaction:
            await app.submit(order(2), task_id="a", connection=transaction.connection)
        assert told() == [""]


@every_kind
async def test_a_savepoint_that_is_rolled_back_takes_the_task_and_leaves_the_rest(
    app: App, url: str, begins: Begins
) -> None:
    async with begins(url) as transaction:
        await transaction.execute(INSERT)
        await app.submit(order(1), task_id="kept", connection=transaction.connection)
        await transaction.execute("SAVEPOINT mine")
        await transaction.execute("INSERT INTO orders VALUES ('gone')")
        await app.submit(order(1), task_id="gone", connection=transaction.connection)
        await transaction.execute("ROLLBACK TO mine")
    assert (orders(url), tasks(url)) == (["a"], ["kept"])


@every_kind
async def test_the_same_id_in_one_transaction_is_the_same_task_and_another_body_is_refused_without_harm(
    app: App, url: str, begins: Begins
) -> None:
    await app.submit(order(1), task_id="known")
    async with begins(url) as transaction:
        for name in ("known", "new", "known", "new"):
            await app.submit(order(1), task_id=name, connection=transaction.connection)
        for name in ("known", "new"):
            with pytest.raises(InvalidInput, match=f"'{name}' exists with another body"):
                await app.submit(order(2), task_id=name, connection=transaction.connection)
            with pytest.raises(InvalidInput, match=f"'{name}' exists with another workflow"):
                await app.submit(charge(1), task_id=name, connection=transaction.connection)
        await transaction.execute(INSERT)
    assert (orders(url), tasks(url)) == (["a"], ["known", "new"])
    assert asked(url, "SELECT count(*) FROM arriero.history WHERE task_no > 0") == [2]


def at_once(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing: the sync libraries need no loop, and app.sync refuses one."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")


@pytest.mark.parametrize("begins", SYNC, ids=lambda begins: begins.__name__)
def test_sync_code_joins_too(url: str, begins: Begins) -> None:
    app = shop(url)
    with app.sync:
        manager = begins(url)
        transaction = at_once(manager.__aenter__())
        task = app.sync.submit(order(1), task_id="a", connection=transaction.connection)
        assert tasks(url) == []
        at_once(manager.__aexit__(None, None, None))
        assert tasks(url) == ["a"]
        assert task.view().state == "pending"


def test_sync_code_cannot_use_an_async_connection_and_is_told_so(url: str) -> None:
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(psycopg.AsyncConnection.connect(url))
    app = shop(url)
    try:
        with app.sync, pytest.raises(InvalidInput, match="async connection; await App.submit"):
            app.sync.submit(order(1), connection=connection)
    finally:
        loop.run_until_complete(connection.close())
        loop.close()
    assert tasks(url) == []


# --- Django
@pytest.fixture
def models(url: str) -> Iterator[Any]:
    """Django's connections: the store's database, and one that is a file."""
    configure_django(url)
    from django import db

    yield db
    db.connections.close_all()


def test_django_commits_and_rolls_back_both(url: str, models: Any) -> None:
    app = shop(url)
    with app.sync:
        with models.transaction.atomic():
            models.connection.cursor().execute(INSERT)
            app.sync.submit(order(1), task_id="a", connection=models.connection)
            assert (orders(url), tasks(url)) == ([], [])
        assert (orders(url), tasks(url)) == (["a"], ["a"])
        with suppress(Changed), models.transaction.atomic():
            app.sync.submit(order(1), task_id="b", connection=models.connections["default"])
            raise Changed
        with models.transaction.atomic():
            app.sync.submit(order(1), task_id="c", connection=models.connection)
            with suppress(Changed), models.transaction.atomic():  # a savepoint
                app.sync.submit(order(1), task_id="d", connection=models.connection)
                raise Changed
        assert tasks(url) == ["a", "c"]


def test_django_without_a_transaction_or_on_another_database_is_refused(url: str, models: Any) -> None:
    app = shop(url)

    def refused(match: str, connection: Any = models.connection) -> None:
        with pytest.raises(InvalidInput, match=match):
            app.sync.submit(order(1), connection=connection)

    with app.sync:
        refused("no transaction is open on it; call it inside transaction.atomic")
        with models.transaction.atomic("file"):
            refused("is on sqlite, the store is postgresql://", models.connections["file"])
        with suppress(Changed), models.transaction.atomic():
            with suppress(models.Error), models.transaction.atomic(savepoint=False):
                models.connection.cursor().execute("SELECT no_such_column")
            refused("its transaction has failed before")
            raise Changed
        with suppress(Changed), models.transaction.atomic():
            with suppress(models.Error):
                models.connection.cursor().execute("SELECT no_such_column")
            refused("its transaction has failed before")
            raise Changed
    assert tasks(url) == []


async def test_django_s_connection_on_an_event_loop_is_refused(app: App, url: str, models: Any) -> None:
    with pytest.raises(InvalidInput, match="on an event loop; call app.sync.submit in code without one"):
        await app.submit(order(1), connection=models.connections["default"])
    assert tasks(url) == []


# --- connections that are not fit
async def _is_refused(app: App, connection: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match) as raised:
        await app.submit(order(1), task_id="refused", connection=connection)
    assert str(raised.value).startswith("submit(connection=)")


async def test_what_is_no_connection_is_refused(app: App, url: str) -> None:
    engine = engine_of(url)
    with psycopg.connect(url) as connection:
        for value in (url, 0, object(), psycopg, engine, sessionmaker(engine), connection.cursor()):
            await _is_refused(
                app, value, "takes a psycopg connection, a SQLAlchemy session .* Django's connection for the"
            )
    assert tasks(url) == []


async def test_a_connection_of_psycopg_that_is_not_fit_is_refused(app: App, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        await _is_refused(app, connection, r"commits each statement; use it inside connection.transaction\(\)")
        assert connection.info.transaction_status == TransactionStatus.IDLE
    await _is_refused(app, connection, "it is closed; use an open one")
    with psycopg.connect(url) as connection:
        with suppress(psycopg.Error):
            connection.execute("SELECT no_such_column")
        await _is_refused(app, connection, "its transaction has failed before; roll it back")
        connection.rollback()
        await app.submit(order(1), task_id="a", connection=connection)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as another:
        await _is_refused(app, another, "no transaction is open on it")
    await _is_refused(app, another, "it is closed")
    assert tasks(url) == ["a"]


async def test_a_connection_of_sqlalchemy_that_is_not_fit_is_refused(app: App, url: str) -> None:
    with engine_of(url, isolation_level="AUTOCOMMIT").connect() as connection:
        await _is_refused(app, connection, "create the engine without isolation_level='AUTOCOMMIT'")
    await _is_refused(app, connection, "SQLAlchemy says: This Connection is closed")
    with Session(engine_of(url, isolation_level="AUTOCOMMIT")) as session:
        await _is_refused(app, session, "commits each statement")
    with Session() as session:
        await _is_refused(app, session, "SQLAlchemy says: .*bind")
    with Session(sqlalchemy.create_engine("sqlite://", poolclass=NullPool)) as session:
        await _is_refused(
            app, session, r"speaks sqlite\+pysqlite on it; .* create the engine with postgresql\+psycopg://"
        )
    with Session(engine_of(url)) as session:
        with suppress(sqlalchemy.exc.DBAPIError):
            session.execute(sqlalchemy.text("SELECT no_such_column"))
        await _is_refused(app, session, "its transaction has failed before")
    await _is_refused(app, create_async_engine(of_sqlalchemy(url)).connect(), "SQLAlchemy says: .* not been started")
    assert tasks(url) == []


async def test_a_dialect_that_is_not_psycopg_s_is_refused_with_the_remedy(app: App, url: str) -> None:
    dialect = type("Dialect", (), {"name": "postgresql", "driver": "asyncpg"})()
    kind = type("Connection", (), {"__module__": "sqlalchemy.engine", "dialect": dialect, "connection": None})
    await _is_refused(
        app, kind(), r"speaks postgresql\+asyncpg on it; .* create the engine with postgresql\+psycopg://"
    )


@pytest.mark.parametrize(
    "begins", [psycopg_plain, psycopg_async, sqlalchemy_session], ids=lambda begins: begins.__name__
)
async def test_another_store_s_database_is_refused_by_name_and_nothing_is_kept_there(
    app: App, url: str, begins: Begins
) -> None:
    other = emptied(database(kind="joined_other"))
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute("UPDATE arriero.meta SET value = 'another' WHERE name = 'store_id'")
    async with begins(other) as transaction:
        await _is_refused(
            app, transaction.connection, r"'test_\w+_joined_other' .* has another store than postgresql://"
        )
    assert tasks(other) == []
    assert tasks(url) == []


async def test_a_database_without_arriero_is_refused(app: App, url: str) -> None:
    with psycopg.connect(server().url("template1")) as connection:
        await _is_refused(app, connection, "its database is not that of the store postgresql://")


async def test_a_store_in_another_schema_of_the_same_database_is_the_one_that_is_used(app: App, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS second CASCADE")
    async with shop(f"{url}?schema=second") as second:
        with psycopg.connect(url) as connection:
            await second.submit(order(1), task_id="there", connection=connection)
            await app.submit(order(1), task_id="here", connection=connection)
        assert asked(url, "SELECT task_id FROM second.task") == ["there"]
        assert tasks(url) == ["here"]
        await is_sound(second.session.store)


async def test_a_read_only_transaction_is_refused(app: App, url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.read_only = True
        await _is_refused(app, connection, "read-only transaction; begin it READ WRITE")
    assert tasks(url) == []


async def test_a_user_without_rights_is_told_so(app: App, url: str) -> None:
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'stranger'").rowcount:
            server().create_role("stranger")
    with (
        psycopg.connect(server().url(str(name), user="stranger")) as connection,
        pytest.raises(
            StoreError, match="permission denied for schema arriero; this user lacks a right: the owner grants it"
        ),
    ):
        await app.submit(order(1), connection=connection)


async def test_a_transaction_that_was_begun_by_hand_is_one(app: App, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("BEGIN")
        await app.submit(order(1), task_id="a", connection=connection)
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        await app.submit(order(1), task_id="b", connection=connection)
        connection.execute("COMMIT")
    assert tasks(url) == ["b"]


async def test_a_connection_by_way_of_a_pooler_may_join(app: App, url: str) -> None:
    with psycopg.connect(pooled(url)) as connection:
        for number in range(8):  # more often than psycopg executes a statement before it prepares it
            await app.submit(order(number), task_id=str(number), connection=connection)
            connection.commit()
    assert len(tasks(url)) == 8


# --- the caller's settings
@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row])
async def test_the_caller_s_row_factory_is_not_in_the_way_and_stays(app: App, url: str, row_factory: Any) -> None:
    with psycopg.connect(url, row_factory=row_factory) as connection:
        for _ in range(2):
            await app.submit(order(1), task_id="a", connection=connection)
        assert connection.row_factory is row_factory
    assert tasks(url) == ["a"]


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor, psycopg.ServerCursor])
async def test_the_caller_s_cursors_are_not_in_the_way_and_stay(app: App, url: str, factory: Any) -> None:
    with psycopg.connect(url) as connection:
        connection.cursor_factory = factory
        await app.submit(order(1), task_id="a", connection=connection)
        assert connection.cursor_factory is factory
    assert tasks(url) == ["a"]


@pytest.mark.parametrize("threshold", [0, 1, None])
async def test_nothing_is_prepared_on_the_caller_s_connection(app: App, url: str, threshold: int | None) -> None:
    with psycopg.connect(url, prepare_threshold=threshold) as connection:
        for _ in range(3):
            await app.submit(order(1), task_id="a", connection=connection)
        connection.prepare_threshold = None
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert tasks(url) == ["a"]


class _Shouting(StrDumper):
    def dump(self, obj: str) -> bytes:
        return obj.upper().encode()


class _Broken(TextLoader):
    def load(self, data: Any) -> str:
        raise ZeroDivisionError


class _Negative(IntLoader):
    def load(self, data: Any) -> int:
        return -super().load(data)


async def test_the_caller_s_adapters_are_not_in_the_way_and_stay(app: App, url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.adapters.register_dumper(str, _Shouting)
        connection.adapters.register_loader("text", _Broken)
        connection.adapters.register_loader("int8", _Negative)
        for _ in range(2):
            await app.submit(order(1), task_id="Mixed", connection=connection)
        with pytest.raises(ZeroDivisionError):
            connection.execute("SELECT 'a'::text").fetchone()
        assert connection.execute("SELECT 5::int8, %s = 'A'", ("a",)).fetchone() == (-5, True)
    assert tasks(url) == ["Mixed"]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "UTF8"])
async def test_the_caller_s_encoding_is_not_in_the_way(app: App, url: str, encoding: str) -> None:
    with psycopg.connect(url, client_encoding=encoding) as connection:
        for _ in range(2):
            await app.submit(order(1), task_id="größer 大 \N{SNOWMAN}", connection=connection)
    assert tasks(url) == ["größer 大 \N{SNOWMAN}"]


def _setting(connection: psycopg.Connection[Any], name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize(
    ("name", "before", "inside"),
    [
        ("synchronous_commit", "off", "on"),
        ("synchronous_commit", "local", "on"),
        ("synchronous_commit", "remote_write", "on"),
        ("synchronous_commit", "on", "on"),
        ("synchronous_commit", "remote_apply", "remote_apply"),
        ("client_min_messages", "error", "warning"),
        ("client_min_messages", "warning", "warning"),
        ("client_min_messages", "notice", "notice"),
        ("client_min_messages", "debug1", "debug1"),
        ("lock_timeout", "0", "0"),
        ("lock_timeout", "3s", "3s"),
    ],
)
async def test_a_setting_is_raised_where_the_commit_would_not_be_safe_and_else_left_alone(
    app: App, url: str, name: str, before: str, inside: str
) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(f"SET {name} = '{before}'".encode())
        connection.commit()
        for _ in range(2):
            await app.submit(order(1), task_id="a", connection=connection)
            assert _setting(connection, name) == inside
        connection.commit()
        assert _setting(connection, name) == before


# --- others at the same time
async def until(url: str, sql: str) -> None:
    """Wait until a query answers true."""
    async with asyncio.timeout(SECONDS_MAX), await psycopg.AsyncConnection.connect(url, autocommit=True) as looking:
        while not (await (await looking.execute(sql.encode())).fetchone() or (False,))[0]:
            pass


SOMEBODY_WAITS = """SELECT count(*) > 0 FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'"""


@pytest.mark.parametrize("commits", [True, False])
async def test_whoever_brings_an_id_of_an_open_transaction_waits_for_its_end(app: App, url: str, commits: bool) -> None:
    with psycopg.connect(url) as first:
        await app.submit(order(1), task_id="a", connection=first)
        async with await psycopg.AsyncConnection.connect(url) as second:
            waiting = asyncio.create_task(app.submit(order(2), task_id="a", connection=second))
            await until(url, SOMEBODY_WAITS)
            if commits:
                first.commit()
                with pytest.raises(InvalidInput, match="another body"):
                    await waiting
            else:
                first.rollback()
                await waiting
    assert asked(url, "SELECT arguments FROM arriero.body") == ['{"amount":1}' if commits else '{"amount":2}']


async def test_whoever_has_waited_up_to_the_lock_timeout_is_told_to_run_again(app: App, url: str) -> None:
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        await app.submit(order(1), task_id="a", connection=first)
        second.execute("SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(TransactionConflict, match="the task 'a' open, .* lock timeout; roll your transaction back"):
            await app.submit(order(1), task_id="a", connection=second)
        await _is_refused(app, second, "its transaction has failed before")
        second.rollback()
        first.commit()
        await app.submit(order(1), task_id="a", connection=second)
    assert tasks(url) == ["a"]


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE], ids=str)
async def test_a_snapshot_that_does_not_see_the_other_s_task_must_be_taken_again(
    app: App, url: str, level: IsolationLevel
) -> None:
    with psycopg.connect(url) as connection:
        connection.isolation_level = level
        connection.execute("SELECT FROM orders")
        await app.submit(order(1), task_id="a")
        with pytest.raises(TransactionConflict, match="run it again"):
            await app.submit(order(1), task_id="a", connection=connection)
        connection.rollback()
        await app.submit(order(1), task_id="a", connection=connection)
        await app.submit(order(1), task_id="b", connection=connection)
    assert tasks(url) == ["a", "b"]


async def test_a_deadlock_is_a_conflict(app: App, url: str) -> None:
    async with (
        await psycopg.AsyncConnection.connect(url) as first,
        await psycopg.AsyncConnection.connect(url) as second,
    ):
        await app.submit(order(1), task_id="a", connection=first)
        await app.submit(order(1), task_id="b", connection=second)
        await first.execute("SET LOCAL deadlock_timeout = '10s'")  # so that it is the second that finds it
        waiting = asyncio.create_task(app.submit(order(1), task_id="b", connection=first))
        await until(url, SOMEBODY_WAITS)
        await second.execute("SET LOCAL deadlock_timeout = '1ms'")
        with pytest.raises(TransactionConflict, match="deadlock detected"):
            await app.submit(order(1), task_id="a", connection=second)
        await second.rollback()
        await waiting
    assert tasks(url) == ["a", "b"]


async def test_a_stranger_s_open_transaction_holds_up_nobody_but_who_brings_its_ids(app: App, url: str) -> None:
    await app.submit(order(1), task_id="known")
    async with await psycopg.AsyncConnection.connect(url) as stranger:
        await app.submit(order(1), task_id="mine", connection=stranger)
        await app.submit(order(1), task_id="known", connection=stranger)
        async with shop(url).running(), asyncio.timeout(SECONDS_MAX):
            names = [f"other {number}" for number in range(20)]
            first = asyncio.create_task(app.submit(order(1), task_id="mine"))
            for submitted in asyncio.as_completed([app.submit(order(1), task_id=name) for name in names]):
                await submitted
            for name in names:
                assert await app.task(name, order).result() == "charged 1"
            assert not first.done()
            assert (await app.task("known").view()).state == "pending"  # its row is the stranger's until the end
            await stranger.commit()
            await first
            for name in ("mine", "known"):
                assert await app.task(name, order).result() == "charged 1"


# --- noticed by those who run it
@pytest.mark.parametrize("begins", [psycopg_plain, sqlalchemy_async_session], ids=lambda begins: begins.__name__)
async def test_a_commit_wakes_a_node_that_would_not_poll_for_long(app: App, url: str, begins: Begins) -> None:
    elsewhere = shop(url)
    elsewhere.session.settings = ONLY_WHEN_TOLD
    async with elsewhere.running():
        for name in "ab":  # the first may be found by the look at the start
            async with begins(url) as transaction:
                task = await app.submit(order(1), task_id=name, connection=transaction.connection)
            assert await task.result(SECONDS_MAX) == "charged 1"


async def test_a_node_that_does_not_listen_finds_it_by_polling(app: App, url: str) -> None:
    async with shop(f"{url}?listen=off").running():
        with psycopg.connect(url) as connection:
            task = await app.submit(order(1), task_id="a", connection=connection)
        assert await task.result(SECONDS_MAX) == "charged 1"


# --- the same rows as core.transitions.new_task
TEXTS = ("plain", 'it\'s "quoted" \\ back', "größer 大 \N{SNOWMAN}\N{GRINNING FACE}", "a/b %s {x} $1 :name -- ; '")
DELAYS = (0.0, 0.0000005, 0.0000015, 0.1, 1.005, 86_400.25, 3_162_240_000.0)


@pytest.mark.parametrize("version", [15, 16, 18])
async def test_the_function_in_the_database_makes_the_rows_that_core_makes(version: int) -> None:
    url = emptied(database(version, "joined"))
    store = PostgresStore(url, clock=lambda: Instant(NOON))
    await store.open()
    given = product(TEXTS, (None, *TEXTS), DELAYS, (None, 0.0000025, 10.1))
    commands = [
        submission(
            f"{text} {number}",
            workflow=text,
            arguments=msgspec.json.encode({"text": text}).decode(),
            body_hash=f"hash of {text}",
            priority=number % 10,
            delay=delay,
            complete_within=limit,
            seed=2**62 - 1 - number,
            reply_to=reply_to,
            actor=text,
        )
        for number, (text, reply_to, delay, limit) in enumerate(given)
    ]
    with psycopg.connect(url) as connection:
        answers = [await _joined(store, command, connection) for command in commands]
    links: dict[int, Any] = {row.task_no: row async for row in store.history()}
    statuses = {row.task_no: row for queue in TEXTS for row in await store.load_statuses(queue, 1_000)}
    for command, answer in zip(commands, answers, strict=True):
        expected = transitions.build_new_task(command, answer.task_no, Instant(NOON))
        loaded, row = await store.load(answer.task_no), links[answer.task_no]
        assert loaded is not None
        assert msgspec.json.decode(row.events) == msgspec.json.decode(msgspec.json.encode(expected.events))
        assert (row.link, row.at, row.actor) == (1, NOON, command.actor)
        assert loaded.task == msgspec.structs.replace(expected.task, link=1, head=row.hash)
        assert loaded.steps == ()
        kept = [statuses[answer.task_no]] if answer.task_no in statuses else []
        assert [msgspec.structs.replace(status, no=0) for status in kept] == [
            msgspec.structs.replace(status, no=0, task_id=command.task_id) for status in expected.statuses
        ]
    bodies = dict.fromkeys(command.arguments for command in commands)
    assert set(asked(url, "SELECT DISTINCT arguments FROM arriero.body WHERE asked IS NULL")) == set(bodies)
    assert set(asked(url, "SELECT DISTINCT length(hash) FROM arriero.history")) == {64}
    await is_sound(store)
    await store.close()


async def _joined(store: PostgresStore, command: Any, connection: Any) -> Any:
    answer: Any = store.submit_joined(command, connection)
    assert answer.created
    return answer


async def test_what_a_plain_submission_refuses_is_refused_and_nothing_is_touched(app: App, url: str) -> None:
    wrong: list[dict[str, Any]] = [{"task_id": ""}, {"priority": 10}, {"delay": -1}, {"reply_to": ""}]
    with psycopg.connect(url) as connection:
        connection.execute(INSERT)
        for changes in wrong:
            with pytest.raises(InvalidInput):
                await app.submit(order(1), **changes, connection=connection)
    assert (orders(url), tasks(url)) == (["a"], [])


async def test_a_first_link_that_was_hashed_by_sql_and_changed_afterwards_is_found_out(app: App, url: str) -> None:
    with psycopg.connect(url) as connection:
        await app.submit(order(1), task_id="a", connection=connection)
    (row,) = [row async for row in app.session.store.history()]
    assert check([row]) == []
    replace = msgspec.structs.replace
    for changed in (
        replace(row, actor="somebody"),
        replace(row, at=Instant(row.at + 1)),
        replace(row, events=msgspec.Raw(bytes(row.events) + b" ")),
        replace(row, hash="0" * 64),
        replace(row, hash=row.hash[:32]),
    ):
        assert [violation.invariant for violation in check([changed])] == ["I53"]


def test_a_hash_fits_its_link_in_either_length_and_no_other() -> None:
    content = (START, 7, 1, 5, "actor", "[]")
    short = link_hash(*content)
    assert fits_link(short, *content)
    assert not fits_link(short, "previous", *content[1:])
    assert not fits_link(short * 2, *content)
    assert not fits_link("", *content)
