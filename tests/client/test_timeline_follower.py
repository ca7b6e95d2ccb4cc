"""Following the timeline of a task: each change that is seen, also while the store goes away, through runs, and to a purge."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from runtime_world import Machine, within

from arriero import Agent, App, Attempt, ContinueAs, StoreError, UnknownTask, workflow
from arriero.client import timeline
from arriero.client.timeline import TimelineFollower, WatchedTask

shop = Agent("shop")
go_on: dict[str, asyncio.Event] = {}


@shop.step(complete_within=60)
async def pack(attempt: Attempt, name: str) -> int:
    await go_on[name].wait()
    return 1


@workflow
async def deliver(name: str) -> int:
    return await pack(name)


@workflow
async def count_down(left: int) -> int:
    await pack("count")
    if left:
        raise ContinueAs(count_down(left - 1))
    return left


def app_on(machine: Machine) -> App:
    return machine.app([shop], [deliver, count_down])


async def test_a_task_is_followed_from_the_attempt_that_runs_to_its_end(machine: Machine) -> None:
    app, go_on["1"] = app_on(machine), asyncio.Event()
    seen: list[WatchedTask] = []
    async with app.running():
        await app.submit(deliver("1"), task_id="1")

        async def follow() -> None:
            async for one in TimelineFollower(app.session, "1").follow():
                assert isinstance(one, WatchedTask)
                seen.append(one)
                if "pack" in one.waiting_for and "running" in one.waiting_for:
                    go_on["1"].set()

        await within(follow())
    assert [one.timeline.is_open for one in seen] == [True] * (len(seen) - 1) + [False]
    assert seen[-1].timeline.state == "processed"
    assert [row.label for row in seen[-1].timeline.rows] == ["1", "pack"]


async def test_an_unknown_task_cannot_be_followed(machine: Machine) -> None:
    async with app_on(machine) as app:
        with pytest.raises(UnknownTask, match="there is no task 'nobody'"):
            await anext(TimelineFollower(app.session, "nobody").follow())


async def test_a_store_that_does_not_answer_is_asked_again_and_then_the_task_is_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "RETRY_SECONDS", 0.0)
    app, go_on["2"] = app_on(machine), asyncio.Event()
    go_on["2"].set()
    async with app.running():
        await (await app.submit(deliver("2"), task_id="2")).result()
        follower = TimelineFollower(app.session, "2")
        history, failures = app.session.store.history, iter([StoreError("the disk is away"), StoreError("still")])

        def fail(*given: Any, **more: Any) -> Any:
            if (error := next(failures, None)) is not None:
                raise error
            return history(*given, **more)

        monkeypatch.setattr(app.session.store, "history", fail)
        seen = [one async for one in follower.follow()]
    assert [str(one) for one in seen[:-1]] == ["the disk is away", "still"]
    assert isinstance(seen[-1], WatchedTask)
    assert seen[-1].timeline.state == "processed"


async def test_while_nothing_changes_the_store_is_asked_whether_it_answers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(timeline, "RETRY_SECONDS", 0.0)
    app, go_on["3"] = app_on(machine), asyncio.Event()
    async with app.running():
        await app.submit(deliver("3"), task_id="3")
        follower = TimelineFollower(app.session, "3").follow()
        async for one in follower:
            if isinstance(one, WatchedTask) and "running" in one.waiting_for:
                break
        load, is_away = app.session.store.load_versions, True

        async def fail(numbers: Sequence[int]) -> dict[int, str]:
            if is_away:
                raise StoreError("the server is away")
            return await load(numbers)

        monkeypatch.setattr(app.session.store, "load_versions", fail)
        error = await within(anext(follower))
        is_away = False
        again = await within(anext(follower))
        go_on["3"].set()
        await within(follower.aclose())  # type: ignore[attr-defined]  # it is a generator
    assert str(error) == "the server is away"
    assert isinstance(again, WatchedTask)


async def test_a_task_that_is_purged_meanwhile_is_no_longer_followed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, go_on["4"] = app_on(machine), asyncio.Event()
    async with app.running():
        await app.submit(deliver("4"), task_id="4")
        follower = TimelineFollower(app.session, "4").follow()
        await within(anext(follower))

        async def know_nothing(_: Sequence[int]) -> dict[int, str]:
            return {}

        with monkeypatch.context() as purged:
            purged.setattr(app.session.store, "load_versions", know_nothing)
            with pytest.raises(UnknownTask, match="task '4' was purged while it was watched"):
                async for _ in follower:
                    pass
        go_on["4"].set()


async def test_the_next_runs_of_a_task_are_followed_to_the_last_one(machine: Machine) -> None:
    app, go_on["count"] = app_on(machine), asyncio.Event()
    async with app.running():
        await app.submit(count_down(2), task_id="count")
        seen: list[WatchedTask] = []

        async def follow() -> None:
            async for one in TimelineFollower(app.session, "count").follow():
                assert isinstance(one, WatchedTask)
                seen.append(one)
                go_on["count"].set()

        await within(follow())
    assert seen[-1].timeline.state == "processed"
    assert seen[-1].timeline.no > seen[0].timeline.no
    assert not seen[-1].timeline.is_open
