"""Canaries that fail: they go behind others, are charged if the service answers others, and are never left behind; on every store."""

from typing import Any

import msgspec
from store_world import UNSURE, World, kinds, retry_at, step
from test_store_breakers import find_breaker, operated, trip_command, tripped, waiting
from test_store_limits import ONE_EACH, declare

from arriero import Retry, Supervision
from arriero.core.breaker import RETRY_SECONDS
from arriero.model import StepRow, later
from arriero.model.agents import AgentVerb, BreakerState, encode_limit_keys
from arriero.model.commands import AssignApp
from arriero.model.moves import GaveUp, RetryAsked
from arriero.model.policies import StepPolicy

GROWING = msgspec.json.encode(StepPolicy(10.0, None, Retry(), Supervision(complete_within_factor=2.0))).decode()
ONCE = msgspec.json.encode(StepPolicy(10.0, None, Retry(), Supervision(attempts=1))).decode()


async def take_one(world: World, **changes: Any) -> StepRow:
    (dispatch,) = await world.take(**({"room": (("payments", 1),)} | changes))
    return dispatch.step


async def fail(world: World, charge: StepRow, outcome: Any = None) -> StepRow:
    await world.report(charge, outcome or retry_at(world.clock.at))
    return await world.step(charge.step_no)


async def wait_urgent(world: World, task_id: str = "poison", **changes: Any) -> None:
    task = await world.held(task_id, priority=9)
    await world.opened(task, step(key=task_id, **changes))


# --- who goes
async def test_a_canary_that_failed_does_not_go_again_while_others_wait(world: World) -> None:
    await wait_urgent(world)
    await tripped(world)
    world.clock.move(10)
    poison = await fail(world, await take_one(world))
    assert poison.failed_in_outage
    world.clock.move(9)
    await waiting(world, "fresh", task_id="order-2")  # it comes later, and is less urgent
    world.clock.move(1)
    assert (await take_one(world)).key == "fresh"


async def test_canaries_that_failed_take_turns_whatever_their_priority(world: World) -> None:
    await wait_urgent(world)
    await waiting(world, "a", task_id="order-2")
    await waiting(world, "b", task_id="order-3")
    await tripped(world)
    went = []
    for _ in range(7):
        world.clock.move(10)
        canary = await take_one(world)
        went.append(canary.key)
        await fail(world, canary)
    assert went == ["poison", "a", "b", "poison", "a", "b", "poison"]


async def test_one_that_failed_goes_again_where_nobody_else_waits(world: World) -> None:
    await wait_urgent(world)
    await tripped(world)
    for _ in range(3):
        world.clock.move(10)
        assert (await fail(world, await take_one(world))).failure_count == 0


async def test_what_failed_before_the_breaker_opened_its_calls_is_no_canary_before_others(world: World) -> None:
    _, (charge,) = await world.running(await world.held(), "charge")
    await tripped(world)
    assert (await fail(world, charge)).failed_in_outage
    await waiting(world, "fresh", task_id="order-2")
    world.clock.move(10)
    assert (await take_one(world)).key == "fresh"


async def test_a_canary_that_was_lost_goes_behind_others_too(world: World) -> None:
    await world.process("p1")
    await wait_urgent(world)
    await waiting(world, "fresh", task_id="order-2")
    await tripped(world)
    doomed = await world.process("doomed")
    world.clock.move(10)
    (dispatch,) = await world.take(doomed, room=(("payments", 1),))
    assert dispatch.step.key == "poison"
    await world.lose(doomed)
    loaded = await world.load(dispatch.step.task_no)
    await world.written(world.free_command(loaded.task, [dispatch.step], fence=None, lost_by=doomed, charged=False))
    assert (await take_one(world)).key == "fresh"


async def test_under_limits_with_keys_it_goes_behind_others_of_its_key(world: World) -> None:
    await declare(world, ONE_EACH)
    keys = encode_limit_keys({"of merchant": "m"})
    for name, priority in (("poison", 9), ("fresh", 5)):
        await world.submit(name, app="shop", priority=priority)
        (loaded,) = await world.claim(1, limit=1, app="shop")
        await world.opened(loaded.task, step(key=name, limit_keys=keys))
    await tripped(world, app="shop")
    went = []
    for _ in range(3):
        world.clock.move(10)
        canary = await take_one(world, app="shop")
        went.append(canary.key)
        await fail(world, canary)
    assert went == ["poison", "fresh", "poison"]


