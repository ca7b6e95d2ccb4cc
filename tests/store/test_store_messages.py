"""Reply queues in the store: what is published, in which commit, in which order, and what is left when nobody reads."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from store_world import FAILED, NOON, World, gave_up, kinds, step, submission, undo_of

from arriero.core import transitions
from arriero.core.changes import Change
from arriero.core.placement import Spot
from arriero.errors import ArrieroError
from arriero.model import HistoryRow, Instant, Loaded, StatusRow, TaskRow, Verb
from arriero.model.answers import Submitted
from arriero.model.commands import EndByLimit, Operate, Submit
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Compensate, Hold, NextUndo, PlanUndo, Process, PutDown
from arriero.store.engine.batch import UPKEEP
from arriero.store.state_store import StateStore

WEB = "web-1"
DONE_WITH = '{"parcels":[1,2]}'
PAST_LIMIT = TaskFailure("limit", "its time has passed", code="limit")


async def told(world: World, queue: str = WEB, limit: int = 1_000) -> list[StatusRow]:
    return await world.store.load_statuses(queue, limit)


async def kinds_told(world: World, queue: str = WEB) -> list[str]:
    """The kinds of a queue's statuses, which are those of one task: they must be numbered 1, 2, ..."""
    found = await told(world, queue)
    assert [status.number for status in found] == list(range(1, len(found) + 1))
    assert [status.no for status in found] == sorted({status.no for status in found})
    return [status.kind for status in found]


async def wanted(world: World, task_id: str = "order-1", **changes: Any) -> TaskRow:
    """A task that was claimed, and whose submitter wants to be told."""
    return await world.held(task_id, reply_to=WEB, **changes)


async def operate(world: World, task_no: int, verb: Verb, **what: Any) -> TaskRow:
    task = await world.task(task_no)
    fields = {"by": "ana", "reason": "because", "incarnation": task.incarnation, "store_id": world.store.store_id}
    return (await world.written(Operate(actor="operator", verb=verb, task_no=task_no, **(fields | what)))).task


async def again(world: World, task_no: int) -> TaskRow:
    """The task, claimed once more."""
    (loaded,) = await world.claim()
    assert loaded.task.task_no == task_no
    return loaded.task


async def undone(world: World) -> TaskRow:
    """A task with one completed step, whose undo has been planned; its compensation runs."""
    task, (charge,) = await world.running(await wanted(world), "charge")
    planned = PlanUndo(FAILED, (undo_of(charge, take=True),))
    return (await world.advance(task, [world.reported(charge)], ending=planned)).task


# --- what is told on each way
async def test_a_submission_is_told_at_once_with_all_that_its_reader_needs(world: World) -> None:
    task_no = await world.submit("order-1", reply_to=WEB)
    (status,) = await told(world)
    assert status == StatusRow(status.no, WEB, task_no, "order-1", "fulfil", 1, 1, "received", Instant(NOON), "{}")
    assert kinds(await world.last_events()) == ["task.submitted", "status.published"]


async def test_who_names_no_queue_is_told_nothing(world: World) -> None:
    task = await world.held("order-1")
    ended = (await world.advance(task, ending=Process("1"))).task
    assert (ended.reply_to, ended.status_count) == (None, 0)
    assert await told(world) == []
    assert "status.published" not in kinds(await world.events())


async def test_a_task_that_goes_well_is_received_started_and_completed_with_its_output(world: World) -> None:
    task = await wanted(world)
    world.clock.move(1)
    await world.advance(task, ending=Process(DONE_WITH))
    assert await kinds_told(world) == ["received", "started", "completed"]
    last = (await told(world))[-1]
    assert (last.at, msgspec.json.decode(last.data)) == (world.clock.at, {"output": {"parcels": [1, 2]}})
    assert (await world.task(task.task_no)).status_count == 3


async def test_a_task_is_told_to_have_started_once_however_often_it_is_claimed(world: World) -> None:
    task = await wanted(world)
    await world.advance(task, ending=PutDown(Instant(world.clock.at)))
    task = await again(world, task.task_no)
    await world.process("doomed")
    await world.lose(1)
    await world.written(world.free_command(task))
    await world.advance((await world.claim(2))[0].task, ending=Process("1"))
    assert await kinds_told(world) == ["received", "started", "completed"]


