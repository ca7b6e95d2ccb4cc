"""arriero.guarded on PostgreSQL: what the caller writes commits only while nobody else leads."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
from callers_transactions import ASYNC, Begins, engine_of, every_kind, psycopg_async, psycopg_plain
from django_databases import configure_django
from postgres_servers import database, emptied

from arriero import App, InvalidInput, Leadership, LeadershipLost, LeaseUnavailable, guarded, guarded_sync
from arriero.leases import LeaseConnection, LeaseGrant, open_lease
from arriero.testing.postgres import Server

INSERT = "INSERT INTO orders VALUES ('a')"
DURATION = 600.0  # no lease lapses during a test


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    found = emptied(database(kind="joined"))
    with psycopg.connect(found) as connection:
        connection.execute("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id text PRIMARY KEY)")
    return found


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App("shop", store=url) as opened:
        yield opened


@pytest.fixture
async def lease(app: App) -> AsyncIterator[LeaseConnection]:
    async with app.lease("nightly").connected() as connection:
        yield connection


class _Term:
    """A term as the work of a mutex sees it."""

    def __init__(self, app: App, grant: LeaseGrant) -> None:
        self.lease = app.lease("nightly")
        self.name, self.holder, self.term, self.duration = grant.name, grant.holder, grant.term, DURATION


async def elect(app: App, lease: LeaseConnection, holder: str = "ana") -> Any:
    grant = await lease.acquire(holder, DURATION)
    assert grant is not None
    return _Term(app, grant)


def orders(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM orders ORDER BY id")]


@every_kind
async def test_the_leader_s_writes_commit_whoever_made_the_connection(
    app: App, url: str, lease: LeaseConnection, begins: Begins
) -> None:
    term = await elect(app, lease)
    async with begins(url) as transaction:
        await guarded(transaction.connection, term)
        await transaction.execute(INSERT)
    assert orders(url) == ["a"]


@every_kind
async def test_a_past_term_writes_nothing_whoever_made_the_connection(
    app: App, url: str, lease: LeaseConnection, begins: Begins
) -> None:
    past = await elect(app, lease)
    await lease.break_lease("ops", "it hangs", at_once=True)
    await elect(app, lease, "ben")
    with suppress(LeadershipLost):
        async with begins(url) as transaction:
            await transaction.execute(INSERT)
            await guarded(transaction.connection, past)
            raise AssertionError("the term is past")
    assert orders(url) == []


async def test_a_broken_lease_guards_nothing_even_before_another_one_leads(
    app: App, url: str, lease: LeaseConnection
) -> None:
    term = await elect(app, lease)
    await lease.break_lease("ops", "it hangs")
    async with await psycopg.AsyncConnection.connect(url) as connection:
        with pytest.raises(LeadershipLost, match="term 1 is past, or an operator broke the lease"):
            await guarded(connection, term)


async def test_nobody_else_is_granted_the_lease_before_the_transaction_ends(
    app: App, url: str, lease: LeaseConnection
) -> None:
    term = await elect(app, lease)
    await lease.break_lease("ops", "it hangs", at_once=True)
    with psycopg.connect(url) as broken:  # as if the leader's own transaction had begun before the break
        broken.execute("UPDATE arriero.lease SET broken_by = ''")
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await guarded(connection, term)
        await connection.execute(INSERT)
        asking = asyncio.create_task(lease.acquire("ben", DURATION))
        waiting = asyncio.create_task(blocked(url))
        await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert not asking.done(), "it was granted beside the transaction that the term guards"
        assert await lease.inspect()  # who only looks does not wait
    granted = await asking
    assert granted is not None
    assert granted.term == 2
    assert orders(url) == ["a"]


async def blocked(url: str) -> None:
    """Wait until a session waits for a lock."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as looking:
        while True:
            found = await looking.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            if await found.fetchone():
                return


async def test_the_leader_renews_while_its_own_guarded_transaction_is_open(
    app: App, url: str, lease: LeaseConnection
) -> None:
    grant = await lease.acquire("ana", DURATION)
    assert grant is not None
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await guarded(connection, _Term(app, grant))  # type: ignore[arg-type]
        assert await lease.renew(grant, DURATION)


async def test_a_leader_that_freezes_in_its_transaction_bars_nobody_for_longer_than_its_lease(
    app: App, url: str, lease: LeaseConnection
) -> None:
    term = await elect(app, lease)
    term.duration = 0.05
    connection = await psycopg.AsyncConnection.connect(url)
    await guarded(connection, term)
    await connection.execute(INSERT)
    await lease_freed(lease)
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):  # the server ended it: nothing of it is there
        await connection.execute("SELECT 1")
    await connection.close()
    assert orders(url) == []


async def lease_freed(lease: LeaseConnection) -> None:
    """Wait until an operator's break, which waits for guarded transactions as a grant does, went through."""
    while True:
        with suppress(LeaseUnavailable):
            await lease.break_lease("ops", "it froze", at_once=True)
            return


