"""Batches of a convoy: what one task takes of what waits behind it, and how the others end with it."""

import json
from typing import Any

import msgspec
import pytest
from store_world import FAILED, World, kinds, submission

from arriero.core.deduplication import hash_body
from arriero.model import Loaded, TaskRow, TaskState, Turn, Verb
from arriero.model.answers import Applied, Refusal, SignalKept, Submitted
from arriero.model.commands import EndByLimit, GatherBatch, Operate, SendSignal
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Compensate, Hold, Process
from arriero.model.policies import ConvoyPolicy, Supervision, TaskPolicy, encode_policy

KEY = "account-7"


def policy(count: int = 3, within: float = 60.0) -> str:
    return encode_policy(TaskPolicy(None, Supervision(), ConvoyPolicy(handle_batch=count, batch_within=within)))


def message(name: str, *values: int, count: int = 3, within: float = 60.0, **changes: Any) -> dict[str, Any]:
    arguments = json.dumps({"lines": list(values) or [int(name[1:])]})
    return {
        "task_id": name,
        "convoy": KEY,
        "policy": policy(count, within),
        "arguments": arguments,
        "body_hash": hash_body(arguments),
        **changes,
    }


async def send(world: World, *names: str, **changes: Any) -> list[int]:
    return [await world.submit(**message(name, **changes)) for name in names]


def gather_command(task: TaskRow, **changes: Any) -> GatherBatch:
    assert task.locked_by is not None
    assert task.convoy_no is not None
    fields: dict[str, Any] = {
        "actor": "p1",
        "task_no": task.task_no,
        "process_no": task.locked_by,
        "fence": task.fence,
        "revision": task.revision,
        "convoy_no": task.convoy_no,
    }
    return GatherBatch(**{**fields, **changes})


async def gather(world: World) -> Loaded | None:
    """The task whose turn it is with its batch; None: it was put down."""
    (loaded,) = await world.claim()
    return (await world.written(gather_command(loaded.task))).next


async def batch(world: World) -> tuple[TaskRow, list[int]]:
    loaded = await gather(world)
    assert loaded is not None
    lines: list[int] = json.loads(loaded.arguments)["lines"]
    return loaded.task, lines


async def done(world: World, task: TaskRow) -> Applied:
    return await world.advance(task, ending=Process('"done"'), convoy_no=task.convoy_no)


def sending(task_no: int) -> SendSignal:
    return SendSignal(actor="s", task_no=task_no, name="signal:paid", signal_id="s1", value="1", sent_by="")


async def states(world: World, numbers: list[int]) -> list[str]:
    return [str((await world.task(number)).state) for number in numbers]


async def operate(world: World, number: int, verb: Verb) -> Any:
    task = await world.task(number)
    return await world.apply(
        Operate(actor="ann", verb=verb, task_no=number, incarnation=task.incarnation, by="ann", reason="test")
    )


