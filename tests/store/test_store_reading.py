"""What the store answers when it is only asked."""

from store_world import FAILED, NOON, TestClock, World, kinds, retry_at, step, timer

from arriero.model import Instant, TaskState
from arriero.model.moves import BeginUndo, Compensate, Hold, Process, PutDown
from arriero.store.contract import Due
from arriero.store.task_filter import TaskFilter

HERE = (("fulfil",), ("payments",))


async def test_what_is_not_there_is_not_found(world: World) -> None:
    assert await world.store.load(1) is None
    assert await world.store.load_tasks([1]) == []
    assert await world.store.find("order-1") is None
    assert await world.store.load_ended([1]) == []
    assert await world.store.list_tasks() == []
    assert [row async for row in world.store.history()] == []
    assert [row async for row in world.store.history(3)] == []


async def test_tasks_are_loaded_together_as_each_alone_and_those_that_are_gone_are_left_out(world: World) -> None:
    first, _ = await world.opened(await world.held("order-1"), step(), step("reserve"))
    third, _ = await world.opened(await world.held("order-3"), timer(NOON + 7))
    second = await world.submit("order-2", convoy="key")
    asked = [first.task_no, 999, second, third.task_no]
    found = {loaded.task.task_no: loaded for loaded in await world.store.load_tasks(asked)}
    assert found == {number: await world.load(number) for number in (first.task_no, second, third.task_no)}
    assert [len(found[number].steps) for number in (first.task_no, second, third.task_no)] == [2, 0, 1]
    assert await world.store.load_tasks([]) == []


async def test_an_empty_store_has_nothing_due(world: World, clock: TestClock) -> None:
    assert await world.store.due(*HERE) == Due(clock(), False, False, None)


async def test_due_tells_tasks_that_can_be_claimed_and_when_the_next_can(world: World, clock: TestClock) -> None:
    await world.submit("later", delay=5.0, priority=9)
    await world.submit("soon", delay=3.0, priority=1)
    assert await world.store.due(*HERE) == Due(clock(), False, False, Instant(NOON + 3_000_000))
    clock.move(3)
    assert await world.store.due(*HERE) == Due(clock(), True, False, Instant(NOON + 5_000_000))
    await world.claim()
    assert await world.store.due(*HERE) == Due(clock(), False, False, Instant(NOON + 5_000_000))


async def test_what_others_would_claim_or_take_is_not_due_here(world: World, clock: TestClock) -> None:
    await world.submit("elsewhere", workflow="elsewhere")
    await world.submit("elsewhere-later", workflow="elsewhere", delay=1.0)
    task, _ = await world.opened(await world.held(), step(agent="shipping"), timer(NOON + 7))
    assert await world.store.due(*HERE) == Due(clock(), False, False, None)
    due = await world.store.due(("fulfil", "elsewhere"), ("payments", "shipping"))
    assert due == Due(clock(), True, True, Instant(NOON + 1_000_000))
    assert task.locked_by == 1


async def test_an_undo_is_due_wherever_a_scheduler_is(world: World, clock: TestClock) -> None:
    task = await world.held(workflow="elsewhere")
    task = (await world.advance(task, ending=BeginUndo(FAILED))).task
    await world.advance(task, ending=PutDown(Instant(NOON + 5)))
    assert await world.store.due((), ()) == Due(clock(), False, False, Instant(NOON + 5))
    clock.to(Instant(NOON + 5))
    assert await world.store.due((), ()) == Due(clock(), True, False, None)


async def test_due_tells_requests_that_can_be_taken_and_when_the_next_can(world: World, clock: TestClock) -> None:
    _, (charge, _) = await world.opened(await world.held(priority=0), step(take=True), step("reserve"))
    assert await world.store.due(*HERE) == Due(clock(), False, True, None)
    await world.report(charge, retry_at(NOON + 2_000_000))
    assert await world.store.due(*HERE) == Due(clock(), False, True, Instant(NOON + 2_000_000))
    await world.take()
    assert await world.store.due(*HERE) == Due(clock(), False, False, Instant(NOON + 2_000_000))
    clock.move(2)
    assert await world.store.due(*HERE) == Due(clock(), False, True, None)


async def test_news_is_the_claim_and_what_others_recorded_longest_waiting_first(world: World, clock: TestClock) -> None:
    first, second = await world.held("order-1"), await world.held("order-2", process_no=2)
    third, (charge,) = await world.running(await world.held("order-3"), "charge")
    assert await world.store.load_news(1) == [(first.task_no, first.revision)]
    assert await world.store.load_news(2) == [(second.task_no, second.revision)]
    clock.move(1)
    await world.report(charge)
    assert await world.store.load_news(1) == [(first.task_no, first.revision), (third.task_no, third.revision + 1)]
    assert await world.store.load_news(9) == []


async def test_of_many_tasks_those_that_ended_are_told_each_once_in_order(world: World) -> None:
    ends = {"done": Process('"x"'), "undone": Compensate(FAILED), "held": Hold(FAILED)}
    for name, ending in ends.items():
        await world.advance(await world.held(name), ending=ending)
    await world.held("open")
    ended = await world.store.load_ended([4, 3, 1, 2, 3, 99])
    assert [(one.task.task_id, one.task.state) for one in ended] == [
        ("done", TaskState.PROCESSED),
        ("undone", TaskState.COMPENSATED),
        ("held", TaskState.HELD),
    ]
    assert [one.task for one in ended] == [await world.task(no) for no in (1, 2, 3)]
    assert await world.store.load_ended([]) == []


