"""One suite, every store: a test that asks for ``world`` runs on each."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from store_world import TestClock, World

from arriero.store.base import StateStore
from arriero.store.memory import MemoryStore
from arriero.store.sqlite.store import SqliteStore


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, clock: TestClock, tmp_path: Path) -> AsyncIterator[StateStore]:
    made: StateStore = (
        MemoryStore(clock) if request.param == "memory" else SqliteStore(str(tmp_path / "store.db"), clock=clock)
    )
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def world(store: StateStore, clock: TestClock) -> World:
    return World(store, clock)


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