async def test_once_the_breaker_is_closed_priority_decides_again(world: World) -> None:
    await wait_urgent(world)
    await waiting(world, "fresh", task_id="order-2")
    await tripped(world)
    world.clock.move(10)
    await fail(world, await take_one(world))
    world.clock.move(10)
    await operated(world, AgentVerb.CLOSE)
    again = await take_one(world)
    assert (again.key, again.failed_in_outage, again.is_canary) == ("poison", False, False)


# --- who is charged
async def test_a_canary_that_fails_after_another_was_answered_is_charged_and_keeps_that(world: World) -> None:
    await waiting(world, "well", task_id="order-1")
    await tripped(world)
    world.clock.move(10)
    await world.report(await take_one(world))
    await wait_urgent(world)
    for count in (1, 2):
        poison = await fail(world, await take_one(world))
        assert poison.failure_count == count
        world.clock.move(10)
        await waiting(world, "more", task_id=f"more-{count}")
        await world.report(await take_one(world))
    await operated(world, AgentVerb.CLOSE)
    assert (await take_one(world)).failure_count == 2
    assert "step.attempts_returned" not in kinds(await world.events(poison.task_no))


async def test_one_that_has_spent_all_its_attempts_fails_in_the_outage(world: World) -> None:
    await waiting(world, "well", task_id="order-1")
    await tripped(world)
    world.clock.move(10)
    await world.report(await take_one(world))
    await wait_urgent(world, policy=ONCE)
    poison = await fail(world, await take_one(world), GaveUp(UNSURE, True))
    assert (poison.state, poison.failure_count, poison.canary) == ("failed", 1, None)
    assert (await find_breaker(world)).state is BreakerState.OPEN


async def test_of_a_wave_that_fails_as_a_whole_one_request_is_charged(world: World) -> None:
    await waiting(world, *"abcdefgh")
    await tripped(world)
    world.clock.move(10)
    await world.report(await take_one(world))
    for dispatch in await world.take():
        await world.report(dispatch.step)
    world.clock.move(6)
    wave = [dispatch.step for dispatch in await world.take()]
    assert len(wave) == 4
    assert [(await fail(world, one)).failure_count for one in wave] == [1, 0, 0, 0]


async def test_the_cool_off_of_a_step_does_not_keep_its_breaker_open(world: World) -> None:
    await wait_urgent(world)
    await tripped(world)
    world.clock.move(10)
    spent = RetryAsked(UNSURE, True, later(world.clock(), 900), cool_off=True)
    poison = await fail(world, await take_one(world), spent)
    assert (await find_breaker(world)).probe_at == later(world.clock(), 10)
    assert poison.not_before == later(world.clock(), RETRY_SECONDS)


# --- what else may become of it
async def test_a_canary_gets_no_more_time_for_attempts_that_the_outage_has_not_charged(world: World) -> None:
    await wait_urgent(world, policy=GROWING)
    await tripped(world)
    for _ in range(4):
        world.clock.move(10)
        canary = await take_one(world)
        assert canary.complete_by == later(world.clock(), 10)
        await fail(world, canary)
    await operated(world, AgentVerb.CLOSE)
    world.clock.move(1)
    again = await take_one(world)
    assert again.complete_by == later(world.clock(), 160)  # its fifth attempt, by the factor of its policy


async def test_a_canary_of_a_task_that_gets_another_app_lets_the_next_one_go(world: World) -> None:
    for number in (1, 2):
        await world.submit(f"order-{number}", app="old")
        (loaded,) = await world.claim(1, limit=1, app="old")
        await world.opened(loaded.task, step(key=f"{number}"))
    await tripped(world, app="old")
    world.clock.move(10)
    stranded = await take_one(world, app="old")
    assign = AssignApp(
        actor="operator", task_no=stranded.task_no, app="new", from_app="old", by="ana", reason="renamed"
    )
    await world.written(assign)
    assert (await find_breaker(world)).state is BreakerState.HALF_OPEN
    assert (await take_one(world, app="old")).key == "2"
    assert (await world.step(stranded.step_no)).canary is None
    await world.report(stranded)
    assert (await world.step(stranded.step_no)).state == "completed"


async def test_one_request_alone_does_not_open_it_again_within_a_window_after_it_was_closed(world: World) -> None:
    await tripped(world)
    world.clock.move(10)
    await operated(world, AgentVerb.CLOSE)
    world.clock.move(29)
    alone = {"is_one_request": True, "failing_since": world.clock()}
    await world.refused(trip_command(world, **alone), "moved_on")
    assert (await tripped(world, failing_since=world.clock())).state is BreakerState.OPEN
    await operated(world, AgentVerb.CLOSE)
    world.clock.move(31)
    assert (await tripped(world, **(alone | {"failing_since": world.clock()}))).state is BreakerState.OPEN
