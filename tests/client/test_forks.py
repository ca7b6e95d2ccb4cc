"""Forks through Python: a task is done again from a step on, nothing before is, and every effect is undone once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from forked_shop import Shop, approved

import arriero
from arriero import (
    InvalidInput,
    Task,
    TaskCompensated,
    TaskExists,
    TaskHeld,
    UnknownTask,
    VerbRefused,
    testing,
)
from arriero.client.task_explanation import load_explanation

WHO = {"by": "ana", "reason": "it was checked"}


@asynccontextmanager
async def running(shop: Shop) -> AsyncIterator[tuple[testing.World, Task[str]]]:
    """The shop with one order that is charged, approved and packed, and held because the shelf is empty."""
    async with testing.running(shop.app) as world:
        task = await world.app.submit(shop.fulfil("1"), task_id="first", tags={"tenant": "acme"})
        await task.send(approved("yes"))
        with pytest.raises(TaskHeld):
            await task.result()
        yield world, task


async def test_a_fork_does_the_rest_again_and_nothing_before() -> None:
    shop = Shop()
    async with running(shop) as (_, task):
        before = [*shop.books]
        shop.is_empty = False
        fork = await task.fork("reserve", task_id="second", **WHO)
        assert await fork.result() == "receipt-1 yes closed box"
        (reserved,) = shop.books[len(before) :]
        view = await fork.view()
        assert (view.forked_from, view.forked_step, view.tags, view.parent) == (
            "first",
            "reserve",
            {"tenant": "acme"},
            None,
        )
        assert [(step.label, step.copied_from, step.copied_step) for step in view.steps] == [
            ("charge", "first", 1),
            ("signal:approved", "first", 2),
            ("look", "first", 3),
            ("pack", "first", 4),
            ("sleep", "first", 5),
            ("reserve", None, None),
        ]
        assert view.steps[3].child == "first/pack.4"
        assert view.steps[3].result == "box"
        first = await task.view()
        assert (first.state, first.forked_from) == ("held", None)
        await task.resubmit(**WHO)
        await task.result()
        assert shop.books[-1] == reserved  # ids of the code are the same, keys are not
        keys = [one.steps[5].idempotency_key for one in (view, await task.view())]
        assert keys[0] != keys[1]


async def test_each_effect_is_undone_once_by_the_task_that_has_done_it() -> None:
    shop = Shop()
    async with running(shop) as (_, task):
        shop.is_empty = False
        fork = await task.fork("reserve", task_id="second")
        await fork.result()
        await fork.compensate(**WHO)
        with pytest.raises(TaskCompensated):
            await fork.result()
        assert shop.books[-1] == "release"
        assert "refund 1" not in shop.books
        assert (await fork.view()).nothing_to_undo == ("charge",)
        await task.compensate(**WHO)
        with pytest.raises(TaskCompensated):
            await task.result()
        assert shop.books.count("refund 1") == 1
        assert shop.books.count("release") == 1


async def test_the_undo_of_the_first_task_undoes_each_effect_once_while_a_fork_uses_it() -> None:
    shop = Shop()
    async with running(shop) as (world, task):
        shop.is_empty = False
        fork = await task.fork("reserve", task_id="second")
        await fork.result()
        says = await reasons(world, "first")
        assert (
            "1 task is forked from it: second (processed); an undo of this task undoes what they have as copies, too"
            in says
        )
        await task.compensate(**WHO)
        with pytest.raises(TaskCompensated):
            await task.result()
        assert [line for line in shop.books if line in ("refund 1", "release")] == ["refund 1"]
        says = await reasons(world, "second")
        assert (
            "it is forked from step reserve of task first, which is compensated; `arriero task explain first`" in says
        )
        assert any("the undo of that task has begun: what this one uses is undone" in one for one in says)


async def reasons(world: testing.World, task_id: str) -> list[str]:
    store = world.app.session.store
    loaded = await store.find(task_id)
    assert loaded is not None
    return [reason.says for reason in (await load_explanation(store, loaded))[1].reasons]


async def test_a_fork_that_was_undone_is_forked_again_and_not_resubmitted() -> None:
    shop = Shop()
    async with running(shop) as (_, task):
        shop.is_empty = False
        fork = await task.fork("reserve")
        await fork.result()
        await fork.compensate(**WHO)
        with pytest.raises(TaskCompensated):
            await fork.result()
        with pytest.raises(VerbRefused, match="is a fork that was undone"):
            await fork.resubmit(**WHO)
        assert await (await fork.fork("reserve")).result() == "receipt-1 yes closed box"


async def test_the_same_fork_again_is_the_same_task() -> None:
    shop = Shop()
    async with running(shop) as (_, task):
        first = await task.fork("reserve", task_id="second")
        again = await task.fork(6, task_id="second")
        assert (first.created, again.created) == (True, False)
        with pytest.raises(TaskExists, match="exists with another origin"):
            await task.fork("charge", task_id="second")


async def test_a_fork_from_a_step_that_is_not_there_names_those_that_are() -> None:
    shop = Shop()
    async with running(shop) as (world, task):
        for name in ("ship", "undo:charge", 9, "", True, None):
            with pytest.raises(InvalidInput, match=r"1 charge, 2 signal:approved|from_step is"):
                await task.fork(name)  # type: ignore[arg-type]  # as a caller without types does
        with pytest.raises(InvalidInput, match="which is the task that is forked"):
            await task.fork("charge", task_id="first")
        with pytest.raises(InvalidInput, match="control characters are refused"):
            await task.fork("charge", by=" \n")
        with pytest.raises(UnknownTask):
            await world.app.task("nothing").fork("charge")
        assert await world.app.tasks(workflow="fulfil").count() == 1


async def test_what_was_undone_is_not_copied() -> None:
    shop = Shop()
    async with running(shop) as (world, task):
        await task.compensate(**WHO)
        with pytest.raises(TaskCompensated):
            await task.result()
        with pytest.raises(VerbRefused, match="charge, before step reserve of task 'first', has a compensation"):
            await task.fork("reserve")
        assert await world.app.tasks(workflow="fulfil").count() == 1
        from_start = await task.fork("charge", task_id="third")
        await from_start.send(approved("later"))
        shop.is_empty = False
        assert await from_start.result() == "receipt-1 later closed box"


async def test_a_fork_of_a_child_is_no_child() -> None:
    shop = Shop()
    async with running(shop) as (world, task):
        (child,) = await task.children()
        with pytest.raises(InvalidInput, match="it has none yet"):
            await world.app.task(child.id).fork(1)


async def test_a_wait_of_a_fork_has_all_of_its_time() -> None:
    app = arriero.App("later")
    work = app.service("work")

    @work.step
    def begin() -> str:
        return "begun"

    @app.workflow
    async def decide() -> list[str]:
        began = await begin()
        answer = await approved.wait(within=60)
        return [began, answer]

    async with testing.running(app) as world:
        task = await world.app.submit(decide(), task_id="first")
        with pytest.raises(TaskCompensated, match="did not come within 1 min"):
            await task.result()
        await world.clock.advance(86_400)
        fork = await task.fork("signal:approved")
        await world.clock.advance(30)
        await fork.send(approved("in time"))
        assert await fork.result() == ["begun", "in time"]


async def test_a_fork_starts_a_child_with_a_given_id_under_an_id_of_its_own() -> None:
    app = arriero.App("named")

    @app.workflow
    async def part(number: int) -> int:
        return number

    @app.workflow
    async def whole() -> list[int]:
        return [await part(number).options(task_id=f"part-{number}") for number in (1, 2)]

    async with testing.running(app) as world:
        task = await world.app.submit(whole(), task_id="first")
        assert await task.result() == [1, 2]
        fork = await task.fork("part[#2]", task_id="second")
        assert await fork.result() == [1, 2]
        assert [child.id for child in await fork.children()] == ["part-1", "part-2/second"]