async def test_counts_name_every_state(world: World) -> None:
    assert await world.store.counts() == dict.fromkeys(TaskState, 0)
    await world.advance(await world.held("a"), ending=Process("1"))
    await world.advance(await world.held("b"), ending=Hold(FAILED))
    await world.held("c")
    await world.submit("d")
    await world.submit("e")
    counts = await world.store.counts()
    assert list(counts) == list(TaskState)
    assert {state: count for state, count in counts.items() if count} == {
        TaskState.PENDING: 2,
        TaskState.PROCESSING: 1,
        TaskState.PROCESSED: 1,
        TaskState.HELD: 1,
    }


async def test_tasks_are_listed_in_the_order_of_submission_page_by_page(world: World) -> None:
    for number in range(7):
        await world.submit(f"order-{number}", workflow="fulfil" if number % 2 else "other", priority=number)
    await world.claim(limit=2)
    store = world.store
    assert [t.task_no for t in await store.list_tasks(limit=3)] == [1, 2, 3]
    assert [t.task_no for t in await store.list_tasks(after=3, limit=3)] == [4, 5, 6]
    assert [t.task_no for t in await store.list_tasks(TaskFilter(workflow="other"), after=1)] == [3, 5, 7]
    assert [t.task_no for t in await store.list_tasks(TaskFilter(state=TaskState.PROCESSING))] == [4, 6]
    assert [t.task_no for t in await store.list_tasks(TaskFilter(state=TaskState.PENDING, workflow="fulfil"))] == [2]
    assert await store.list_tasks(after=7) == []


async def test_tasks_are_listed_the_newest_first_and_counted_as_they_are_listed(world: World, clock: TestClock) -> None:
    for number in range(7):
        await world.submit(f"order-{number}", workflow="fulfil" if number % 2 else "other")
        clock.move(1)
    store, other = world.store, TaskFilter(workflow="other")
    assert [t.task_no for t in await store.list_tasks(newest_first=True, limit=3)] == [7, 6, 5]
    assert [t.task_no for t in await store.list_tasks(newest_first=True, before=5, limit=3)] == [4, 3, 2]
    assert [t.task_no for t in await store.list_tasks(other, newest_first=True, after=1, before=7)] == [5, 3]
    assert [t.task_no for t in await store.list_tasks(before=3)] == [1, 2]
    since = TaskFilter(submitted_since=Instant(NOON + 4_000_000), submitted_before=Instant(NOON + 5_000_000))
    assert [t.task_no for t in await store.list_tasks(since)] == [5, 6]
    assert await store.count_listed(limit=100) == 7
    assert await store.count_listed(limit=3) == 3
    assert await store.count_listed(other, after=1, before=7, limit=100) == 2
    assert await store.count_listed(since, limit=100) == 2
    assert await store.count_listed(TaskFilter(text="declined"), limit=100) == 0


async def test_what_a_failure_says_is_listed_and_counted_in_either_direction(world: World) -> None:
    for number in range(5):
        ending = Hold(FAILED) if number % 2 else Process("1")
        await world.advance(await world.held(f"order-{number}"), ending=ending)
    declined = TaskFilter(code="declined")
    assert [t.task_no for t in await world.store.list_tasks(declined, newest_first=True)] == [4, 2]
    assert [t.task_no for t in await world.store.list_tasks(declined, newest_first=True, limit=1)] == [4]
    assert await world.store.count_listed(declined, limit=100) == 2
    assert await world.store.count_listed(declined, before=4, limit=100) == 1
    assert await world.store.count_listed(TaskFilter(text="DECLINED"), limit=1) == 1


async def test_history_is_in_commit_order_of_all_or_of_one_task(world: World) -> None:
    await world.process()
    await world.submit("order-1")
    await world.submit("order-2")
    await world.claim()
    rows = [row async for row in world.store.history()]
    assert [(row.no, row.task_no, row.task_id) for row in rows] == [
        (1, 0, ""),
        (2, 1, "order-1"),
        (3, 2, "order-2"),
        (4, 1, "order-1"),
        (5, 2, "order-2"),
    ]
    assert [row async for row in world.store.history(2)] == [row for row in rows if row.task_no == 2]
    assert [row async for row in world.store.history(0)] == rows[:1]


async def test_a_history_being_read_is_a_stable_prefix_while_others_write(world: World) -> None:
    task = await world.held()
    for _ in range(1_100):  # more than two pages
        task = (await world.store.apply([world.advance_command(task)]))[0].task
    for task_no in (None, 1):
        seen = []
        async for row in world.store.history(task_no):
            if not seen:
                expected = len([one async for one in world.store.history(task_no)])
                await world.store.apply([world.advance_command(task)])
                task = await world.task(1)
            seen.append(row.no)
        assert seen == list(range(1, expected + 1))


async def test_the_history_of_a_life_tells_it_in_order(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.advance(task, [world.reported(charge)], ending=Process("1"))
    assert kinds(await world.events()) == [
        "task.submitted",
        "task.claimed",
        "step.opened",
        "step.dispatched",
        "step.report",
        "step.recorded",
        "task.terminal",
    ]


async def test_many_tasks_are_read_as_they_stand_and_nothing_is_written(world: World) -> None:
    await world.process()
    numbers = [await world.submit(name) for name in ("a", "b", "c")]
    (first, *_) = await world.claim()
    await world.opened(first.task, step())
    before = [row async for row in world.store.history()]
    found = await world.store.load_all([numbers[2], 999_999, numbers[0]])
    assert found == [await world.store.load(numbers[2]), await world.store.load(numbers[0])]
    assert {len(one.steps) for one in found} == {0, 1}
    assert await world.store.load_all([]) == []
    assert [row async for row in world.store.history()] == before