async def test_an_undo_is_told_when_it_begins_and_when_everything_is_undone(world: World) -> None:
    task = await undone(world)
    assert await kinds_told(world) == ["received", "started", "failed"]
    failed = (await told(world))[-1]
    assert msgspec.json.decode(failed.data) == {
        "reason": "charge: declined",
        "cause": "step",
        "step": "charge",
        "code": "declined",
        "public": "The operation could not be completed and is being undone.",
    }
    (_, undo) = (await world.load(task.task_no)).steps
    await world.advance(task, [world.reported(undo)], ending=Compensate(FAILED))
    assert await kinds_told(world) == ["received", "started", "failed", "compensated"]


async def test_an_undo_that_begins_while_attempts_run_is_told_once(world: World) -> None:
    task, (charge,) = await world.running(await wanted(world), "charge")
    task = (await world.advance(task, ending=BeginUndo(FAILED))).task
    assert await kinds_told(world) == ["received", "started", "failed"]
    planned = PlanUndo(FAILED, (undo_of(charge, take=True),))
    task = (await world.advance(task, [world.reported(charge)], ending=planned)).task
    assert await kinds_told(world) == ["received", "started", "failed"]


async def test_a_task_with_nothing_to_undo_is_told_both_in_one_commit(world: World) -> None:
    await world.advance(await wanted(world), ending=Compensate(FAILED))
    assert await kinds_told(world) == ["received", "started", "failed", "compensated"]
    assert kinds(await world.last_events()).count("status.published") == 2


async def test_a_held_task_is_told_to_need_attention_and_why(world: World) -> None:
    task = await wanted(world)
    await world.advance(task, ending=Hold(FAILED))
    assert await kinds_told(world) == ["received", "started", "held"]
    assert msgspec.json.decode((await told(world))[-1].data)["reason"] == "charge: declined"


async def test_an_undo_that_failed_is_told_to_need_attention(world: World) -> None:
    task = await undone(world)
    (_, undo) = (await world.load(task.task_no)).steps
    stopped = TaskFailure("undo", "the undo failed", "charge", "undo_failed", began_by=FAILED)
    await world.advance(task, [world.reported(undo, gave_up())], ending=Hold(stopped))
    assert await kinds_told(world) == ["received", "started", "failed", "held"]


@pytest.mark.parametrize("then", ["compensate", "hold"])
@pytest.mark.parametrize("claimed", [True, False])
async def test_a_task_past_its_limit_is_told_what_becomes_of_it(world: World, then: str, claimed: bool) -> None:
    task_no = await world.submit("order-1", reply_to=WEB, complete_within=10.0)
    await world.process("p1")
    if claimed:
        await world.claim()
    world.clock.move(10)
    task, term = await world.task(task_no), await world.lead(1)
    ending = BeginUndo(PAST_LIMIT) if then == "compensate" else Hold(PAST_LIMIT)
    found = {"fence": task.fence, "revision": task.revision, "state": task.state}
    await world.written(EndByLimit(actor="leader", task_no=task_no, ending=ending, term=term, **found))
    started = ["started"] if claimed else []
    assert await kinds_told(world) == ["received", *started, "failed" if then == "compensate" else "held"]
    if then == "compensate":
        await world.advance(await again(world, task_no), ending=Compensate(PAST_LIMIT))
        assert await kinds_told(world) == ["received", *started, "failed", "compensated"]


async def test_a_task_lost_too_often_is_told_to_need_attention(world: World) -> None:
    (task_no,) = await world.suspects("order-1", reply_to=WEB)
    assert await kinds_told(world) == ["received", "started"]
    (loaded,) = await world.claim(1)
    await world.lose(1)
    lost = TaskFailure("lost", "it was lost too often", code="lost")
    await world.written(world.free_command(loaded.task, hold=lost))
    assert await kinds_told(world) == ["received", "started", "held"]
    assert (await world.task(task_no)).state == "held"


