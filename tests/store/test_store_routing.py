"""Requests that an Agent takes over from another one that provides the same steps, on every store."""

from typing import Any

import msgspec
import pytest
from store_world import FAILED, STEP_POLICY, World, retry_at, step, undo_of

from arriero import Breaker
from arriero.core.routing import INTERCHANGEABLE, OVERFLOW_SECONDS, PINNED
from arriero.model import StepRow, StepState, TaskRow, Verb, later
from arriero.model.agents import AgentVerb, BreakerState
from arriero.model.answers import BreakerApplied, Dispatch
from arriero.model.commands import Operate, OperateAgent, TripBreaker
from arriero.model.moves import PlanUndo

POLICY = msgspec.json.encode(Breaker(cool_off=10, ramp=30)).decode()
EU = "payments-eu"
SIBLINGS = ((EU, ("payments",)), ("payments", (EU,)))


async def take_over(world: World, agent: str = EU, room: int = 9, **changes: Any) -> list[Dispatch]:
    return await world.take(room=((agent, room),), siblings=SIBLINGS, **changes)


async def tripped(world: World, agent: str = "payments", **changes: Any) -> None:
    fields: dict[str, Any] = {"app": "", "target": "", "policy": POLICY, "reason": "down"}
    fields["failing_since"] = later(world.clock(), -5)
    answer = await world.apply(TripBreaker(actor="p", agent=agent, **(fields | changes)))
    assert isinstance(answer, BreakerApplied), answer


async def paused(world: World, agent: str) -> None:
    operate = OperateAgent(
        actor="cli", verb=AgentVerb.PAUSE, app="", agent=agent, target="", by="ana", reason="maintenance"
    )
    assert isinstance(await world.apply(operate), BreakerApplied)


async def waiting(world: World, **changes: Any) -> tuple[TaskRow, StepRow]:
    """A held task whose step waits for the Agent payments."""
    task, (row,) = await world.opened(await world.held(), step(**({"routing": PINNED} | changes)))
    return task, row


async def failed_once(world: World, **changes: Any) -> tuple[TaskRow, StepRow]:
    """A step that was taken by payments, failed in doubt, and waits for its next attempt."""
    _, row = await waiting(world, **changes)
    (dispatch,) = await world.take()
    answer = await world.report(dispatch.step, retry_at(world.clock(), in_doubt=True))
    (row,) = answer.steps
    assert row.state is StepState.PENDING
    return answer.task, row


# --- never taken
async def test_what_waits_for_an_agent_that_is_down_moves_at_once(world: World) -> None:
    _, row = await waiting(world)
    await tripped(world)
    (dispatch,) = await take_over(world)
    assert (dispatch.step.step_no, dispatch.step.agent, dispatch.step.state) == (row.step_no, EU, StepState.RUNNING)
    assert (dispatch.step.idempotency_key, dispatch.step.routing) == (row.idempotency_key, PINNED)
    assert await world.step(row.step_no) == dispatch.step
    (event,) = [event for event in await world.events() if event["type"] == "step.dispatched"]
    assert event["agent"] == EU


async def test_what_a_person_keeps_from_its_agent_moves_at_once(world: World) -> None:
    await waiting(world)
    await paused(world, "payments")
    assert [dispatch.step.agent for dispatch in await take_over(world)] == [EU]


async def test_an_agent_that_is_well_keeps_its_requests_until_they_have_waited(world: World) -> None:
    await waiting(world)
    assert await take_over(world) == []
    world.clock.move(OVERFLOW_SECONDS - 0.001)
    assert await take_over(world) == []
    world.clock.move(0.001)
    assert [dispatch.step.agent for dispatch in await take_over(world)] == [EU]


async def test_without_siblings_in_the_take_nothing_moves(world: World) -> None:
    await waiting(world)
    await tripped(world)
    world.clock.move(5)
    assert await world.take(room=((EU, 9),)) == []


async def test_an_agent_takes_its_own_requests_first_and_no_more_than_it_has_room_for(world: World) -> None:
    task = await world.held()
    keys = [f"k{number}" for number in range(4)]
    await world.opened(task, *(step(key=key, agent="payments" if key != "k3" else EU) for key in keys))
    await tripped(world)
    found = await take_over(world, room=3)
    assert [dispatch.step.key for dispatch in found] == ["k3", "k0", "k1"]


async def test_nothing_moves_to_an_agent_that_is_down_itself(world: World) -> None:
    _, row = await waiting(world)
    await tripped(world)
    await tripped(world, EU)
    world.clock.move(5)
    assert await take_over(world) == []
    assert (await world.step(row.step_no)).agent == "payments"


