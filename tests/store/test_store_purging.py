"""Purging: what ended long ago goes, with all that is kept of it; what somebody still needs stays; no number comes twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import FAILED, NOON, TestClock, World, gave_up, kinds, retry_at, step, submission, undo_of

from arriero.model import AlertRow, Instant, StepRow, TaskRow, TaskState, Verb, later
from arriero.model.answers import Applied, Refusal, Submitted
from arriero.model.commands import Operate
from arriero.model.moves import BeginUndo, Compensate, Hold, PlanUndo, Process
from arriero.store.contract import Purge, Purged
from arriero.store.state_store import StateStore

ENDED = (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD)
NEVER = Instant(NOON + 10**15)


class PurgedWorld(World):
    """Its history has gaps where tasks were removed."""

    async def check_chains(self) -> None:
        assert await broken_links(self.store) == []


@pytest.fixture
async def world(store: StateStore, clock: TestClock) -> AsyncIterator[PurgedWorld]:
    """What is left keeps all invariants, and folded it equals the state tables."""
    yield PurgedWorld(store, clock)
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []


async def purge(world: World, limit: int = 100, after: int = 0, **which: Any) -> Purged:
    meant = Purge(**({"states": ENDED, "ended_before": NEVER} | which))
    return await world.store.purge(meant, actor="janitor", limit=limit, after=after)


async def left(world: World) -> list[str]:
    return [task.task_id for task in await world.store.list_tasks(limit=1_000)]


async def processed(world: World, task_id: str = "order-1", **changes: Any) -> TaskRow:
    return (await world.advance(await world.held(task_id, **changes), ending=Process("1"))).task


async def held(world: World, task_id: str = "order-1", **changes: Any) -> TaskRow:
    task, (charge,) = await world.running(await world.held(task_id, **changes), "charge")
    return (await world.advance(task, [world.reported(charge, gave_up())], ending=Hold(FAILED))).task


async def compensated(world: World, task_id: str = "order-1") -> TaskRow:
    task, (charge,) = await world.running(await world.held(task_id), "charge")
    task = (await world.advance(task, [world.reported(charge)], ending=BeginUndo(FAILED))).task
    answer = await world.advance(task, ending=PlanUndo(FAILED, (undo_of(charge, take=True),)))
    return (await world.advance(answer.task, [world.reported(answer.steps[0])], ending=Compensate(FAILED))).task


async def tell_alerts(world: World) -> list[AlertRow]:
    """Every sink is told of everything that is due."""
    alerts = await world.store.take_alerts(100, 5.0)
    for alert in alerts:
        assert await world.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    return alerts


async def attempt_of_an_ended_task(world: World) -> tuple[TaskRow, StepRow]:
    task, (charge,) = await world.running(await world.held(), "charge")
    ended = (await world.advance(task, ending=Hold(FAILED))).task
    await tell_alerts(world)
    return ended, charge


# --- what goes
async def test_nothing_is_left_of_a_purged_task(world: World) -> None:
    tasks = [await processed(world, "a"), await compensated(world, "b"), await held(world, "c")]
    await tell_alerts(world)
    assert await purge(world) == Purged(3, None)
    store = world.store
    numbers = [task.task_no for task in tasks]
    assert [await store.load(number) for number in numbers] == [None] * 3
    assert [await store.find(task.task_id) for task in tasks] == [None] * 3
    assert (await store.load_ended(numbers), await left(world), await store.alerts(open_only=False)) == ([], [], [])
    assert set((await store.counts()).values()) == {0}
    assert {row.task_no async for row in store.history()} == {0}
    survey = await store.survey()
    assert (survey.rows["tasks"], survey.rows["statuses"]) == (0, 0)


async def test_the_store_keeps_that_and_how_many_were_purged_and_by_whom(world: World) -> None:
    first, _ = await processed(world, "a"), await processed(world, "b")
    await purge(world)
    rows = [row async for row in world.store.history(0)]
    assert [row.actor for row in rows] == ["janitor"]
    ((event,),) = await world.links(0)
    assert (event["type"], event["count"]) == ("tasks.purged", 2)
    assert first.head not in event["heads"]
    assert (await purge(world)).count == 0
    assert kinds(await world.events(0)) == ["tasks.purged"]  # nothing removed, nothing noted


# --- what stays
@pytest.mark.parametrize("state", [*TaskState])
async def test_only_tasks_in_the_named_states_go(world: World, state: TaskState) -> None:
    await processed(world, "processed")
    await compensated(world, "compensated")
    await held(world, "held")
    await tell_alerts(world)
    await world.held("processing")
    await world.submit("pending")
    task = await world.held("compensating", workflow="other")
    await world.advance(task, ending=BeginUndo(FAILED))
    before = await left(world)
    await purge(world, states=(state,))
    gone = [str(state)] if state in ENDED else []
    assert await left(world) == [task_id for task_id in before if task_id not in gone]


async def test_no_states_mean_nothing(world: World) -> None:
    await processed(world)
    assert await purge(world, states=()) == Purged(0, None)


async def test_a_task_younger_than_asked_stays_and_one_of_just_that_age_goes(world: World, clock: TestClock) -> None:
    first = await processed(world, "a")
    clock.move(1)
    await processed(world, "b")
    assert first.ended_at is not None
    assert (await purge(world, ended_before=later(first.ended_at, -0.000001))).count == 0
    assert (await purge(world, ended_before=first.ended_at)).count == 1
    assert await left(world) == ["b"]


async def test_the_age_of_a_task_that_was_resubmitted_counts_from_its_last_end(world: World, clock: TestClock) -> None:
    task = await held(world)
    clock.move(10)
    await world.written(_verb(Verb.RESUBMIT, task))
    await tell_alerts(world)
    assert (await purge(world)).count == 0  # it goes on
    (loaded,) = await world.claim()
    ended = (await world.advance(loaded.task, ending=Hold(FAILED))).task
    await tell_alerts(world)
    assert ended.ended_at == clock.at
    assert (await purge(world, ended_before=Instant(clock.at - 1))).count == 0
    assert (await purge(world)).count == 1


async def test_a_task_stays_until_its_reader_has_acknowledged_all_its_statuses(world: World) -> None:
    await processed(world, reply_to="web")
    statuses = await world.store.load_statuses("web", 10)
    for status in statuses:
        assert (await purge(world)).count == 0
        await world.store.acknowledge([("another", status.no)])
        assert (await purge(world)).count == 0
        await world.store.acknowledge([("web", status.no)])
    assert (len(statuses), (await purge(world)).count) == (3, 1)


async def test_a_task_whose_statuses_were_dropped_as_too_old_goes_and_the_gap_stays_told(world: World) -> None:
    await processed(world, reply_to="web")
    assert await world.store.drop_statuses(NEVER, 2) == 2
    assert (await purge(world)).count == 0
    assert await world.store.drop_statuses(NEVER, 2) == 1
    assert (await purge(world)).count == 1
    assert [status.kind for status in await world.store.load_statuses("web", 10)] == ["dropped"]


async def test_a_task_stays_while_somebody_is_still_to_be_told_of_its_alert(world: World, clock: TestClock) -> None:
    await held(world)
    assert (await purge(world)).count == 0
    (alert,) = await world.store.take_alerts(10, 5.0)
    assert (await purge(world)).count == 0  # it is being told
    assert await world.store.settle_alert(alert.no, alert.attempts, (), 60.0, "no answer")
    assert (await purge(world)).count == 0  # it is told again later
    clock.move(61)
    await tell_alerts(world)
    assert (await purge(world)).count == 1


async def test_a_task_stays_while_somebody_is_to_be_told_that_it_needs_no_person_any_more(world: World) -> None:
    task = await held(world)
    await tell_alerts(world)
    await world.written(_verb(Verb.RESUBMIT, task))
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process("1"))
    assert (await purge(world)).count == 0
    assert [alert.closed_at is not None for alert in await tell_alerts(world)] == [True]
    assert (await purge(world)).count == 1


async def test_a_task_stays_while_an_attempt_of_it_may_still_report(world: World) -> None:
    _, charge = await attempt_of_an_ended_task(world)
    assert (await purge(world)).count == 0
    await world.report(charge, process_no=2)
    assert (await purge(world)).count == 1
    await world.refused(world.report_command(charge), "unknown")


async def test_a_task_whose_attempt_was_answered_by_hand_need_not_wait_for_its_report(world: World) -> None:
    task, charge = await attempt_of_an_ended_task(world)
    await world.written(_verb(Verb.ANSWER, task, step=1, result='"paid"'))
    assert (await purge(world)).count == 1
    await world.refused(world.report_command(charge), "unknown")


# --- numbers and ids
async def test_a_purged_id_is_accepted_as_new_whatever_stood_under_it(world: World) -> None:
    old = await processed(world, "a")
    (refused,) = await world.store.submit([submission("a", body_hash="another")])
    assert isinstance(refused, Refusal)
    await purge(world)
    (answer,) = await world.store.submit([submission("a", body_hash="another", workflow="other")])
    assert isinstance(answer, Submitted)
    assert answer.created
    assert answer.task_no > old.task_no
    assert (await world.task(answer.task_no)).link == 1


async def test_no_number_is_given_a_second_time(world: World) -> None:
    """Of tasks, alerts, statuses and commits; also when the last ones are removed, and all of them, again and again."""
    given: dict[str, list[int]] = {"task": [], "alert": [], "status": [], "history": []}
    for turn in range(4):
        task = await held(world, f"order-{turn}", reply_to="web")
        await processed(world, f"other-{turn}")
        statuses = await world.store.load_statuses("web", 100)
        given["task"] += [row.task_no for row in await world.store.list_tasks()]
        given["alert"] += [alert.no for alert in await world.store.alerts()]
        given["status"] += [status.no for status in statuses]
        given["history"] += [row.no async for row in world.store.history() if row.task_no]
        await tell_alerts(world)
        await world.store.acknowledge([(status.queue, status.no) for status in statuses])
        assert (await purge(world)).count == 2
        given["history"] += [[row.no async for row in world.store.history(0)][-1]]
        assert task.task_no in given["task"]
    for numbers in given.values():
        assert numbers == sorted(set(numbers))


async def test_a_late_command_for_a_purged_task_meets_nobody_else(world: World) -> None:
    ended = await held(world, "a")
    attempt = (await world.load(ended.task_no)).steps[0]
    await tell_alerts(world)
    await purge(world)
    task = await world.held("b")
    await world.opened(task, step())
    await world.refused(world.report_command(attempt), "unknown")
    await world.refused(world.advance_command(ended, process_no=1), "unknown")
    await world.refused(_verb(Verb.RESUBMIT, ended), "unknown")


# --- in batches
async def test_batches_go_on_after_the_last_one_and_stop_when_nothing_more_is_meant(world: World) -> None:
    for number in range(7):
        if number % 3 == 1:
            await world.submit(f"order-{number}")
        else:
            await processed(world, f"order-{number}", workflow=f"w{number}")
    sizes, after = [], 0
    while True:
        done = await purge(world, limit=2, after=after)
        sizes.append(done.count)
        if done.after is None:
            break
        assert done.after > after
        after = done.after
    assert sizes == [2, 2, 1]
    assert await left(world) == ["order-1", "order-4"]
    assert [event["count"] for event in await world.events(0)] == sizes


async def test_a_batch_begins_after_the_number_it_is_told(world: World) -> None:
    tasks = [await processed(world, task_id) for task_id in ("a", "b", "c")]
    assert await purge(world, limit=1, after=tasks[1].task_no) == Purged(1, tasks[2].task_no)
    assert await left(world) == ["a", "b"]


async def test_a_task_that_must_stay_fills_no_place_in_a_batch(world: World) -> None:
    await processed(world, "read later", reply_to="web")
    await processed(world, "a")
    assert (await purge(world, limit=1)).count == 1
    assert await left(world) == ["read later"]


async def test_a_withdrawn_attempt_frees_its_task_for_the_purge(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.advance(task, ending=Hold(FAILED))
    await tell_alerts(world)
    await world.report(charge, retry_at(NOON, in_doubt=True), process_no=2)  # nobody tries again: the task is held
    assert (await purge(world)).count == 1


# --- on two connections
async def test_numbers_of_purged_tasks_are_not_given_again_after_a_restart(
    open_sqlite: Callable[[], Awaitable[StateStore]], clock: TestClock
) -> None:
    first = PurgedWorld(await open_sqlite(), clock)
    old = await processed(first)
    assert (await purge(first)).count == 1
    commits = [row.no async for row in first.store.history()]
    await first.store.close()
    second = PurgedWorld(await open_sqlite(), clock)
    assert await second.submit("new") == old.task_no + 1
    assert max(commits) < [row.no async for row in second.store.history()][-1]


async def test_of_a_purge_and_a_resubmission_exactly_one_wins(
    open_sqlite: Callable[[], Awaitable[StateStore]], clock: TestClock
) -> None:
    world, other = PurgedWorld(await open_sqlite(), clock), await open_sqlite()
    for turn in range(60):
        task = await held(world, f"order-{turn}", workflow=f"w{turn}")
        await tell_alerts(world)
        removed, (answer,) = await asyncio.gather(
            purge(world, after=task.task_no - 1), other.apply([_verb(Verb.RESUBMIT, task)])
        )
        if removed.count:
            assert isinstance(answer, Refusal)
            assert (answer.verdict, await world.store.load(task.task_no)) == ("unknown", None)
        else:
            assert isinstance(answer, Applied)
            assert (await world.task(task.task_no)).state is TaskState.PENDING
    assert await history_violations(world.store) == []
    assert await disagreements(world.store) == []


def _verb(verb: Verb, task: TaskRow, **what: Any) -> Operate:
    fields: dict[str, Any] = {"actor": "operator", "by": "ana", "reason": "she says so"}
    fields |= {"verb": verb, "task_no": task.task_no, "incarnation": task.incarnation}
    return Operate(**(fields | what))
