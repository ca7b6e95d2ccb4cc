"""What an operator changes of a task under way: its deadline, and attempts, times and delays of its steps."""

from datetime import timedelta
from typing import Any

import pytest
from shop_world import HOLD, WHO, Shop, held, opened, row_of

from arriero import ApprovalNeeded, InvalidInput, Supervision, Transient, VerbRefused, sleep, workflow
from arriero.explain.past import TaskPast

BROKEN = ConnectionError("reset before it happened")
TRIES = 3  # of one attempt
DAY = timedelta(days=1)


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_more_attempts_let_a_step_end_well_that_would_have_failed(shop: Shop) -> None:
    """The attempt under way decides by what it knew; what it reports is judged by what its row says."""
    shop.script["charge"] += [BROKEN] * TRIES * 2 + [Transient("busy", retry_after=9)] + [BROKEN] * TRIES * 3

    @workflow(supervision=Supervision(attempts=3, then="hold"))
    async def patient(card: str) -> str:
        return await shop.charge(card, 1)

    async with opened(shop, patient) as world:
        task = await world.app.submit(patient("good"))
        while len(shop.calls) <= TRIES * 2:
            await world.clock.advance(1)
        assert row_of(world, task, "charge").state == "running"
        await task.adjust(**WHO, step="charge", attempts=10)
        assert await task.result() == "receipt for 1"


async def test_fewer_attempts_end_a_step_sooner(shop: Shop) -> None:
    shop.script["charge"] += [BROKEN] * TRIES * 99

    @workflow(supervision=Supervision(attempts=1_000, then="hold"))
    async def endless(card: str) -> str:
        return await shop.charge(card, 1)

    async with opened(shop, endless) as world:
        task = await world.app.submit(endless("good"))
        await world.clock.advance(5)
        failed = row_of(world, task, "charge").failure_count
        await task.adjust(**WHO, attempts=failed + 1)
        await held(task, "reset before it happened")
        assert row_of(world, task, "charge").failure_count == failed + 1


async def test_the_next_attempt_comes_now_and_not_after_its_cool_off(shop: Shop) -> None:
    shop.script["charge"] += [BROKEN] * TRIES

    @workflow(supervision=Supervision(attempts=1, rounds=2, cool_off=DAY))
    async def patient(card: str) -> str:
        return await shop.charge(card, 1)

    async with opened(shop, patient) as world:
        task = await world.app.submit(patient("good"))
        await world.clock.advance(60)
        began = world.clock.now()
        await task.adjust(**WHO, delay=0)
        assert await task.result() == "receipt for 1"
        assert world.clock.now() - began < timedelta(minutes=1)


async def test_a_deadline_that_is_moved_earlier_ends_the_task_then(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def late() -> str:
        await sleep(DAY)
        return await shop.post("at last")

    async with opened(shop, late) as world:
        task = await world.app.submit(late())
        await world.clock.advance(1)
        assert (await task.view()).complete_by is None
        await task.adjust(**WHO, deadline=timedelta(minutes=5))
        began = world.clock.now()
        await held(task, "complete_within")
        assert timedelta(minutes=4) < world.clock.now() - began < timedelta(minutes=6)


async def test_a_resubmission_begins_with_the_limits_of_the_code(shop: Shop) -> None:
    shop.script["charge"] += [BROKEN] * TRIES * 3 + [Transient("busy", retry_after=500)]

    @workflow(supervision=Supervision(attempts=2, then="hold"))
    async def patient(card: str) -> str:
        return await shop.charge(card, 1)

    async with opened(shop, patient) as world:
        task = await world.app.submit(patient("good"))
        await world.clock.advance(0.1)
        await task.adjust(**WHO, step="charge", attempts=3)
        await held(task, "reset before it happened")
        await task.resubmit(**WHO)
        await world.clock.advance(5)
        assert '"attempts":2' in row_of(world, task, "charge").policy


async def test_many_tasks_are_changed_by_what_they_have_in_common(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=5_000)] * 2

    @workflow(supervision=Supervision(attempts=2, then="hold"))
    async def patient(card: str) -> str:
        return await shop.charge(card, 1)

    async with opened(shop, patient) as world:
        tasks = [await world.app.submit(patient("good"), task_id=f"order-{n}") for n in range(2)]
        await world.clock.advance(5)
        waiting = world.app.tasks(step="charge", state="processing")
        foretold = await waiting.adjust(**WHO, dry_run=True, step="charge", delay=0)
        assert foretold.done == ("order-0", "order-1") == tuple(foretold.changes)
        assert "step charge: next attempt not before 2026-" in foretold.changes["order-0"][0]
        assert all(row_of(world, task, "charge").not_before for task in tasks)
        carried_out = await waiting.adjust(**WHO, step="charge", delay=0)
        assert (carried_out.done, carried_out.changes) == (foretold.done, foretold.changes)
        assert [await task.result() for task in tasks] == ["receipt for 1"] * 2


async def test_a_dry_run_and_the_history_tell_what_of_a_change_of_all_steps_is_left(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2), task_id="order")
        await world.clock.advance(0.1)
        asked: dict[str, Any] = {"deadline": DAY, "attempts": 900, "delay": 0}
        foretold = await world.app.tasks(state="processing").adjust(**WHO, dry_run=True, **asked)
        assert foretold.changes["order"][1] == "unchanged: there is no open step"
        changed = await task.adjust(**WHO, **asked)
        assert changed[1:] == foretold.changes["order"][1:]
        assert changed[0].startswith("to be done by 2026-")
        (act,) = TaskPast([row async for row in world.app.session.store.history()]).acts
        assert act.changes[1] == foretold.changes["order"][1]


async def test_what_needs_two_operators_as_extend_needs_them_as_adjust(shop: Shop) -> None:
    async with opened(shop, approvals={"extend": 2}) as world:
        task = await world.app.submit(shop.slow("good", 2))
        with pytest.raises(ApprovalNeeded, match="adjust needs 2 operators"):
            await task.adjust(**WHO, deadline=DAY)
        await task.adjust(by="ben", reason="so do I", deadline=DAY)
        assert await task.result() == "receipt for 2"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({}, "no limit is named"),
        ({"step": "charge"}, "no limit is named"),
        ({"step": "charge", "deadline": 5}, "give a limit of the step"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": "soon"}, "deadline"),
        ({"attempts": 0}, "attempts is 0"),
        ({"attempts": True}, "attempts is True"),
        ({"attempts": 1.5}, "attempts is 1.5"),
        ({"rounds": 1_001}, "rounds is 1001"),
        ({"complete_within": 0}, "complete_within"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"retries": 5}, "there is no limit 'retries'"),
        ({"step": "nothing", "attempts": 5}, "has no step 'nothing'"),
    ],
    ids=str,
)
async def test_a_limit_that_is_none_is_refused_by_name(shop: Shop, limits: dict[str, Any], said: str) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))
        with pytest.raises(InvalidInput, match=said):
            await task.adjust(**WHO, **limits)


async def test_a_task_that_has_ended_refuses(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.at_once("good", 2))
        await task.result()
        with pytest.raises(VerbRefused, match="is processed: adjust is not allowed there"):
            await task.adjust(**WHO, attempts=5)
