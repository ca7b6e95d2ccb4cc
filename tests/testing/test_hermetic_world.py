"""A world of a test takes nothing from the machine of the developer, and says what makes attempts without end."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from arriero import (
    Agent,
    App,
    ArrieroError,
    Attempt,
    Breaker,
    Retry,
    Supervision,
    TaskFailed,
    Transient,
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
