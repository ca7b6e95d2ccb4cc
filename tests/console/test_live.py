"""Streams that say to a page that it is behind: of one task, and of the whole store."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from server_world import TOKENS

from arriero import App, workflow
from arriero.server.application import ApiServer, build_application
from arriero.server.console.live import StoreWatch
from arriero.store.memory.store import MemoryStore


@workflow
async def nothing() -> None: ...


class Clock:
    """A clock whose sleepers are let go by the test."""

    def __init__(self) -> None:
        self.sleepers: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self.sleepers.put(sleeper)
        await sleeper

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        await self.sleep(seconds)

    async def tick(self) -> None:
        """Let the next sleeper go, and wait until it sleeps again."""
        (await self.sleepers.get()).set_result(None)
        while self.sleepers.empty():
            await asyncio.sleep(0)


class Store(MemoryStore):
    """A store whose history ends where the test says."""

    end, looks = 7, 0

    async def find_history_end(self) -> int:
        self.looks += 1
        return self.end


async def watch_until_looked(watch: StoreWatch, store: Store, clock: Clock, known: int) -> "asyncio.Task[int]":
    waiting = asyncio.get_running_loop().create_task(watch.wait(store, clock, known))
    await asyncio.sleep(0)
    return waiting


async def test_however_many_pages_are_open_the_store_is_looked_at_once_in_a_second() -> None:
    watch, store, clock = StoreWatch(), Store(), Clock()
    watch.pages = 200
    waiting = [await watch_until_looked(watch, store, clock, 0) for _ in range(200)]
    for _ in range(3):
        await clock.tick()
    assert not any(one.done() for one in waiting)
    store.end = 8
    await clock.tick()
    assert await asyncio.gather(*waiting) == [1] * 200
    assert store.looks <= 6
    watch.pages = 1
    watch.leave()


async def test_a_change_is_followed_by_a_second_one_as_soon_as_the_store_is_quiet() -> None:
    """A commit may become readable after one with a higher number."""
    watch, store, clock = StoreWatch(), Store(), Clock()
    watch.pages = 1
    first = await watch_until_looked(watch, store, clock, 0)
    await clock.tick()
    store.end = 8
    await clock.tick()
    assert await first == 1
    second = await watch_until_looked(watch, store, clock, 1)
    await clock.tick()
    assert await second == 2
    third = await watch_until_looked(watch, store, clock, 2)
    await clock.tick()
    await clock.tick()
    assert not third.done()
    third.cancel()
    watch.leave()


async def test_the_last_page_that_is_closed_ends_the_looks_at_the_store() -> None:
    watch, store, clock = StoreWatch(), Store(), Clock()
    watch.pages = 1
    waiting = await watch_until_looked(watch, store, clock, 0)
    sleeper = await clock.sleepers.get()
    watch.leave()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert sleeper.cancelled()


@pytest.fixture
async def served() -> AsyncIterator[tuple[App, ApiServer]]:
    from server_world import FixedTokens

    app = App("shop", workflows=[nothing], store="memory://")
    server = build_application(app, FixedTokens())
    async with app:
        yield app, server


async def read_events(server: ApiServer, path: str, count: int) -> bytes:
    """Open a stream and read until it has sent so many events."""
    seen, enough = bytearray(), asyncio.Event()

    async def receive() -> dict[str, object]:
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        seen.extend(body)
        if seen.count(b"event: changed") >= count:
            enough.set()

    plain, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": plain,
        "raw_path": plain.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"cookie", f"arriero={TOKENS['admin']}".encode())],
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "root_path": "",
    }
    async with asyncio.timeout(60):
        await server(scope, receive, send)  # type: ignore[arg-type]  # plain dictionaries are messages
    return bytes(seen)


async def test_a_page_that_was_drawn_before_a_change_is_behind_as_soon_as_it_listens(
    served: tuple[App, ApiServer],
) -> None:
    app, server = served
    before = await app.session.store.find_history_end()
    await app.submit(nothing(), task_id="one")
    assert b"event: changed" in await read_events(server, f"/live?seen={before}", 1)
    versions = await app.session.store.load_versions([1])
    assert versions[1].encode() in await read_events(server, "/live/tasks/one?seen=another", 1)
