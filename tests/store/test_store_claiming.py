"""Claims: exclusive, in order, only what is due, one task on probation at a time."""

from random import Random

import pytest
from store_world import FAILED, NOON, TestClock, World, kinds, step, timer

from arriero.core.due import compute_position
from arriero.model import Instant, TaskState, later
from arriero.model.commands import ClaimShare
from arriero.model.moves import BeginUndo, Hold, Process, PutDown


async def test_a_claim_makes_a_task_the_process_s_under_a_new_fence(world: World, clock: TestClock) -> None:
    task_no = await world.submit()
    clock.move(5)
    (loaded,) = await world.claim(4)
    task = loaded.task
    assert (task.task_no, task.state, task.locked_by) == (task_no, TaskState.PROCESSING, 4)
    assert (task.fence, task.revision, task.started_at, task.unseen_since) == (1, 1, clock.at, clock.at)
    (event,) = await world.last_events(task_no)
    assert event == {"type": "task.claimed", "fence": 1, "process": 4, "state": "processing", "revision": 1}


async def test_what_is_held_is_not_claimed_again(world: World) -> None:
    await world.submit()
    assert len(await world.claim(1)) == 1
    assert await world.claim(2) == []
    assert await world.claim(1) == []


async def test_higher_priorities_come_first_then_longer_due_then_earlier_submitted(
    world: World, clock: TestClock
) -> None:
    await world.submit("later", priority=3, delay=2.0)
    await world.submit("first-of-two", priority=3)
    await world.submit("second-of-two", priority=3)
    await world.submit("lowest", priority=0)
    await world.submit("highest", priority=9, delay=3.0)
    clock.move(10)
    wanted = ["highest", "first-of-two", "second-of-two", "later", "lowest"]
    assert await world.claimed_ids(limit=2) + await world.claimed_ids(limit=10) == wanted


async def test_a_claim_takes_as_many_as_it_asks_for(world: World) -> None:
    for number in range(5):
        await world.submit(f"order-{number}", priority=number)
    assert await world.claimed_ids(limit=0) == []
    assert await world.claimed_ids(limit=3) == ["order-4", "order-3", "order-2"]
    assert await world.claimed_ids(limit=3) == ["order-1", "order-0"]


async def test_a_step_of_priority_is_a_head_start_of_ten_minutes(world: World, clock: TestClock) -> None:
    await world.submit("low", priority=7)
    clock.move(1199)
    await world.submit("just-within", priority=9)
    clock.move(1)
    await world.submit("just-without", priority=9)
    assert await world.claimed_ids(limit=2) == ["just-within", "low"]
    assert await world.claimed_ids(limit=2) == ["just-without"]


async def test_beside_an_endless_stream_of_the_highest_priority_a_low_one_begins_within_the_bound(
    world: World, clock: TestClock
) -> None:
    """Two come for each that is claimed, so what waits grows without end."""
    await world.submit("low", priority=8)
    began_at = None
    for turn in range(40):
        await world.submit(f"high-{turn}-a", priority=9)
        await world.submit(f"high-{turn}-b", priority=9)
        clock.move(60)
        if "low" in await world.claimed_ids(limit=1):
            began_at = turn
            break
    assert began_at == 20  # those that came in its first ten minutes went first, and no others


async def test_every_store_claims_in_the_order_of_the_core(world: World, clock: TestClock) -> None:
    random = Random(5)
    due: dict[str, tuple[int, int]] = {}
    workflows = ("fulfil", "elsewhere", "third")
    for number in range(60):
        clock.move(random.uniform(0, 240))
        priority, delay = random.randrange(10), random.choice([0.0, 0.0, 300.0])
        name, app = f"order-{number}", random.choice(["", "shop"])
        task_no = await world.submit(name, priority=priority, delay=delay, workflow=random.choice(workflows), app=app)
        due[name] = compute_position(priority, later(clock(), delay), task_no)
    clock.move(300)
    claimed: list[str] = []
    while found := await world.claimed_ids(limit=random.randint(1, 20), workflows=workflows, app="shop"):
        claimed += found
    assert claimed == sorted(due, key=due.__getitem__)


async def test_what_is_not_due_yet_holds_up_nothing_whatever_its_priority(world: World, clock: TestClock) -> None:
    for number in range(5):
        await world.submit(f"asleep-{number}", priority=9, delay=60.0)
    await world.submit("due", priority=0)
    assert await world.claimed_ids(limit=1) == ["due"]


async def test_a_task_that_is_woken_again_and_again_while_it_waits_keeps_its_place(
    world: World, clock: TestClock
) -> None:
    task = await world.held("woken")
    await world.advance(task, opened=[step(), step("reserve"), step("ship")], ending=PutDown(None))
    dispatches = await world.take(2)
    await world.report(dispatches[0].step, process_no=2)
    due_since = clock.at
    for dispatch in dispatches[1:]:
        clock.move(1)
        await world.submit(f"after-{dispatch.step.name}")
        await world.report(dispatch.step, process_no=2)
    assert (await world.task(task.task_no)).not_before == due_since
    assert await world.claimed_ids(limit=3) == ["woken", "after-reserve", "after-ship"]


