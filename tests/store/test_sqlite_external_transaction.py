"""Submission inside the caller's own transaction: the caller's rows and the task stand or fall together."""

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import submission

import arriero
from arriero import Agent, App, Attempt, InvalidInput, StoreError, TransactionConflict, workflow
from arriero.model import Instant
from arriero.store.sqlite import connection as sqlite_connection
from arriero.store.sqlite.connection import connect_for_callers
from arriero.store.sqlite.external_transaction import in_callers_transaction, refuse_unfit
from arriero.store.sqlite.store import SqliteStore

payments = Agent("payments")


@payments.step
async def charge(attempt: Attempt, amount: int) -> str:
    return f"charged {amount}"


@workflow
async def order(amount: int) -> str:
    return await charge(amount)


@dataclass
class Receipt:
    amount: int


@workflow
async def receipt(amount: int) -> Receipt:
    return Receipt(amount)


def shop(url: str) -> App:
    return App("shop", agents=[payments], workflows=[order, receipt], store=url)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    return tmp_path / "store.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    """A client of the store; at the end of every test its history is clean and equals the tables."""
    async with shop(url) as opened:
        yield opened
        store = opened.session.store
        assert await history_violations(store) == []
        assert await disagreements(store) == []
        assert await broken_links(store) == []


@pytest.fixture
def connection(app: App, url: str) -> Iterator[sqlite3.Connection]:
    """The caller's, fit for it, with a table of the caller's own."""
    with closing(arriero.connect(url)) as opened:
        opened.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        yield opened


Opens = Callable[..., sqlite3.Connection]


@pytest.fixture
def opens(connection: sqlite3.Connection, path: Path) -> Iterator[Opens]:
    """More connections of the caller, opened as the caller likes; durable unless it is said otherwise."""
    opened: list[sqlite3.Connection] = []

    def another(database: Path | str = path, *, synchronous: str = "FULL", **options: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(database, **options))
        opened[-1].execute(f"PRAGMA synchronous={synchronous}")
        return opened[-1]

    yield another
    for one in opened:
        one.close()


def insert(connection: sqlite3.Connection, name: str = "a") -> None:
    connection.execute("INSERT INTO orders VALUES (?)", (name,))


def orders(path: Path) -> list[str]:
    """The caller's rows, as everybody sees them."""
    with closing(sqlite3.connect(path)) as looking:
        return [name for (name,) in looking.execute("SELECT id FROM orders ORDER BY id")]


async def tasks(app: App) -> list[str]:
    """The tasks, as everybody sees them."""
    return [task.task_id for task in await app.session.store.list_tasks()]


