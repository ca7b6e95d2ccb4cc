"""Remote steps in the world of tests: the test stands for the program."""

import asyncio
from dataclasses import dataclass

import pytest

from arriero import Agent, App, Attempt, Permanent, Supervision, TaskCompensated, Undo, testing, workflow


@dataclass
class Booking:
    number: str


shipping = Agent("shipping")


@shipping.step(remote=True, complete_within=30, supervision=Supervision(attempts=1))
def book(attempt: Attempt, order: str, grams: int) -> Booking: ...  # type: ignore[empty-body]


@book.compensation
def cancel(undo: Undo[Booking], order: str, grams: int) -> None: ...


@shipping.step(remote=True, complete_within=30, supervision=Supervision(attempts=1))
def label(attempt: Attempt, number: str) -> str: ...  # type: ignore[empty-body]


@workflow
async def ship(order: str, grams: int) -> str:
    return (await book(order, grams)).number


@workflow
async def ship_with_label(order: str) -> str:
    return await label((await book(order, 1)).number)


app = App("parcels", agents=[shipping], workflows=[ship, ship_with_label])


async def test_a_remote_step_answers_as_the_test_says() -> None:
    async with testing.running(app) as world, asyncio.timeout(60):
        world.answers(book, Booking("B-1"))
        task = await world.app.submit(ship("order-1001", 500))
        assert await task.result() == "B-1"
        assert world.calls(book) == [{"order": "order-1001", "grams": 500}]


async def test_a_function_stands_for_the_program() -> None:
    async with testing.running(app) as world, asyncio.timeout(60):
        world.replace(book, lambda order, grams: Booking(f"{order}-{grams}"))
        assert await (await world.app.submit(ship("order-1001", 500))).result() == "order-1001-500"


async def test_a_remote_step_is_undone_like_every_other_one() -> None:
    async with testing.running(app) as world, asyncio.timeout(60):
        world.answers(book, Booking("B-1"))
        world.answers(label, Permanent("no paper"))
        with pytest.raises(TaskCompensated, match="no paper"):
            await (await world.app.submit(ship_with_label("order-1001"))).result()
        assert [one.step for one in world.undone()] == ["book"]


async def test_a_remote_step_of_which_nothing_is_said_fails_and_says_what_to_say() -> None:
    async with testing.running(app) as world, asyncio.timeout(60):
        with pytest.raises(TaskCompensated, match="say what it answers with world.answers or world.replace"):
            await (await world.app.submit(ship("order-1001", 500))).result()