async def test_a_full_batch_is_handed_to_the_first_task_in_the_order_of_the_convoy(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3", "m4")
    task, lines = await batch(world)
    assert (task.task_id, lines) == ("m1", [1, 2, 3])
    turns = [(row := await world.task(number)).turn for number in numbers]
    assert turns == [Turn.OPEN, Turn.BATCHED, Turn.BATCHED, Turn.WAITING]
    assert [(await world.task(number)).batch_no for number in numbers] == [numbers[0]] * 3 + [None]
    assert row.state is TaskState.PENDING


async def test_the_messages_of_a_batch_end_in_the_commit_that_ends_it(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3", "m4")
    task, _ = await batch(world)
    await done(world, task)
    assert await states(world, numbers) == ["processed"] * 3 + ["pending"]
    assert [(await world.task(number)).output for number in numbers[:3]] == ['"done"'] * 3
    assert kinds(await world.events(numbers[1])) == [
        "task.submitted", "convoy.placed", "convoy.batched", "convoy.message_ended",
    ]  # fmt: skip
    assert (await world.task(numbers[3])).turn is Turn.OPEN


async def test_a_batch_that_is_not_full_waits_for_its_time(world: World) -> None:
    await world.process()
    (first, _) = await send(world, "m1", "m2")
    assert await gather(world) is None
    put_down = await world.task(first)
    assert (put_down.locked_by, put_down.turn) == (None, Turn.OPEN)
    assert await world.claim() == []
    world.clock.move(59)
    assert await world.claim() == []
    world.clock.move(1)
    assert (await batch(world))[1] == [1, 2]


async def test_a_batch_that_becomes_full_begins_before_its_time_is_over(world: World) -> None:
    await world.process()
    (first,) = await send(world, "m1")
    assert await gather(world) is None
    await send(world, "m2")
    assert await world.claim() == []
    await send(world, "m3")
    assert (await batch(world))[1] == [1, 2, 3]
    assert "convoy.batched" in kinds(await world.events(first))


async def test_what_comes_while_a_batch_runs_is_the_next_batch(world: World) -> None:
    await world.process()
    await send(world, "m1", "m2", "m3")
    task, _ = await batch(world)
    await send(world, "m4", "m5", "m6", "m7")
    assert await world.claim() == []
    await done(world, task)
    assert (await batch(world))[1] == [4, 5, 6]


async def test_a_batch_ends_before_a_task_that_is_none_of_it(world: World) -> None:
    await world.process()
    await send(world, "m1", "m2")
    await world.submit(**message("m3", workflow="other"))
    await send(world, "m4")
    assert (await batch(world))[1] == [1, 2]  # although it is not full: nothing that comes can be in it


@pytest.mark.parametrize("arguments", ['{"lines": 4}', '{"rows": [4]}', '{"lines": [4], "more": []}', "[4]"])
async def test_a_message_that_is_no_list_of_the_same_name_is_handled_alone(world: World, arguments: str) -> None:
    await world.process()
    await send(world, "m1")
    await world.submit(**message("m2", arguments=arguments, body_hash=hash_body(arguments)))
    task, lines = await batch(world)
    assert lines == [1]
    await done(world, task)
    loaded = await gather(world)
    if "rows" in arguments:  # it is a list all the same, and waits for others
        assert loaded is None
        world.clock.move(60)
        loaded = await gather(world)
    assert loaded is not None
    assert json.loads(loaded.arguments) == json.loads(arguments)


async def test_a_batch_is_no_larger_than_the_arguments_of_a_task_may_be(world: World) -> None:
    await world.process()
    large = json.dumps({"lines": ["x" * 400_000]})
    for name in ("m1", "m2", "m3"):
        await world.submit(**message(name, arguments=large, body_hash=hash_body(large)))
    task, lines = await batch(world)
    assert len(lines) == 2
    assert len((await world.load(task.task_no)).arguments) < 1_000_000


@pytest.mark.parametrize("how", ["paused", "delayed", "snoozed", "cancelled"])
async def test_a_message_that_may_not_begin_ends_the_batch_before_it(world: World, how: str) -> None:
    await world.process()
    await send(world, "m1", "m2")
    if how == "delayed":
        await world.submit(**message("m3", delay=600))
    else:
        (third,) = await send(world, "m3")
        verb = {"paused": Verb.PAUSE, "cancelled": Verb.CANCEL, "snoozed": Verb.SNOOZE}[how]
        task = await world.task(third)
        until: dict[str, Any] = {"within": 600.0} if how == "snoozed" else {}
        answer = await world.apply(
            Operate(actor="ann", verb=verb, task_no=third, incarnation=1, by="ann", reason="test", **until)
        )
        assert isinstance(answer, Applied), (answer, task)
    await send(world, "m4")
    loaded = await gather(world)
    if how == "cancelled":  # it has left the convoy
        assert loaded is not None
        assert json.loads(loaded.arguments)["lines"] == [1, 2, 4]
    else:
        assert loaded is not None
        assert json.loads(loaded.arguments)["lines"] == [1, 2]


async def test_messages_with_sequences_go_in_their_order_and_not_over_a_gap(world: World) -> None:
    await world.process()
    for number in (2, 1, 4, 3, 7):
        await world.submit(**message(f"m{number}", count=10, sequence=number))
    assert await gather(world) is None
    world.clock.move(60)
    task, lines = await batch(world)
    assert lines == [1, 2, 3, 4]
    await done(world, task)
    assert await world.claim() == []  # it waits for 5
    await world.submit(**message("m5", count=10, sequence=5))
    await world.submit(**message("m6", count=10, sequence=6))
    world.clock.move(60)
    assert (await batch(world))[1] == [5, 6, 7]


async def test_the_same_message_again_is_the_same_task_before_and_after_its_batch(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3")
    task, _ = await batch(world)
    for _ in range(2):
        for name, number in zip(("m1", "m2", "m3"), numbers, strict=True):
            (answer,) = await world.store.submit([submission(**message(name))])
            assert answer == Submitted(number, False)
        (refused,) = await world.store.submit([submission(**message("m1", 5))])
        assert isinstance(refused, Refusal)
        if (await world.task(task.task_no)).ended_at is None:
            await done(world, task)


async def test_of_two_that_gather_one_batch_the_second_changes_nothing(world: World) -> None:
    await world.process()
    await send(world, "m1", "m2", "m3")
    (loaded,) = await world.claim()
    command = gather_command(loaded.task)
    await world.written(command)
    await world.refused(command, "moved_on")


async def test_a_process_that_lost_its_task_gathers_nothing(world: World) -> None:
    first, second = await world.process("p1"), await world.process("p2")
    numbers = await send(world, "m1", "m2", "m3")
    (loaded,) = await world.claim(first)
    await world.lose(first)
    await world.written(world.free_command(loaded.task, lost_by=first))
    await world.refused(gather_command(loaded.task), "moved_on")
    (again,) = await world.claim(second)
    answer = await world.written(gather_command(again.task))
    assert answer.next is not None
    assert [(await world.task(number)).batch_no for number in numbers] == [numbers[0]] * 3


async def test_a_process_that_dies_after_its_batch_was_gathered_leaves_the_same_batch(world: World) -> None:
    first, second = await world.process("p1"), await world.process("p2")
    await send(world, "m1", "m2", "m3")
    (loaded,) = await world.claim(first)
    held = (await world.written(gather_command(loaded.task))).task
    await send(world, "m4")
    await world.lose(first)
    await world.written(world.free_command(held, lost_by=first))
    (again,) = await world.claim(second)
    assert json.loads(again.arguments)["lines"] == [1, 2, 3]
    await world.refused(gather_command(again.task), "moved_on")


async def test_a_held_batch_keeps_its_messages_and_a_resubmission_has_the_same(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3", "m4")
    task, _ = await batch(world)
    await world.advance(task, ending=Hold(FAILED), convoy_no=task.convoy_no)
    assert await states(world, numbers) == ["held", "pending", "pending", "pending"]
    assert await world.claim() == []
    assert isinstance(await operate(world, numbers[0], Verb.RESUBMIT), Applied)
    (again,) = await world.claim()
    assert json.loads(again.arguments)["lines"] == [1, 2, 3]
    await done(world, again.task)
    assert await states(world, numbers) == ["processed"] * 3 + ["pending"]


async def test_the_undo_of_a_batch_undoes_its_messages_and_a_new_life_does_them_again(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3")
    task, _ = await batch(world)
    await done(world, task)
    assert isinstance(await operate(world, numbers[0], Verb.COMPENSATE), Applied)
    assert await states(world, numbers) == ["compensating", "processed", "processed"]
    (undone,) = await world.claim()
    await world.advance(undone.task, ending=Compensate(FAILED), convoy_no=task.convoy_no)
    assert await states(world, numbers) == ["compensated"] * 3
    assert isinstance(await operate(world, numbers[0], Verb.RESUBMIT), Applied)
    assert await states(world, numbers) == ["pending", "compensated", "compensated"]
    (again,) = await world.claim()
    assert json.loads(again.arguments)["lines"] == [1, 2, 3]
    await done(world, again.task)
    assert await states(world, numbers) == ["processed"] * 3


async def test_a_batch_that_fails_compensates_its_messages(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3")
    task, _ = await batch(world)
    await world.advance(task, ending=Compensate(FAILED), convoy_no=task.convoy_no)
    assert await states(world, numbers) == ["compensated"] * 3
    failures = [(await world.task(number)).failure for number in numbers]
    assert len(set(failures)) == 1


@pytest.mark.parametrize(
    "verb", [Verb.RESUBMIT, Verb.COMPENSATE, Verb.CANCEL, Verb.EXTEND, Verb.PAUSE, Verb.SNOOZE, Verb.ADJUST]
)
async def test_verbs_on_a_message_of_a_batch_are_refused_and_name_the_batch(world: World, verb: Verb) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3")
    task, _ = await batch(world)
    for _ in range(2):
        before = await world.task(numbers[1])
        answer = await operate(world, numbers[1], verb)
        assert isinstance(answer, Refusal)
        assert await world.task(numbers[1]) == before
        if task.ended_at is None:
            assert "batch" in answer.detail or "not allowed" in answer.detail
            task = (await done(world, task)).task


async def test_the_own_limit_of_a_message_does_not_count_in_a_batch(world: World) -> None:
    await world.process()
    term = await world.lead(1)
    numbers = await send(world, "m1", "m2", "m3", complete_within=100)
    await batch(world)
    waiting = await world.task(numbers[1])
    world.clock.move(101)
    command = EndByLimit(
        actor="leader", task_no=waiting.task_no, fence=waiting.fence, revision=waiting.revision, state=waiting.state,
        ending=BeginUndo(TaskFailure("limit", "late")), term=term,
    )  # fmt: skip
    await world.refused(command, "moved_on")


async def test_a_skipped_batch_keeps_its_messages_and_the_key_continues(world: World) -> None:
    await world.process()
    skips = encode_policy(TaskPolicy(None, Supervision(), ConvoyPolicy(head="skip", handle_batch=3, batch_within=60)))
    numbers = [await world.submit(**message(name, policy=skips)) for name in ("m1", "m2", "m3", "m4", "m5", "m6")]
    task, _ = await batch(world)
    await world.advance(task, ending=Hold(FAILED), convoy_no=task.convoy_no)
    task, lines = await batch(world)
    assert lines == [4, 5, 6]
    assert await states(world, numbers[:3]) == ["held", "pending", "pending"]
    await done(world, task)
    assert await states(world, numbers[:3]) == ["held", "pending", "pending"]


async def test_the_alerts_and_statuses_of_messages_are_those_of_their_own_tasks(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3", reply_to="queue")
    task, _ = await batch(world)
    await done(world, task)
    events = await world.events(numbers[2])
    said = [event for event in map(msgspec.to_builtins, events) if event["type"] == "status.published"]
    assert [event["kind"] for event in said] == ["received", "started", "completed"]


async def test_a_message_whose_batch_is_undone_after_its_end_is_in_another_incarnation(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3", reply_to="queue")
    task, _ = await batch(world)
    await done(world, task)
    await operate(world, numbers[0], Verb.COMPENSATE)
    (undone,) = await world.claim()
    await world.advance(undone.task, ending=Compensate(FAILED), convoy_no=task.convoy_no)
    assert [(await world.task(number)).incarnation for number in numbers] == [2, 2, 2]
    said = [event for event in await world.events(numbers[1]) if event["type"] == "status.published"]
    assert [event["kind"] for event in said] == ["received", "started", "completed", "compensated"]


async def test_the_messages_of_a_batch_need_no_version_of_the_code(world: World) -> None:
    await world.process()
    await send(world, "m1", "m2", "m3", "m4")
    await batch(world)
    counted = await world.store.count_versions()
    assert sorted((count.has_begun, count.tasks) for count in counted) == [(False, 1), (True, 1)]


async def test_a_signal_to_a_message_of_a_batch_is_refused_and_names_the_batch(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3")
    task, _ = await batch(world)
    await world.refused(sending(numbers[1]), "in_batch")
    assert isinstance(await world.apply(sending(numbers[0])), SignalKept)
    await done(world, await world.task(task.task_no))
    await world.refused(sending(numbers[1]), "ended")


async def test_a_message_with_a_signal_is_in_no_batch_of_another_task(world: World) -> None:
    await world.process()
    numbers = await send(world, "m1", "m2", "m3")
    assert isinstance(await world.apply(sending(numbers[1])), SignalKept)
    task, lines = await batch(world)
    assert (task.task_id, lines) == ("m1", [1])