async def test_only_the_target_that_is_down_moves(world: World) -> None:
    task = await world.held()
    await world.opened(task, step(key="a", target="bank-a"), step(key="b", target="bank-b"))
    await tripped(world, target="bank-a")
    assert [dispatch.step.key for dispatch in await take_over(world)] == ["a"]


async def test_what_moves_to_an_agent_that_is_tested_is_its_canary(world: World) -> None:
    await waiting(world)
    await paused(world, "payments")
    await tripped(world, EU)
    world.clock.move(10)
    (dispatch,) = await take_over(world)
    assert dispatch.step.canary is not None
    (row,) = [row for row in await world.store.list_breakers() if row.agent == EU]
    assert (row.state, row.granted) == (BreakerState.HALF_OPEN, 1)


async def test_a_request_of_an_older_release_moves_too(world: World) -> None:
    await waiting(world, routing="")
    await tripped(world)
    assert [dispatch.step.agent for dispatch in await take_over(world)] == [EU]


async def test_a_paused_task_does_not_move(world: World) -> None:
    task, _ = await waiting(world)
    await world.written(
        Operate(actor="cli", verb=Verb.PAUSE, task_no=task.task_no, incarnation=1, by="ana", reason="wait")
    )
    await tripped(world)
    assert await take_over(world) == []


# --- taken before
@pytest.mark.parametrize("seconds", [0, 60])
async def test_a_step_that_was_taken_waits_for_its_own_agent(world: World, seconds: float) -> None:
    _, row = await failed_once(world)
    await tripped(world)
    world.clock.move(seconds)
    assert await take_over(world) == []
    assert await world.step(row.step_no) == row


async def test_a_step_in_doubt_of_a_process_that_died_waits_for_its_own_agent(world: World) -> None:
    task, _ = await waiting(world)
    for name in ("holder", "first"):
        await world.process(name)
    doomed = await world.process("doomed")
    (dispatch,) = await world.take(doomed)
    await world.lose(doomed)
    answer = await world.written(world.free_command(task, [dispatch.step], fence=None, lost_by=doomed))
    (lost,) = answer.steps
    assert (lost.state, lost.in_doubt, lost.agent) == (StepState.PENDING, True, "payments")
    await tripped(world)
    world.clock.move(60)
    assert await take_over(world) == []
    assert [dispatch.step.agent for dispatch in await world.take()] == ["payments"], "its canary"


async def test_an_interchangeable_step_moves_between_attempts_under_its_key(world: World) -> None:
    _, row = await failed_once(world, routing=INTERCHANGEABLE)
    assert await take_over(world) == []
    await tripped(world)
    (dispatch,) = await take_over(world)
    moved = dispatch.step
    assert (moved.agent, moved.attempt, moved.in_doubt) == (EU, 2, True)
    assert moved.idempotency_key == row.idempotency_key


async def test_a_step_that_moved_stays_where_it_was_taken_first(world: World) -> None:
    await waiting(world)
    await tripped(world)
    (dispatch,) = await take_over(world)
    await world.report(dispatch.step, retry_at(world.clock(), in_doubt=True))
    await tripped(world, EU)
    world.clock.move(5)
    assert await take_over(world, "payments") == []
    assert (await world.step(dispatch.step.step_no)).agent == EU


async def test_failures_that_the_outage_burnt_are_given_back_as_a_step_moves(world: World) -> None:
    await failed_once(world, routing=INTERCHANGEABLE)
    await tripped(world)
    (dispatch,) = await take_over(world)
    assert (dispatch.step.failure_count, dispatch.step.charged_at) == (0, None)
    assert (await world.task(dispatch.step.task_no)).failure_count == 0


# --- compensations
async def planned(world: World, routing: str) -> StepRow:
    """A compensation that waits for payments, which did its step."""
    task, _ = await waiting(world, routing=routing)
    (dispatch,) = await world.take()
    answer = await world.report(dispatch.step)
    done = await world.step(dispatch.step.step_no)
    undo = undo_of(done, routing=routing, policy=STEP_POLICY)
    task = await world.task(task.task_no)
    answer = await world.advance(task, ending=PlanUndo(FAILED, (undo,)))
    return answer.steps[-1]


async def test_a_compensation_waits_for_the_agent_that_did_its_step(world: World) -> None:
    undo = await planned(world, PINNED)
    await tripped(world)
    world.clock.move(5)
    assert await take_over(world) == []
    assert (await world.step(undo.step_no)).agent == "payments"


async def test_the_compensation_of_an_interchangeable_step_goes_to_any_provider(world: World) -> None:
    undo = await planned(world, INTERCHANGEABLE)
    await tripped(world)
    (dispatch,) = await take_over(world)
    assert (dispatch.step.step_no, dispatch.step.agent) == (undo.step_no, EU)
