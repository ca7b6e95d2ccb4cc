"""One suite, every store: a test that asks for ``world`` runs on each.

Memory, SQLite and PostgreSQL 16 run every test. The other kinds of PostgreSQL answer by the same statements, so every second
test runs on one of them; its name decides which. ``ARRIERO_EVERY_STORE=1`` runs all on all (`make torture`).
"""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from zlib import crc32

import pytest
from postgres_servers import database, emptied, pooled
from store_checks import broken_links, disagreements, history_violations
from store_world import TestClock, World

from arriero.store.memory import MemoryStore
from arriero.store.postgres.store import PostgresStore
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore


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


STORES = ("memory", "sqlite", "postgres")
OTHER_KINDS = ("postgres-15-polling", "postgres-18", "postgres-serializable", "postgres-pgbouncer")
EVERY_STORE = os.environ.get("ARRIERO_EVERY_STORE") == "1"


def _is_left_out(item: pytest.Item) -> bool:
    kind = (
        item.callspec.params.get("store") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    )
    if EVERY_STORE or kind not in OTHER_KINDS:
        return False
    test = item.nodeid.replace(f"[{kind}", "[").replace(f"{kind}]", "]")
    drawn = crc32(test.encode()) % (2 * len(OTHER_KINDS))  # beyond the kinds: on none of them
    return drawn != OTHER_KINDS.index(kind)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    away = set(left_out)
    items[:] = [item for item in items if item not in away]


@pytest.fixture(params=[*STORES, *OTHER_KINDS])
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
    # A look at a whole history costs PostgreSQL more than the command before it. There the end of the test is looked at:
    # rows of history are only added, and memory and SQLite are looked at after each command of the same test.
    world = World(store, clock, looks_often=not request.node.callspec.params["store"].startswith("postgres"))
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
