"""Providers of leases for the contract suite: each makes leases on a server of its own, and lets one lapse.

A provider whose server is not on this machine raises ``Unavailable``; its tests skip with that reason.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from postgres_servers import database, emptied
from store_world import TestClock

from arriero.leases import Lease
from arriero.leases.store import StoreLease
from arriero.store.memory import MemoryStore
from arriero.store.postgres.store import PostgresStore
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore


class LeaseProvider(ABC):
    """A provider under test.

    Attributes:
        duration: seconds that it takes, as short as may be.
        bad_name: a name that it refuses.
    """

    duration: float = 2.0
    bad_name = ""

    @abstractmethod
    def lease(self, name: str) -> Lease:
        """A lease on the server that runs."""

    @abstractmethod
    def unreachable(self, name: str) -> Lease:
        """A lease at an address where nothing answers."""

    @abstractmethod
    async def lapse(self, lease: Lease) -> None:
        """Let the lease lapse as if its holder had died: nobody renews it, and its time passes."""


class StoreProvider(LeaseProvider):
    """Leases in an open store, whose clock the test moves."""

    def __init__(self, store: StateStore, unreachable: StateStore, clock: TestClock) -> None:
        self._store = store
        self._unreachable = unreachable
        self._clock = clock

    def lease(self, name: str) -> StoreLease:
        return StoreLease(lambda: self._store, name, is_shared=True)

    def unreachable(self, name: str) -> StoreLease:
        return StoreLease(lambda: self._unreachable, name, is_shared=False)

    async def lapse(self, lease: Lease) -> None:
        self._clock.move(self.duration)


@asynccontextmanager
async def open_store_provider(kind: str, folder: Path) -> AsyncIterator[LeaseProvider]:
    """A provider on a new store: memory, sqlite or postgres."""
    clock = TestClock()
    unreachable: StateStore = SqliteStore(str(folder / "missing" / "store.db"))
    store: StateStore
    if kind == "memory":
        store = MemoryStore(clock=clock)
    elif kind == "sqlite":
        store = SqliteStore(str(folder / "leases.db"), clock=clock)
    else:
        store = PostgresStore(emptied(database()), clock=clock)
        unreachable = PostgresStore("postgresql://127.0.0.1:1/nothing")
    await store.open()
    try:
        yield StoreProvider(store, unreachable, clock)
    finally:
        await store.close()


# By name: makes the provider for one test. A file for each provider beside this one adds its own.
PROVIDERS = {
    kind: (lambda folder, kind=kind: open_store_provider(kind, folder)) for kind in ("memory", "sqlite", "postgres")
}
