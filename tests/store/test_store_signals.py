"""Signals: kept once, in the order of commits, taken by the waits of the one who drives the task, and refused by name."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from store_world import NOON, World, kinds

from arriero.core import signals as rules
from arriero.model import Instant, StepKind, StepState, TaskState, Verb
from arriero.model.answers import Claimed, SignalKept
from arriero.model.commands import Operate, SendSignal
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Compensate, Hold, NewStep, Process, PutDown, Signalled
from arriero.model.signals import SET_ASIDE, encode_refusal, encode_reply
from arriero.store.contract import Purge

FAILED = TaskFailure("bug", "line 3")


def wait(name: str = "signal:approved", key: str = "#1", until: int | None = None) -> NewStep:
    return NewStep(kind=StepKind.TIMER, name=name, key=key, fire_at=None if until is None else Instant(until))


def sending(task_no: int = 1, signal_id: str = "s1", **changes: Any) -> SendSignal:
    fields = {"name": "signal:approved", "value": '{"by":"ana"}', "sent_by": "ana"}
    return SendSignal(actor="signal", task_no=task_no, signal_id=signal_id, **(fields | changes))


async def send(world: World, task_no: int = 1, signal_id: str = "s1", **changes: Any) -> SignalKept:
    answer = await world.apply(sending(task_no, signal_id, **changes))
    assert isinstance(answer, SignalKept), answer
    assert answer.task == await world.task(task_no)
    return answer


def taken(step_no: int, number: int, at: int = NOON, unfit: str = "") -> Signalled:
    return Signalled(step_no, number, Instant(at), unfit)


async def test_a_signal_is_kept_before_the_task_begins_and_comes_with_its_claim(world: World) -> None:
    task_no = await world.submit()
    kept = await send(world, task_no)
    assert (kept.number, kept.created, kept.task.inbox, kept.task.unseen_since) == (1, True, 1, None)
    (loaded,) = await world.claim()
    assert [(signal.number, signal.name, signal.value) for signal in loaded.signals] == [
        (1, "signal:approved", '{"by":"ana"}')
    ]
    assert await world.store.load_tasks([task_no]) == [loaded]


async def test_a_signal_and_the_claim_of_the_task_that_it_wakes_share_a_batch(world: World) -> None:
    task = await world.held()
    await world.advance(task, opened=[wait()], ending=PutDown(None))
    claim = world.claim_command(2, only=(task.task_no,))
    assert (await world.store.apply([sending(name="signal:other"), claim]))[1] == Claimed(())
    assert await world.claim(2) == []
    kept, claimed = await world.store.apply([sending(signal_id="s2"), claim])
    assert isinstance(kept, SignalKept)
    (loaded,) = claimed.tasks
    assert loaded == await world.load(task.task_no)
    assert (loaded.task.locked_by, kept.task.locked_by) == (2, None)
    assert [signal.signal_id for signal in loaded.signals] == ["s1", "s2"]
    assert kinds(await world.events(task.task_no))[-3:] == ["signal.sent", "signal.sent", "task.claimed"]
    await world.check_chains()


async def test_a_signal_that_is_sent_again_under_its_id_changes_nothing(world: World) -> None:
    task_no = await world.submit()
    await send(world, task_no)
    before = await world.rows()
    again = await send(world, task_no)
    assert (again.number, again.created) == (1, False)
    assert await world.rows() == before
    await world.refused(sending(task_no, value='{"by":"bob"}'), "another_value")
    await world.refused(sending(task_no, name="signal:other"), "another_value")


async def test_signals_are_numbered_in_the_order_of_their_commits_also_within_one_transaction(world: World) -> None:
    task_no = await world.submit()
    answers = await world.store.apply([sending(task_no, f"s{number}") for number in range(4)])
    assert [answer.number for answer in answers if isinstance(answer, SignalKept)] == [1, 2, 3, 4]
    assert [signal.signal_id for signal in (await world.load(task_no)).signals] == ["s0", "s1", "s2", "s3"]


async def test_a_signal_wakes_a_task_that_waits_for_it_and_no_other_one(world: World) -> None:
    first = await world.held("order-1")
    await world.advance(first, opened=[wait()], ending=PutDown(None))
    second = await world.held("order-2")
    await world.advance(second, opened=[wait("signal:paid")], ending=PutDown(None))
    woken = await send(world, first.task_no)
    left = await send(world, second.task_no)
    assert (woken.task.not_before, left.task.not_before) == (world.clock(), None)
    assert await world.claimed_ids() == ["order-1"]


async def test_the_one_who_holds_the_task_hears_of_each_signal_and_what_it_decided_before_is_refused(
    world: World,
) -> None:
    task = await world.held()
    kept = await send(world)
    assert (kept.task.unseen_since, kept.task.revision) == (world.clock(), task.revision + 1)
    assert (task.task_no, kept.task.revision) in await world.store.load_news(1)
    await world.refused(world.advance_command(task, opened=[wait()], ending=PutDown(None)), "moved_on")


async def test_a_wait_takes_a_signal_as_its_result(world: World) -> None:
    task, (row,) = await world.opened(await world.held(), wait())
    kept = await send(world)
    written = await world.advance(kept.task, [taken(row.step_no, 1)], ending=Process("1"))
    (step,) = written.steps
    assert (step.state, step.result, step.result_number) == (StepState.COMPLETED, '{"by":"ana"}', 1)
    assert (written.task.inbox, written.task.result_count, written.task.state) == (0, 1, TaskState.PROCESSED)
    assert (await world.load(1)).signals == ()
    assert task.inbox == 0


async def test_a_wait_for_several_takes_them_in_one_write_and_its_result_is_their_list(world: World) -> None:
    task, (row,) = await world.opened(await world.held(), replace(wait(), arguments='{"count":3}'))
    for number in (1, 2, 3):
        kept = await send(world, signal_id=f"s{number}", value=str(number))
    several = Signalled(row.step_no, 1, Instant(NOON), also=(2, 3))
    for wrong in (replace(several, also=(2, 4)), replace(several, also=(2, 1)), replace(several, also=(2, 2))):
        await world.refused(world.advance_command(kept.task, [wrong]), "moved_on")
    written = await world.advance(kept.task, [several])
    (step,) = written.steps
    assert (step.state, step.result, step.result_number) == (StepState.COMPLETED, "[1,2,3]", 1)
    assert (written.task.inbox, written.task.result_count) == (0, 1)
    assert (await world.load(1)).signals == ()
    assert kinds(await world.last_events(1)) == ["signal.taken"]
    await world.check_chains()
    assert task.inbox == 0


async def test_a_wait_for_several_takes_fewer_only_once_its_time_is_over(world: World) -> None:
    until = NOON + 10_000_000
    _, (row,) = await world.opened(await world.held(), replace(wait(until=until), arguments='{"count":3}'))
    kept = await send(world, value="1")
    one = world.advance_command(kept.task, [Signalled(row.step_no, 1, Instant(NOON))])
    await world.refused(one, "moved_on")
    world.clock.to(Instant(until))
    (step,) = (await world.written(one)).steps
    assert (step.state, step.result) == (StepState.COMPLETED, "[1]")


async def test_a_signal_is_taken_once(world: World) -> None:
    task, (first, second) = await world.opened(await world.held(), wait(), wait(key="#2"))
    kept = await send(world)
    await world.refused(
        world.advance_command(kept.task, [taken(first.step_no, 1), taken(second.step_no, 1)]), "moved_on"
    )
    written = await world.advance(kept.task, [taken(first.step_no, 1)])
    await world.refused(world.advance_command(written.task, [taken(second.step_no, 1)]), "moved_on")
    await world.refused(world.advance_command(written.task, [taken(first.step_no, 1)]), "moved_on")
    assert task.task_no == 1


@pytest.mark.parametrize(
    ("of", "name"),
    [("signal:paid", "signal:approved"), ("callback:bank", "signal:bank"), ("sleep", "signal:sleep")],
)
async def test_a_wait_takes_no_signal_of_another_name(world: World, of: str, name: str) -> None:
    _, (row,) = await world.opened(await world.held(), wait(of, until=NOON + 9))
    kept = await send(world, name=name)
    await world.refused(world.advance_command(kept.task, [taken(row.step_no, 1)]), "moved_on")


async def test_a_wait_takes_nothing_that_is_for_another_wait_of_its_name(world: World) -> None:
    _, rows = await world.opened(await world.held(), wait("callback:bank"), wait("callback:bank", key="#2"))
    kept = await send(world, name="callback:bank#2@2", wait=2)
    await world.refused(world.advance_command(kept.task, [taken(rows[0].step_no, 1)]), "moved_on")
    await world.advance(kept.task, [taken(rows[1].step_no, 1)])


async def test_a_signal_that_was_sent_when_the_time_was_over_is_not_taken(world: World) -> None:
    _, (row,) = await world.opened(await world.held(), wait(until=NOON + 10))
    world.clock.at = Instant(NOON + 9)
    in_time = await send(world, signal_id="in time")
    world.clock.at = Instant(NOON + 10)
    late = await send(world, signal_id="late")
    await world.refused(world.advance_command(late.task, [taken(row.step_no, 2)]), "moved_on")
    await world.advance(late.task, [taken(row.step_no, 1)])
    assert in_time.number == 1


async def test_a_signal_whose_value_does_not_fit_is_set_aside_and_the_wait_waits_on(world: World) -> None:
    _, (row,) = await world.opened(await world.held(), wait())
    kept = await send(world)
    written = await world.advance(kept.task, [taken(row.step_no, 1, unfit="no amount")])
    assert (written.task.inbox, written.steps) == (0, ())
    assert (await world.step(row.step_no)).state is StepState.PENDING
    (signal,) = await world.store.list_signals(1)
    assert (signal.step, signal.reply) == (SET_ASIDE, encode_refusal("no amount"))
    again = await send(world, signal_id="s2")
    await world.advance(again.task, [taken(row.step_no, 2)])


async def test_a_task_that_is_undone_or_has_ended_receives_nothing(world: World) -> None:
    task = await world.held("done")
    await world.advance(task, ending=Process("1"))
    await world.refused(sending(task.task_no), "ended")
    task = await world.held("undone")
    await world.advance(task, opened=[wait()], ending=BeginUndo(FAILED))
    await world.refused(sending(task.task_no), "undone")


async def test_what_came_before_the_end_is_answered_as_it_was_afterwards(world: World) -> None:
    task = await world.held()
    kept = await send(world)
    await world.advance(kept.task, ending=Process("1"))
    again = await send(world)
    assert (again.number, again.created, task.task_no) == (1, False, 1)


async def test_a_held_task_keeps_what_comes_for_the_person_who_resubmits_it(world: World) -> None:
    task, _ = await world.opened(await world.held(), wait())
    await world.advance(task, ending=Hold(FAILED))
    kept = await send(world)
    assert (kept.task.not_before, kept.task.inbox) == (None, 1)
    await world.written(
        Operate(actor="o", verb=Verb.RESUBMIT, task_no=1, incarnation=1, by="ana", reason="mended", store_id="s")
    )
    (loaded,) = await world.claim()
    assert [signal.number for signal in loaded.signals] == [1]


async def test_a_task_of_another_app_is_refused(world: World) -> None:
    task_no = await world.submit(app="shop")
    await world.refused(sending(task_no, app="travel"), "another_app")
    await send(world, task_no, app="shop")


async def test_a_full_inbox_takes_no_more_until_a_signal_was_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "INBOX_MAX", 2)
    _, (row,) = await world.opened(await world.held(), wait())
    await send(world, signal_id="1")
    kept = await send(world, signal_id="2")
    await world.refused(sending(signal_id="3"), "inbox_full")
    await world.advance(kept.task, [taken(row.step_no, 1)])
    await send(world, signal_id="3")
    monkeypatch.setattr(rules, "INBOX_BYTES_MAX", 30)
    await world.refused(sending(signal_id="4", value='"é"' + " " * 20), "inbox_full")
    monkeypatch.setattr(rules, "INBOX_BYTES_MAX", 1_000)
    monkeypatch.setattr(rules, "INBOX_MAX", 9)
    monkeypatch.setattr(rules, "SIGNALS_MAX", 3)
    await world.refused(sending(signal_id="4"), "too_many")


async def test_a_signal_for_one_wait_is_refused_once_that_cannot_take_it(world: World) -> None:
    name = "callback:bank"
    task, rows = await world.opened(
        await world.held(), wait(name, until=NOON + 10), wait(name, key="#2"), wait(name, key="#3")
    )
    await world.refused(sending(name=f"{name}#4@4", wait=4), "not_waiting")
    await world.refused(sending(name=f"{name}#2@2", wait=1), "not_waiting")
    first = await send(world, name=f"{name}#2@2", wait=2)
    await world.refused(sending(signal_id="again", name=f"{name}#2@2", wait=2), "undecided")
    await world.advance(first.task, [taken(rows[1].step_no, 1)])
    await world.refused(sending(signal_id="again", name=f"{name}#2@2", wait=2), "answered")
    world.clock.at = Instant(NOON + 10)
    await world.refused(sending(signal_id="late", name=f"{name}#1@1", wait=1), "late")
    await world.advance(await world.task(1), ending=Hold(FAILED))
    await world.refused(sending(signal_id="late", name=f"{name}#1@1", wait=1), "late")
    assert task.task_no == 1


@pytest.mark.parametrize("is_resubmitted", [False, True], ids=["while it is held", "before its code asks again"])
async def test_what_is_for_one_wait_of_a_held_task_is_kept_until_its_code_asks_again(
    world: World, is_resubmitted: bool
) -> None:
    async def send_both() -> None:
        assert (await send(world, name="callback:bank#1@1", wait=1)).created
        await world.refused(sending(signal_id="again", name="callback:bank#1@1", wait=1), "undecided")

    await world.opened(await world.held(), wait("callback:bank"))
    await world.advance(await world.task(1), ending=Hold(FAILED))
    if not is_resubmitted:
        await send_both()
    await world.written(
        Operate(actor="o", verb=Verb.RESUBMIT, task_no=1, incarnation=1, by="ana", reason="mended", store_id="s")
    )
    if is_resubmitted:
        await send_both()
    (claimed,) = await world.claim()
    (row,) = claimed.steps
    reopened = msgspec.structs.replace(wait("callback:bank"), reopens=row.step_no)
    task = (await world.advance(claimed.task, opened=[reopened])).task
    written = await world.advance(task, [taken(row.step_no, 1)], ending=Process("1"))
    assert (written.steps[0].state, written.task.inbox) == (StepState.COMPLETED, 0)


async def test_a_wait_of_a_life_that_was_undone_takes_nothing(world: World) -> None:
    await world.opened(await world.held(), wait("callback:bank"))
    written = await world.advance(await world.task(1), ending=BeginUndo(FAILED))
    await world.advance(written.task, ending=Compensate(FAILED))
    await world.refused(sending(name="callback:bank#1@1", wait=1), "undone")
    await world.written(
        Operate(actor="o", verb=Verb.RESUBMIT, task_no=1, incarnation=1, by="ana", reason="again", store_id="s")
    )
    await world.refused(sending(name="callback:bank#1@1", wait=1), "not_waiting")
    (claimed,) = await world.claim()
    await world.advance(claimed.task, ending=Hold(FAILED))
    await world.refused(sending(name="callback:bank#1@1", wait=1), "not_waiting")


async def test_the_first_reply_counts_and_only_to_a_request_that_was_taken(world: World) -> None:
    _, (row,) = await world.opened(await world.held(), wait("request:address"))
    reply = NewStep(kind=StepKind.TIMER, name="reply:address", key="#1", arguments=encode_reply("true"), replies_to=1)
    kept = await send(world, name="request:address", wants_reply=True)
    written = await world.advance(kept.task, [taken(row.step_no, 1)], opened=[reply])
    (signal,) = await world.store.list_signals(1)
    assert (signal.reply, signal.replied_at) == (encode_reply("true"), world.clock())
    assert written.steps[-1].state is StepState.COMPLETED
    again = NewStep(kind=StepKind.TIMER, name="reply:address", key="#2", arguments=encode_reply("false"), replies_to=1)
    await world.advance(written.task, opened=[again])
    assert (await world.store.list_signals(1))[0].reply == encode_reply("true")


async def test_a_reply_to_a_request_that_was_not_received_holds_the_task(world: World) -> None:
    task, _ = await world.opened(await world.held(), wait("request:address"))
    reply = NewStep(kind=StepKind.TIMER, name="reply:address", key="#1", arguments=encode_reply("true"), replies_to=1)
    written = await world.advance(task, opened=[reply])
    assert written.task.state is TaskState.HELD
    assert "replied to request 1, which it has not received" in str(written.task.failure)


async def test_a_signal_of_a_life_that_was_undone_is_not_taken_for_one_of_the_next(world: World) -> None:
    task, (row,) = await world.opened(await world.held(), wait())
    kept = await send(world)
    written = await world.advance(kept.task, [taken(row.step_no, 1)], ending=BeginUndo(FAILED))
    written = await world.advance(written.task, ending=Compensate(FAILED))
    await world.written(
        Operate(actor="o", verb=Verb.RESUBMIT, task_no=1, incarnation=1, by="ana", reason="again", store_id="s")
    )
    await world.refused(sending(), "past_life")
    await world.refused(sending(value="1"), "another_value")
    assert (await send(world, signal_id="s2")).number == 2
    assert task.task_no == 1


async def test_signals_go_with_their_task_when_it_is_purged(world: World) -> None:
    task = await world.held()
    kept = await send(world)
    await world.advance(kept.task, ending=Process("1"))
    world.clock.at = Instant(NOON + 10**12)
    await world.store.purge(Purge(ended_before=world.clock(), states=(TaskState.PROCESSED,)), actor="janitor", limit=10)
    assert await world.rows() == []
    assert await world.store.list_signals(task.task_no) == []


async def test_an_ended_wait_of_a_put_down_task_costs_no_look(world: World) -> None:
    """A task that waits without a limit is due for nobody."""
    task = await world.held()
    await world.advance(task, opened=[wait()], ending=PutDown(None))
    due = await world.store.due(("fulfil",), (), "")
    assert (due.tasks, due.next_at) == (False, None)