# --- what people do is told too
async def test_a_resubmitted_task_is_told_to_have_started_and_its_numbers_go_on(world: World) -> None:
    task, (charge,) = await world.running(await wanted(world), "charge")
    redo = msgspec.structs.replace(FAILED, redo=(1,))
    task = (await world.advance(task, [world.reported(charge, gave_up())], ending=Hold(redo))).task
    await operate(world, task.task_no, Verb.RESUBMIT)
    task = await again(world, task.task_no)
    await world.advance(task, ending=Process("1"))
    assert await kinds_told(world) == ["received", "started", "held", "started", "completed"]
    assert [status.incarnation for status in await told(world)] == [1, 1, 1, 2, 2]


async def test_a_task_held_before_it_began_is_told_to_have_started_when_it_does(world: World) -> None:
    task_no = await world.submit("order-1", reply_to=WEB, complete_within=10.0)
    await world.process("p1")
    world.clock.move(10)
    task, term = await world.task(task_no), await world.lead(1)
    found = {"fence": task.fence, "revision": task.revision, "state": task.state}
    await world.written(EndByLimit(actor="leader", task_no=task_no, ending=Hold(PAST_LIMIT), term=term, **found))
    await operate(world, task_no, Verb.RESUBMIT)
    assert await kinds_told(world) == ["received", "held"]
    await world.advance(await again(world, task_no), ending=Process("1"))
    assert await kinds_told(world) == ["received", "held", "started", "completed"]


async def test_a_processed_task_undone_by_hand_is_told_to_have_failed_and_to_be_compensated(world: World) -> None:
    task, (charge,) = await world.running(await wanted(world), "charge")
    task = (await world.advance(task, [world.reported(charge)], ending=Process("1"))).task
    await operate(world, task.task_no, Verb.COMPENSATE)
    assert await kinds_told(world) == ["received", "started", "completed", "failed"]
    assert msgspec.json.decode((await told(world))[-1].data)["cause"] == "person"
    task = await again(world, task.task_no)
    task = (await world.advance(task, ending=PlanUndo(FAILED, (undo_of(charge, take=True),)))).task
    (_, undo) = (await world.load(task.task_no)).steps
    await world.advance(task, [world.reported(undo)], ending=Compensate(FAILED))
    assert await kinds_told(world) == ["received", "started", "completed", "failed", "compensated"]
    assert [status.incarnation for status in await told(world)] == [1, 1, 1, 2, 2]


async def test_an_undo_that_goes_on_is_told_to_have_failed_again_with_the_first_reason(world: World) -> None:
    task = await undone(world)
    (_, undo) = (await world.load(task.task_no)).steps
    stopped = TaskFailure("undo", "the undo failed", "charge", "undo_failed", began_by=FAILED)
    await world.advance(task, [world.reported(undo, gave_up())], ending=Hold(stopped))
    await operate(world, task.task_no, Verb.RESUBMIT)
    task = await again(world, task.task_no)
    answer = await world.advance(task, ending=NextUndo(undo.step_no, True, 10.0))
    (undo,) = answer.steps
    await world.advance(answer.task, [world.reported(undo)], ending=Compensate(FAILED))
    expected = ["received", "started", "failed", "held", "failed", "compensated"]
    assert await kinds_told(world) == expected
    assert msgspec.json.decode((await told(world))[4].data)["reason"] == "charge: declined"


async def test_a_task_cancelled_before_it_began_is_told_its_end_without_a_start(world: World) -> None:
    task_no = await world.submit("order-1", reply_to=WEB)
    await operate(world, task_no, Verb.CANCEL)
    await world.advance(await again(world, task_no), ending=Compensate(FAILED))
    assert await kinds_told(world) == ["received", "failed", "compensated"]


async def test_a_task_cancelled_past_a_pivot_is_told_to_need_attention(world: World) -> None:
    task, (charge,) = await world.opened(await wanted(world), step("charge", pivot=True, take=True))
    task = (await world.advance(task, [world.reported(charge)])).task
    await operate(world, task.task_no, Verb.CANCEL)
    assert await kinds_told(world) == ["received", "started", "held"]


async def test_a_task_run_anew_is_told_to_have_started_when_it_does(world: World) -> None:
    task = (await world.advance(await wanted(world), ending=Compensate(FAILED))).task
    await operate(world, task.task_no, Verb.RESUBMIT)
    assert await kinds_told(world) == ["received", "started", "failed", "compensated"]
    await world.advance(await again(world, task.task_no), ending=Process("1"))
    assert await kinds_told(world) == ["received", "started", "failed", "compensated", "started", "completed"]
    assert [status.incarnation for status in await told(world)] == [1, 1, 1, 1, 2, 2]


