"""Requests: taken once, by an Agent with room, in order, under a deadline."""

from random import Random

from store_world import ALL, FAILED, NOON, STEP_POLICY, TestClock, World, retry_at, step, timer

from arriero.core.due import compute_position
from arriero.model import StepState
from arriero.model.answers import BreakerApplied
from arriero.model.commands import TripBreaker
from arriero.model.moves import BeginUndo, Hold


async def test_a_request_taken_becomes_an_attempt_with_a_deadline_by_the_policy_in_its_row(
    world: World, clock: TestClock
) -> None:
    task = await world.held()
    long = STEP_POLICY.replace('"complete_within":10.0', '"complete_within":77.0')
    await world.opened(task, step("charge", policy=long, wait_within=5.0))
    clock.move(2)
    (dispatch,) = await world.take(3)
    taken = dispatch.step
    assert (taken.state, taken.fence, taken.locked_by, taken.taken) == (StepState.RUNNING, 1, 3, True)
    assert (taken.complete_by, taken.wait_by, taken.attempt) == (clock.at + 77_000_000, None, 1)
    assert (dispatch.task_id, dispatch.now, dispatch.lost_count) == ("order-1", clock.at, 0)
    (event,) = await world.last_events()
    assert event == {
        "type": "step.dispatched",
        "step": 1,
        "attempt": 1,
        "fence": 1,
        "complete_by": taken.complete_by,
        "process": 3,
        "key": "charge#1",
    }


async def test_the_second_attempt_gets_more_time_if_the_policy_in_its_row_says_so(
    world: World, clock: TestClock
) -> None:
    task = await world.held()
    growing = STEP_POLICY.replace('"complete_within_factor":1.0', '"complete_within_factor":3.0')
    await world.opened(task, step("charge", policy=growing))
    (first,) = await world.take(1)
    await world.report(first.step, retry_at(clock.at))
    (second,) = await world.take(1)
    assert second.step.attempt == 2
    assert second.step.complete_by == clock.at + 30_000_000


async def test_a_canary_gets_no_more_time_however_many_attempts_the_outage_has_failed(
    world: World, clock: TestClock
) -> None:
    growing = STEP_POLICY.replace('"complete_within_factor":1.0', '"complete_within_factor":3.0')
    await world.opened(await world.held(), step("charge", policy=growing))
    opened = TripBreaker(
        actor="p", app="", agent="payments", target="", policy="{}", reason="all failed", failing_since=clock()
    )
    assert isinstance(await world.apply(opened), BreakerApplied)
    for attempt in (1, 2, 3):
        clock.move(10)
        (canary,) = await world.take(1)
        assert canary.step.attempt == attempt
        assert canary.step.complete_by == clock.at + 10_000_000
        await world.report(canary.step, retry_at(clock.at))


async def test_taking_leaves_the_task_to_whoever_holds_it(world: World) -> None:
    task, _ = await world.opened(await world.held(process_no=1), step())
    await world.take(2)
    after = await world.task(task.task_no)
    assert (after.locked_by, after.fence, after.revision) == (1, task.fence, task.revision)


async def test_a_request_is_taken_once(world: World) -> None:
    await world.opened(await world.held(), step())
    assert len(await world.take(1)) == 1
    assert await world.take(2) == []


async def test_each_agent_gets_as_many_as_it_has_room_for(world: World) -> None:
    task = await world.held()
    keys = [f"#{n}" for n in range(1, 4)]
    await world.opened(task, *(step("charge", k) for k in keys), *(step("ship", k, agent="shipping") for k in keys))
    room = (("payments", 2), ("shipping", 0), ("unknown", 5))
    assert [(d.step.agent, d.step.key) for d in await world.take(room=room)] == [("payments", "#1"), ("payments", "#2")]
    room = (("shipping", 2), ("payments", 9))
    taken = [(d.step.agent, d.step.key) for d in await world.take(room=room)]
    assert taken == [("shipping", "#1"), ("shipping", "#2"), ("payments", "#3")]


async def test_requests_go_by_the_priority_of_their_tasks_then_by_time(world: World, clock: TestClock) -> None:
    for name, priority in (("low", 1), ("high", 8), ("high-later", 8)):
        await world.opened(await world.held(name, priority=priority), step())
        clock.move(1)
    assert [d.task_id for d in await world.take(room=(("payments", 2),))] == ["high", "high-later"]
    assert [d.task_id for d in await world.take()] == ["low"]


async def test_requests_that_have_waited_longer_than_a_head_start_go_first(world: World, clock: TestClock) -> None:
    for name, priority, seconds in (("low", 7, 1199), ("within", 9, 1), ("without", 9, 0)):
        await world.opened(await world.held(name, priority=priority), step())
        clock.move(seconds)
    assert [d.task_id for d in await world.take(room=(("payments", 2),))] == ["within", "low"]
    assert [d.task_id for d in await world.take()] == ["without"]


