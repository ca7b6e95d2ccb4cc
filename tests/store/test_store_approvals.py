"""Verbs that several persons must ask for, in every store: the first approve, the last one carries it out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from store_checks import broken_links, disagreements, history_violations
from store_world import DONE, TestClock, World

from arriero.model import TaskRow, TaskState, Verb, later
from arriero.model.answers import Refusal
from arriero.model.commands import Operate
from arriero.model.moves import Process
from arriero.store.state_store import StateStore

RACES = 20


async def processed(world: World) -> TaskRow:
    task, (charge,) = await world.running(await world.held(), "charge")
    return (await world.advance(task, [world.reported(charge, DONE)], ending=Process('"shipped"'))).task


def asked(by: str, task: TaskRow, asked_verb: Verb = Verb.COMPENSATE, persons: int = 2, **what: Any) -> Operate:
    return Operate(
        actor="operator",
        verb=asked_verb,
        task_no=task.task_no,
        incarnation=task.incarnation,
        by=by,
        reason=f"says {by}",
        persons=persons,
        **what,
    )


async def refusal(world: World, command: Operate) -> Refusal:
    """The verb is not carried out, and the task stands as it stood."""
    before = (await world.load(command.task_no)).task
    answer = await world.apply(command)
    assert isinstance(answer, Refusal), answer
    after = (await world.load(command.task_no)).task
    assert (after.state, after.fence, after.incarnation) == (before.state, before.fence, before.incarnation)
    return answer


async def test_the_first_person_only_approves_and_the_second_one_carries_it_out(world: World) -> None:
    task = await processed(world)
    first = await refusal(world, asked("ana", task))
    assert first.verdict == "approval_needed"
    assert "compensate needs 2 operators; approved by ana" in first.detail
    (approval,) = await world.last_events(task.task_no)
    told = [approval[name] for name in ("type", "verb", "by", "reason", "persons", "incarnation")]
    assert told == ["operator.approval", "compensate", "ana", "says ana", 2, 1]
    done = (await world.written(asked("bo", task))).task
    assert (done.state, done.incarnation) == (TaskState.COMPENSATING, 2)
    action = (await world.last_events(task.task_no))[0]
    assert (action["by"], action["approved_by"]) == ("bo", ["ana"])


async def test_one_person_alone_never_gets_it_done_however_often(world: World) -> None:
    task = await processed(world)
    for _ in range(3):
        assert (await refusal(world, asked("ana", task))).verdict == "approval_needed"


async def test_three_persons_are_three_different_ones(world: World) -> None:
    task = await processed(world)
    for by in ("ana", "bo", "ana", "bo"):
        assert (await refusal(world, asked(by, task, persons=3))).verdict == "approval_needed"
    await world.written(asked("cy", task, persons=3))
    assert (await world.last_events(task.task_no))[0]["approved_by"] == ["ana", "bo"]


async def test_an_approval_is_for_one_verb_with_what_it_carries(world: World) -> None:
    task, _ = await world.running(await world.held(complete_within=60.0), "charge")
    await refusal(world, asked("ana", task, Verb.EXTEND, within=600.0))
    assert (await refusal(world, asked("bo", task, Verb.CANCEL))).verdict == "approval_needed"
    assert (await refusal(world, asked("bo", task, Verb.EXTEND, within=6000.0))).verdict == "approval_needed"
    await world.written(asked("cy", task, Verb.EXTEND, within=600.0))


async def test_any_verb_that_is_carried_out_ends_the_approvals_before_it(world: World) -> None:
    task, _ = await world.running(await world.held(), "charge")
    await refusal(world, asked("ana", task, Verb.CANCEL))
    await world.written(asked("ana", task, Verb.PAUSE, persons=1))
    assert (await refusal(world, asked("bo", task, Verb.CANCEL))).verdict == "approval_needed"
    await world.written(asked("ana", task, Verb.CANCEL))


async def test_an_approval_that_is_too_old_does_not_count(world: World, clock: TestClock) -> None:
    task = await processed(world)
    await refusal(world, asked("ana", task))
    clock.move(3601)
    since = later(world.store.now(), -3600)
    assert (await refusal(world, asked("bo", task, approved_since=since))).verdict == "approval_needed"
    await world.written(asked("cy", task, approved_since=since))


async def test_a_verb_that_the_state_does_not_allow_is_refused_and_not_approved(world: World) -> None:
    task = await processed(world)
    assert (await refusal(world, asked("ana", task, Verb.RESUBMIT))).verdict == "not_allowed"
    assert [event["type"] for event in await world.last_events(task.task_no)] != ["operator.approval"]


async def test_of_persons_who_ask_at_the_same_moment_exactly_one_carries_it_out(
    open_sqlite: Callable[[], Awaitable[StateStore]], clock: TestClock
) -> None:
    world, other = World(await open_sqlite(), clock), await open_sqlite()
    for turn in range(RACES):
        task = await world.task(await world.submit(f"order-{turn}"))
        pause = [asked(by, task, Verb.PAUSE) for by in ("ana", "bo")]
        (ana,), (bo,) = await asyncio.gather(world.store.apply(pause[:1]), other.apply(pause[1:]))
        assert sorted(type(answer).__name__ for answer in (ana, bo)) == ["Applied", "Refusal"]
    assert await history_violations(world.store) == []
    assert await disagreements(world.store) == []
    assert await broken_links(world.store) == []