async def test_verbs_that_change_no_course_are_told_to_nobody(world: World) -> None:
    task, _ = await world.running(await wanted(world, complete_within=60.0), "charge")
    await operate(world, task.task_no, Verb.EXTEND, within=600.0)
    await operate(world, task.task_no, Verb.PAUSE)
    await operate(world, task.task_no, Verb.RESUME)
    await operate(world, task.task_no, Verb.ANSWER, step=1, result="1")
    assert await kinds_told(world) == ["received", "started"]


async def test_a_verb_that_is_refused_tells_nothing(world: World) -> None:
    task = (await world.advance(await wanted(world), ending=Process("1"))).task
    cancel = Operate(actor="operator", verb=Verb.CANCEL, task_no=task.task_no, by="a", reason="b", incarnation=1)
    await world.refused(cancel, "not_allowed")
    assert await kinds_told(world) == ["received", "started", "completed"]


# --- the same commit
async def test_the_same_submission_again_tells_nothing_again(world: World) -> None:
    await world.submit("order-1", reply_to=WEB)
    batch = [submission("order-1", reply_to=queue) for queue in (WEB, "another", None)]
    assert await world.store.submit(batch) == [Submitted(1, False)] * 3
    await world.store.submit([submission("order-1", reply_to=WEB, body_hash="another")])
    assert await kinds_told(world) == ["received"]
    assert await told(world, "another") == []


async def test_the_same_submission_twice_in_a_batch_is_told_once(world: World) -> None:
    await world.store.submit([submission("order-1", reply_to=WEB)] * 3)
    assert await kinds_told(world) == ["received"]


async def test_what_comes_late_or_twice_tells_nothing(world: World) -> None:
    task, (charge,) = await world.running(await wanted(world), "charge")
    ending = world.advance_command(task, [world.reported(charge)], ending=Process("1"))
    await world.written(ending)
    await world.refused(ending, "moved_on")
    await world.refused(world.report_command(charge), "stale" if charge.fence != 1 else "duplicate")
    assert await kinds_told(world) == ["received", "started", "completed"]


Everything = tuple[list[Loaded], list[HistoryRow], list[StatusRow]]


async def everything(world: World) -> Everything:
    return await world.rows(), [row async for row in world.store.history()], await told(world)


async def _illegal(world: World) -> list[Any]:
    """A good end, then a command that the table of states does not know."""
    good, undoing = await wanted(world, "good"), await wanted(world, "undoing")
    undoing = (await world.advance(undoing, ending=BeginUndo(FAILED))).task
    return [
        world.advance_command(good, ending=Process("1")),
        world.advance_command(undoing, ending=BeginUndo(FAILED)),
    ]


async def test_of_a_batch_that_fails_neither_the_ends_nor_what_tells_of_them_is_kept(world: World) -> None:
    batch = await _illegal(world)
    before = await everything(world)
    with pytest.raises(ArrieroError, match="cannot be undo_begun"):
        await world.store.apply(batch)
    assert await everything(world) == before
    await world.written(batch[0])
    assert [(status.task_id, status.kind) for status in await told(world)][-1] == ("good", "completed")


async def test_of_a_batch_of_submissions_that_fails_nothing_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.submit("before", reply_to=WEB)
    before = await everything(world)

    make = transitions.build_new_task

    def fails_at_b(command: Submit, task_no: int, now: Instant, spot: Spot | None = None) -> Change:
        if command.task_id == "b":
            raise ZeroDivisionError
        return make(command, task_no, now, spot)

    monkeypatch.setattr(transitions, "build_new_task", fails_at_b)
    with pytest.raises(ZeroDivisionError):
        await world.store.submit([submission(task_id, reply_to=WEB) for task_id in "abc"])
    monkeypatch.undo()
    assert await everything(world) == before
    await world.submit("after", reply_to=WEB)
    assert [status.task_id for status in await told(world)] == ["before", "after"]


