"""A row that this release cannot read: nothing else waits for it, an operator is told once, and it goes on when it is mended."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from damaging import NO_POLICY, Damage
from store_world import FAILED, NOON, TestClock, World, step, submission

from arriero.core.convoys import LOOK_AT_UNREADABLE_SECONDS
from arriero.errors import UnreadableRow
from arriero.model import AlertRow, ConvoyVerb, Instant, TaskState, Verb
from arriero.model.answers import Applied, Claimed, Submitted
from arriero.model.commands import HandOver, Operate, OperateConvoy
from arriero.model.moves import Hold, Process, PutDown
from arriero.store.quarantine import APART_SECONDS
from arriero.store.sqlite.store import SqliteStore

OF_A_TASK = [("state", "archived"), ("policy", NO_POLICY), ("failure", "?"), ("turn", "next")]
OF_A_STEP = [("policy", NO_POLICY), ("compensation", "[]"), ("failure", "{}")]


async def alerts(world: World) -> list[AlertRow]:
    return await world.store.alerts(limit=100)


async def is_due(world: World) -> tuple[bool, bool]:
    due = await world.store.due(("fulfil",), ("payments",))
    return due.tasks, due.steps


@pytest.mark.parametrize(("column", "value"), OF_A_TASK)
async def test_a_task_that_cannot_be_read_is_set_apart_and_the_others_are_claimed(
    world: World, column: str, value: str
) -> None:
    numbers = [await world.submit(f"t{n}") for n in range(3)]
    damage = Damage(world.store, "task", numbers[0], column, value)
    assert await world.claimed_ids(limit=2) == ["t1", "t2"]
    assert await is_due(world) == (False, False)
    (alert,) = await alerts(world)
    assert (alert.task_id, alert.cause, alert.code) == ("t0", "unreadable", f"task.{column}")
    assert f"column {column} of table task" in alert.reason
    damage.mend()


async def test_a_named_task_that_cannot_be_read_is_set_apart_and_the_others_are_claimed(world: World) -> None:
    task = await world.held("t0")
    (opened,) = (await world.opened(task, step()))[1]
    await world.advance(await world.task(task.task_no), ending=PutDown(Instant(NOON)))
    broken, sound = await world.submit("t1"), await world.submit("t2")
    damages = [
        Damage(world.store, "step", opened.step_no, "policy", NO_POLICY),
        Damage(world.store, "task", broken, "state", "archived"),
    ]
    assert await world.claimed_ids(only=(task.task_no, broken, sound)) == ["t2"]
    assert {alert.task_id for alert in await alerts(world)} == {"t0", "t1"}
    for damage in damages:
        damage.mend()


async def test_a_whole_page_of_unreadable_tasks_keeps_none_behind_it_waiting(world: World) -> None:
    numbers = [await world.submit(f"t{n}") for n in range(8)]
    damaged = [Damage(world.store, "task", number, "policy", NO_POLICY) for number in numbers[:6]]
    assert await world.claimed_ids(limit=2) == ["t6", "t7"]
    assert len(await alerts(world)) == 6
    for damage in damaged:
        damage.mend()


@pytest.mark.parametrize(("column", "value"), OF_A_STEP)
async def test_a_step_that_cannot_be_read_sets_its_task_apart_and_other_requests_are_taken(
    world: World, column: str, value: str
) -> None:
    tasks = [await world.held(f"t{n}") for n in range(2)]
    opened = [(await world.opened(task, step()))[1][0] for task in tasks]
    damage = Damage(world.store, "step", opened[0].step_no, column, value)
    assert [dispatch.task_id for dispatch in await world.take()] == ["t1"]
    assert await is_due(world) == (False, False)
    (alert,) = await alerts(world)
    assert (alert.task_id, alert.code) == ("t0", f"step.{column}")
    damage.mend()


async def test_it_is_looked_at_again_after_a_while_and_told_only_once(world: World, clock: TestClock) -> None:
    number = await world.submit("t0")
    damage = Damage(world.store, "task", number, "policy", NO_POLICY)
    for _ in range(3):
        assert await world.claim() == []
        assert await is_due(world) == (False, False)
        clock.move(APART_SECONDS)
        assert await is_due(world) == (True, False)
    assert len(await world.store.alerts(open_only=False)) == 1
    damage.mend()
    assert await world.claimed_ids() == ["t0"]


async def test_the_alert_is_closed_when_the_row_can_be_read_and_opened_anew_when_it_is_damaged_again(
    world: World,
) -> None:
    number = await world.submit("t0")
    for round_ in (1, 2):
        damage = Damage(world.store, "task", number, "policy", NO_POLICY)
        assert await world.claim() == []
        assert await world.store.look_at_unreadable() == 0
        assert [alert.told for alert in await alerts(world)] == [()]
        damage.mend()
        assert await world.store.look_at_unreadable() == 1
        assert await alerts(world) == []
        assert len(await world.store.alerts(open_only=False)) == round_
    (_, due) = await world.store.take_alerts(10, 5.0)
    assert due.closed_at is not None
    assert await world.claimed_ids() == ["t0"]


async def test_it_is_told_to_the_sinks_as_any_other_alert(world: World) -> None:
    damage = Damage(world.store, "task", await world.submit("t0"), "state", "archived")
    await world.claim()
    (alert,) = await world.store.take_alerts(10, 5.0)
    assert (alert.task_id, alert.workflow, alert.incarnation, alert.closed_at) == ("t0", "fulfil", 1, None)
    assert await world.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    assert await world.store.take_alerts(10, 5.0) == []
    damage.mend()


async def test_what_is_overdue_is_found_past_what_cannot_be_read(world: World, clock: TestClock) -> None:
    tasks = [await world.held(f"t{n}", complete_within=30.0) for n in range(3)]
    steps = [(await world.running(task, "charge"))[1][0] for task in tasks]
    damages = [
        Damage(world.store, "step", steps[0].step_no, "policy", NO_POLICY),
        Damage(world.store, "task", tasks[1].task_no, "failure", "?"),
    ]
    clock.move(60)
    for _ in range(2):  # once they are set apart, they take no room in what is asked for
        found = await world.store.load_overdue(100, 5.0)
        assert [loaded.task.task_id for loaded in found.past_limit] == ["t2"]
        assert [loaded.task.task_id for loaded in found.stuck] == ["t2"] * len(found.stuck)
    found = await world.store.load_overdue(1, 5.0)
    assert [one.step_no for one in found.expired] == [steps[2].step_no]
    assert {alert.task_id for alert in await alerts(world)} == {"t0", "t1"}
    for damage in damages:
        damage.mend()


async def test_what_a_process_holds_and_hears_of_is_told_without_what_cannot_be_read(world: World) -> None:
    process_no = await world.process()
    tasks = [await world.held(f"t{n}", process_no) for n in range(2)]
    damage = Damage(world.store, "task", tasks[0].task_no, "policy", NO_POLICY)
    numbers = [task.task_no for task in tasks]
    assert [loaded.task.task_id for loaded in await world.store.load_tasks(numbers)] == ["t1"]
    assert [loaded.task.task_id for loaded in await world.store.load_held(process_no, 10)] == ["t1"]
    assert [task_no for task_no, _ in await world.store.load_news(process_no)] == [numbers[1]]
    assert len(await alerts(world)) == 1
    damage.mend()


async def test_a_process_hears_again_of_a_task_that_it_holds_and_could_not_read(world: World, clock: TestClock) -> None:
    process_no = await world.process()
    task = await world.held("t0", process_no)
    await world.advance(task)  # it has seen all that there is: no news wakes it
    assert await world.store.load_news(process_no) == []
    damage = Damage(world.store, "task", task.task_no, "policy", NO_POLICY)
    assert await world.store.load_tasks([task.task_no]) == []
    assert await world.store.load_news(process_no) == []
    damage.mend()
    clock.move(APART_SECONDS)
    for _ in range(2):  # also if the first answer was lost
        ((task_no, _),) = await world.store.load_news(process_no)
    assert [loaded.task.task_id for loaded in await world.store.load_tasks([task_no])] == ["t0"]
    assert await world.store.load_news(process_no) == []


async def test_who_waits_for_the_ends_of_tasks_is_told_of_all_that_can_be_read(world: World) -> None:
    tasks = [await world.held(f"t{n}") for n in range(2)]
    for task in tasks:
        await world.advance(task, ending=Process('"done"'))
    damage = Damage(world.store, "task", tasks[0].task_no, "failure", "{")
    found = await world.store.load_ended([task.task_no for task in tasks])
    assert [ended.task.task_id for ended in found] == ["t1"]
    damage.mend()


async def test_who_waits_for_the_end_of_a_failed_task_is_told_whatever_its_convoy_holds(world: World) -> None:
    task = await world.held("t0", convoy="order-1")
    await world.advance(task, ending=Hold(FAILED))
    assert task.convoy_no is not None
    damage = Damage(world.store, "convoy", task.convoy_no, "state", "resting")
    (ended,) = await world.store.load_ended([task.task_no])
    assert ended.task.task_id == "t0"
    assert [alert.cause for alert in await alerts(world)] == ["step"]
    damage.mend()


async def test_a_command_on_it_is_refused_by_name_and_the_others_of_its_batch_are_written(world: World) -> None:
    tasks = [await world.held(f"t{n}") for n in range(3)]
    damage = Damage(world.store, "task", tasks[1].task_no, "state", "archived")
    answers = await world.store.apply([world.advance_command(task, opened=[step()]) for task in tasks])
    assert [type(answer) for answer in answers] == [Applied, UnreadableRow, Applied]
    assert "column state of table task" in str(answers[1])
    assert len(await alerts(world)) == 1
    damage.mend()
    assert (await world.load(tasks[1].task_no)).steps == ()


async def test_a_verb_on_it_is_refused_by_name_and_changes_nothing(world: World) -> None:
    number = await world.submit("t0")
    damage = Damage(world.store, "task", number, "policy", NO_POLICY)
    command = Operate(actor="ann", verb=Verb.CANCEL, task_no=number, incarnation=1, by="ann", reason="test")
    answer = await world.store.apply([command])
    assert isinstance(answer[0], UnreadableRow)
    damage.mend()
    assert (await world.task(number)).state is TaskState.PENDING


async def test_it_answers_for_its_id_and_keeps_no_other_submission_from_the_store(world: World) -> None:
    number = await world.submit("t0")
    damage = Damage(world.store, "task", number, "state", "archived")
    answers = await world.store.submit([submission("t0"), submission("t1")])
    assert [isinstance(a, Submitted) and (a.task_no, a.created) for a in answers] == [
        (number, False),
        (number + 1, True),
    ]
    damage.mend()


async def test_what_can_be_read_of_it_is_found_for_people(world: World) -> None:
    number = await world.submit("t0")
    damage = Damage(world.store, "task", number, "state", "archived")
    found = await world.store.find("t0")
    assert found is not None
    assert (found.task.task_id, found.task.state, found.arguments) == ("t0", "archived", '{"pieces":2}')
    assert [task.task_id for task in await world.store.list_tasks()] == ["t0"]
    damage.mend()


# --- convoys
async def test_a_turn_ends_though_the_next_cannot_be_read_and_nobody_goes_before_that(
    world: World, clock: TestClock
) -> None:
    process_no = await world.process()
    numbers = [await world.submit(f"t{n}", convoy="key") for n in range(3)]
    (head,) = await world.claim(process_no)
    damage = Damage(world.store, "task", numbers[1], "policy", NO_POLICY)
    await world.advance(head.task, ending=Process('"done"'), hand_over=HandOver(("fulfil",)))
    assert (await world.task(numbers[0])).state is TaskState.PROCESSED
    assert await world.claim(process_no) == []
    assert await is_due(world) == (False, False)
    assert [alert.task_id for alert in await alerts(world)] == ["t1"]
    clock.move(LOOK_AT_UNREADABLE_SECONDS)
    assert await world.claim(process_no) == []
    damage.mend()
    clock.move(LOOK_AT_UNREADABLE_SECONDS)
    for expected in ("t1", "t2"):
        (loaded,) = await world.claim(process_no)
        assert loaded.task.task_id == expected
        await world.advance(loaded.task, ending=Process('"done"'))


async def test_the_turn_is_handed_over_up_to_the_task_that_cannot_be_read(world: World) -> None:
    process_no = await world.process()
    numbers = [await world.submit(f"t{n}", convoy="key") for n in range(4)]
    damage = Damage(world.store, "task", numbers[2], "policy", NO_POLICY)
    (loaded,) = await world.claim(process_no)
    answer = await world.advance(loaded.task, ending=Process('"done"'), hand_over=HandOver(("fulfil",)))
    assert answer.next is not None
    assert answer.next.task.task_id == "t1"
    answer = await world.advance(answer.next.task, ending=Process('"done"'), hand_over=HandOver(("fulfil",)))
    assert answer.next is None
    damage.mend()


async def test_a_convoy_that_cannot_be_read_keeps_no_other_convoy_and_no_task_without_one_waiting(world: World) -> None:
    for n in range(2):
        await world.submit(f"a{n}", convoy="a")
    await world.submit("b0", convoy="b")
    await world.submit("free")
    found = await world.store.find_convoy("a")
    assert found is not None
    damage = Damage(world.store, "convoy", found.convoy.convoy_no, "state", "resting")
    assert sorted(await world.claimed_ids()) == ["b0", "free"]
    assert await is_due(world) == (False, False)
    (alert,) = await alerts(world)
    assert (alert.task_id, alert.code) == ("a0", "convoy.state")
    assert {one.convoy.key for one in await world.store.list_convoys()} >= {"a"}
    damage.mend()


async def test_the_alert_of_an_unreadable_convoy_names_the_task_that_was_moved_to_its_head(world: World) -> None:
    numbers = [await world.submit(f"t{n}", convoy="key", sequence=n + 2) for n in range(2)]
    found = await world.store.find_convoy("key")
    assert found is not None
    moved = Damage(world.store, "task", numbers[1], "rank", -1)  # as of a task that was moved to the head twice
    damage = Damage(world.store, "convoy", found.convoy.convoy_no, "state", "resting")
    assert await world.claimed_ids() == []
    (alert,) = await alerts(world)
    assert alert.task_id == "t1"
    damage.mend()
    moved.mend()


async def test_a_verb_on_a_convoy_whose_next_task_cannot_be_read_is_refused_by_name(world: World) -> None:
    numbers = [await world.submit(f"t{n}", convoy="key", sequence=n + 2) for n in range(2)]
    found = await world.store.find_convoy("key")
    assert found is not None
    damage = Damage(world.store, "task", numbers[0], "policy", NO_POLICY)
    skip = {"actor": "ann", "verb": ConvoyVerb.SKIP, "convoy_no": found.convoy.convoy_no, "fence": None, "by": "ann"}
    (answer,) = await world.store.apply([OperateConvoy(**skip, reason="test")])
    assert not isinstance(answer, Applied)
    assert await world.claim() == []
    damage.mend()


# --- processes
async def test_of_two_processes_that_find_it_one_tells(
    clock: TestClock, open_sqlite: Callable[[], Awaitable[SqliteStore]]
) -> None:
    one, another = await open_sqlite(), await open_sqlite()
    await one.submit([submission("t0")])
    Damage(one, "task", 1, "policy", NO_POLICY)
    for store in (one, another):
        assert await store.apply([World(store, clock).claim_command()]) == [Claimed(())]
    assert len(await one.alerts(open_only=False)) == 1


async def test_a_process_that_can_read_it_handles_it_though_another_left_it_alone(
    clock: TestClock, open_sqlite: Callable[[], Awaitable[SqliteStore]]
) -> None:
    one, another = await open_sqlite(), await open_sqlite()
    await one.submit([submission("t0")])
    damage = Damage(one, "task", 1, "policy", NO_POLICY)
    assert await one.apply([World(one, clock).claim_command()]) == [Claimed(())]
    damage.mend()  # stands for a release that can read what stood there
    (answer,) = await another.apply([World(another, clock).claim_command()])
    assert isinstance(answer, Claimed)
    assert [loaded.task.task_id for loaded in answer.tasks] == ["t0"]


# --- what only SQLite can hold
@pytest.mark.parametrize(
    ("column", "value"), [("fence", "three"), ("seed", 1.5), ("undoing", "no"), ("task_id", b"t0")]
)
async def test_a_column_of_another_type_is_a_row_that_cannot_be_read(
    tmp_path: Path, clock: TestClock, column: str, value: Any
) -> None:
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await store.open()
    await store.submit([submission("t0"), submission("t1")])
    Damage(store, "task", 1, column, value)
    world = World(store, clock)
    (answer,) = await store.apply([world.claim_command()])
    assert isinstance(answer, Claimed)
    assert [loaded.task.task_id for loaded in answer.tasks] == ["t1"]
    assert [alert.code for alert in await store.alerts()] == [f"task.{column}"]
    await store.close()


async def test_a_task_without_its_arguments_is_set_apart(tmp_path: Path, clock: TestClock) -> None:
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await store.open()
    await store.submit([submission("t0"), submission("t1")])
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("DELETE FROM arriero_body WHERE task_no = 1")
    (answer,) = await store.apply([World(store, clock).claim_command()])
    assert isinstance(answer, Claimed)
    assert [loaded.task.task_id for loaded in answer.tasks] == ["t1"]
    assert [alert.code for alert in await store.alerts()] == ["body.arguments"]
    await store.close()


async def test_the_alert_outlives_the_process_that_found_it(tmp_path: Path, clock: TestClock) -> None:
    store = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await store.open()
    await store.submit([submission("t0")])
    Damage(store, "task", 1, "policy", NO_POLICY)
    await store.apply([World(store, clock).claim_command()])
    await store.close()
    again = SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await again.open()
    assert await again.look_at_unreadable() == 0
    assert [alert.task_id for alert in await again.alerts()] == ["t0"]
    await again.close()