async def test_every_store_takes_in_the_order_of_the_core(world: World, clock: TestClock) -> None:
    random = Random(5)
    due: dict[str, tuple[int, int]] = {}
    for number in range(40):
        clock.move(random.uniform(0, 240))
        priority, name, app = random.randrange(10), f"order-{number}", random.choice(["", "shop"])
        await world.submit(name, priority=priority, app=app)
        (loaded,) = await world.claim(limit=1, app="shop")
        _, (opened,) = await world.opened(loaded.task, step())
        due[name] = compute_position(priority, clock(), opened.step_no)
    taken: list[str] = []
    while found := await world.take(room=(("payments", random.randint(1, 9)),), app="shop"):
        taken += [dispatch.task_id for dispatch in found]
    assert taken == sorted(due, key=due.__getitem__)


async def test_places_for_urgent_requests_are_filled_by_priorities_8_and_9_alone(
    world: World, clock: TestClock
) -> None:
    for number, priority in enumerate((7, 7, 8, 0, 9, 7)):
        await world.opened(await world.held(f"{priority}-{number}", priority=priority), step())
    assert [d.task_id for d in await world.take(room=(("payments", 0),), urgent=(("payments", 1),))] == ["9-4"]
    both = await world.take(room=(("payments", 2),), urgent=(("payments", 5),))
    assert [d.task_id for d in both] == ["8-2", "7-0"]
    assert await world.take(room=(), urgent=(("payments", 5),)) == []
    assert [d.task_id for d in await world.take()] == ["7-1", "7-5", "0-3"]


async def test_only_steps_whose_code_is_here_are_taken(world: World) -> None:
    await world.opened(await world.held(), step("charge"), step("reserve"))
    assert await world.take(names=()) == []
    assert [d.step.name for d in await world.take(names=("reserve", "other"), room=(("payments", 1),))] == ["reserve"]


async def test_a_retry_is_not_taken_before_its_time(world: World, clock: TestClock) -> None:
    _, (charge,) = await world.running(await world.held(), "charge")
    await world.report(charge, retry_at(NOON + 4_000_000))
    clock.move(3.999)
    assert await world.take() == []
    clock.move(0.001)
    (dispatch,) = await world.take()
    assert (dispatch.step.attempt, dispatch.step.fence) == (2, charge.fence + 1)
    assert dispatch.step.idempotency_key == charge.idempotency_key


async def test_timers_are_never_taken(world: World, clock: TestClock) -> None:
    await world.opened(await world.held(), timer(NOON + 1_000_000))
    clock.move(5)
    assert await world.take(room=(("", 9),), names=("sleep", *ALL)) == []


async def test_requests_withdrawn_by_an_undo_or_a_hold_are_not_taken(world: World) -> None:
    for name, ending in (("undone", BeginUndo(FAILED)), ("held", Hold(FAILED))):
        task, _ = await world.opened(await world.held(name), step())
        await world.advance(task, ending=ending)
    assert await world.take() == []


async def test_steps_of_one_task_on_probation_are_taken_beside_those_of_sound_tasks(world: World) -> None:
    await world.suspects("suspect-1", "suspect-2", priority=9)
    await world.submit("sound", priority=9)
    opened = {}
    for name in ("suspect-1", "suspect-2", "sound"):
        (loaded,) = await world.claim(1, limit=1)
        assert loaded.task.task_id == name
        _, steps = await world.opened(loaded.task, step("charge", "#1"), step("charge", "#2"))
        opened[name] = steps
    one_place = (("payments", 1),)
    assert [d.task_id for d in await world.take(15, room=one_place, probation=0)] == ["sound"]
    second = opened["suspect-2"][0].task_no
    assert [d.task_id for d in await world.take(16, room=one_place, probation=second)] == ["suspect-2"]
    rest = [(d.task_id, d.step.key, d.lost_count) for d in await world.take(17)]
    assert rest == [("suspect-1", "#1", 2), ("suspect-1", "#2", 2), ("sound", "#2", 0)]
    assert [(d.task_id, d.step.key) for d in await world.take(18)] == [("suspect-2", "#2")]


async def test_probation_is_one_task_over_all_agents_of_a_process(world: World) -> None:
    await world.suspects("suspect-1", "suspect-2")
    for agent in ("payments", "shipping"):
        (loaded,) = await world.claim(1, limit=1)
        await world.opened(loaded.task, step(agent=agent))
    both = (("payments", 5), ("shipping", 5))
    assert [d.task_id for d in await world.take(room=both)] == ["suspect-1"]
    assert [d.task_id for d in await world.take(room=both)] == ["suspect-2"]
