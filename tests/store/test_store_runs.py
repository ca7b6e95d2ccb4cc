"""The runs of a task: one commit ends a run and begins the next one, which has all by which others find the task."""

import asyncio
from typing import Any

import pytest
from store_world import NOON, TASK_POLICY, World, kinds, step, submission

from arriero.model import ConvoyState, Instant, StepKind, TaskState, Turn, Verb, later
from arriero.model.answers import Refusal, SignalKept, Submitted
from arriero.model.commands import Operate, SendSignal
from arriero.model.failures import TaskFailure
from arriero.model.moves import Continue, Hold, NewStep, Process, Signalled
from arriero.model.signals import PASSED_ON
from arriero.store.contract import Busy, Purge, PurgeNamed

AGAIN = Continue('{"pieces":9}', TASK_POLICY)


def wait(name: str = "signal:paid", key: str = "#1") -> NewStep:
    return NewStep(kind=StepKind.TIMER, name=name, key=key)


def sending(task_no: int, signal_id: str = "s1", **changes: Any) -> SendSignal:
    fields = {"name": "signal:paid", "value": "1", "sent_by": ""}
    return SendSignal(actor="signal", task_no=task_no, signal_id=signal_id, **(fields | changes))


def verb(task_no: int, which: Verb, **changes: Any) -> Operate:
    fields: dict[str, Any] = {"incarnation": 1, "by": "ana", "reason": "mended", "store_id": "s"}
    return Operate(actor="o", verb=which, task_no=task_no, **(fields | changes))


async def find(world: World, task_id: str) -> Any:
    found = await world.store.find(task_id)
    assert found is not None
    return found


async def test_one_commit_ends_the_run_and_begins_the_next_one(world: World) -> None:
    task = await world.held(reply_to="web", tags='{"shop":"lisboa"}', priority=7)
    task, (mark,) = await world.opened(task, wait("patch:new-bank"))
    answer = await world.advance(task, ending=AGAIN)
    earlier, following = await world.task(task.task_no), (await find(world, "order-1")).task
    assert answer.task == earlier
    assert (earlier.task_id, earlier.state, earlier.output, earlier.reply_to) == ("order-1~1", "processed", None, None)
    assert earlier.next_no == 2
    assert (following.task_no, following.run, following.first_no) == (2, 2, 1)
    assert (following.state, following.locked_by, following.not_before) == (TaskState.PENDING, None, NOON)
    assert (following.priority, following.tags, following.reply_to) == (7, '{"shop":"lisboa"}', "web")
    assert (following.opened_count, following.result_count, following.started_at) == (0, 0, None)
    assert following.seed != earlier.seed
    assert (await find(world, "order-1")).arguments == '{"pieces":9}'
    assert [one.step_no for one in (await find(world, "order-1~1")).steps] == [mark.step_no]
    assert kinds(await world.last_events(1))[-2:] == ["task.terminal", "task.continued"]
    assert kinds(await world.events(2)) == ["task.submitted"]


async def test_the_next_run_is_claimed_as_any_task_and_says_nothing_twice(world: World) -> None:
    task = await world.held(reply_to="web")
    await world.advance(task, ending=AGAIN)
    (loaded,) = await world.claim()
    assert (loaded.task.task_id, loaded.task.run, loaded.arguments) == ("order-1", 2, '{"pieces":9}')
    await world.advance(loaded.task, ending=Process("1"))
    statuses = await world.store.load_statuses("web", 10)
    assert [(status.number, status.kind) for status in statuses] == [(1, "received"), (2, "started"), (3, "completed")]
    assert {(status.task_id, status.task_no) for status in statuses} == {("order-1", 2)}


async def test_a_run_has_the_limit_of_its_policy_from_its_own_beginning(world: World) -> None:
    task = await world.held(complete_within=60.0)
    world.clock.move(50)
    await world.advance(task, ending=Continue("{}", TASK_POLICY, complete_within=60.0))
    assert (await find(world, "order-1")).task.complete_by == later(Instant(NOON), 110)


async def test_what_no_wait_has_taken_goes_along_and_the_rest_stays(world: World) -> None:
    task = await world.held()
    task, (first, asked) = await world.opened(task, wait(), wait("callback:receipt"))
    for number in (1, 2, 3):
        await world.apply(sending(1, f"s{number}", value=str(number)))
    await world.apply(sending(1, "c", name="callback:receipt#1@2", wait=asked.ordinal))
    task = await world.task(1)
    taken = Signalled(first.step_no, 1, Instant(NOON))
    await world.advance(task, delivered=[taken], ending=AGAIN)
    following = await find(world, "order-1")
    assert following.task.inbox == 2
    assert [(one.number, one.signal_id, one.value) for one in await world.store.list_signals(2, after=0, limit=9)] == [
        (1, "s2", "2"),
        (2, "s3", "3"),
    ]
    left = {one.signal_id: one.step for one in await world.store.list_signals(1, after=0, limit=9)}
    assert left == {"s1": 1, "s2": PASSED_ON, "s3": PASSED_ON, "c": None}
    assert (await world.task(1)).inbox == 1


