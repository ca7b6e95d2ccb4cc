"""Signals and what else happens to their task: turns of convoys, limits, assignment, purges, restores, damaged rows."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from damaging import Damage
from store_checks import broken_links, disagreements, history_violations
from store_world import FAILED, NOON, TestClock, World, step
from test_store_progress import publishing
from test_store_restore import Kept, kept, opened
from test_store_signals import send, sending, taken, wait

from arriero.client.json_signals import show_signal
from arriero.errors import UnreadableRow
from arriero.model import Instant, StepState, TaskState, Verb
from arriero.model.answers import AttemptApplied, SignalKept
from arriero.model.commands import Ahead, AssignApp, EndByLimit, HandOver, Operate
from arriero.model.moves import BeginUndo, Hold, NewStep, Process, PutDown
from arriero.model.signals import encode_reply
from arriero.store.contract import PurgeNamed
from arriero.store.quarantine import APART_SECONDS

__all__ = ["kept", "opened"]  # fixtures

KEY = "customer-7"
CODES = ("fulfil",)


@pytest.fixture
async def _sound(world: World) -> AsyncIterator[None]:
    yield
    assert await history_violations(world.store) == []
    assert await disagreements(world.store) == []
    assert await broken_links(world.store) == []


async def operate(world: World, task_no: int, verb: Verb, **changes: Any) -> None:
    task = await world.task(task_no)
    fields = {"actor": "o", "verb": verb, "task_no": task_no, "incarnation": task.incarnation, "by": "ana"}
    await world.written(Operate(reason="asked", store_id="s", **(fields | changes)))


def numbers(signals: Any) -> list[int]:
    return [signal.number for signal in signals]


# --- convoys
@pytest.mark.usefixtures("_sound")
async def test_a_task_that_waits_in_its_convoy_is_handed_over_with_the_signals_that_came_early(world: World) -> None:
    await world.process()
    first, second = [await world.submit(name, convoy=KEY) for name in ("first", "second")]
    (head,) = await world.claim()
    early = await send(world, second)
    assert (early.task.not_before, early.task.unseen_since) == ((await world.task(second)).not_before, None)
    await send(world, second, "s2", name="signal:paid", value="1")
    answer = await world.advance(head.task, ending=Process('"done"'), hand_over=HandOver(CODES))
    assert answer.next is not None
    assert (answer.next.task.task_no, numbers(answer.next.signals)) == (second, [1, 2])
    task, (row,) = await world.opened(answer.next.task, wait())
    written = await world.advance(task, [taken(row.step_no, 1)])
    assert (written.task.inbox, written.steps[0].state) == (1, StepState.COMPLETED)
    assert first == head.task.task_no


@pytest.mark.usefixtures("_sound")
async def test_a_task_whose_turn_comes_without_a_hand_over_is_claimed_with_the_signals_that_came_early(
    world: World,
) -> None:
    await world.process()
    _, second = [await world.submit(name, convoy=KEY) for name in ("first", "second")]
    (head,) = await world.claim()
    await send(world, second)
    await world.advance(head.task, ending=Process('"done"'))
    (loaded,) = await world.claim()
    assert (loaded.task.task_no, numbers(loaded.signals)) == (second, [1])


@pytest.mark.usefixtures("_sound")
async def test_what_ran_ahead_counts_for_nothing_once_a_signal_has_come_between(world: World) -> None:
    """Its process would open the wait, and never look into the inbox."""
    await world.process()
    _, second = [await world.submit(name, convoy=KEY) for name in ("first", "second")]
    (head,) = await world.claim()
    ahead = Ahead(second, (await world.task(second)).link, None, (wait(), step(take=True)))
    await send(world, second)
    answer = await world.advance(head.task, ending=Process('"done"'), hand_over=HandOver(CODES, ahead))
    assert answer.begun is None
    assert answer.next is not None
    assert (answer.next.task.task_no, answer.next.steps, numbers(answer.next.signals)) == (second, (), [1])


@pytest.mark.usefixtures("_sound")
async def test_what_ran_ahead_after_the_signal_begins_with_it_in_its_hands(world: World) -> None:
    await world.process()
    _, second = [await world.submit(name, convoy=KEY) for name in ("first", "second")]
    (head,) = await world.claim()
    await send(world, second)
    ahead = Ahead(second, (await world.task(second)).link, None, (wait(), step(take=True)))
    answer = await world.advance(head.task, ending=Process('"done"'), hand_over=HandOver(CODES, ahead))
    assert answer.begun is not None
    assert answer.next is not None
    assert (len(answer.next.steps), numbers(answer.next.signals)) == (2, [1])
    await world.advance(answer.next.task, [taken(answer.next.steps[0].step_no, 1)])


# --- limits, verbs
@pytest.mark.usefixtures("_sound")
async def test_a_task_whose_limit_passes_keeps_what_is_in_its_inbox_for_its_resubmission(
    world: World, clock: TestClock
) -> None:
    task, _ = await world.opened(await world.held(complete_within=60.0), wait())
    await world.advance(task, ending=PutDown(None))
    await send(world)
    clock.move(60)
    overdue = await world.store.load_overdue(10, 5.0)
    (loaded,) = overdue.past_limit
    assert numbers(loaded.signals) == [1]
    fields = {name: getattr(loaded.task, name) for name in ("task_no", "fence", "revision", "state")}
    await world.written(EndByLimit(actor="leader", ending=Hold(FAILED), term=await world.lead(1), **fields))
    held = await send(world, signal_id="s2")
    assert (held.task.state, held.task.inbox, held.task.not_before) == (TaskState.HELD, 2, None)
    await operate(world, 1, Verb.RESUBMIT)
    (again,) = await world.claim()
    assert numbers(again.signals) == [1, 2]


@pytest.mark.usefixtures("_sound")
async def test_a_paused_task_keeps_signals_and_is_woken_by_none_until_it_is_resumed(world: World) -> None:
    task, _ = await world.opened(await world.held(), wait())
    await world.advance(task, ending=PutDown(None))
    await operate(world, 1, Verb.PAUSE)
    await send(world)
    assert await world.claimed_ids() == []
    await operate(world, 1, Verb.RESUME)
    (loaded,) = await world.claim()
    assert numbers(loaded.signals) == [1]


@pytest.mark.usefixtures("_sound")
async def test_a_snoozed_task_keeps_signals_and_begins_when_its_snooze_ends(world: World, clock: TestClock) -> None:
    await world.submit()
    await operate(world, 1, Verb.SNOOZE, within=30.0)
    await send(world)
    assert await world.claimed_ids() == []
    clock.move(30)
    (loaded,) = await world.claim()
    assert numbers(loaded.signals) == [1]


@pytest.mark.usefixtures("_sound")
async def test_the_inbox_of_a_task_that_moves_to_another_app_goes_with_it(world: World) -> None:
    task_no = await world.submit(app="shop")
    await send(world, task_no, app="shop")
    command = AssignApp(actor="o", task_no=task_no, from_app="shop", app="travel", by="ana", reason="renamed")
    await world.written(command)
    await world.refused(sending(task_no, "s2", app="shop"), "another_app")
    again = await send(world, task_no, "s1", app="shop")  # its sender has no answer to the first
    assert (again.number, again.created) == (1, False)
    await send(world, task_no, "s2", app="travel")
    (loaded,) = await world.claim(app="travel")
    assert numbers(loaded.signals) == [1, 2]


# --- purge, restore
async def test_the_id_of_a_purged_task_has_none_of_its_signals(world: World) -> None:
    task = await world.held()
    kept_signal = await send(world)
    await world.advance(kept_signal.task, ending=Process("1"))
    world.clock.at = Instant(NOON + 10**9)
    which = PurgeNamed(what="task", name="order-1", ended_before=world.clock())
    assert (await world.store.purge_named(which, actor="janitor", limit=10)).is_done
    await world.refused(sending(task.task_no), "unknown")
    again = await world.submit("order-1")
    first = await send(world, again)
    assert (first.number, first.created, again != task.task_no) == (1, True, True)
    assert await world.store.load_reply(task.task_no, 1) == (None, None)


async def test_a_signal_of_the_lost_time_is_kept_when_its_sender_sends_it_again_after_a_restore(
    kept: Kept, opened: Callable[[], Any], clock: TestClock
) -> None:
    lost_time = World(await opened(), clock)
    await lost_time.submit("order-1")
    await send(lost_time, 1, "before")
    await lost_time.store.close()
    kept.save()

    await lost_time.store.open()
    await send(lost_time, 1, "bank-77")
    await lost_time.store.close()
    kept.bring_back()

    restored = World(await opened(), clock)
    assert await restored.store.new_epoch("operator") == 2
    again = await send(restored, 1, "bank-77")
    assert (again.number, again.created) == (2, True)
    before = await send(restored, 1, "before")
    assert (before.number, before.created) == (1, False)
    (loaded,) = await restored.claim(await restored.store.register("of the new epoch", 3600.0))
    assert [signal.signal_id for signal in loaded.signals] == ["before", "bank-77"]
    assert await history_violations(restored.store) == []
    assert await disagreements(restored.store) == []
    assert await broken_links(restored.store) == []


# --- damaged rows
async def codes_of_alerts(world: World) -> list[tuple[str, str]]:
    return [(alert.task_id, alert.code) for alert in await world.store.alerts(limit=100)]


async def test_a_task_whose_signal_has_no_json_is_set_apart_until_it_is_mended_and_the_others_are_claimed(
    world: World, clock: TestClock
) -> None:
    for name in ("t1", "t2"):
        await send(world, await world.submit(name))
    damage = Damage(world.store, "signal", (1, 1), "value", '{"by":')
    assert await world.claimed_ids() == ["t2"]
    assert await codes_of_alerts(world) == [("t1", "signal.value")]
    assert not (await world.store.due(CODES, (), "")).tasks
    shown = show_signal((await world.store.list_signals(1))[0])
    assert (shown.state, shown.why, shown.signal_id) == (
        "unreadable",
        "column value of table signal (row 1, 1) cannot be read",
        "s1",
    )
    damage.mend()
    clock.move(APART_SECONDS)
    (loaded,) = await world.claim()
    assert numbers(loaded.signals) == [1]
    await world.store.look_at_unreadable()
    assert await codes_of_alerts(world) == []


async def test_a_damaged_reply_is_named_to_its_sender_and_stops_neither_the_task_nor_other_senders(
    world: World,
) -> None:
    _, (row,) = await world.opened(await world.held(), wait("request:address"))
    kept_signal = await send(world, name="request:address", wants_reply=True)
    reply = NewStep(kind=row.kind, name="reply:address", key="#1", arguments=encode_reply("true"), replies_to=1)
    written = await world.advance(kept_signal.task, [taken(row.step_no, 1)], opened=[reply])
    damage = Damage(world.store, "signal", (1, 1), "reply", '{"value":')
    with pytest.raises(UnreadableRow, match="column reply of table signal"):
        await world.store.load_reply(1, 1)
    again = sending(name="request:address", wants_reply=True)
    answers = await world.store.apply([again, sending(signal_id="s2")])
    assert [type(answer) for answer in answers] == [UnreadableRow, SignalKept]
    assert [show_signal(one).state for one in await world.store.list_signals(1)] == ["unreadable", "waiting"]
    task = await world.task(1)
    await world.advance(task, opened=[wait()])
    damage.mend()
    assert written.task.state is TaskState.PROCESSING


async def test_the_alert_of_a_damaged_reply_stays_open_until_it_is_mended_though_a_wait_has_taken_the_signal(
    world: World,
) -> None:
    _, (row,) = await world.opened(await world.held(), wait("request:address"))
    request = sending(name="request:address", wants_reply=True)
    kept_signal = await send(world, name="request:address", wants_reply=True)
    await world.advance(kept_signal.task, [taken(row.step_no, 1)])
    damage = Damage(world.store, "signal", (1, 1), "reply", '{"value":')
    for _ in range(2):
        assert [type(answer) for answer in await world.store.apply([request])] == [UnreadableRow]
        assert await world.store.look_at_unreadable() == 0
        assert await codes_of_alerts(world) == [("order-1", "signal.reply")]
    assert len(await world.store.alerts(open_only=False)) == 1
    damage.mend()
    assert await world.store.look_at_unreadable() == 1
    assert await codes_of_alerts(world) == []
    assert [type(answer) for answer in await world.store.apply([request])] == [SignalKept]


async def test_a_value_that_cannot_be_read_is_replaced_by_the_next_that_is_published(world: World) -> None:
    _, (charge,) = await world.running(await world.held(reply_to="web"), "charge")
    assert isinstance(await world.apply(publishing(charge, 1)), AttemptApplied)
    Damage(world.store, "published", (1, 1), "value", "{")
    assert isinstance(await world.apply(publishing(charge, 2)), AttemptApplied)
    assert [(row.ordinal, row.value, row.number) for row in await world.store.published(1)] == [
        (0, None, 0),
        (1, "2", 2),
    ]
    assert await codes_of_alerts(world) == []


async def test_signals_that_were_set_aside_are_listed_until_another_of_their_name_follows_or_the_task_ends(
    world: World,
) -> None:
    async def listed(limit: int = 10) -> list[tuple[str, int]]:
        return [(task_id, signal.number) for task_id, signal in await world.store.list_set_aside(limit)]

    tasks = []
    for name in ("t1", "t2", "t3"):
        task, (row, _) = await world.opened(await world.held(name), wait(), wait("signal:paid"))
        sent = await send(world, task.task_no)
        tasks.append((await world.advance(sent.task, [taken(row.step_no, 1, unfit="no amount")])).task)
        world.clock.move(1)
    assert await listed() == [("t3", 1), ("t2", 1), ("t1", 1)]
    assert await listed(1) == [("t3", 1)]
    await send(world, tasks[0].task_no, "s2", name="signal:paid")
    assert await listed() == [("t3", 1), ("t2", 1), ("t1", 1)]
    await send(world, tasks[0].task_no, "s3")
    await world.advance(tasks[1], ending=BeginUndo(FAILED))
    assert await listed() == [("t3", 1)]
    await world.advance(tasks[2], ending=Process("1"))
    assert await listed() == []


async def test_a_signal_to_a_task_whose_undo_has_begun_stays_in_its_inbox_and_is_not_taken(world: World) -> None:
    task, (row,) = await world.opened(await world.held(), wait())
    kept_signal = await send(world)
    await world.refused(world.advance_command(task, ending=BeginUndo(FAILED)), "moved_on")
    written = await world.advance(kept_signal.task, ending=BeginUndo(FAILED))
    assert (written.task.state, written.task.inbox) == (TaskState.COMPENSATING, 1)
    await world.refused(world.advance_command(written.task, [taken(row.step_no, 1)]), "moved_on")
