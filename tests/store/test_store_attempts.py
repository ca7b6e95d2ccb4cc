"""What a store tells of attempts: what is tried again, what Agents are asked for, and how attempts ended lately."""

import msgspec
from store_world import DECLINED, NOON, UNSURE, TestClock, World, gave_up, retry_at, step

from arriero.inspection.attempts import UNREADABLE, AttemptEnd, Requests, Retrying, read_attempt_ends, read_failure
from arriero.model import Instant

MINUTE = 60_000_000


async def failed_once(world: World, task_id: str, *, again_at: int = NOON + MINUTE) -> int:
    """A task whose step failed and waits for its next attempt."""
    task, (charge,) = await world.running(await world.held(task_id), "charge")
    await world.report(charge, retry_at(again_at))
    return task.task_no


async def test_an_empty_store_has_nothing_to_tell(world: World, clock: TestClock) -> None:
    found = await world.store.survey_attempts()
    assert (found.now, found.retrying, found.requests, found.ends, found.ends_from) == (clock(), (), (), (), None)
    assert await world.store.retrying_steps([1]) == []


async def test_a_step_that_failed_is_told_with_its_last_failure_and_its_next_attempt(world: World) -> None:
    task_no = await failed_once(world, "order-1")
    await world.running(await world.held("order-2"), "charge")
    waiting = Retrying(
        agent="payments",
        task_no=task_no,
        task_id="order-1",
        step="charge",
        attempt=2,
        failure_count=1,
        failure=UNSURE,
        is_running=False,
        next_at=Instant(NOON + MINUTE),
    )
    found = await world.store.survey_attempts()
    assert found.retrying == (waiting,)
    assert found.requests == (Requests(agent="payments", later=1, running=1),)
    assert await world.store.retrying_steps([99, task_no, task_no + 1]) == [waiting]
    world.clock.to(Instant(NOON + MINUTE))
    found = await world.store.survey_attempts()
    assert found.requests == (Requests(agent="payments", due=1, oldest_at=Instant(NOON + MINUTE), running=1),)
    await world.take()
    running = msgspec.structs.replace(waiting, is_running=True, next_at=None)
    assert (await world.store.survey_attempts()).retrying == (running,)
    assert await world.store.retrying_steps([task_no]) == [running]


async def test_of_a_task_with_several_the_step_with_the_most_failures_is_told(world: World) -> None:
    task, steps = await world.running(await world.held("order-1"), "charge", "reserve")
    await world.report(steps[0], retry_at(NOON + MINUTE))
    await world.report(steps[1], retry_at(NOON))
    (again,) = await world.take()
    await world.report(again.step, retry_at(NOON + MINUTE))
    (told,) = await world.store.retrying_steps([task.task_no])
    assert (told.step, told.failure_count, told.attempt) == ("reserve", 2, 3)


async def test_requests_are_counted_for_each_agent_with_the_oldest(world: World, clock: TestClock) -> None:
    await world.opened(await world.held("order-1"), step(), step("ship", agent="shipping"))
    clock.move(5)
    await world.opened(await world.held("order-2"), step())
    assert (await world.store.survey_attempts()).requests == (
        Requests(agent="payments", due=2, oldest_at=Instant(NOON)),
        Requests(agent="shipping", due=1, oldest_at=Instant(NOON)),
    )


async def test_ends_are_told_in_their_order_with_agent_and_failure(world: World, clock: TestClock) -> None:
    first, (one,) = await world.running(await world.held("order-1"), "charge")
    second, (other,) = await world.running(await world.held("order-2"), "charge")
    await world.report(one, retry_at(NOON))
    clock.move(1)
    await world.report(other)
    clock.move(1)
    (again,) = await world.take()
    await world.report(again.step, gave_up())
    ends = [
        AttemptEnd(at=Instant(NOON), agent="payments", task_no=first.task_no, failure=UNSURE),
        AttemptEnd(at=Instant(NOON + 1_000_000), agent="payments", task_no=second.task_no, failure=None),
        AttemptEnd(at=Instant(NOON + 2_000_000), agent="payments", task_no=first.task_no, failure=DECLINED),
    ]
    found = await world.store.survey_attempts()
    assert (list(found.ends), found.ends_from, found.retrying) == (ends, None, ())
    last = await world.store.survey_attempts(commits=2)  # its attempt was taken, and ended
    assert (list(last.ends), last.ends_from) == (ends[2:], Instant(NOON + 2_000_000))


async def test_of_each_agent_those_whose_time_comes_last_are_looked_at(world: World) -> None:
    for number in range(3):
        await failed_once(world, f"order-{number}", again_at=NOON + number * MINUTE)
    _, (ship,) = await world.opened(await world.held("order-9"), step("ship", agent="shipping", take=True))
    await world.report(ship, retry_at(NOON + 1))
    found = await world.store.survey_attempts(steps=1)
    assert [one.task_id for one in found.retrying] == ["order-2", "order-9"]
    assert [(one.agent, one.due + one.later) for one in found.requests] == [("payments", 3), ("shipping", 1)]


def test_what_cannot_be_read_is_told_as_that_and_no_error() -> None:
    assert read_failure('{"cause":"of a later release"}') == read_failure("") == read_failure(None) == UNREADABLE
    odd = '[{"type":"recover.applied","step":1,"failure":{"cause":7}},{"type":"undo.begun","step":"charge"}]'
    (end,) = read_attempt_ends([(1, Instant(5), "no JSON"), (2, Instant(6), odd)])
    assert (end.task_no, end.step_no, end.failure) == (2, 2 << 20 | 1, UNREADABLE)
