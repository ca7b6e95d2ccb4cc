"""Beside a snapshot that is left open, what looks for due tasks does not read again what it has read through."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from postgres_servers import server, worker

from arriero.model import Instant, later
from arriero.model.answers import Claimed
from arriero.model.commands import Claim
from arriero.store.postgres import context
from arriero.store.postgres.context import DEAD_A_LOOK, DEAD_FEW, LOOKS_MAX, SLACK, Frontier
from arriero.store.postgres.pipeline import PendingAnswer
from arriero.store.postgres.session import Transaction
from arriero.store.postgres.store import PostgresStore
from bench.growth import AGENT, WORKFLOW, submission

ENDED = 6_000
PAGES_MAX = 100  # of one statement: some indexes, and the tasks that it finds
NOON = Instant(1_700_000_000_000_000)
MANY = DEAD_FEW + 3 * DEAD_A_LOOK


# --- the rule
def test_while_there_are_few_dead_rows_every_look_is_a_whole_one() -> None:
    queue = Frontier()
    for _ in range(3):
        assert queue.begin_look(("w",)) == 0
        queue.end_look(NOON, NOON, DEAD_FEW)
        assert queue.since(("w",)) == 0


def test_beside_many_a_look_begins_where_the_last_one_found_something_alive_and_some_are_whole_ones() -> None:
    queue = Frontier()
    begun = []
    for number in range(9):
        begun.append(queue.begin_look(("w",)))
        queue.end_look(Instant(NOON + number), Instant(NOON + 100), MANY)
    reached = [NOON + number - SLACK for number in range(9)]
    assert begun == [0, *reached[:3], 0, *reached[4:7], 0]
    assert queue.since(("w",)) == reached[8]


def test_a_look_that_found_nothing_due_reaches_to_what_was_being_committed_as_it_looked() -> None:
    queue = Frontier()
    for earliest in (None, Instant(NOON + 50)):
        queue.begin_look(("w",))
        queue.end_look(earliest, NOON, MANY)
        assert queue.since(("w",)) == NOON - SLACK


def test_however_many_dead_rows_there_are_a_whole_look_comes_again() -> None:
    queue = Frontier()
    begun = []
    for _ in range(LOOKS_MAX + 2):
        begun.append(queue.begin_look(("w",)))
        queue.end_look(None, NOON, 10**9)
    assert [at for at, since in enumerate(begun) if since == 0] == [0, LOOKS_MAX + 1]


def test_of_other_names_nothing_is_known() -> None:
    queue = Frontier()
    queue.begin_look(("w", "v"))
    queue.end_look(None, NOON, MANY)
    assert queue.since(("v",)) > 0
    assert queue.since(("u", "v")) == 0
    assert queue.begin_look(("w",)) == 0


# --- on a server
@pytest.fixture
def url() -> Iterator[str]:
    name = f"frontier_{worker()}"
    server().drop_database(name)
    yield server().create_database(name)
    server().drop_database(name)


@pytest.fixture
def clock() -> list[Instant]:
    """The store's, moved by hand."""
    return [NOON]


@pytest.fixture
async def store(url: str, clock: list[Instant], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    monkeypatch.setattr(context, "DEAD_FEW", 100)
    store = PostgresStore(f"{url}?listen=off&prepare=off", clock=lambda: clock[0])
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many pages each statement looked at when it was asked last."""
    counted: dict[str, int] = {}
    ask = Transaction.ask

    def counting(transaction: Transaction, name: str, parameters: Mapping[str, Any] | None = None) -> PendingAnswer:
        transaction.plain("SAVEPOINT counted")
        sql = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + transaction._statements(name)
        row = transaction._pipeline.ask(sql, parameters).fetchone()
        transaction.plain("ROLLBACK TO SAVEPOINT counted")
        assert row is not None
        plan = row[0][0]["Plan"]
        counted[name] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return ask(transaction, name, parameters)

    monkeypatch.setattr(Transaction, "ask", counting)
    return counted


async def leave_dead_rows(store: PostgresStore, url: str, process_no: int) -> None:
    """As if that process had claimed and ended thousands of tasks; whoever looks next knows how many rows are dead."""
    await store.submit([submission(f"before-{number}") for number in range(ENDED)])
    with psycopg.connect(url, autocommit=True) as others:
        others.execute("UPDATE arriero.task SET locked_by = %s, unseen_since = not_before", [process_no])
        others.execute(
            "UPDATE arriero.task SET locked_by = NULL, unseen_since = NULL, not_before = NULL, state = 'processed', ended_at = 1"
        )
        others.execute("SELECT pg_stat_force_next_flush()")
        others.execute("SELECT 1")


async def test_beside_an_old_snapshot_looks_and_claims_do_not_read_again_what_is_dead(
    store: PostgresStore, url: str, clock: list[Instant], pages: dict[str, int]
) -> None:
    process_no = await store.register("p", 60.0)
    with psycopg.connect(url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM arriero.task")
        await leave_dead_rows(store, url, process_no)
        clock[0] = later(NOON, 10.0)
        await store.due((WORKFLOW,), (AGENT,))
        await store.load_news(process_no)
        assert min(pages["select_due"], pages["select_news"]) > 2 * PAGES_MAX  # so there is something to be read
        await store.submit([submission(f"after-{number}") for number in range(10)])
        assert (await store.due((WORKFLOW,), (AGENT,))).tasks
        claim = Claim(actor="p", process_no=process_no, workflows=(WORKFLOW,), limit=20, probation=True)
        (claimed,) = await store.apply([claim])
        assert isinstance(claimed, Claimed)
        assert len(claimed.tasks) == len(await store.load_news(process_no)) == 10
        names = ("select_due", "select_claimable", "select_news")
        assert {name: pages[name] for name in names if pages[name] > PAGES_MAX} == {}
        old.rollback()


async def test_what_has_been_due_for_longer_than_a_look_reaches_back_is_found_by_the_next_whole_one(
    store: PostgresStore, url: str, clock: list[Instant]
) -> None:
    process_no = await store.register("p", 60.0)
    with psycopg.connect(url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM arriero.task")
        await leave_dead_rows(store, url, process_no)
        clock[0] = later(NOON, 10.0)
        await store.due((WORKFLOW,), (AGENT,))
        await store.submit([submission("resumed")])
        with psycopg.connect(url, autocommit=True) as others:
            others.execute("UPDATE arriero.task SET not_before = 1 WHERE task_id = 'resumed'")
        looks = 1
        while not (await store.due((WORKFLOW,), (AGENT,))).tasks:
            looks += 1
        assert 1 < looks <= LOOKS_MAX + 1
        old.rollback()
