"""``raise arriero.ContinueAs(call)``: the next run of a task, as users, senders and operators see it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import arriero
from arriero import (
    Agent,
    App,
    ArrieroError,
    ConvoyPolicy,
    Entry,
    Request,
    Signal,
    SignalRefused,
    TaskExists,
    TaskHeld,
    testing,
    workflow,
)
from arriero.client.session import load_task
from arriero.client.task_explanation import load_explanation
from arriero.testing import World

bank = Agent("bank")
paid = Signal("paid", int)
stopped = Signal("stopped", str)
balance = Request("balance", str, int)
WHO: dict[str, Any] = {"by": "ana", "reason": "it is known"}


@bank.step
async def book(cents: int) -> int:
    return cents


@book.compensation
async def unbook(cents: int) -> None:
    pass


@workflow
async def count(total: int, runs: int) -> int:
    total += await paid.wait()
    if runs > 1:
        raise arriero.ContinueAs(count(total, runs - 1))
    return total


@workflow
async def in_turn(total: int, runs: int) -> int:
    total += await book(10)
    before = arriero.convoy_state(int) or 0
    arriero.keep_convoy_state(before + 1)
    if runs > 1:
        raise arriero.ContinueAs(in_turn(total, runs - 1))
    return before


@workflow
async def serve(runs: int) -> str:
    request = await balance.receive()
    if runs > 1 and request.value != "now":
        raise arriero.ContinueAs(serve(runs - 1))
    request.reply(runs)
    return "served"


@workflow
async def book_and_continue(runs: int) -> int:
    await book(runs)
    if runs > 1:
        raise arriero.ContinueAs(book_and_continue(runs - 1))
    await stopped.wait()
    raise arriero.Permanent("no more")


@workflow
async def round_and_round(number: int) -> int:
    raise arriero.ContinueAs(round_and_round(number + 1))


@workflow
async def as_another(number: int) -> int:
    await book(number)
    raise arriero.ContinueAs(count(number, 1))


@workflow
async def in_a_group(number: int) -> int:
    async def end() -> None:
        await book(number)
        raise arriero.ContinueAs(in_a_group(number))

    async with asyncio.TaskGroup() as group:
        group.create_task(end())
    return number


@workflow
async def caught(number: int) -> int:
    await book(number)
    try:
        raise arriero.ContinueAs(caught(number + 1)) if number < 3 else ValueError
    except Exception:
        return number


@workflow
async def with_options(number: int) -> int:
    await book(number)
    raise arriero.ContinueAs(with_options(number).options(priority=9))


@workflow
async def parent(detach: bool) -> Any:
    return await count(0, 2).options(task_id="kid", detach=detach)


@workflow
async def with_child(runs: int) -> int:
    booked = await in_turn(0, 1)
    if runs > 1:
        await paid.wait()
        raise arriero.ContinueAs(with_child(runs - 1))
    return booked


@workflow
async def many(number: int, runs: int) -> list[int]:
    found = await asyncio.gather(*(book(one) for one in range(number)))
    await arriero.sleep(3_600)
    chance = arriero.random().random()
    if runs > 1:
        raise arriero.ContinueAs(many(number, runs - 1))
    return [*found, int(chance * 1_000_000)]


@workflow(convoy_policy=ConvoyPolicy(handle_batch=10))
async def in_batches(lines: list[int]) -> int:
    await book(sum(lines))
    raise arriero.ContinueAs(in_batches(lines))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    workflows: list[Any] = [
        count,
        in_turn,
        serve,
        book_and_continue,
        round_and_round,
        as_another,
        in_a_group,
        caught,
        with_options,
        parent,
        with_child,
        many,
        in_batches,
    ]
    async with testing.running(App("tills", agents=[bank], workflows=workflows)) as world:
        yield world


async def pay(task: arriero.Task[Any], *values: int) -> None:
    for value in values:
        await task.send(paid(value), signal_id=f"s{value}")


async def test_signals_that_no_wait_has_taken_go_along_in_their_order(world: World) -> None:
    task = await world.app.submit(count(0, 3), task_id="c")
    await pay(task, 1, 2, 3)
    assert await task.result() == 6
    assert [(await world.app.task(f"c~{run}").view()).steps[0].name for run in (1, 2)] == ["signal:paid"] * 2


async def test_each_run_has_its_own_steps_and_earlier_ones_stay_to_be_read(world: World) -> None:
    task = await world.app.submit(many(2, 3), task_id="m")
    found = await task.result()
    assert found[:2] == [0, 1]
    views = [await world.app.task(name).view() for name in ("m~1", "m~2", "m")]
    assert [(view.run, view.is_earlier_run, view.state, len(view.steps)) for view in views] == [
        (1, True, "processed", 3),
        (2, True, "processed", 3),
        (3, False, "processed", 3),
    ]
    keys = {step.idempotency_key for view in views for step in view.steps if step.kind == "step"}
    assert len(keys) == 6  # no run sends what another one has sent


async def test_a_handle_of_the_first_run_waits_for_the_last_one(world: World) -> None:
    task = await world.app.submit(count(0, 2), task_id="c")
    waiting = asyncio.ensure_future(task.result())
    await pay(task, 1)
    await world.clock.advance(1)
    assert not waiting.done()
    await pay(task, 2)
    assert await waiting == 3


async def test_a_signal_id_counts_once_over_all_runs(world: World) -> None:
    task = await world.app.submit(count(0, 3), task_id="c")
    await pay(task, 1)
    await world.clock.advance(1)
    again = await task.send(paid(1), signal_id="s1")
    assert not again.created
    with pytest.raises(SignalRefused, match="another signal has the id"):
        await task.send(paid(2), signal_id="s1")
    await pay(task, 2, 3)
    assert await task.result() == 6


async def test_what_is_sent_to_an_earlier_run_by_its_own_id_is_refused(world: World) -> None:
    task = await world.app.submit(count(0, 2), task_id="c")
    await pay(task, 1)
    await world.clock.advance(1)
    with pytest.raises(SignalRefused, match="this run of the task has ended: send it to the task"):
        await world.app.task("c~1").send(paid(7))


async def test_a_request_that_was_not_received_goes_along_and_its_sender_gets_the_reply(world: World) -> None:
    task = await world.app.submit(serve(2), task_id="s")
    first = asyncio.ensure_future(task.request(balance("later"), request_id="r1"))
    second = asyncio.ensure_future(task.request(balance("now"), request_id="r2"))
    assert await second == 1
    with pytest.raises(SignalRefused, match="its code has not replied"):
        await first
    assert await task.request(balance("now"), request_id="r2") == 1  # asked again, after the end


async def test_the_same_submission_again_is_the_same_task_in_every_run(world: World) -> None:
    task = await world.app.submit(count(0, 2), task_id="c")
    await pay(task, 1)
    await world.clock.advance(1)
    again = await world.app.submit(count(0, 2), task_id="c")
    assert not again.created
    with pytest.raises(TaskExists):
        await world.app.submit(count(1, 1), task_id="c")
    await pay(task, 2)
    assert await again.result() == 3


async def test_a_run_keeps_priority_tags_and_reply_queue_and_tells_one_end(world: World) -> None:
    task = await world.app.submit(count(0, 2), task_id="c", priority=7, tags={"shop": "lisboa"}, reply_to="clerk")
    await pay(task, 1, 2)
    await task.result()
    view = await task.view()
    assert (view.priority, view.tags) == (7, {"shop": "lisboa"})
    kinds: list[str] = []
    async for status in world.app.replies("clerk"):
        kinds.append(status.kind)
        if status.kind == "completed":
            break
    assert kinds == ["received", "started", "completed"]


async def test_the_next_run_keeps_the_turn_in_a_convoy_and_the_state_of_the_key(world: World) -> None:
    first = await world.app.submit(in_turn(0, 3), convoy="till-1")
    second = await world.app.submit(in_turn(0, 1), convoy="till-1")
    assert (await first.result(), await second.result()) == (2, 3)
    view = await first.view()
    assert (view.convoy, view.place, view.run) == ("till-1", 1, 3)


async def test_an_undo_undoes_the_steps_of_its_own_run(world: World) -> None:
    task = await world.app.submit(book_and_continue(3), task_id="b")
    await world.clock.advance(1)
    await task.send(stopped("evening"))
    with pytest.raises(arriero.TaskCompensated):
        await task.result()
    undone = [step.name for step in (await task.view()).steps if step.kind == "compensation"]
    assert undone == ["book"]
    assert [step.kind for step in (await world.app.task("b~1").view()).steps] == ["step"]


async def test_an_earlier_run_can_be_undone_by_itself(world: World) -> None:
    task = await world.app.submit(book_and_continue(2), task_id="b")
    await world.clock.advance(1)
    await world.app.task("b~1").compensate(**WHO)
    await world.clock.advance(1)
    assert (await world.app.task("b~1").view()).state == "compensated"
    assert (await task.view()).state == "processing"
    _, explanation, *_ = await load_explanation(world.app.session.store, await load_task(world.app.session, "b~1"))
    (reason,) = explanation.reasons
    assert "an earlier run does not run again: arriero task explain b" in reason.says
    assert [bool(action.refused) for action in explanation.actions] == [True]


async def test_a_fork_that_continues_is_the_same_fork_again(world: World) -> None:
    origin = await world.app.submit(count(0, 2), task_id="c")
    await pay(origin, 1)
    await world.clock.advance(1)
    fork = await world.app.task("c~1").fork("signal:paid", task_id="f")
    await pay(fork, 5)
    await world.clock.advance(1)
    assert (await fork.view()).run == 2
    assert not (await world.app.task("c~1").fork("signal:paid", task_id="f")).created
    _, explanation, *_ = await load_explanation(world.app.session.store, await load_task(world.app.session, "c~1"))
    assert [reason.says.split(";")[0] for reason in explanation.reasons if reason.kind == "forks"] == [
        "1 task is forked from it: 'f~1' (processed)"
    ]
    await fork.cancel(**WHO)
    await world.clock.advance(1)
    await fork.resubmit(**WHO)  # this run has no copies
    await pay(fork, 6)
    assert await fork.result() == 11


async def test_an_error_that_the_code_catches_is_no_continue_as(world: World) -> None:
    assert await world.app.execute(caught(1)) == 3


async def test_a_detached_child_may_continue(world: World) -> None:
    assert await world.app.execute(parent(True)) == "kid"
    kid = world.app.task("kid")
    await pay(kid, 1, 2)
    assert await kid.result() == 3


async def test_each_run_has_child_tasks_of_its_own_under_ids_that_stay(world: World) -> None:
    task = await world.app.submit(with_child(3), task_id="c")
    await pay(task, 1, 2)
    await task.result()
    found = [[child.id for child in await world.app.task(run).children()] for run in ("c~1", "c~2", "c")]
    assert found == [["c/in_turn.1"], ["c~2/in_turn.1"], ["c~3/in_turn.1"]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (round_and_round(1), "its code raised ContinueAs before any step, sleep or wait"),
        (as_another(1), r"ContinueAs\(count\(...\)\): the next run is of as_another, too"),
        (in_a_group(1), "not inside of a TaskGroup"),
        (with_options(1), "without options: the next run keeps those of its task"),
    ],
)
async def test_a_run_that_cannot_continue_is_held_with_the_remedy(world: World, call: Any, says: str) -> None:
    with pytest.raises(TaskHeld, match=says):
        await world.app.execute(call)


async def test_a_child_that_its_parent_waits_for_is_held(world: World) -> None:
    await world.app.submit(parent(False))
    await world.clock.advance(1)
    kid = world.app.task("kid")
    await pay(kid, 1)
    with pytest.raises(TaskHeld, match=r"would not reach its earlier runs: start it with .options\(detach=True\)"):
        await kid.result()


async def test_a_task_that_has_the_id_of_a_run_holds_the_one_that_needs_it(world: World) -> None:
    await world.app.submit(count(5, 1), task_id="c~1")
    task = await world.app.submit(count(0, 2), task_id="c")
    await pay(task, 1)
    with pytest.raises(TaskHeld, match=r"needs the id 'c~1', which another task has"):
        await task.result()
    _, explained, *_ = await load_explanation(world.app.session.store, await load_task(world.app.session, "c"))
    assert "purge the task that has the id of its run" in str(explained)


async def test_a_task_that_handles_a_batch_is_held(world: World) -> None:
    task = await world.app.submit(in_batches([1]), convoy="till-1")
    with pytest.raises(TaskHeld, match="it handles a batch of messages, which end with it"):
        await task.result()


async def test_a_ledger_waits_for_the_last_run_of_its_tasks(world: World) -> None:
    await world.app.submit_ledger("may", [Entry(count(0, 2), task_id="c")])
    await world.clock.advance(1)
    await pay(world.app.task("c"), 1)
    await world.clock.advance(1)
    view = await world.app.ledger("may").view()
    assert (view.ended, view.tasks) == (False, {"processing": 1})
    await pay(world.app.task("c"), 2)
    assert (await world.app.ledger("may").wait()).tasks == {"processed": 1}


async def test_a_run_of_a_schedule_is_open_while_it_continues(world: World) -> None:
    await world.app.schedules.add("daily", many(1, 3), every=3_600, overlap="skip", **WHO)
    await world.clock.advance(3 * 3_600 + 10)
    (view,) = await world.app.schedules.list()
    assert (view.runs, view.passed_over) == (1, 2)


async def test_a_replay_finds_nothing_in_runs_that_ended_or_that_last(world: World) -> None:
    task = await world.app.submit(count(0, 3), task_id="c")
    await pay(task, 1, 2)
    await world.clock.advance(1)
    report = await world.app.replay(state="all")
    assert (report.replayed, report.held) == (3, ())


async def test_views_follow_a_task_over_its_runs(world: World) -> None:
    task = await world.app.submit(count(0, 2), task_id="c")
    seen: list[tuple[int, str]] = []

    async def follow() -> None:
        async for view in task.changes():
            seen.append((view.run, view.state))

    following = asyncio.ensure_future(follow())
    await pay(task, 1)
    await world.clock.advance(1)
    await pay(task, 2)
    await task.result()
    await world.clock.advance(1)
    await following
    assert seen[-1] == (2, "processed")
    assert all(state != "processed" for run, state in seen if run == 1)


def test_outside_of_workflow_code_it_says_what_to_do() -> None:
    with pytest.raises(ArrieroError, match=r"arriero\.ContinueAs works only inside a workflow"):
        arriero.ContinueAs(count(1, 1))
