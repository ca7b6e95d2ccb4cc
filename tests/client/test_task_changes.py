"""Following tasks: one view of each change that is seen, the end is the last one, and all who follow share one poll."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from runtime_world import Machine, until, within

import arriero
from arriero import Agent, App, Attempt, InvalidInput, UnknownTask, workflow
from arriero.client.task_view import TaskView
from arriero.runtime.change_waiters import ChangeWaiters
from arriero.store.state_store import StateStore

shop = Agent("shop")
go_on: dict[str, asyncio.Event] = {}


@shop.step(complete_within=60)
async def pack(attempt: Attempt, name: str) -> int:
    attempt.publish("packing")
    await go_on[name].wait()
    return 1


@workflow
async def deliver(name: str) -> int:
    arriero.publish("begun")
    packed = await pack(name)
    arriero.publish("packed")
    return packed


def app_on(machine: Machine) -> App:
    return machine.app([shop], [deliver])


async def test_a_task_is_followed_to_its_end_and_each_view_differs_from_the_one_before(machine: Machine) -> None:
    app, go_on["1001"] = app_on(machine), asyncio.Event()
    seen: list[TaskView] = []
    async with app.running():
        task = await app.submit(deliver("1001"), task_id="1001")

        async def follow() -> None:
            async for view in task.changes():
                seen.append(view)
                if view.steps and view.steps[0].published == "packing":
                    go_on["1001"].set()

        await within(follow())
    assert (seen[-1].state, seen[-1].published, seen[-1].output) == ("processed", "packed", 1)
    assert all(view.ended_at is None for view in seen[:-1])
    assert all(one != other for one, other in pairwise(seen))
    await machine.check()


async def test_a_task_that_has_ended_gives_one_view(machine: Machine) -> None:
    app, go_on["1002"] = app_on(machine), asyncio.Event()
    go_on["1002"].set()
    async with app.running():
        task = await app.submit(deliver("1002"))
        await within(task.result())
        views = [view async for view in task.changes()]
    assert [view.state for view in views] == ["processed"]


async def test_an_unknown_task_cannot_be_followed(machine: Machine) -> None:
    async with app_on(machine) as app:
        with pytest.raises(UnknownTask):
            async for _ in app.task("nobody").changes():
                raise AssertionError


async def test_another_process_sees_what_a_step_publishes(machine: Machine) -> None:
    app, go_on["1003"] = app_on(machine), asyncio.Event()
    watcher = App("machine", store=machine.url)
    async with app.running(), watcher:
        await app.submit(deliver("1003"), task_id="1003")
        async with asyncio.timeout(60):
            async for view in watcher.task("1003").changes():
                if view.steps and view.steps[0].published == "packing":
                    break
        go_on["1003"].set()


async def test_code_without_a_loop_follows_a_task(machine: Machine) -> None:
    app, go_on["1004"] = app_on(machine), asyncio.Event()
    go_on["1004"].set()
    async with app.running():
        task = await app.submit(deliver("1004"), task_id="1004")
        await within(task.result())

    def follow() -> list[str]:
        with App("machine", store=machine.url).sync as sync:
            return [view.state for view in sync.task("1004").changes()]

    assert await asyncio.to_thread(follow) == ["processed"]


class CountedStore:
    """Answers what is asked of a store about versions, and counts how often."""

    def __init__(self) -> None:
        self.versions: dict[int, str] = {}
        self.asked: list[int] = []

    async def load_versions(self, task_nos: Sequence[int]) -> dict[int, str]:
        self.asked.append(len(task_nos))
        return {number: self.versions[number] for number in task_nos if number in self.versions}


class CountedClock:
    """A clock that moves when somebody idles, and lets all others run first."""

    def __init__(self) -> None:
        self.at = 0.0
        self.idled = 0

    def monotonic(self) -> float:
        return self.at

    async def idle(self, _event: asyncio.Event, seconds: float) -> None:
        self.idled += 1
        self.at += seconds
        await asyncio.sleep(0)


def waiters_of(store: CountedStore, clock: CountedClock) -> ChangeWaiters:
    class Doors:
        pass

    doors: Any = Doors()
    doors.clock = clock
    counted: Any = store
    opened: StateStore = counted
    return ChangeWaiters(lambda: opened, lambda: doors)


async def test_a_thousand_followers_cost_two_statements_a_poll() -> None:
    store, clock = CountedStore(), CountedClock()
    waiters = waiters_of(store, clock)
    store.versions = {number: "1" for number in range(1_000)}
    followers = [asyncio.create_task(waiters.wait(number, "1")) for number in range(1_000)]
    await until(lambda: clock.idled >= 20)
    asked, turns = len(store.asked), clock.idled
    assert asked <= 2 * (turns + 2)
    store.versions = {number: "2" for number in range(1_000)}
    assert set(await within(asyncio.gather(*followers))) == {"2"}
    await waiters.close()


async def test_a_follower_that_gives_up_is_forgotten_and_the_poll_ends_with_the_last_one() -> None:
    store, clock = CountedStore(), CountedClock()
    waiters = waiters_of(store, clock)
    store.versions = {7: "1"}
    one, other = (asyncio.create_task(waiters.wait(7, "1")) for _ in range(2))
    await until(lambda: clock.idled >= 2)
    one.cancel()
    await asyncio.wait({one})
    store.versions[7] = "2"
    assert await within(other) == "2"
    assert waiters._poller is not None
    await within(asyncio.shield(waiters._poller))
    assert await within(waiters.wait(7, "1")) == "2"  # it begins again
    await waiters.close()


async def test_a_follower_of_a_purged_task_and_one_of_a_closed_app_are_answered_by_name() -> None:
    store, clock = CountedStore(), CountedClock()
    waiters = waiters_of(store, clock)
    with pytest.raises(UnknownTask, match="purged"):
        await within(waiters.wait(8, None))
    store.versions = {7: "1"}
    left = asyncio.create_task(waiters.wait(7, "1"))
    await until(lambda: clock.idled >= 2)
    await waiters.close()
    with pytest.raises(InvalidInput, match="closed"):
        await within(left)