# --- together
async def test_neither_is_seen_before_the_commit_and_both_after_it(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    insert(connection)
    task = await app.submit(order(1), task_id="a", connection=connection)
    assert task.id == "a"
    assert (orders(path), await tasks(app)) == ([], [])
    assert connection.in_transaction
    connection.commit()
    assert (orders(path), await tasks(app)) == (["a"], ["a"])
    assert (await task.view()).state == "pending"


async def test_a_rollback_takes_both(app: App, connection: sqlite3.Connection, path: Path) -> None:
    insert(connection)
    await app.submit(order(1), task_id="a", connection=connection)
    connection.rollback()
    assert (orders(path), await tasks(app)) == ([], [])
    await app.submit(order(1), task_id="b")
    assert [row.no async for row in app.session.store.history()] == [1]  # nothing was numbered for what never was


async def test_an_exception_after_the_submission_takes_both(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    async def fails() -> None:
        with connection:
            insert(connection)
            await app.submit(order(1), task_id="a", connection=connection)
            insert(connection)  # it is there already

    with pytest.raises(sqlite3.IntegrityError):
        await fails()
    assert (orders(path), await tasks(app)) == ([], [])


async def test_leaving_the_connection_s_block_commits_both(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    with connection:
        insert(connection)
        await app.submit(order(1), task_id="a", connection=connection)
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


async def test_a_connection_that_is_closed_without_a_commit_takes_both(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    insert(connection)
    await app.submit(order(1), task_id="a", connection=connection)
    connection.close()
    assert (orders(path), await tasks(app)) == ([], [])


async def test_a_transaction_may_carry_many_tasks_and_keeps_their_order(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    names = [f"{number:03}" for number in range(60)]
    for name in names:
        insert(connection, name)
        await app.submit(order(1), task_id=name, connection=connection)
    assert await tasks(app) == []
    connection.commit()
    assert (orders(path), await tasks(app)) == (names, names)


async def test_rows_of_the_caller_may_also_follow_the_submission(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    await app.submit(order(1), task_id="a", connection=connection)
    insert(connection)
    connection.commit()
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


async def test_the_handle_of_a_joined_task_knows_the_type_of_its_output(
    app: App, connection: sqlite3.Connection, url: str
) -> None:
    async with app.running(store=url):
        insert(connection)
        task = await app.submit(receipt(3), task_id="a", connection=connection)
        connection.commit()
        assert await task.result(60) == Receipt(3)


async def test_a_task_of_one_step_joins_too_and_gets_an_id_when_none_is_given(
    app: App, connection: sqlite3.Connection
) -> None:
    insert(connection)
    first = await app.submit(charge(1), connection=connection)
    second = await app.submit(charge(1), connection=connection)
    connection.commit()
    assert await tasks(app) == [first.id, second.id]


async def test_other_submissions_before_and_after_it_keep_their_numbers_apart(
    app: App, connection: sqlite3.Connection
) -> None:
    await app.submit(order(1), task_id="before")
    insert(connection)
    await app.submit(order(1), task_id="rolled back", connection=connection)
    connection.rollback()
    insert(connection)
    await app.submit(order(1), task_id="joined", connection=connection)
    connection.commit()
    await app.submit(order(1), task_id="after")
    assert await tasks(app) == ["before", "joined", "after"]


# --- savepoints
async def test_a_savepoint_that_is_rolled_back_takes_the_task_and_leaves_the_rest(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    insert(connection, "kept")
    await app.submit(order(1), task_id="kept", connection=connection)
    connection.execute("SAVEPOINT mine")
    insert(connection, "gone")
    await app.submit(order(1), task_id="gone", connection=connection)
    connection.execute("ROLLBACK TO mine")
    connection.execute("RELEASE mine")
    connection.commit()
    assert (orders(path), await tasks(app)) == (["kept"], ["kept"])


async def test_a_savepoint_of_the_caller_may_have_the_name_of_ours(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    insert(connection, "kept")
    connection.execute("SAVEPOINT arriero_submission")
    insert(connection, "gone")
    await app.submit(order(1), task_id="gone", connection=connection)
    connection.execute("ROLLBACK TO arriero_submission")
    connection.commit()
    assert (orders(path), await tasks(app)) == (["kept"], [])


async def test_a_savepoint_alone_is_a_transaction(app: App, opens: Opens, path: Path) -> None:
    own = opens(isolation_level=None)
    own.execute("SAVEPOINT outermost")
    insert(own)
    await app.submit(order(1), task_id="a", connection=own)
    own.execute("RELEASE outermost")
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


async def test_statements_of_the_caller_that_are_being_read_go_on(app: App, connection: sqlite3.Connection) -> None:
    for name in "abc":
        insert(connection, name)
    reading = connection.execute("SELECT id FROM orders ORDER BY id")
    assert next(reading) == ("a",)
    await app.submit(order(1), task_id="a", connection=connection)
    assert list(reading) == [("b",), ("c",)]
    connection.commit()
    assert await tasks(app) == ["a"]


# --- the same id again
async def test_the_same_id_in_the_same_transaction_is_the_same_task(app: App, connection: sqlite3.Connection) -> None:
    insert(connection)
    for _ in range(2):
        await app.submit(order(1), task_id="a", connection=connection)
    connection.commit()
    assert await tasks(app) == ["a"]
    insert(connection, "b")
    await app.submit(order(1), task_id="a", connection=connection)
    connection.commit()
    assert await tasks(app) == ["a"]
    assert len([row async for row in app.session.store.history()]) == 1


async def test_a_known_id_with_a_new_key_is_refused(app: App, connection: sqlite3.Connection) -> None:
    await app.submit(order(1), task_id="a")
    insert(connection, "first")
    with pytest.raises(InvalidInput, match="task 'a' exists with another convoy; use another task_id"):
        await app.submit(order(1), task_id="a", convoy="new", connection=connection)
    connection.commit()
    assert await app.session.store.find_convoy("new") is None


@pytest.mark.parametrize("joined_first", [True, False])
async def test_a_refused_body_leaves_the_transaction_and_the_caller_s_rows_as_they_were(
    app: App, connection: sqlite3.Connection, path: Path, joined_first: bool
) -> None:
    if joined_first:
        insert(connection, "first")
        await app.submit(order(1), task_id="a", connection=connection)
    else:
        await app.submit(order(1), task_id="a")
        insert(connection, "first")
    with pytest.raises(InvalidInput, match="'a' exists with another body"):
        await app.submit(order(2), task_id="a", connection=connection)
    with pytest.raises(InvalidInput, match="'a' exists with another workflow"):
        await app.submit(charge(1), task_id="a", connection=connection)
    assert connection.in_transaction
    insert(connection, "second")
    await app.submit(order(2), task_id="b", connection=connection)
    connection.commit()
    assert (orders(path), await tasks(app)) == (["first", "second"], ["a", "b"])


async def test_the_id_of_a_submission_that_was_rolled_back_is_free(app: App, connection: sqlite3.Connection) -> None:
    insert(connection)
    await app.submit(order(1), task_id="a", connection=connection)
    connection.rollback()
    await app.submit(order(2), task_id="a")
    assert await tasks(app) == ["a"]


@pytest.mark.parametrize(
    "changes", [{"task_id": ""}, {"priority": 10}, {"delay": -1}, {"reply_to": ""}, {"reply_to": "x" * 256}], ids=str
)
async def test_what_a_plain_submission_refuses_is_refused_and_nothing_is_touched(
    app: App, connection: sqlite3.Connection, path: Path, changes: dict[str, Any]
) -> None:
    insert(connection)
    with pytest.raises(InvalidInput):
        await app.submit(order(1), **{"task_id": "a", **changes}, connection=connection)
    assert connection.in_transaction
    connection.commit()
    assert (orders(path), await tasks(app)) == (["a"], [])


# --- connections that are not fit
async def _is_refused(app: App, connection: Any, match: str, kind: type[InvalidInput] = InvalidInput) -> None:
    with pytest.raises(kind, match=match) as raised:
        await app.submit(order(1), task_id="refused", connection=connection)
    assert type(raised.value) is kind
    assert str(raised.value).startswith("submit(connection=)")
    assert await tasks(app) == []


@pytest.mark.parametrize("value", ["store.db", 0, False, object(), sqlite3], ids=lambda value: type(value).__name__)
async def test_what_is_no_connection_is_refused(app: App, value: object) -> None:
    await _is_refused(app, value, "takes a sqlite3.Connection for the store .*, not")


async def test_a_cursor_is_no_connection(app: App, connection: sqlite3.Connection) -> None:
    await _is_refused(app, connection.cursor(), "takes a sqlite3.Connection for the store .*, not <.*Cursor")


@pytest.mark.parametrize("module", ["sqlalchemy.engine.base", "psycopg", "sqlalchemy.ext.asyncio"])
async def test_a_connection_for_another_kind_of_store_is_refused(app: App, module: str) -> None:
    theirs = type("Connection", (), {"__module__": module})()
    await _is_refused(app, theirs, f"takes a sqlite3.Connection for the store sqlite:.*, not <{module}")


async def test_a_closed_connection_is_refused(app: App, opens: Opens) -> None:
    own = opens()
    own.close()
    await _is_refused(app, own, "closed database.; use an open one")


async def test_a_connection_that_was_never_opened_is_refused(app: App) -> None:
    class Lazy(sqlite3.Connection):
        def __init__(self) -> None: ...

    await _is_refused(app, Lazy(), "use an open one")


@pytest.mark.usefixtures("connection")
async def test_a_connection_of_another_thread_is_refused(app: App, url: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        own = pool.submit(arriero.connect, url).result()
        pool.submit(insert, own).result()
        await _is_refused(app, own, "in the thread that opened it")
        pool.submit(own.close).result()


async def test_a_connection_without_a_transaction_is_refused(app: App, connection: sqlite3.Connection) -> None:
    await _is_refused(app, connection, "no transaction is open on it; write your own rows first, or execute BEGIN")
    insert(connection)
    connection.commit()
    await _is_refused(app, connection, "no transaction is open on it")


async def test_a_connection_to_another_file_is_refused(app: App, opens: Opens, tmp_path: Path, path: Path) -> None:
    another = opens(tmp_path / "another.db", isolation_level=None)
    another.execute("BEGIN")
    await _is_refused(app, another, f"it is open on {tmp_path}/another.db, the store is {path}; open that file")


@pytest.mark.parametrize("database", ["", ":memory:"])
async def test_a_connection_to_no_file_is_refused(app: App, opens: Opens, database: str) -> None:
    another = opens(database, isolation_level=None)
    another.execute("BEGIN")
    await _is_refused(app, another, "it is open on no file, the store is")


async def test_a_connection_to_which_the_store_is_only_attached_is_refused(
    app: App, opens: Opens, tmp_path: Path, path: Path
) -> None:
    another = opens(tmp_path / "another.db", isolation_level=None)
    another.execute("ATTACH ? AS store", (str(path),))
    another.execute("BEGIN IMMEDIATE")
    await _is_refused(app, another, "another.db, the store is")


async def test_a_connection_with_another_file_attached_may_join(
    app: App, connection: sqlite3.Connection, tmp_path: Path, path: Path
) -> None:
    connection.execute("ATTACH ? AS books", (str(tmp_path / "books.db"),))
    connection.execute("CREATE TABLE books.arriero_task (task_no)")  # not to be mistaken for the store's
    insert(connection)
    await app.submit(order(1), task_id="a", connection=connection)
    connection.commit()
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


async def test_a_connection_by_way_of_a_symbolic_link_is_the_same_file(
    app: App, opens: Opens, tmp_path: Path, path: Path
) -> None:
    (tmp_path / "folder").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link.db").symlink_to(path)
    for number, name in enumerate([tmp_path / "link.db", tmp_path / "folder" / "store.db", os.path.relpath(path)]):
        own = opens(name)
        insert(own, str(number))
        await app.submit(order(1), task_id=str(number), connection=own)
        own.commit()
    assert (orders(path), await tasks(app)) == (["0", "1", "2"], ["0", "1", "2"])


@pytest.mark.parametrize(("synchronous", "number"), [("OFF", 0), ("NORMAL", 1)])
async def test_a_connection_whose_commits_may_be_lost_in_a_power_cut_is_refused(
    app: App, opens: Opens, path: Path, synchronous: str, number: int
) -> None:
    own = opens(synchronous=synchronous)
    insert(own)
    await _is_refused(app, own, f"its synchronous is {number}, .* execute PRAGMA synchronous=FULL")
    own.commit()
    assert orders(path) == ["a"]


async def test_a_connection_that_is_even_more_careful_may_join(app: App, opens: Opens) -> None:
    own = opens(synchronous="EXTRA")
    insert(own)
    await app.submit(order(1), task_id="a", connection=own)
    own.commit()
    assert await tasks(app) == ["a"]


def test_a_connection_without_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        own.execute("BEGIN")
        with pytest.raises(InvalidInput, match="its journal_mode is delete, it must be wal; see arriero.connect"):
            refuse_unfit(own, str(path))


async def test_a_connection_that_only_reads_cannot_join_and_says_so(app: App, opens: Opens, path: Path) -> None:
    own = opens(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    own.execute("BEGIN")
    with pytest.raises(StoreError, match=r"store .*store\.db: attempt to write a readonly database; "):
        await app.submit(order(1), task_id="a", connection=own)
    assert own.in_transaction
    assert await tasks(app) == []


async def test_the_memory_store_has_no_transactions_to_join(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    async with shop("memory://") as forgetful:
        await _is_refused(forgetful, connection, "the store memory:// has no transactions of yours to join")


async def test_an_app_that_is_not_open_joins_nothing(connection: sqlite3.Connection, url: str) -> None:
    connection.execute("BEGIN")
    with pytest.raises(InvalidInput, match="App shop is not open"):
        await shop(url).submit(order(1), connection=connection)


# --- connections as callers have them
def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("factory", [_as_dict, sqlite3.Row, lambda _cursor, _row: None], ids=["dict", "Row", "None"])
async def test_the_caller_s_row_factory_is_not_in_the_way_and_stays(
    app: App, connection: sqlite3.Connection, factory: Any, again: bool
) -> None:
    if again:
        await app.submit(order(1), task_id="a")
    connection.row_factory = factory
    insert(connection)
    await app.submit(order(1), task_id="a", connection=connection)
    assert connection.row_factory is factory
    connection.commit()
    assert await tasks(app) == ["a"]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("factory", [bytes, lambda raw: raw.decode() + "!", lambda _: 1 / 0], ids=["bytes", "!", "bad"])
async def test_the_caller_s_text_factory_is_not_in_the_way_and_stays(
    app: App, connection: sqlite3.Connection, factory: Any, again: bool
) -> None:
    if again:
        await app.submit(order(1), task_id="a")
    connection.text_factory = factory
    insert(connection)
    await app.submit(order(1), task_id="a", connection=connection)
    assert connection.text_factory is factory
    with pytest.raises(InvalidInput, match="another body"):
        await app.submit(order(2), task_id="a", connection=connection)
    assert connection.text_factory is factory
    connection.commit()
    assert await tasks(app) == ["a"]


async def test_the_caller_s_text_factory_stays_when_the_connection_is_refused(app: App, opens: Opens) -> None:
    own = opens(synchronous="NORMAL")
    own.text_factory = bytes
    insert(own)
    await _is_refused(app, own, "synchronous")
    assert own.text_factory is bytes


@pytest.fixture
def converters() -> Iterator[None]:
    """Converters of declared types are the whole process's."""
    before = dict(sqlite3.converters)
    yield
    sqlite3.converters.clear()
    sqlite3.converters.update(before)


@pytest.mark.usefixtures("converters")
async def test_converters_as_django_registers_them_are_not_in_the_way(app: App, opens: Opens) -> None:
    for name in ("bool", "date", "datetime", "time", "timestamp"):
        sqlite3.register_converter(name, lambda _: 1 / 0)
    own = opens(detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES, isolation_level=None)
    own.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        await app.submit(order(1), task_id="a", reply_to="web", connection=own)
    own.commit()
    assert await tasks(app) == ["a"]


@pytest.mark.usefixtures("converters")
async def test_a_converter_of_whole_numbers_is_not_in_the_way(app: App, opens: Opens) -> None:
    sqlite3.register_converter("INTEGER", lambda raw: [raw])
    own = opens(detect_types=sqlite3.PARSE_DECLTYPES)
    insert(own)
    for _ in range(2):
        await app.submit(order(1), task_id="a", reply_to="web", connection=own)
    own.commit()
    assert await tasks(app) == ["a"]


@pytest.mark.usefixtures("converters")
async def test_a_connection_that_makes_something_else_of_every_text_is_refused(
    app: App, opens: Opens, path: Path
) -> None:
    sqlite3.register_converter("TEXT", lambda raw: [raw])
    await app.submit(order(1), task_id="a")
    own = opens(detect_types=sqlite3.PARSE_DECLTYPES)
    insert(own)
    with pytest.raises(InvalidInput, match=r"submit\(connection=\): .*convert"):
        await app.submit(order(1), task_id="a", connection=own)
    own.commit()
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


class _Counting(sqlite3.Connection):
    """As instrumentation has them."""

    count = 0

    def cursor(self, *given: Any, **options: Any) -> sqlite3.Cursor:
        type(self).count += 1
        return super().cursor(*given, **options)


async def test_a_connection_of_a_class_of_the_caller_s_own_may_join(app: App, opens: Opens) -> None:
    own = opens(factory=_Counting)
    insert(own)
    await app.submit(order(1), task_id="a", connection=own)
    own.commit()
    assert await tasks(app) == ["a"]


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
async def test_a_connection_in_autocommit_mode_may_join_after_begin(
    app: App, opens: Opens, path: Path, begin: str
) -> None:
    own = opens(isolation_level=None)
    own.execute(begin)
    insert(own)
    await app.submit(order(1), task_id="a", connection=own)
    own.execute("COMMIT")
    own.execute(begin)
    await app.submit(order(1), task_id="b", connection=own)
    own.execute("ROLLBACK")
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


@pytest.mark.parametrize("level", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
async def test_a_connection_of_each_isolation_level_may_join(app: App, opens: Opens, path: Path, level: str) -> None:
    own = opens(isolation_level=level)
    insert(own)
    await app.submit(order(1), task_id="a", connection=own)
    own.commit()
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


if sys.version_info >= (3, 12):

    async def test_a_connection_that_always_has_a_transaction_may_join(app: App, opens: Opens, path: Path) -> None:
        own = opens()
        own.commit()
        own.autocommit = False
        insert(own)
        await app.submit(order(1), task_id="a", connection=own)
        own.commit()
        await app.submit(order(1), task_id="b", connection=own)
        own.rollback()
        assert (orders(path), await tasks(app)) == (["a"], ["a"])


async def test_no_automatic_checkpoint_is_left_on_the_caller_s_connection(app: App, opens: Opens) -> None:
    own = opens()
    assert own.execute("PRAGMA wal_autocheckpoint").fetchone() == (1000,)
    insert(own)
    await app.submit(order(1), task_id="a", connection=own)
    assert own.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    own.commit()
    assert own.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


async def test_the_caller_s_settings_are_left_alone(app: App, opens: Opens) -> None:
    own = opens(timeout=3.0, cached_statements=7)
    own.execute("PRAGMA foreign_keys=ON")
    own.execute("PRAGMA recursive_triggers=ON")

    def settings() -> list[Any]:
        names = ("foreign_keys", "recursive_triggers", "busy_timeout", "synchronous", "journal_mode", "query_only")
        return [own.execute(f"PRAGMA {name}").fetchone()[0] for name in names] + [own.isolation_level]

    before = settings()
    insert(own)
    await app.submit(order(1), task_id="a", connection=own)
    assert settings() == before
    own.commit()
    assert settings() == before


# --- others came first
async def test_a_snapshot_that_is_out_of_date_is_a_conflict_and_the_transaction_can_be_run_again(
    app: App, opens: Opens, path: Path
) -> None:
    own = opens(isolation_level=None)

    async def transaction() -> None:
        assert own.execute("SELECT count(*) FROM arriero_task").fetchone() is not None
        if not await tasks(app):
            await app.submit(order(1), task_id="other")  # another commits meanwhile
        await app.submit(order(1), task_id="a", connection=own)
        insert(own)

    own.execute("BEGIN")
    with pytest.raises(TransactionConflict, match="another transaction came first; roll yours back and run it again"):
        await transaction()
    assert own.in_transaction
    own.execute("ROLLBACK")
    assert (orders(path), await tasks(app)) == ([], ["other"])
    own.execute("BEGIN")
    await transaction()
    own.execute("COMMIT")
    assert (orders(path), await tasks(app)) == (["a"], ["other", "a"])


async def test_a_conflict_is_a_store_error_that_an_immediate_transaction_never_meets(
    app: App, opens: Opens, path: Path
) -> None:
    assert issubclass(TransactionConflict, StoreError)
    own = opens(isolation_level=None)
    own.execute("BEGIN IMMEDIATE")
    assert own.execute("SELECT count(*) FROM arriero_task").fetchone() == (0,)
    await app.submit(order(1), task_id="a", connection=own)
    own.execute("COMMIT")
    assert await tasks(app) == ["a"]


async def test_a_lock_that_another_program_keeps_is_a_conflict(app: App, opens: Opens, path: Path) -> None:
    other, own = opens(isolation_level=None), opens(isolation_level=None, timeout=0)
    other.execute("BEGIN IMMEDIATE")
    own.execute("BEGIN")
    with pytest.raises(TransactionConflict, match=r"BEGIN IMMEDIATE takes the lock immediately"):
        await app.submit(order(1), task_id="a", connection=own)
    assert own.in_transaction
    other.execute("ROLLBACK")
    own.execute("ROLLBACK")
    own.execute("BEGIN")
    await app.submit(order(1), task_id="a", connection=own)
    insert(own)
    own.execute("COMMIT")
    assert (orders(path), await tasks(app)) == (["a"], ["a"])


async def test_while_a_caller_keeps_its_transaction_open_plain_submissions_say_who_locks_the_file(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.0)
    async with shop(url) as app:
        with closing(arriero.connect(url)) as own:
            own.execute("BEGIN IMMEDIATE")
            await app.submit(order(1), task_id="a", connection=own)
            with pytest.raises(
                StoreError, match=r"of this very process, open since .*, begun in test_sqlite_external_transaction\.py"
            ):
                await app.submit(order(1), task_id="b")
            own.commit()
        await app.submit(order(1), task_id="b")
        assert await tasks(app) == ["a", "b"]


# --- what fails in the middle
async def test_an_error_in_the_middle_takes_only_the_submission_out_of_the_transaction(
    app: App, connection: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = app.session.store

    def broken(plain: Any) -> None:
        plain.execute("INSERT INTO orders VALUES ('half')")
        raise ZeroDivisionError

    insert(connection)
    with pytest.raises(ZeroDivisionError):
        in_callers_transaction(connection, store.path, broken)
    assert connection.in_transaction
    connection.commit()
    assert orders(path) == ["a"]


async def test_on_a_full_disk_neither_is_kept_and_both_can_be_done_again(
    app: App, connection: sqlite3.Connection, path: Path
) -> None:
    insert(connection, "before")
    connection.commit()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    insert(connection, "during")
    with pytest.raises(StoreError, match="database or disk is full; no space is left: free some"):
        for number in range(10_000):
            await app.submit(order(number), task_id=f"{number}", connection=connection)
    connection.rollback()  # SQLite has rolled all of it back by itself, unless the statement that failed has a trigger
    assert (orders(path), await tasks(app)) == (["before"], [])
    connection.execute("PRAGMA max_page_count=1073741823")
    insert(connection, "after")
    await app.submit(order(1), task_id="after", connection=connection)
    connection.commit()
    assert (orders(path), await tasks(app)) == (["after", "before"], ["after"])


async def test_whoever_meets_a_full_disk_is_told_that_the_own_rows_are_rolled_back_too(
    app: App, connection: sqlite3.Connection
) -> None:
    """Else a caller that goes on without the task would commit a transaction that has lost its first half."""
    connection.execute("DROP TRIGGER arriero_task_tagged")  # with it SQLite would only roll back the statement
    connection.commit()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    insert(connection, "lost")
    with pytest.raises(StoreError, match="your transaction is rolled back"):
        for number in range(10_000):
            await app.submit(order(number), task_id=f"{number}", connection=connection)


async def test_on_a_full_disk_the_own_rows_stay_where_sqlite_keeps_the_transaction(
    app: App, connection: sqlite3.Connection
) -> None:
    """The statement that writes a task has a trigger, so SQLite can roll it back by itself."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    insert(connection, "kept")
    with pytest.raises(StoreError, match="is full") as error:
        for number in range(10_000):
            await app.submit(order(number), task_id=f"{number}", connection=connection)
    assert connection.in_transaction != ("your transaction is rolled back" in str(error.value))
    assert [name for (name,) in connection.execute("SELECT id FROM orders")] == ["kept"] * connection.in_transaction


async def test_the_instants_of_the_history_follow_its_order_also_when_somebody_commits_just_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's clock is read under the lock, as everywhere, and not before it is taken."""
    monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.0)
    instants = count(1_700_000_000_000_000)
    others: list[str] = []  # what another process submits when the clock is read next

    async def submit_meanwhile(name: str) -> None:
        other = SqliteStore(str(path), clock=lambda: Instant(next(instants)))
        await other.open()
        await other.submit([submission(name)])
        await other.close()

    def clock() -> Instant:
        at = Instant(next(instants))
        if others:
            with ThreadPoolExecutor(1) as pool, suppress(StoreError):  # it may find the file locked by us
                pool.submit(asyncio.run, submit_meanwhile(others.pop())).result()
        return at

    store = SqliteStore(str(path), clock=clock)
    await store.open()
    with closing(connect_for_callers(str(path))) as own:
        own.execute("BEGIN")
        others.append("meanwhile")
        with suppress(TransactionConflict):
            store.submit_joined(submission("joined"), own)
        own.commit()
    rows = [row async for row in store.history()]
    await store.close()
    assert [row.at for row in rows] == sorted(row.at for row in rows), [row.task_id for row in rows]


# --- what is told, and who goes on
async def test_what_is_told_to_the_reply_queue_is_part_of_the_transaction(
    app: App, connection: sqlite3.Connection
) -> None:
    replies = app.replies("web")
    insert(connection)
    await app.submit(order(1), task_id="a", reply_to="web", connection=connection)
    assert await replies.next_ready() is None
    connection.rollback()
    assert await replies.next_ready() is None
    insert(connection)
    await app.submit(order(1), task_id="b", reply_to="web", connection=connection)
    connection.commit()
    status = await replies.next_ready()
    assert status is not None
    assert (status.task_id, status.number, status.kind) == ("b", 1, "received")
    assert await replies.next_ready() is None


async def test_priority_and_delay_are_those_of_a_plain_submission(app: App, connection: sqlite3.Connection) -> None:
    insert(connection)
    await app.submit(order(1), task_id="a", priority=9, delay=60, connection=connection)
    connection.commit()
    (task,) = await app.session.store.list_tasks()
    assert task.not_before is not None
    assert (task.priority, task.not_before - task.submitted_at) == (9, 60_000_000)


@pytest.mark.parametrize("same_app", [True, False])
async def test_a_scheduler_takes_the_task_up_after_the_commit_and_never_what_was_rolled_back(
    app: App, connection: sqlite3.Connection, url: str, same_app: bool
) -> None:
    runner = app if same_app else shop(url)
    async with runner.running(store=url):
        insert(connection)
        await app.submit(order(1), task_id="rolled back", connection=connection)
        connection.rollback()
        insert(connection)
        task = await app.submit(order(2), task_id="kept", connection=connection)
        with pytest.raises(arriero.UnknownTask):
            await app.task("kept").view()
        connection.commit()
        assert await task.result(60) == "charged 2"
    assert await tasks(app) == ["kept"]


# --- without an event loop
def test_the_sync_front_joins_in_the_calling_thread(path: Path, url: str) -> None:
    app = shop(url)
    with app.sync, closing(arriero.connect(url)) as own:  # a connection may be used in its own thread only
        own.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        insert(own)
        task = app.sync.submit(order(1), task_id="a", reply_to="web", connection=own)
        own.commit()
        assert task.id == "a"
        assert task.view().state == "pending"
        insert(own, "b")
        app.sync.submit(order(1), task_id="b", connection=own)
        own.rollback()
        assert app.sync.tasks().count() == 1
        with pytest.raises(InvalidInput, match="no transaction is open on it"):
            app.sync.submit(order(1), task_id="c", connection=own)
    assert orders(path) == ["a"]


def test_many_threads_join_each_by_a_connection_of_its_own(path: Path, url: str) -> None:
    app, threads, rounds = shop(url), 4, 12
    with app.sync, closing(arriero.connect(url)) as own:
        own.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        begin = threading.Barrier(threads)

        def work(number: int) -> None:
            with closing(arriero.connect(url)) as mine:
                begin.wait()
                for turn in range(rounds):
                    mine.execute("BEGIN IMMEDIATE")
                    insert(mine, f"{number}-{turn}")
                    app.sync.submit(order(turn), task_id=f"{number}-{turn}", connection=mine)
                    mine.commit() if turn % 3 else mine.rollback()

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        kept = [view.id for view in app.sync.tasks()]
    assert sorted(kept) == orders(path)
    assert len(kept) == threads * rounds * 2 / 3


# --- arriero.connect
async def test_a_connection_for_callers_is_opened_as_the_standard_library_does_but_durable(
    app: App, connection: sqlite3.Connection
) -> None:
    assert connection.isolation_level == ""
    assert connection.row_factory is None
    settings = [connection.execute(f"PRAGMA {n}").fetchone()[0] for n in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]
    assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


async def test_a_connection_for_callers_may_be_opened_before_the_store_is_there(path: Path, url: str) -> None:
    with closing(arriero.connect(url)) as own:
        own.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
        own.commit()
        async with shop(url) as app:
            insert(own)
            await app.submit(order(1), task_id="a", connection=own)
            own.commit()
            assert (orders(path), await tasks(app)) == (["a"], ["a"])


@pytest.mark.parametrize("store", ["memory://", "postgres://host/db", "", "store.db", "sqlite://"])
def test_a_connection_for_callers_is_to_a_file(store: str) -> None:
    with pytest.raises(InvalidInput):
        arriero.connect(store)


def test_a_connection_for_callers_that_cannot_be_opened_names_file_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"store .*store\.db: unable to open database file; it cannot be opened"):
        connect_for_callers(str(tmp_path / "nowhere" / "store.db"))
    (tmp_path / "text.db").write_text("a letter, and not a database of anything" * 100)
    with pytest.raises(StoreError, match=r"text\.db: file is not a database; it is not a SQLite file"):
        arriero.connect(f"sqlite:///{tmp_path / 'text.db'}")