async def test_a_shorter_limit_of_the_caller_stays(app: App, url: str, lease: LeaseConnection) -> None:
    term = await elect(app, lease)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SET idle_in_transaction_session_timeout = '7s'")
        await guarded(connection, term)
        shown = await (await connection.execute("SHOW idle_in_transaction_session_timeout")).fetchone()
        assert shown == ("7s",)
        await connection.rollback()
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await guarded(connection, term)
        shown = await (await connection.execute("SHOW idle_in_transaction_session_timeout")).fetchone()
        assert shown == ("10min",)
        await connection.commit()
        shown = await (await connection.execute("SHOW idle_in_transaction_session_timeout")).fetchone()
        assert shown == ("0",), "it was for that transaction only"


async def test_a_connection_outside_a_transaction_or_of_another_kind_is_refused(
    app: App, url: str, lease: LeaseConnection
) -> None:
    term = await elect(app, lease)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        with pytest.raises(InvalidInput, match=r"^guarded\(connection\): no transaction is open"):
            await guarded(connection, term)
    with pytest.raises(InvalidInput, match=r"^guarded\(connection\) takes a psycopg connection"):
        await guarded(object(), term)


def test_plain_code_is_guarded_too_and_cannot_use_an_async_connection(url: str) -> None:
    app = App("shop", store=url)

    def work(leadership: Leadership) -> str:
        with psycopg.connect(url) as connection:
            guarded_sync(connection, leadership)
            connection.execute(INSERT)
        return "written"

    with app.sync:
        assert app.sync.mutex("nightly").run_once(work) == "written"
        assert orders(url) == ["a"]
        assert app.sync.lease("nightly").inspect().term == 1

    async def with_async(begins: Begins, term: Any) -> None:
        async with begins(url) as transaction:
            with pytest.raises(InvalidInput, match=r"await arriero\.guarded"):
                guarded_sync(transaction.connection, term)

    async def each() -> None:
        async with App("shop", store=url) as opened, opened.lease("nightly").connected() as lease:
            term = await elect(opened, lease)
            for begins in ASYNC:
                await with_async(begins, term)

    asyncio.run(each())


@pytest.fixture
def models(url: str) -> Iterator[Any]:
    configure_django(url)
    from django import db

    yield db
    db.connections.close_all()


def test_django_s_transaction_is_guarded(url: str, models: Any) -> None:
    app = App("shop", store=url)

    def work(leadership: Leadership) -> None:
        with models.transaction.atomic():
            guarded_sync(models.connection, leadership)
            models.connection.cursor().execute(INSERT)
        with pytest.raises(InvalidInput, match=r"^guarded\(connection\): no transaction is open"):
            guarded_sync(models.connection, leadership)
        models.connection.close()

    with app.sync:
        app.sync.mutex("nightly").run_once(work)
    assert orders(url) == ["a"]


async def test_a_lease_by_url_guards_as_the_app_s_does(url: str, app: App) -> None:
    async with open_lease(url, "by-url").connected() as lease:
        grant = await lease.acquire("ana", DURATION)
        assert grant is not None
    term = _Term(app, grant)
    term.lease = open_lease(url, "by-url")  # type: ignore[assignment]
    for begins in (psycopg_plain, psycopg_async):
        async with begins(url) as transaction:
            await guarded(transaction.connection, term)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["before the guard", "before the write", "before the commit", "before it connects"])
async def test_a_restart_of_the_server_ends_no_leader_and_its_work_begins_again(moment: str) -> None:
    with Server.start(durable=False) as server:
        url = server.create_database("shop")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE orders (id text PRIMARY KEY)")
        terms: list[int] = []

        async def restart_at(now: str) -> None:
            if now == moment and len(terms) == 1:
                await asyncio.to_thread(server.restart)

        async def work(leadership: Leadership) -> str:
            terms.append(leadership.term)
            if moment == "before it connects" and len(terms) == 1:
                server.kill()
                try:
                    await psycopg.AsyncConnection.connect(url)
                finally:
                    await asyncio.to_thread(server.restart)
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await restart_at("before the guard")
                await guarded(connection, leadership)
                await restart_at("before the write")
                await connection.execute(INSERT)
                await restart_at("before the commit")
            return "written"

        async with App("shop", store=url) as app:
            async with asyncio.timeout(60):
                assert await app.mutex("nightly", duration=1.0).run_once(work) == "written"
        assert orders(url) == ["a"]
        assert len(terms) == 2
        assert terms[1] > terms[0]


def test_plain_work_begins_again_after_a_restart_too() -> None:
    with Server.start(durable=False) as server:
        url = server.create_database("shop")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE orders (id text PRIMARY KEY)")
        engine = engine_of(url)
        terms: list[int] = []

        def work(leadership: Leadership) -> None:
            terms.append(leadership.term)
            with engine.begin() as connection:
                guarded_sync(connection, leadership)
                if len(terms) == 1:
                    server.restart()
                connection.execute(sqlalchemy.text(INSERT))

        app = App("shop", store=url)
        with app.sync:
            app.sync.mutex("nightly", duration=1.0).run_once(work)
        assert orders(url) == ["a"]
        assert len(terms) == 2


async def test_an_error_of_the_work_itself_still_ends_it(app: App, url: str) -> None:
    async def work(leadership: Leadership) -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await guarded(connection, leadership)
            await connection.execute("INSERT INTO nothing VALUES (1)")

    with pytest.raises(psycopg.errors.UndefinedTable):
        await app.mutex("nightly").run(work)
