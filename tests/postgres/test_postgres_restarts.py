"""A server that was restarted: reads connect again and try once more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from arriero.errors import StoreError
from arriero.store.postgres import connect_pauses
from arriero.store.postgres.session import PostgresSession
from arriero.store.postgres.store import PostgresStore
from arriero.testing.postgres import Server

SECONDS_MAX = 30.0


async def bounded(call: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(call, SECONDS_MAX)


async def _read_through(store: PostgresStore) -> None:
    async for _ in store.history():
        pass


READS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "one task": lambda store: store.load(1),
    "a list": lambda store: store.list_tasks(),
    "counts": lambda store: store.counts(),
    "leases": lambda store: store.known_processes(),
    "due": lambda store: store.due(("fulfil",), ()),
    "history": lambda store: _read_through(store),
}


async def test_the_first_read_of_each_kind_after_a_restart_is_answered() -> None:
    with Server.start(durable=False) as server:
        store = PostgresStore(server.create_database("shop"))
        await store.open()
        try:
            for read in READS.values():
                await read(store)
            server.restart()
            for read in READS.values():
                await bounded(read(store))
        finally:
            await asyncio.wait_for(store.close(), SECONDS_MAX)


async def test_a_read_that_was_refused_while_the_server_was_down_is_answered_by_its_second_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All lanes have been refused, and remember it longer than the server takes to start."""
    with Server.start(durable=False) as server:
        store = PostgresStore(server.create_database("shop"))
        await store.open()
        try:
            for read in READS.values():
                await read(store)
            monkeypatch.setattr(connect_pauses, "CONNECT_SECONDS", 3.0)
            monkeypatch.setattr(connect_pauses, "CONNECT_SECONDS_MAX", 3.0)
            server.kill()
            for read in READS.values():
                with pytest.raises(StoreError):
                    await bounded(read(store))
            server.restart()
            found = await bounded(asyncio.gather(*(read(store) for read in READS.values())))
            assert len(found) == len(READS)
        finally:
            await asyncio.wait_for(store.close(), SECONDS_MAX)


async def test_a_read_whose_server_stays_away_ends_with_an_error_after_two_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Server.start(durable=False) as server:
        store = PostgresStore(server.create_database("shop"))
        await store.open()
        try:
            await store.load(1)
            server.kill()
            connects = []
            connect = PostgresSession._connect

            def counting(connecting: PostgresSession) -> object:
                connects.append(connecting)
                return connect(connecting)

            monkeypatch.setattr(PostgresSession, "_connect", counting)
            with pytest.raises(StoreError, match="start the server"):
                await bounded(store.load(1))
            assert len(connects) == 2
        finally:
            await asyncio.wait_for(store.close(), SECONDS_MAX)
