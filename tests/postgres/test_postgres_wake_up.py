"""Wake-ups between processes: hints that come soon, and whose absence costs only time."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from arriero import Agent, App, Attempt, workflow
from arriero.store.postgres.store import PostgresStore
from tests.postgres_servers import database, emptied
from tests.store.store_world import submission

WITHIN_SECONDS = 20.0  # an event that does not come by then never comes

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


async def test_nobody_listens_where_the_url_says_so_and_everything_works(url: str) -> None:
    app = App("polling", agents=[echoes], workflows=[say], store=f"{url}?listen=off")
    front = App("front", agents=[echoes], workflows=[say], store=f"{url}?listen=off")
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
