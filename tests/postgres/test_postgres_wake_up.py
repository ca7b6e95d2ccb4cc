"""Wake-ups between processes: hints that come soon, and whose absence costs only time."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
from postgres_servers import database, emptied
from store_world import submission

from arriero import Agent, App, Attempt, workflow
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.postgres import listening
from arriero.store.postgres.listening import Listener
from arriero.store.postgres.store import PostgresStore

WITHIN_SECONDS = 60.0  # an event that does not come by then never comes

echoes = Agent("echoes")


@echoes.step
async def echo(attempt: Attempt, text: str) -> str:
    return text


@workflow
async def say(text: str) -> str:
    return await echo(text)


class Ear:
    """A store of one process, and whether it was woken."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self.woken = asyncio.Event()
        self.store.on_wake_up(self.woken.set)

    async def listening(self) -> None:
        """Until it listens: it looks once when it begins."""
        await asyncio.wait_for(self.woken.wait(), WITHIN_SECONDS)
        self.woken.clear()


@pytest.fixture
def url() -> str:
    return emptied(database())


@pytest.fixture
async def ears(url: str) -> AsyncIterator[Callable[[str], Ear]]:
    opened: list[Ear] = []

    def listens(options: str = "") -> Ear:
        ear = Ear(url + options)
        opened.append(ear)
        return ear

    yield listens
    for ear in opened:
        await ear.store.close()


async def test_a_submission_wakes_the_other_processes(ears: Callable[[str], Ear]) -> None:
    one, other = ears(""), ears("")
    for ear in (one, other):
        await ear.store.open()
        await ear.listening()
    await one.store.submit([submission("order-1")])
    await asyncio.wait_for(other.woken.wait(), WITHIN_SECONDS)
    assert not one.woken.is_set(), "it heard itself"


async def test_a_lease_given_back_wakes_the_others_also_when_its_process_ends_at_once(
    ears: Callable[[str], Ear],
) -> None:
    one, other = ears(""), ears("")
    for ear in (one, other):
        await ear.store.open()
        await ear.listening()
    lease = await one.store.acquire_lease(SUPERVISOR_LEASE, await one.store.register("p1", 60.0), "p1", 60.0)
    await one.store.release_lease(SUPERVISOR_LEASE, lease.holder or 0, lease.term, "p1")
    await one.store.close()
    await asyncio.wait_for(other.woken.wait(), WITHIN_SECONDS)


async def test_many_submissions_in_a_row_are_told_together(ears: Callable[[str], Ear]) -> None:
    one, other = ears(""), ears("")
    for ear in (one, other):
        await ear.store.open()
        await ear.listening()
    heard = 0

    def count() -> None:
        nonlocal heard
        heard += 1

    other.store.on_wake_up(count)
    await asyncio.gather(*(one.store.submit([submission(f"order-{number}")]) for number in range(100)))
    await asyncio.wait_for(other.woken.wait(), WITHIN_SECONDS)
    assert heard < 50


def tell(url: str, count: int) -> None:
    """A stranger tells so often, each time in a transaction of its own; returns when all of it can be heard."""
    with psycopg.connect(url, autocommit=True) as hearing, psycopg.connect(url, autocommit=True) as connection:
        hearing.execute("LISTEN arriero_wake_up")
        for number in range(count):
            connection.execute("SELECT pg_notify('arriero_wake_up', %s)", [f"stranger-{number}"])
        heard: set[str] = set()
        while f"stranger-{count - 1}" not in heard:
            heard.update(told.payload for told in hearing.notifies(timeout=WITHIN_SECONDS, stop_after=1))


async def test_however_often_a_stranger_tells_one_look_answers_all_and_the_next_comes_after_a_rest(
    ears: Callable[[str], Ear], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resting, go_on = threading.Event(), threading.Event()

    def rest(listener: Listener) -> None:
        resting.set()
        assert go_on.wait(WITHIN_SECONDS)

    monkeypatch.setattr(Listener, "_rest", rest)
    ear = ears("")
    await ear.store.open()
    await ear.listening()
    heard = 0

    def count() -> None:
        nonlocal heard
        heard += 1

    ear.store.on_wake_up(count)
    await asyncio.to_thread(tell, url, 1)
    assert await asyncio.to_thread(resting.wait, WITHIN_SECONDS)
    await asyncio.to_thread(tell, url, 100)
    assert heard == 1
    ear.woken.clear()
    go_on.set()
    await asyncio.wait_for(ear.woken.wait(), WITHIN_SECONDS)
    assert heard == 2, "one look answers the hundred"


async def test_a_flood_ends_the_listening_and_it_begins_again_later(
    ears: Callable[[str], Ear], url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "arriero")
    monkeypatch.setattr(listening, "FLOOD", 10)
    monkeypatch.setattr(listening, "AGAIN_SECONDS", 0.0)
    ear = ears("")
    await ear.store.open()
    await ear.listening()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_notify('arriero_wake_up', n::text) FROM generate_series(1, 1000) AS n")
    await asyncio.wait_for(ear.woken.wait(), WITHIN_SECONDS)  # it listens again
    assert "wake-ups come too fast, polling continues" in caplog.text
    ear.woken.clear()
    await asyncio.to_thread(tell, url, 1)
    await asyncio.wait_for(ear.woken.wait(), WITHIN_SECONDS)


async def test_nobody_listens_where_the_url_says_so_and_everything_works(url: str) -> None:
    app = App("polling", agents=[echoes], workflows=[say], store=f"{url}?listen=off")
    front = App("polling", agents=[echoes], workflows=[say], store=f"{url}?listen=off")
    async with app.running(), front:
        task = await front.submit(say("well"))
        assert await task.result(timeout=WITHIN_SECONDS) == "well"


async def test_wake_ups_may_go_another_way_than_the_rest(url: str) -> None:
    """A pooler in transaction mode cannot carry them: listen_url names the server itself."""
    app = App("pooled", agents=[echoes], workflows=[say], store=f"{url}?listen_url={url}")
    async with app.running():
        assert await (await app.submit(say("well"))).result(timeout=WITHIN_SECONDS) == "well"


async def test_where_wake_ups_cannot_be_had_polling_goes_on(url: str) -> None:
    app = App("deaf", agents=[echoes], workflows=[say], store=f"{url}?listen_url=postgresql://127.0.0.1:1/nowhere")
    async with app.running():
        assert await (await app.submit(say("well"))).result(timeout=WITHIN_SECONDS) == "well"