async def test_a_task_that_was_handled_and_is_woken_waits_behind_those_that_were_due_meanwhile(
    world: World, clock: TestClock
) -> None:
    task = await world.held("woken")
    await world.advance(task, opened=[step()], ending=PutDown(None))
    (dispatch,) = await world.take(2)
    clock.move(1)
    await world.submit("other")
    clock.move(1)
    await world.report(dispatch.step, process_no=2)
    assert await world.claimed_ids(limit=2) == ["other", "woken"]


SHARES = (ClaimShare(("fulfil",), 3, 0), ClaimShare(("report",), 1, 0), ClaimShare((), 1, 0))
BOTH = ("fulfil", "report")


async def submit_both(world: World, count: int) -> None:
    for number in range(count):
        await world.submit(f"report-{number}", workflow="report", priority=9)
        await world.submit(f"fulfil-{number}")


async def test_a_claim_with_shares_divides_its_room_by_weight_each_in_its_order(world: World) -> None:
    await submit_both(world, 9)
    claimed = await world.claimed_ids(limit=8, workflows=BOTH, shares=SHARES)
    assert sorted(claimed) == sorted([f"fulfil-{n}" for n in range(6)] + ["report-0", "report-1"])


async def test_a_claim_counts_what_the_process_holds(world: World) -> None:
    await submit_both(world, 3)
    held = (ClaimShare(("fulfil",), 3, 6), ClaimShare(("report",), 1, 0))
    assert await world.claimed_ids(limit=2, workflows=BOTH, shares=held) == ["report-0", "report-1"]


async def test_room_that_a_workflow_does_not_use_goes_to_the_others(world: World) -> None:
    await submit_both(world, 2)
    for number in range(2, 9):
        await world.submit(f"report-{number}", workflow="report")
    claimed = await world.claimed_ids(limit=8, workflows=BOTH, shares=SHARES)
    assert len(claimed) == 8
    assert {"fulfil-0", "fulfil-1"} < set(claimed)
    assert await world.claimed_ids(limit=8, workflows=BOTH, shares=SHARES) == [f"report-{n}" for n in (6, 7, 8)]
    assert await world.claimed_ids(limit=8, workflows=BOTH, shares=SHARES) == []


async def test_a_claim_with_shares_takes_up_undos_and_one_task_on_probation(world: World) -> None:
    task = await world.held(workflow="elsewhere")
    begun = (await world.advance(task, ending=BeginUndo(FAILED))).task
    await world.advance(begun, ending=PutDown(Instant(NOON)))
    assert await world.claimed_ids(workflows=BOTH, shares=SHARES) == ["order-1"]
    await world.suspects("suspect-1", "suspect-2")
    assert await world.claimed_ids(2, workflows=BOTH, shares=SHARES) == ["suspect-1"]


async def test_nothing_is_claimed_before_it_is_due(world: World, clock: TestClock) -> None:
    await world.submit(delay=1.0)
    clock.to(Instant(NOON + 999_999))
    assert await world.claim() == []
    clock.to(Instant(NOON + 1_000_000))
    assert len(await world.claim()) == 1


async def test_only_tasks_of_workflows_that_are_here_are_claimed(world: World) -> None:
    await world.submit("a", workflow="fulfil")
    await world.submit("b", workflow="elsewhere")
    await world.submit("c", workflow="fulfil")
    assert await world.claimed_ids(workflows=()) == []
    assert await world.claimed_ids() == ["a", "c"]
    assert await world.claimed_ids(workflows=("other", "elsewhere")) == ["b"]


async def test_an_undo_needs_no_workflow_code_and_goes_on_as_an_undo(world: World) -> None:
    task = await world.held(workflow="elsewhere")
    begun = (await world.advance(task, ending=BeginUndo(FAILED))).task
    await world.advance(begun, ending=PutDown(Instant(NOON)))
    (loaded,) = await world.claim(2, workflows=())
    assert loaded.task.state is TaskState.COMPENSATING


async def test_a_task_put_down_is_claimed_when_its_time_has_come(world: World, clock: TestClock) -> None:
    task = await world.held()
    answer = await world.advance(task, opened=[timer(NOON + 5_000_000)], ending=PutDown(Instant(NOON + 5_000_000)))
    assert (answer.task.locked_by, answer.task.fence, answer.task.unseen_since) == (None, 2, None)
    clock.move(4.9)
    assert await world.claim(2) == []
    clock.move(0.1)
    (loaded,) = await world.claim(2)
    assert (loaded.task.fence, loaded.task.started_at) == (3, NOON)
    assert [one.key for one in loaded.steps] == ["#1"]


async def test_a_task_put_down_without_a_time_waits_for_news(world: World, clock: TestClock) -> None:
    task = await world.held()
    answer = await world.advance(task, opened=[step()], ending=PutDown(None))
    (dispatch,) = await world.take(2)
    clock.move(5)
    assert await world.claim(1) == []
    await world.report(dispatch.step, process_no=2)
    assert (await world.task(task.task_no)).not_before == clock.at
    (loaded,) = await world.claim(1)
    assert loaded.task.fence == answer.task.fence + 1