async def test_a_signal_id_counts_once_over_all_runs(world: World) -> None:
    task = await world.held()
    task, (first,) = await world.opened(task, wait())
    await world.apply(sending(1, "s1"))
    await world.apply(sending(1, "s2"))
    await world.advance(await world.task(1), delivered=[Signalled(first.step_no, 1, Instant(NOON))], ending=AGAIN)
    again = await world.apply(sending(2, "s1"))
    assert isinstance(again, SignalKept)
    assert (again.created, again.kept_in, again.number) == (False, 1, 1)
    again = await world.apply(sending(2, "s2"))
    assert isinstance(again, SignalKept)
    assert (again.created, again.kept_in, again.number) == (False, 2, 1)
    await world.refused(sending(2, "s1", value="7"), "another_value")
    fresh = await world.apply(sending(2, "s3"))
    assert isinstance(fresh, SignalKept)
    assert (fresh.created, fresh.number) == (True, 2)


async def test_a_signal_to_the_number_of_an_earlier_run_is_refused_unless_that_run_took_it(world: World) -> None:
    task = await world.held()
    task, (first,) = await world.opened(task, wait())
    for name in ("s1", "s2"):
        await world.apply(sending(1, name))
    await world.advance(await world.task(1), delivered=[Signalled(first.step_no, 1, Instant(NOON))], ending=AGAIN)
    await world.refused(sending(1, "s3"), "continued")
    await world.refused(sending(1, "s2"), "continued")
    assert isinstance(await world.apply(sending(1, "s1")), SignalKept)


async def test_the_same_submission_is_the_same_task_in_each_run(world: World) -> None:
    task = await world.held()
    await world.advance(task, ending=AGAIN)
    alike, otherwise, odd = await world.store.submit(
        [
            submission(),
            submission(body_hash="of another text", arguments='{"pieces":9}'),
            submission(body_hash="of another text", arguments='{ "pieces" : 2.0 }'),
        ]
    )
    assert alike == odd == Submitted(2, False)
    assert isinstance(otherwise, Refusal)
    assert otherwise.detail == "task 'order-1' exists with another body"


async def test_a_run_that_follows_an_edit_still_answers_for_what_was_submitted(world: World) -> None:
    task = await world.held()
    await world.advance(task, ending=AGAIN)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Continue('{"pieces":10}', TASK_POLICY))
    (answer,) = await world.store.submit([submission()])
    assert answer == Submitted(3, False)
    assert (await find(world, "order-1")).task.run == 3
    assert [(await find(world, name)).task.first_no for name in ("order-1", "order-1~1", "order-1~2")] == [1, 1, 1]


async def test_the_next_run_has_the_turn_and_the_place_of_the_run_before(world: World) -> None:
    task = await world.held("a", convoy="k", sequence=1)
    await world.submit("b", convoy="k", sequence=2)
    await world.advance(task, ending=Continue("{}", TASK_POLICY, convoy_state='{"n":1}'))
    following = (await find(world, "a")).task
    assert (following.convoy_no, following.place, following.sequence, following.turn) == (1, 1, 1, Turn.OPEN)
    earlier = (await find(world, "a~1")).task
    assert (earlier.convoy_no, earlier.place, earlier.sequence, earlier.turn) == (None, None, None, None)
    convoy = (await world.store.find_convoy("k", 10)).convoy
    assert (convoy.open_task, convoy.state, convoy.value) == (following.task_no, ConvoyState.OPEN, '{"n":1}')
    (loaded,) = await world.claim()
    assert loaded.task.task_id == "a"
    await world.advance(loaded.task, ending=Process("1"))
    assert await world.claimed_ids() == ["b"]


@pytest.mark.parametrize("mends", [True, False])
async def test_a_run_that_is_held_stops_its_convoy_as_any_task(world: World, mends: bool) -> None:
    task = await world.held("a", convoy="k")
    await world.submit("b", convoy="k")
    await world.advance(task, ending=AGAIN)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Hold(TaskFailure("bug", "line 3")))
    assert await world.claimed_ids() == []
    if mends:
        await world.written(verb(loaded.task.task_no, Verb.RESUBMIT))
        assert await world.claimed_ids() == ["a"]


