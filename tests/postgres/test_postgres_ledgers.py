"""Ledgers on PostgreSQL: many at once, strangers' transactions, and what is submitted by SQL."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import psycopg
import pytest
from postgres_servers import database, emptied
from psycopg.rows import scalar_row
from store_checks import broken_links, disagreements, history_violations

from arriero import Agent, App, Attempt, Entry, InvalidInput, Ledger, workflow
from arriero.model import LedgerState
from arriero.store import task_filter
from arriero.store.postgres.lanes import LONG, OTHERS
from arriero.store.postgres.session import Statements
from arriero.store.postgres.store import PostgresStore
from arriero.store.postgres.store_rows import OF_LEDGER
from arriero.store.task_filter import TaskFilter

SECONDS_MAX = 60.0
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
mules = Agent("mules")
carried: list[str] = []


@mules.step
async def load(attempt: Attempt, what: str) -> str:
    carried.append(what)
    return what


@workflow
async def carry(what: str) -> str:
    return await load(what)


def caravan(url: str) -> App:
    return App("caravan", agents=[mules], workflows=[carry], store=url)


def lines(count: int, *, keys: int = 3) -> Iterable[Entry]:
    for line in range(1, count + 1):
        yield Entry(carry(f"{line % keys} {line}"), convoy=f"mule {line % keys}")


@pytest.fixture
async def url(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """An empty store; at the end of every test its history is clean."""
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    carried.clear()
    found = emptied(database(kind="joined"))
    yield found
    store = PostgresStore(found)
    await store.open()
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []
    await store.close()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.client.ledger.BATCH", 7)


class Unopened:
    """A ledger of which all is written and nothing is visible."""

    def __init__(self, app: App, ledger_id: str, entries: Iterable[Entry]) -> None:
        self._app = app
        self._id = ledger_id
        self._entries = entries

    async def written(self) -> None:
        def broken() -> Iterable[Entry]:
            yield from self._entries
            yield Entry(carry("the last"))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await self._app.submit_ledger(self._id, broken())


async def test_several_that_submit_the_same_at_once_bring_it_once_while_others_submit_and_it_runs(
    url: str, small_batches: None
) -> None:
    apps = [caravan(url) for _ in range(3)]
    runner = caravan(url)
    async with runner.running(), apps[0], apps[1], apps[2]:

        async def others() -> None:
            for number in range(30):
                await apps[2].submit(carry(f"{number % 3} other {number}"), convoy=f"mule {number % 3}")

        ledgers, *_ = await asyncio.wait_for(
            asyncio.gather(asyncio.gather(*(app.submit_ledger("may", lines(60)) for app in apps)), others()),
            SECONDS_MAX,
        )
        assert sorted((ledger.accepted, ledger.duplicates) for ledger in ledgers) == [(0, 60), (0, 60), (60, 0)]
        for line in range(1, 61):
            await asyncio.wait_for(runner.task(f"may:{line}", of=carry).result(), SECONDS_MAX)
    for key in range(3):
        of_ledger = [int(what.split()[1]) for what in carried if what.startswith(f"{key} ") and "other" not in what]
        assert of_ledger == sorted(of_ledger)
        assert len(of_ledger) == 20


async def test_what_an_unopened_ledger_keeps_is_refused_to_sql_and_to_joined_submissions(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.client.ledger.BATCH", 1)
    app = caravan(url)
    async with app.running():  # so that the store knows its workflows
        pass
    async with app:
        entries = [Entry(carry("a"), task_id="kept"), Entry(carry("b"), convoy="m", sequence=1, task_id="numbered")]
        await Unopened(app, "may", entries).written()
        with psycopg.connect(url.partition("?")[0], row_factory=scalar_row) as connection:
            with connection.transaction(), pytest.raises(InvalidInput, match="'kept' belongs to a ledger"):
                await app.submit(carry("a"), task_id="kept", connection=connection)
            with connection.transaction(), pytest.raises(InvalidInput, match="'numbered' belongs to a ledger"):
                await app.submit(carry("b"), convoy="m", sequence=1, connection=connection)
            for statement in (
                "SELECT arriero.submit('carry', '{\"what\": \"a\"}', task_id => 'kept')",
                "SELECT arriero.submit('carry', '{\"what\": \"b\"}', convoy => 'm', sequence => 1)",
            ):
                with pytest.raises(psycopg.errors.UniqueViolation, match="belongs to a ledger that is not complete"):
                    connection.execute(statement)  # type: ignore[call-overload]  # a text of ours
                connection.rollback()
        assert await app.session.store.list_tasks() == []


async def test_a_task_submitted_by_sql_is_a_duplicate_if_it_is_the_same(url: str) -> None:
    app = caravan(url)
    async with app.running():
        pass
    async with app:
        with psycopg.connect(url.partition("?")[0]) as connection:
            connection.execute("SELECT arriero.submit('carry', '{ \"what\" : \"a\" }', task_id => 'known')")
        entries = [Entry(carry("a"), task_id="known"), Entry(carry("b"), task_id="known"), Entry(carry("c"))]
        ledger = await app.submit_ledger("may", entries, bad="set_aside")
        assert (ledger.accepted, ledger.duplicates, len(ledger.set_aside)) == (1, 1, 1)
        assert "another body" in ledger.set_aside[0]


async def _waits_for_a_lock(url: str, count: int = 1) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        with psycopg.connect(url.partition("?")[0], row_factory=scalar_row, autocommit=True) as connection:
            while (connection.execute(WAITING).fetchone() or 0) < count:
                await asyncio.sleep(0.01)


async def test_an_id_that_a_stranger_is_just_submitting_is_a_duplicate_once_he_commits(url: str) -> None:
    app = caravan(url)
    async with app:
        with psycopg.connect(url.partition("?")[0]) as stranger:
            await app.submit(carry("a"), task_id="his", connection=stranger)
            entries = [Entry(carry("b")), Entry(carry("a"), task_id="his"), Entry(carry("c"))]
            submitting = asyncio.create_task(app.submit_ledger("may", entries))
            await _waits_for_a_lock(url)
            stranger.commit()
            assert await asyncio.wait_for(submitting, SECONDS_MAX) == Ledger(2, 1, [])


async def test_a_ledger_is_let_go_by_one_at_a_time(url: str, small_batches: None) -> None:
    app = caravan(url)
    async with app:
        store: Any = app.session.store
        ledger = await store.begin_ledger("may")
        await Unopened(app, "may", lines(13)).written()
        found = await store.find_ledger("may")
        opened = await store.open_ledger(ledger.ledger_no, found.written, found.digest, "client")
        assert opened.opened
        with psycopg.connect(url.partition("?")[0]) as another:
            another.execute("SELECT 1 FROM arriero.ledger WHERE ledger_no = %s FOR NO KEY UPDATE", (ledger.ledger_no,))
            assert await store.let_go(ledger.ledger_no, 5, "client") is None
        states = [(await store.let_go(ledger.ledger_no, 5, "client")).state for _ in range(3)]
        assert states == [LedgerState.OPENED, LedgerState.OPENED, LedgerState.DONE]


async def test_the_tasks_of_a_ledger_are_found_by_an_index_however_many_others_there_are(url: str) -> None:
    """Planned by statistics that are never made, of an empty table, and made now: it reads the ledger's rows alone."""
    store = PostgresStore(f"{url}?prepare=off")
    async with caravan(url) as app:
        await app.submit_ledger("june", lines(2_000))
        await app.submit_ledger("may", lines(30))
        await app.submit_ledger("july", lines(2_000))
    await store.open()
    ledger = await store.find_ledger("may")
    assert ledger is not None
    asked = {
        "ledger_no": ledger.ledger_no,
        "ledger_nos": [ledger.ledger_no],
        "from_ledger": ledger.ledger_no,
        "after": 0,
    }
    names = ("before", "failed", "version", "deployment", *TaskFilter.__struct_fields__)
    nobody = dict.fromkeys(names) | asked | {"limit": 20}
    statements = Statements("arriero")
    filtered = task_filter.narrow_to_ledger(statements("select_filtered"), OF_LEDGER)
    wanted = {
        "list": (filtered, LONG, 30),
        "newest": (task_filter.order_newest_first(filtered), LONG, 30),
        "first open": (statements("select_open_of_ledgers"), OTHERS, 1),
        "counts": (statements("count_tasks_of_ledger"), LONG, 30),
    }
    tables = "(SELECT oid FROM pg_class WHERE relnamespace = 'arriero'::regnamespace)"
    with psycopg.connect(url, autocommit=True) as connection:
        for density in (-1, 0, None):
            if density is None:
                connection.execute("ANALYZE arriero.task")
            else:
                connection.execute(f"DELETE FROM pg_statistic WHERE starelid IN {tables}".encode())
                connection.execute(
                    f"UPDATE pg_class SET reltuples = {density}, relpages = 0 WHERE oid IN {tables}".encode()
                )
            for name, (sql, limits, rows_max) in wanted.items():
                with connection.transaction():
                    connection.execute(statements("settings"), limits.parameters(local=True))
                    explained = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), nobody).fetchone()
                assert explained is not None
                nodes = list(walk(explained[0][0]["Plan"]))
                (scan,) = [node for node in nodes if node.get("Relation Name") == "task"]
                indexes = {node["Index Name"] for node in nodes if "Index Name" in node} - {"ledger_ledger_id_key"}
                read = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
                assert indexes <= {"task_from_ledger", "task_from_ledger_open", "ledger_unfinished", "ledger_pkey"}, (
                    name,
                    density,
                    scan,
                )
                assert indexes & {"task_from_ledger", "task_from_ledger_open"}, (name, density, nodes)
                assert 1 <= read <= rows_max, (name, density, scan)
    await store.close()


def walk(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from walk(below)
