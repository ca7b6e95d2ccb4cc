"""A trip of three bookings, each a task: one is done, one waits for an operator, one is paused before it begins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waiting import PAUSE_SECONDS, HangLimit

from arriero import Agent, App, Attempt, Task, Undo, sleep, workflow
from arriero.testing import running
from arriero.testing.world import World

desk = Agent("desk", breaker=None)
undone: list[str] = []
mended: set[str] = set()


@desk.step
async def book(attempt: Attempt, what: str) -> str:
    return f"booked {what}"


@book.compensation
async def unbook(undo: Undo[str], what: str) -> None:
    undone.append(what)


@workflow
async def booking(what: str) -> str:
    booked = await book(what)
    if what == "hotel" and what not in mended:
        raise RuntimeError("cannot read the reply of the hotel")
    if what == "car":
        await sleep(3_600)
    return booked


@workflow
async def tell(what: str) -> None:
    await sleep(86_400)


@workflow
async def trip() -> list[str]:
    await tell("all").options(detach=True)
    return await asyncio.gather(booking("flight"), booking("hotel"), booking("car"))


def build_app(store: str = "memory://") -> App:
    undone.clear()
    mended.clear()
    return App("trips", agents=[desk], workflows=[trip, booking, tell], store=store)


@asynccontextmanager
async def trip_under_way() -> AsyncIterator[tuple[World, Task[list[str]]]]:
    """A trip whose hotel is held, and whose car sleeps."""
    async with running(build_app()) as world:
        task = await world.app.submit(trip(), task_id="trip-7")
        await world.clock.advance(5)
        yield world, task


async def trip_waits(app: App) -> None:
    """Wait until the hotel of trip-7 is held and all its tasks have begun; with the clock of the machine."""
    wanted = ["processing", "processed", "held", "processing"]
    limit = HangLimit("the hotel is held")
    while [child.state for child in await app.task("trip-7").children()] != wanted:
        limit.check()
        await asyncio.sleep(PAUSE_SECONDS)