@pytest.mark.parametrize("which", [Verb.PAUSE, Verb.SNOOZE])
async def test_what_an_operator_put_off_begins_no_next_run(world: World, which: Verb) -> None:
    task = await world.held()
    await world.written(verb(1, which, within=60.0))
    await world.advance(await world.task(task.task_no), ending=AGAIN)
    assert await world.claimed_ids() == []
    world.clock.move(61)
    if which is Verb.PAUSE:
        assert await world.claimed_ids() == []
        await world.written(verb(2, Verb.RESUME))
    assert await world.claimed_ids() == ["order-1"]


async def test_a_task_of_the_id_that_the_run_needs_holds_it(world: World) -> None:
    task = await world.held("a")
    await world.submit("a~1")
    await world.advance(task, ending=AGAIN)
    held = (await find(world, "a")).task
    assert (held.state, held.run, held.task_no) == (TaskState.HELD, 1, 1)


async def test_two_tasks_continue_in_one_batch(world: World) -> None:
    tasks = [await world.held(name) for name in ("a", "b")]
    answers = await world.store.apply([world.advance_command(task, ending=AGAIN) for task in tasks])
    assert [answer.task.task_id for answer in answers] == ["a~1", "b~1"]
    assert sorted(await world.claimed_ids()) == ["a", "b"]


async def test_a_second_write_of_the_run_that_has_ended_is_refused(world: World) -> None:
    task = await world.held()
    command = world.advance_command(task, ending=AGAIN)
    await world.written(command)
    await world.refused(command, "moved_on")
    assert [row.task_id for row in await world.store.list_tasks(limit=9)] == ["order-1~1", "order-1"]


async def test_a_run_with_an_open_step_does_not_continue(world: World) -> None:
    await world.process()
    task = await world.held()
    task, _ = await world.opened(task, step())
    await world.refused(world.advance_command(task, ending=AGAIN), "moved_on")


async def test_an_earlier_run_is_undone_by_itself(world: World) -> None:
    task = await world.held()
    await world.advance(task, ending=AGAIN)
    await world.written(verb(1, Verb.COMPENSATE))
    assert (await world.task(2)).state is TaskState.PENDING
    (loaded,) = [one for one in await world.claim() if one.task.task_no == 1]
    assert loaded.task.state is TaskState.COMPENSATING


async def test_purging_what_has_ended_removes_earlier_runs_and_leaves_the_task(world: World) -> None:
    task = await world.held()
    await world.advance(task, ending=AGAIN)
    world.clock.move(86_400)
    which = Purge(states=frozenset({TaskState.PROCESSED}), ended_before=later(world.clock(), -60))
    purged = await world.store.purge(which, actor="ana", limit=100)
    assert purged.count == 1
    assert await world.store.find("order-1~1") is None
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Continue("{}", TASK_POLICY))
    assert (await find(world, "order-1")).task.run == 3


async def test_a_purge_by_name_removes_all_runs_of_a_task_or_one_that_has_ended(world: World) -> None:
    for name in ("a", "b"):
        task = await world.held(name)
        await world.advance(task, ending=AGAIN)
        (loaded,) = await world.claim()
        await world.advance(loaded.task, ending=Process("1"))
    world.clock.move(86_400)
    for name in ("a", "b~1"):
        which = PurgeNamed(what="task", name=name, ended_before=world.clock())
        assert (await world.store.purge_named(which, actor="ana", limit=10)).is_done
    assert [row.task_id for row in await world.store.list_tasks(limit=9)] == ["b"]


async def test_submissions_and_continuing_meet_without_a_second_task(world: World) -> None:
    task = await world.held()

    async def carry_on() -> Any:
        while isinstance(answer := await world.apply(world.advance_command(task, ending=AGAIN)), Busy):
            await asyncio.sleep(0)  # as a committer does: a submission has the row for a moment
        return answer

    one, (other,) = await asyncio.gather(carry_on(), world.store.submit([submission()]))
    assert one.task.task_id == "order-1~1"
    assert isinstance(other, Submitted)
    assert not other.created
    assert [row.task_id for row in await world.store.list_tasks(limit=9)] == ["order-1~1", "order-1"]


async def test_a_purge_of_a_convoy_removes_all_runs_of_its_tasks(world: World) -> None:
    task = await world.held("a", convoy="till-1")
    await world.advance(task, ending=AGAIN)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process("null"))
    await world.held("b")
    world.clock.move(86_400)
    which = PurgeNamed(what="convoy", name="till-1", ended_before=later(world.clock(), -60))
    judged = await world.store.purge_named(which, actor="ana", limit=None)
    purged = await world.store.purge_named(which, actor="ana", limit=100)
    assert (judged.count, purged.count, purged.is_done) == (2, 2, True)
    assert [await world.store.find(name) for name in ("a", "a~1")] == [None, None]
    assert await world.store.find("b") is not None
