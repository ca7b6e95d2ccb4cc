"""One suite, every store: a test that asks for ``world`` runs on each."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import TestClock, World

from arriero.store.base import StateStore
from arriero.store.memory import MemoryStore
from arriero.store.postgres.store import PostgresStore
from arriero.store.sqlite.store import SqliteStore
from tests.postgres_servers import database, emptied, pooled


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "odd_history(*invariants, reason): the test writes what no Scheduler would; exactly these do not hold",
    )


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


def _postgres(which: str) -> str:
    """URL of an empty database for a kind of PostgreSQL, as the name of the kind says."""
    version = next((number for number in (15, 18) if f"-{number}" in which), 16)
    url = emptied(database(version, "serializable" if "serializable" in which else "plain"))
    if "pgbouncer" in which:
        url = pooled(url)
    return f"{url}{'&' if '?' in url else '?'}listen={'off' if 'polling' in which else 'on'}"


STORES = [
    "memory",
    "sqlite",
    "postgres",
    "postgres-15-polling",
    "postgres-18",
    "postgres-serializable",
    "postgres-pgbouncer",
]


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, clock: TestClock, tmp_path: Path) -> AsyncIterator[StateStore]:
    made: StateStore
    match request.param:
        case "memory":
            made = MemoryStore(clock)
        case "sqlite":
            made = SqliteStore(str(tmp_path / "store.db"), clock=clock)
        case kind:
            made = PostgresStore(_postgres(kind), clock=clock)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def world(store: StateStore, clock: TestClock, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """At the end of every test: its history keeps all invariants, and folded it equals the state tables."""
    # Kinds of PostgreSQL differ in how they answer, not in what is written: there the end of the test is looked at.
    world = World(store, clock, looks_often="postgres-" not in request.node.callspec.params["store"])
    yield world
    odd = request.node.get_closest_marker("odd_history")
    expected = set() if odd is None else set(odd.args)
    assert {violation.invariant for violation in await history_violations(store)} == expected
    assert await disagreements(store) == []
    assert await broken_links(store) == []


@pytest.fixture
async def open_sqlite(clock: TestClock, tmp_path: Path) -> AsyncIterator[Callable[[], "object"]]:
    """Opens one more SqliteStore on the same file, as another process would."""
    opened: list[SqliteStore] = []

    async def open_another() -> SqliteStore:
        another = SqliteStore(str(tmp_path / "store.db"), clock=clock)
        opened.append(another)
        await another.open()
        return another

    yield open_another
    for one in opened:
        await one.close()