@pytest.mark.parametrize("ending", [Process("1"), Hold(FAILED)])
async def test_what_has_ended_is_never_claimed(world: World, clock: TestClock, ending: Process | Hold) -> None:
    task = await world.held()
    await world.advance(task, ending=ending)
    clock.move(1e6)
    assert await world.claim() == []


async def test_a_task_on_probation_is_claimed_alone_and_does_not_hold_up_the_others(world: World) -> None:
    await world.suspects("suspect-1", "suspect-2", "suspect-3", priority=9)
    for name in ("a", "b", "c"):
        await world.submit(name, priority=9)
    assert await world.claimed_ids(1, limit=2) == ["suspect-1", "a"]
    assert await world.claimed_ids(1, limit=1, probation=False) == ["b"]
    assert await world.claimed_ids(1, limit=10, probation=False) == ["c"]
    assert await world.claimed_ids(1, limit=10) == ["suspect-2"]
    assert await world.claimed_ids(2, limit=10) == ["suspect-3"]


async def test_probation_in_one_priority_counts_for_the_lower_ones(world: World) -> None:
    await world.suspects("high", "high-too", priority=9)
    await world.submit("plain", priority=1)
    await world.submit("plain-too", priority=9)
    assert await world.claimed_ids(limit=3) == ["high", "plain-too", "plain"]


async def test_two_claims_in_one_batch_share_what_there_is(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.submit(name)
    first, second = await world.store.apply([world.claim_command(1, limit=2), world.claim_command(2, limit=2)])
    assert [loaded.task.task_id for loaded in first.tasks] == ["a", "b"]
    assert [loaded.task.task_id for loaded in second.tasks] == ["c"]
    await world.check_chains()


async def test_a_claim_brings_the_arguments_and_all_steps_in_their_order(world: World) -> None:
    task = await world.held(arguments='{"x":[1]}')
    task, _ = await world.opened(task, *(step("charge", f"#{n}") for n in range(1, 30)), timer(NOON + 10_000_000))
    await world.advance(task, ending=PutDown(Instant(NOON)))
    (loaded,) = await world.claim(2)
    assert loaded.arguments == '{"x":[1]}'
    assert [one.ordinal for one in loaded.steps] == list(range(1, 31))
    assert kinds(await world.events(task.task_no))[:2] == ["task.submitted", "task.claimed"]


async def test_a_claim_that_names_tasks_takes_these_alone_in_their_order(world: World) -> None:
    low = await world.submit("low", priority=3)
    await world.submit("not-named", priority=9)
    high = await world.submit("high", priority=5)
    assert await world.claimed_ids(only=(low, high)) == ["high", "low"]
    assert await world.claimed_ids(only=(low, high)) == []
    assert await world.claimed_ids() == ["not-named"]
    await world.check_chains()


async def test_a_claim_takes_no_more_of_the_named_tasks_than_it_asks_for(world: World) -> None:
    numbers = [await world.submit(f"order-{number}", priority=number) for number in range(3)]
    assert await world.claimed_ids(only=tuple(numbers), limit=2) == ["order-2", "order-1"]


async def test_a_claim_passes_over_named_tasks_that_it_may_not_have(world: World) -> None:
    held = (await world.held("held", 3)).task_no
    asleep = await world.submit("asleep", delay=60.0)
    elsewhere = await world.submit("elsewhere", workflow="elsewhere")
    of_another_app = await world.submit("of-another-app", app="travel")
    free = await world.submit("free", app="shop")
    only = (held, asleep, elsewhere, of_another_app, 999, free)
    assert await world.claimed_ids(only=only, app="shop") == ["free"]
    assert (await world.task(held)).locked_by == 3


async def test_of_named_tasks_on_probation_one_is_claimed(world: World) -> None:
    numbers = await world.suspects("suspect-1", "suspect-2")
    plain = await world.submit("plain")
    assert await world.claimed_ids(only=(*numbers, plain), limit=2) == ["suspect-1", "plain"]
    assert await world.claimed_ids(only=tuple(numbers), probation=False) == []


async def test_a_named_task_comes_with_its_convoy_and_with_all_of_its_steps(world: World) -> None:
    task = await world.held(convoy="customer-7")
    task, _ = await world.opened(task, *(step("charge", f"#{n}") for n in range(1, 131)))
    await world.advance(task, ending=PutDown(Instant(NOON)))
    (loaded,) = await world.claim(2, only=(task.task_no,))
    assert loaded.convoy is not None
    assert loaded.convoy.key == "customer-7"
    assert [one.ordinal for one in loaded.steps] == list(range(1, 131))


async def test_a_retired_process_claims_no_task_that_it_names(world: World) -> None:
    process_no = await world.process("doomed")
    task_no = await world.submit()
    await world.lose(process_no)
    assert await world.claim(process_no, only=(task_no,)) == []
