"""Probes in the store: one process asks in place of a canary, whatever the others do; on every store."""

import asyncio

import msgspec
from store_world import World, kinds
from test_store_breakers import find_breaker, operated, store_events, tripped, waiting

from arriero import Breaker
from arriero.core.breaker import PROBE_PATIENCE
from arriero.core.breaker_verbs import ANSWER_SECONDS
from arriero.declare.agent_parts import mark_probe
from arriero.model import later
from arriero.model.agents import AgentVerb, BreakerRow, BreakerState
from arriero.model.answers import BreakerApplied, Refusal
from arriero.model.commands import BeginProbe, EndProbe

PROBED = mark_probe(msgspec.json.encode(Breaker(cool_off=10, ramp=30)).decode())
OF = {"actor": "p", "app": "", "agent": "payments", "target": ""}


def _begin() -> BeginProbe:
    return BeginProbe(**OF, complete_within=5.0)


def _end(row: BreakerRow, failure: str | None = None) -> EndProbe:
    return EndProbe(**OF, fence=row.fence, failure=failure)


async def _begun(world: World) -> BreakerRow:
    """A breaker whose cool-off is over, with a probe under way."""
    await tripped(world, policy=PROBED)
    world.clock.move(10)
    answer = await world.apply(_begin())
    assert isinstance(answer, BreakerApplied), answer
    return answer.breaker


async def test_of_two_processes_that_want_to_probe_one_does(world: World) -> None:
    await tripped(world, policy=PROBED)
    world.clock.move(10)
    answers = await asyncio.gather(*(world.apply(_begin()) for _ in range(4)))
    assert sorted(type(answer).__name__ for answer in answers) == ["BreakerApplied", *["Refusal"] * 3]
    assert kinds(await store_events(world)) == ["breaker.opened", "breaker.probe_begun"]


async def test_no_probe_goes_before_the_cool_off_beside_a_closed_breaker_or_while_a_person_keeps_it(
    world: World,
) -> None:
    await world.refused(_begin(), "moved_on")
    await tripped(world, policy=PROBED)
    await world.refused(_begin(), "moved_on")
    world.clock.move(10)
    await operated(world, AgentVerb.PAUSE)
    await world.refused(_begin(), "moved_on")
    await operated(world, AgentVerb.RESUME)
    await operated(world, AgentVerb.OPEN)
    await world.refused(_begin(), "moved_on")


async def test_while_a_probe_is_to_go_no_request_becomes_the_canary(world: World) -> None:
    await waiting(world, "a", "b")
    await tripped(world, policy=PROBED)
    world.clock.move(10)
    assert await world.take() == []
    begun = await world.apply(_begin())
    assert isinstance(begun, BreakerApplied)
    assert await world.take() == []


async def test_if_nobody_probes_a_canary_goes_after_all(world: World) -> None:
    await waiting(world, "a", "b")
    await tripped(world, policy=PROBED)
    world.clock.move(10 + PROBE_PATIENCE)
    (canary,) = await world.take()
    assert canary.step.canary is not None


async def test_a_probe_that_finds_the_service_well_begins_the_ramp_and_waves_follow(world: World) -> None:
    await waiting(world, *"abcdef")
    begun = await _begun(world)
    ended = await world.apply(_end(begun))
    assert isinstance(ended, BreakerApplied)
    assert (ended.breaker.state, ended.breaker.ramp_from) == (BreakerState.HALF_OPEN, world.clock())
    world.clock.move(7)
    assert len(await world.take()) == 2
    assert ended.breaker.fence < (await find_breaker(world)).fence


async def test_a_breaker_that_a_probe_has_half_opened_closes_after_its_ramp_without_a_request(world: World) -> None:
    await world.apply(_end(await _begun(world)))
    world.clock.move(30)
    assert await world.store.close_recovered_breakers("p") == 1
    assert (await find_breaker(world)).state is BreakerState.CLOSED


async def test_a_probe_that_fails_keeps_it_open_for_another_cool_off(world: World) -> None:
    begun = await _begun(world)
    ended = await world.apply(_end(begun, "TimeoutError"))
    assert isinstance(ended, BreakerApplied)
    assert (ended.breaker.state, ended.breaker.probe_at) == (BreakerState.OPEN, later(world.clock(), 10))
    await world.refused(_begin(), "moved_on")
    world.clock.move(10)
    assert isinstance(await world.apply(_begin()), BreakerApplied)
    assert (await store_events(world))[2]["failure"] == "TimeoutError"


async def test_if_the_process_that_probes_dies_another_one_probes_once_its_time_is_over(world: World) -> None:
    first = await _begun(world)
    await world.refused(_begin(), "moved_on")
    world.clock.move(5 + ANSWER_SECONDS)
    await world.refused(_end(first), "late")
    second = await world.apply(_begin())
    assert isinstance(second, BreakerApplied)
    await world.refused(_end(first), "moved_on")
    assert isinstance(await world.apply(_end(second.breaker)), BreakerApplied)


async def test_the_end_of_a_probe_is_taken_once_and_not_if_a_person_came_first(world: World) -> None:
    begun = await _begun(world)
    assert isinstance(await world.apply(_end(begun)), BreakerApplied)
    await world.refused(_end(begun), "moved_on")
    await operated(world, AgentVerb.CLOSE)
    world.clock.move(6)  # the next outage has nothing to do with this one
    await tripped(world, policy=PROBED)
    world.clock.move(10)
    again = await world.apply(_begin())
    assert isinstance(again, BreakerApplied)
    await operated(world, AgentVerb.OPEN)
    assert isinstance(await world.apply(_end(again.breaker)), Refusal)
    assert (await find_breaker(world)).opened_by == "ana"