# --- reading and acknowledging
async def _mail(world: World, *task_ids: str, queue: str = WEB) -> list[int]:
    """One status each, a second apart; answers their numbers."""
    for task_id in task_ids:
        await world.submit(task_id, reply_to=queue)
        world.clock.move(1)
    return [status.no for status in await told(world, queue)]


def names(statuses: list[StatusRow]) -> list[str]:
    return [status.task_id or f"{_gap(status)['count']} dropped" for status in statuses]


def _gap(status: StatusRow) -> dict[str, Any]:
    assert (status.kind, status.number, status.task_no) == ("dropped", 0, 0)
    found: dict[str, Any] = msgspec.json.decode(status.data)
    return found


async def test_a_queue_gives_the_oldest_first_and_no_more_than_was_asked_for(world: World) -> None:
    await _mail(world, "c", "a", "b")
    assert names(await told(world)) == ["c", "a", "b"]
    assert names(await told(world, limit=2)) == ["c", "a"]
    assert await told(world, limit=0) == []


async def test_queues_are_apart_also_when_their_names_are_alike(world: World) -> None:
    queues = ["web", "Web", "web ", "web%", "wéb", "web-1"]
    for queue in queues:
        await world.submit(f"order-{queue}", reply_to=queue)
    for queue in queues:
        assert names(await told(world, queue)) == [f"order-{queue}"]
    assert await told(world, "unknown") == []


async def test_reading_takes_nothing_away_and_acknowledging_takes_only_what_is_named(world: World) -> None:
    first, second, third = await _mail(world, "a", "b", "c")
    for _ in range(2):
        assert names(await told(world)) == ["a", "b", "c"]
    await world.store.acknowledge([(WEB, second)])
    assert names(await told(world)) == ["a", "c"]
    await world.store.acknowledge([(WEB, first), (WEB, third)])
    assert await told(world) == []


async def test_what_is_gone_or_in_another_queue_is_acknowledged_without_effect(world: World) -> None:
    (number,) = await _mail(world, "a")
    await world.store.acknowledge([("another", number), (WEB, number + 1), (WEB, 0)])
    assert names(await told(world)) == ["a"]
    for _ in range(2):
        await world.store.acknowledge([(WEB, number)])
    assert await told(world) == []
    await world.store.acknowledge([])


async def test_no_number_is_given_twice_also_when_the_queue_was_empty(world: World) -> None:
    """Else an acknowledgement that comes late would take a message away that nobody has seen."""
    seen: set[int] = set()
    for task_id in "abc":
        (number,) = await _mail(world, task_id)
        assert number not in seen
        seen.add(number)
        await world.store.acknowledge([(WEB, number)])


async def test_no_number_is_given_twice_by_a_store_that_was_opened_again(
    open_sqlite: Callable[[], Awaitable[StateStore]],
) -> None:
    seen: list[int] = []
    for task_id in "abc":
        store = await open_sqlite()
        await store.submit([submission(task_id, reply_to=WEB)])
        (status,) = await store.load_statuses(WEB, 10)
        await store.acknowledge([(WEB, status.no)])
        seen.append(status.no)
        await store.close()
    assert seen == sorted(set(seen))


async def test_acknowledging_leaves_task_and_history_alone(world: World) -> None:
    numbers = await _mail(world, "a")
    before = (await world.rows(), [row async for row in world.store.history()])
    await world.store.acknowledge([(WEB, number) for number in numbers])
    assert (await world.rows(), [row async for row in world.store.history()]) == before
    task = (await world.claim())[0].task
    assert [(status.number, status.kind) for status in await told(world)] == [(2, "started")]
    await world.advance(task, ending=Process("1"))
    assert [status.number for status in await told(world)] == [2, 3]


# --- nobody reads
async def test_old_statuses_leave_one_gap_mark_that_counts_them_and_comes_first(world: World) -> None:
    await _mail(world, "a", "b", "c")
    assert await world.store.drop_statuses(Instant(NOON + 2_000_000), 100) == 2  # what is as old as the instant stays
    mark, left = await told(world)
    assert names([mark, left]) == ["2 dropped", "c"]
    assert mark.at == world.clock.at
    assert _gap(mark) == {"count": 2, "oldest_at": NOON, "newest_at": NOON + 1_000_000}
    assert mark.no > left.no  # it comes first all the same


