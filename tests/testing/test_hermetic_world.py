"""A world of a test takes nothing from the machine of the developer, and says what makes attempts without end."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from arriero import (
    Agent,
    App,
    ApprovalNeeded,
    ArrieroError,
    Attempt,
    Breaker,
    InvalidInput,
    Retry,
    Supervision,
    TaskCompensated,
    TaskFailed,
    Transient,
    sleep,
    testing,
    workflow,
)

bank = Agent("bank", breaker=Breaker())
pinged: list[str] = []


@bank.step(retry=Retry(tries=1), supervision=Supervision(attempts=3))
async def charge(attempt: Attempt, amount: int) -> int:
    return amount


@bank.probe
async def ping() -> None:
    pinged.append("real")


@workflow
async def pay(amount: int) -> int:
    return await charge(amount)


shop = App("shop", agents=[bank], workflows=[pay])


def fail(amount: int) -> int:
    raise Transient("the bank is down", unavailable=True)


async def test_the_world_reads_no_settings_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arriero.toml").write_text("no = 'setting'\n[approvals]\ncancel = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARRIERO_APPROVALS_CANCEL", "many")
    async with testing.running(shop) as world:
        task = await world.app.submit(pay(1), delay=60)
        await task.cancel(by="ana", reason="test")
        with pytest.raises(TaskFailed):
            await task.result()


async def test_a_real_probe_is_refused_by_name_with_the_remedy() -> None:
    pinged.clear()
    async with testing.running(shop) as world:
        world.replace(charge, fail)
        tasks = [await world.app.submit(pay(number)) for number in range(30)]
        named = r"breaker of Agent bank is open, .* no real probe \(ping\): .*world\.replace_probe\(agent, function\)"
        with pytest.raises(ArrieroError, match=named):
            await tasks[0].result()
        with pytest.raises(ArrieroError, match=named):
            await world.clock.advance(timedelta(hours=1))
    assert pinged == []


async def test_a_probe_is_what_the_test_says() -> None:
    healthy = False
    asked: list[bool] = []

    async def probe() -> None:
        asked.append(healthy)
        if not healthy:
            raise Transient("still down")

    async with testing.running(shop) as world:
        world.replace(charge, fail)
        world.replace_probe(bank, probe)
        tasks = [await world.app.submit(pay(number)) for number in range(30)]
        await world.clock.advance(timedelta(minutes=10))
        assert asked
        assert not any(asked)
        healthy = True
        world.replace(charge, lambda amount: amount)
        assert [await task.result() for task in tasks] == list(range(30))
    assert pinged == []


async def test_a_world_without_progress_says_what_makes_attempts_without_end() -> None:
    def probe() -> None:
        raise Transient("still down")

    async with testing.running(shop) as world:
        world.replace(charge, fail)
        world.replace_probe(bank, probe)
        tasks = [await world.app.submit(pay(number), task_id=f"order {number}") for number in range(30)]
        with pytest.raises(
            ArrieroError, match=r"made 1,\d\d\d attempts and probes, and nothing ended: task order \d+, step charge"
        ) as told:
            await tasks[0].result()
    assert "last error: the bank is down" in str(told.value)
    assert "the breaker of bank is open" in str(told.value)


async def test_nobody_counts_as_waiting_whose_wait_ended_while_the_store_was_asked() -> None:
    async with testing.running(shop) as world:
        task = await world.app.submit(pay(1), delay=3600)
        waiting = world.app.session.waiting
        store = world.app.session.store
        load = store.load

        async def end_the_wait_meanwhile(number: int) -> object:
            waiting.give_up(ArrieroError("ended meanwhile"))
            await asyncio.sleep(0)
            return await load(number)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "load", end_the_wait_meanwhile)
            awaited = asyncio.create_task(waiting.wait_until_ended(1, None))
            await asyncio.sleep(0)
            await waiting._settle_purged()
        with pytest.raises(ArrieroError, match="ended meanwhile"):
            await awaited
        assert not waiting.is_awaited()
        assert task.id


async def test_a_submission_after_a_result_that_raised_leaves_the_time_as_it_is() -> None:
    async with testing.running(shop) as world:
        for number in range(5):
            world.replace(charge, fail)
            await world.app.submit(pay(100 + number), delay=3600)  # due long after the result
            task = await world.app.submit(pay(number))
            with pytest.raises(ArrieroError):
                await task.result()
            ended = world.clock.now()
            await world.app.submit(pay(200 + number))
            assert world.clock.now() - ended < timedelta(seconds=1)


async def test_the_time_stays_where_a_wait_ends_just_before_the_world_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    async with testing.running(shop) as world:
        task = await world.app.submit(pay(1), delay=3600)
        began, poke = world.clock.now(), world._virtual.poke

        def poke_and_end_the_wait() -> None:
            poke()
            world.app.session.waiting.give_up(ArrieroError("ended meanwhile"))

        monkeypatch.setattr(world._virtual, "poke", poke_and_end_the_wait)
        with pytest.raises(ArrieroError, match="ended meanwhile"):
            await task.result()
        monkeypatch.undo()
        await world.app.submit(pay(2), delay=3600)
        await world.clock.advance(timedelta(seconds=1))  # the world has finished what it was about to do
        assert world.clock.now() - began < timedelta(seconds=2)


async def test_a_world_has_the_approvals_that_the_test_gives_it() -> None:
    async with testing.running(shop, approvals={"cancel": 2}) as world:
        task = await world.app.submit(pay(1), delay=60)
        with pytest.raises(ApprovalNeeded, match="cancel needs 2 operators"):
            await task.cancel(by="ana", reason="a test")
        await task.pause(by="ana", reason="needs one person")
        await task.resume(by="ana", reason="needs one person")
        for by in ("ana", "bo"):
            with suppress(ApprovalNeeded):
                await task.cancel(by=by, reason="a test")
        with pytest.raises(TaskCompensated):
            await task.result()


async def test_a_schedule_of_a_world_cancels_no_run_where_the_test_asks_for_two_persons() -> None:
    @workflow
    async def wait_long() -> None:
        await sleep(7 * 3600)

    app = App("shop", workflows=[wait_long])
    app.schedule("hourly", wait_long(), cron="0 * * * *", overlap="cancel_running")
    for approvals, state in (({"cancel": 2}, "processing"), ({}, "compensated")):
        async with testing.running(app, approvals=approvals) as world:
            await world.clock.advance(timedelta(hours=1, seconds=5))
            run = (await world.app.schedules.show("hourly")).last_task
            assert run is not None
            await world.clock.advance(timedelta(hours=1))
            assert (await world.app.task(run).view()).state == state


@pytest.mark.parametrize(
    ("approvals", "says"),
    [
        ({"stop": 2}, "approvals names 'stop'; verbs are resubmit"),
        ({"cancel": 11}, "approvals of cancel is 11; it must be a whole number from 1 to 10"),
        ({"cancel": True}, "approvals of cancel is True"),
    ],
)
def test_approvals_that_no_setting_could_be_are_refused_by_name(approvals: dict[str, int], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        testing.World(shop, 0, approvals)