async def test_a_gap_mark_grows_with_what_is_dropped_after_it(world: World) -> None:
    await _mail(world, "a", "b", "c")
    before = (await told(world))[0].no
    for seconds in (1, 2, 3):
        assert await world.store.drop_statuses(Instant(NOON + seconds * 1_000_000), 100) == 1
        mark = (await told(world))[0]
        assert _gap(mark) == {"count": seconds, "oldest_at": NOON, "newest_at": NOON + (seconds - 1) * 1_000_000}
        assert mark.no > before  # another mark than before: what acknowledged that one leaves this one alone
        before = mark.no
    assert names(await told(world)) == ["3 dropped"]


async def test_a_limited_drop_takes_the_oldest_and_the_rest_the_next_time(world: World) -> None:
    await _mail(world, "a", "b", "c", "d")
    later = Instant(world.clock.at)
    assert await world.store.drop_statuses(later, 3) == 3
    assert names(await told(world)) == ["3 dropped", "d"]
    assert await world.store.drop_statuses(later, 3) == 1
    assert names(await told(world)) == ["4 dropped"]
    assert await world.store.drop_statuses(later, 3) == 0


async def test_a_gap_mark_is_acknowledged_like_the_others_and_the_next_counts_from_one(world: World) -> None:
    await _mail(world, "a", "b")
    await world.store.drop_statuses(Instant(world.clock.at), 100)
    (mark,) = await told(world)
    await world.store.acknowledge([(WEB, mark.no)])
    assert await told(world) == []
    await _mail(world, "c", "d")
    await world.store.drop_statuses(Instant(world.clock.at), 100)
    assert names(await told(world)) == ["2 dropped"]


async def test_a_gap_mark_is_never_dropped_itself(world: World) -> None:
    await _mail(world, "a")
    await world.store.drop_statuses(Instant(world.clock.at), 100)
    before = await told(world)
    world.clock.move(1e6)
    assert await world.store.drop_statuses(Instant(world.clock.at), 100) == 0
    assert await told(world) == before


async def test_each_queue_has_a_gap_mark_of_its_own(world: World) -> None:
    await _mail(world, "a", "b")
    await _mail(world, "c", queue="another")
    await _mail(world, "fresh", queue="third")
    assert await world.store.drop_statuses(Instant(world.clock.at - 1_000_000), 100) == 3
    assert names(await told(world)) == ["2 dropped"]
    assert names(await told(world, "another")) == ["1 dropped"]
    assert names(await told(world, "third")) == ["fresh"]


async def test_what_was_acknowledged_is_not_counted_as_dropped(world: World) -> None:
    first, *_ = await _mail(world, "a", "b")
    await world.store.acknowledge([(WEB, first)])
    await world.store.drop_statuses(Instant(world.clock.at), 100)
    assert names(await told(world)) == ["1 dropped"]


async def test_a_drop_is_in_the_history_of_the_store_and_nothing_when_nothing_is_old(world: World) -> None:
    await _mail(world, "a", "b")
    assert await world.store.drop_statuses(Instant(NOON), 100) == 0
    assert await world.links(0) == []
    await world.store.drop_statuses(Instant(world.clock.at), 100)
    (row,) = [row async for row in world.store.history(0)]
    assert (row.actor, msgspec.json.decode(row.events)) == (UPKEEP, [{"type": "statuses.dropped", "count": 2}])
    assert (await world.task(1)).status_count == 1  # the task's own numbers go on


async def test_a_queue_s_numbers_go_on_behind_a_gap(world: World) -> None:
    task = await wanted(world)
    world.clock.move(1)
    await world.store.drop_statuses(Instant(world.clock.at), 100)
    await world.advance(task, ending=Process("1"))
    mark, last = await told(world)
    assert (_gap(mark)["count"], last.number, last.kind) == (2, 3, "completed")


async def test_the_survey_counts_what_waits_in_each_queue_and_since_when(world: World) -> None:
    await _mail(world, "a", "b")
    await _mail(world, "c", queue="another")
    found = {queue.queue: (queue.count, queue.oldest_at) for queue in (await world.store.survey()).queues}
    assert found == {WEB: (2, NOON), "another": (1, NOON + 2_000_000)}
