"""Convoys: tasks of one key one after the other, in order; what happens at their head; people's verbs on a key."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from store_world import FAILED, TASK_POLICY, World, kinds, retry_at, step, submission

from arriero.core import transitions
from arriero.core.lease import is_on_probation, on_process_lost
from arriero.core.undo import decide_next_undo
from arriero.model import ConvoyState, ConvoyVerb, StepRow, StepState, TaskRow, TaskState, Turn, Verb
from arriero.model.answers import Applied, Claimed, ConvoyApplied, Refusal, Submitted
from arriero.model.commands import EndByLimit, HandOver, Operate, OperateConvoy
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Compensate, Hold, Keep, PlanUndo, Process, PutDown
from arriero.model.policies import ConvoyOverrides, ConvoyPolicy, Supervision, TaskPolicy
from arriero.store.contract import ConvoyLoaded, Purge

HERE = HandOver(("fulfil",))
KEY = "customer-7"


def policy(**given: Any) -> str:
    return msgspec.json.encode(TaskPolicy(None, Supervision(), ConvoyPolicy(**given))).decode()


async def filled(world: World, *task_ids: str, **changes: Any) -> list[int]:
    """Tasks submitted to one convoy, in this order."""
    await world.process()
    return [await world.submit(task_id, convoy=KEY, **changes) for task_id in task_ids]


async def numbered(world: World, *sequences: int, **changes: Any) -> list[int]:
    return [await world.submit(f"s{n}", convoy=KEY, sequence=n, **changes) for n in sequences]


async def head(world: World, process_no: int = 1) -> TaskRow:
    (loaded,) = await world.claim(process_no)
    return loaded.task


async def done(world: World, task: TaskRow, **changes: Any) -> Applied:
    return await world.advance(task, ending=Process('"done"'), **changes)


async def failed(world: World, task: TaskRow, **changes: Any) -> Applied:
    return await world.advance(task, ending=Hold(FAILED), **changes)


async def convoy(world: World, key: str = KEY) -> ConvoyLoaded:
    found = await world.store.find_convoy(key)
    assert found is not None
    return found


async def operate(world: World, task_no: int, verb: Verb, **changes: Any) -> Applied:
    task = await world.task(task_no)
    fields = {"actor": "ann", "verb": verb, "task_no": task_no, "incarnation": task.incarnation, "by": "ann"}
    return await world.written(Operate(reason="test", **(fields | changes)))


async def on_key(world: World, verb: ConvoyVerb, key: str = KEY, **changes: Any) -> ConvoyLoaded:
    before = (await convoy(world, key)).convoy
    fields = {"actor": "ann", "verb": verb, "convoy_no": before.convoy_no, "fence": before.fence, "by": "ann"}
    answer = await world.apply(OperateConvoy(reason="test", **(fields | changes)))
    assert isinstance(answer, ConvoyApplied), answer
    assert answer.convoy == (await convoy(world, key)).convoy
    return await convoy(world, key)


async def refused_on_key(world: World, verb: ConvoyVerb, verdict: str = "not_allowed", **changes: Any) -> str:
    before = await convoy(world)
    fields = {"actor": "ann", "verb": verb, "convoy_no": before.convoy.convoy_no, "fence": None, "by": "ann"}
    answer = await world.apply(OperateConvoy(reason="test", **(fields | changes)))
    assert isinstance(answer, Refusal), answer
    assert answer.verdict == verdict
    assert await convoy(world) == before
    return answer.detail


@contextmanager
def without_convoys() -> Iterator[None]:
    """Commands are applied as a release before convoys did it."""
    settle = transitions.settle_convoy
    transitions.settle_convoy = lambda *_args, **_kwargs: None  # type: ignore[assignment]  # put back below
    try:
        yield
    finally:
        transitions.settle_convoy = settle


async def ids_in_order(world: World, count: int = 10) -> list[str]:
    """The ids of tasks in the order in which their turn comes, each ended well."""
    handled = []
    for _ in range(count):
        claimed = await world.claim()
        if not claimed:
            break
        assert len(claimed) == 1
        handled.append(claimed[0].task.task_id)
        await done(world, claimed[0].task)
    return handled


# --- places
async def test_tasks_of_a_key_are_claimed_one_after_the_other_in_the_order_of_submission(world: World) -> None:
    await filled(world, "a", "b", "c")
    assert [task.task_id for task in (await convoy(world)).members] == ["a", "b", "c"]
    assert await ids_in_order(world) == ["a", "b", "c"]
    assert (await convoy(world)).convoy.state is ConvoyState.IDLE


async def test_keys_do_not_wait_for_one_another(world: World) -> None:
    await world.process()
    for number in range(3):
        for key in ("x", "y", "z"):
            await world.submit(f"{key}{number}", convoy=key)
    assert await world.claimed_ids() == ["x0", "y0", "z0"]


async def test_one_batch_may_hold_tasks_of_many_keys_and_many_of_one(world: World) -> None:
    await world.process()
    batch = [submission(f"{key}{n}", convoy=key) for n in range(3) for key in ("y", "x")]
    answers = await world.store.submit([*batch, submission("free")])
    assert all(isinstance(answer, Submitted) and answer.created for answer in answers)
    assert sorted(await world.claimed_ids()) == ["free", "x0", "y0"]
    assert [task.place for task in (await convoy(world, "x")).members] == [1, 2, 3]


async def test_higher_priority_comes_first_between_keys_and_never_inside_one(world: World) -> None:
    await world.process()
    await world.submit("low-1", convoy="low", priority=1)
    await world.submit("low-2", convoy="low", priority=9)
    await world.submit("high-1", convoy="high", priority=8)
    assert await world.claimed_ids(limit=1) == ["high-1"]
    assert await world.claimed_ids(limit=1) == ["low-1"]


async def test_the_same_id_again_takes_no_second_place(world: World) -> None:
    (first,) = await filled(world, "a")
    (answer,) = await world.store.submit([submission("a", convoy=KEY)])
    assert answer == Submitted(first, False)
    (one, other) = await world.store.submit([submission("b", convoy=KEY), submission("b", convoy=KEY)])
    assert isinstance(one, Submitted)
    assert isinstance(other, Submitted)
    assert (one.created, other.created) == (True, False)
    assert [task.task_id for task in (await convoy(world)).members] == ["a", "b"]


@pytest.mark.parametrize("changes", [{}, {"convoy": "another"}, {"convoy": KEY, "sequence": 1}], ids=str)
async def test_a_known_id_in_another_convoy_is_refused(world: World, changes: dict[str, Any]) -> None:
    await filled(world, "a")
    (answer,) = await world.store.submit([submission("a", **changes)])
    assert isinstance(answer, Refusal)
    assert "'a' exists" in answer.detail


async def test_a_task_with_a_delay_holds_those_behind_it_until_its_time(world: World) -> None:
    await world.process()
    await world.submit("first", convoy=KEY)
    await world.submit("later", convoy=KEY, delay=60.0)
    await world.submit("last", convoy=KEY)
    await done(world, await head(world))
    assert await world.claim() == []
    world.clock.move(60)
    assert await ids_in_order(world) == ["later", "last"]


async def test_a_key_without_work_is_not_due_and_not_listed(world: World) -> None:
    await filled(world, "a")
    await done(world, await head(world))
    assert await world.store.list_convoys() == []
    assert [loaded.convoy.key for loaded in await world.store.list_convoys("idle")] == [KEY]
    due = await world.store.due(("fulfil",), ("payments",))
    assert (due.tasks, due.next_at) == (False, None)


async def test_what_waits_for_its_turn_is_not_due(world: World) -> None:
    await filled(world, "a", "b")
    await head(world)
    assert (await world.store.due(("fulfil",), ("payments",))).tasks is False
    assert (await world.store.survey()).waiting == (0, None)


# --- handing the key over
async def test_the_end_of_one_and_the_claim_of_the_next_are_one_command(world: World) -> None:
    _, second = await filled(world, "a", "b")
    task = await head(world)
    answer = await done(world, task, hand_over=HERE)
    assert answer.next == await world.load(second)
    assert answer.next is not None
    assert answer.next.task.locked_by == 1
    last = await done(world, answer.next.task, hand_over=HERE)
    assert last.next is None
    assert kinds(await world.last_events(task.task_no))[-1] == "convoy.closed"


async def test_without_a_hand_over_the_next_is_free_for_anybody(world: World) -> None:
    await filled(world, "a", "b")
    await world.process("p2")
    await done(world, await head(world))
    assert await world.claimed_ids(2) == ["b"]


@pytest.mark.parametrize("changes", [{"workflow": "another"}, {"delay": 60.0}], ids=str)
async def test_a_next_task_that_this_process_cannot_begin_is_not_handed_over(
    world: World, changes: dict[str, Any]
) -> None:
    await filled(world, "a")
    await world.submit("b", convoy=KEY, **changes)
    assert (await done(world, await head(world), hand_over=HERE)).next is None
    world.clock.move(60)
    assert await world.claimed_ids(workflows=("another", "fulfil")) == ["b"]


async def came_back_with_attempts(world: World, *process_nos: int) -> tuple[int, list[StepRow]]:
    """A head that failed and was passed over, came back and waits behind ``b``; its attempts go on at these processes."""
    first, _ = await filled(world, "a", "b", policy=policy(head="skip"))
    task = await head(world)
    task, _ = await world.opened(task, step(), step("reserve"))
    one_place = {"room": (("payments", 1),)}
    running = [dispatch.step for no in process_nos for dispatch in await world.take(no, **one_place)]
    await failed(world, task)
    await operate(world, first, Verb.RESUBMIT)
    assert (await world.task(first)).turn is Turn.WAITING
    return first, running


async def test_a_task_on_probation_is_not_handed_over_but_claimed_by_who_handles_no_other(world: World) -> None:
    """Two processes died over attempts of it while it waited. Beside other tasks nobody could tell who is guilty."""
    for name in ("agents-1", "agents-2", "third"):
        await world.process(name)
    first, running = await came_back_with_attempts(world, 1, 2)
    (second,) = await world.claim(3)
    for process_no, attempt in enumerate(running, 1):
        await world.lose(process_no)
        (command,) = on_process_lost(await world.store.load_held(process_no, 10), process_no, "other")
        assert (command.fence, command.steps) == (None, ((attempt.step_no, attempt.fence),))
        await world.written(command)
    assert is_on_probation(await world.task(first))
    assert (await done(world, second.task, hand_over=HERE)).next is None
    assert await world.claim(3, probation=False) == []  # it handles one already
    assert await world.claimed_ids(3) == ["a"]


async def test_a_waiting_task_that_has_done_something_is_undone_when_it_is_cancelled(world: World) -> None:
    first, (charge,) = await came_back_with_attempts(world, 1)
    await world.report(charge)
    cancelled = (await operate(world, first, Verb.CANCEL)).task
    assert (cancelled.state, cancelled.turn) == (TaskState.COMPENSATING, Turn.WAITING)
    (second,) = await world.claim()
    await done(world, second.task)
    (loaded,) = await world.claim()
    assert loaded.task.task_id == "a"
    ending = decide_next_undo(loaded, "store")
    assert isinstance(ending, PlanUndo)
    assert [(new.name, new.undoes) for new in ending.planned] == [("charge", charge.step_no)]


@pytest.mark.parametrize("ends", ["retry", "lost"])
async def test_an_attempt_of_a_waiting_task_that_ends_is_not_made_again_before_its_turn(
    world: World, ends: str
) -> None:
    first, (charge,) = await came_back_with_attempts(world, 1)
    if ends == "retry":
        await world.report(charge, retry_at(world.clock.at, in_doubt=True))
    else:
        await world.process("p2")
        await world.lose(1)
        await world.written(world.free_command(await world.task(first), [charge], fence=None, lost_by=1))
    assert [one.state for one in (await world.load(first)).steps] == [StepState.WITHDRAWN] * 2
    assert (await world.step(charge.step_no)).in_doubt
    world.clock.move(60)
    assert await world.take(2) == []
    assert not (await world.store.due(("fulfil",), ("payments",))).steps


async def test_a_paused_task_keeps_its_turn_and_its_key_waits(world: World) -> None:
    _, second, _ = await filled(world, "a", "b", "c")
    await operate(world, second, Verb.PAUSE)
    assert (await done(world, await head(world), hand_over=HERE)).next is None
    assert await world.claim() == []
    await operate(world, second, Verb.RESUME)
    assert await ids_in_order(world) == ["b", "c"]


async def test_a_lost_holder_hands_the_key_over_and_can_do_nothing_more_with_it(world: World) -> None:
    await filled(world, "a", "b")
    second_process = await world.process("p2")
    task = await head(world)
    await world.lose(1)
    await world.written(world.free_command(task))
    (again,) = await world.claim(second_process)
    assert again.task.task_id == "a"
    await world.refused(world.advance_command(task, ending=Process("1"), hand_over=HERE), "moved_on")
    assert await world.claim(second_process) == []
    assert await ids_of(world, await done(world, again.task, hand_over=HERE)) == "b"


async def ids_of(world: World, answer: Applied) -> str:
    assert answer.next is not None
    return answer.next.task.task_id


async def test_a_task_that_sleeps_keeps_its_turn_and_holds_no_memory(world: World) -> None:
    await filled(world, "a", "b")
    task = await head(world)
    answer = await world.advance(task, ending=PutDown(None))
    assert answer.task.turn is Turn.OPEN
    assert await world.claim() == []


async def test_a_task_is_handled_once_its_undo_is_done(world: World) -> None:
    await filled(world, "a", "b")
    answer = await world.advance(await head(world), ending=BeginUndo(FAILED))
    assert await world.claim() == []
    answer = await world.advance(answer.task, ending=Compensate(FAILED), hand_over=HERE)
    assert answer.task.turn is Turn.ENDED
    assert await ids_of(world, answer) == "b"


async def test_two_keys_end_their_tasks_in_one_batch(world: World) -> None:
    await world.process()
    for key in ("x", "y"):
        for number in range(2):
            await world.submit(f"{key}{number}", convoy=key)
    x, y = await world.claim()
    commands = [world.advance_command(loaded.task, ending=Process("1"), hand_over=HERE) for loaded in (x, y)]
    answers = await world.store.apply(commands)
    assert [await ids_of(world, answer) for answer in answers if isinstance(answer, Applied)] == ["x1", "y1"]


async def test_the_end_of_a_task_a_verb_on_the_next_and_a_claim_may_share_a_batch(world: World) -> None:
    first, second, _ = await filled(world, "a", "b", "c")
    task = await head(world)
    cancel = Operate(
        actor="ann", verb=Verb.CANCEL, task_no=second, incarnation=1, by="ann", reason="not wanted any more"
    )
    answers = await world.store.apply([world.advance_command(task, ending=Process("1")), cancel, world.claim_command()])
    assert isinstance(answers[2], Claimed)
    claimed = {loaded.task.task_id: loaded.task for loaded in answers[2].tasks}
    assert set(claimed) == {"b"}  # it had its turn as it was cancelled: its undo is driven first
    assert (await world.task(first)).turn is Turn.ENDED
    await world.advance(claimed["b"], ending=Compensate(FAILED))
    assert await ids_in_order(world) == ["c"]


# --- the state of the key
async def test_what_a_task_keeps_is_there_for_the_next_and_only_when_it_is_processed(world: World) -> None:
    await filled(world, "a", "b", "c")
    answer = await world.advance(await head(world), ending=Process("1", '{"pence":5}'), hand_over=HERE)
    assert answer.next is not None
    assert answer.next.convoy is not None
    assert answer.next.convoy.value == '{"pence":5}'
    await world.advance(answer.next.task, ending=BeginUndo(FAILED))
    await world.advance((await world.load(answer.next.task.task_no)).task, ending=Compensate(FAILED))
    (last,) = await world.claim()
    assert last.convoy is not None
    assert last.convoy.value == '{"pence":5}'
    await world.advance(last.task, ending=Process("1"))
    assert (await convoy(world)).convoy.value == '{"pence":5}'


# --- a head that fails for good
async def test_under_wait_the_key_stands_still_until_its_head_is_mended(world: World) -> None:
    first, _ = await filled(world, "a", "b")
    await failed(world, await head(world), hand_over=HERE)
    assert (await convoy(world)).convoy.state is ConvoyState.STOPPED
    await world.submit("c", convoy=KEY)
    assert await world.claim() == []
    await operate(world, first, Verb.RESUBMIT)
    assert await ids_in_order(world) == ["a", "b", "c"]


async def test_under_skip_it_is_set_aside_and_the_key_goes_on(world: World) -> None:
    await filled(world, "a", "b", policy=policy(head="skip"))
    answer = await failed(world, await head(world), hand_over=HERE)
    assert answer.task.turn is Turn.SET_ASIDE
    assert await ids_of(world, answer) == "b"
    found = await convoy(world)
    assert (found.set_aside, [task.task_id for task in found.passed_over]) == (1, ["a"])


async def test_under_park_only_a_release_restarts_the_key_also_when_its_head_is_mended(world: World) -> None:
    first, _ = await filled(world, "a", "b", policy=policy(head="park"))
    await failed(world, await head(world), hand_over=HERE)
    assert (await convoy(world)).convoy.shown == "parked"
    await operate(world, first, Verb.RESUBMIT)
    assert await world.claim() == []
    await on_key(world, ConvoyVerb.RELEASE)
    assert await ids_in_order(world) == ["a", "b"]


async def test_a_release_before_the_head_is_mended_waits_for_it(world: World) -> None:
    first, _ = await filled(world, "a", "b", policy=policy(head="park"))
    await failed(world, await head(world))
    found = await on_key(world, ConvoyVerb.RELEASE)
    assert found.convoy.shown == "stopped"
    assert await world.claim() == []
    await operate(world, first, Verb.RESUBMIT)
    assert await ids_in_order(world) == ["a", "b"]


async def test_a_skip_by_a_person_sets_the_head_aside_and_it_may_come_back_openly_out_of_place(world: World) -> None:
    first, *_ = await filled(world, "a", "b", "c")
    await failed(world, await head(world))
    await on_key(world, ConvoyVerb.SKIP)
    task = await head(world)
    assert task.task_id == "b"
    await operate(world, first, Verb.RESUBMIT)
    (returned,) = [event for event in await world.last_events(first) if event["type"] == "convoy.returned"]
    assert returned["place_lost"] is True
    assert await world.claim() == []  # another of its key is at work
    await done(world, task)
    assert await ids_in_order(world) == ["a", "c"]


async def test_a_processed_task_that_is_compensated_waits_for_the_lock_of_its_key(world: World) -> None:
    first, _ = await filled(world, "a", "b")
    task, (charge,) = await world.running(await head(world), "charge")
    answer = await world.advance(task, [world.reported(charge)], ending=Process("1"), hand_over=HERE)
    assert answer.next is not None
    await operate(world, first, Verb.COMPENSATE)
    assert (await world.task(first)).turn is Turn.WAITING
    assert await world.claim() == []
    await done(world, answer.next.task)
    (loaded,) = await world.claim()
    assert (loaded.task.task_id, loaded.task.state) == ("a", TaskState.COMPENSATING)


async def test_a_task_reopened_in_an_idle_key_is_claimed_at_once(world: World) -> None:
    (first,) = await filled(world, "a", policy=policy(head="skip"))
    await failed(world, await head(world))
    await operate(world, first, Verb.RESUBMIT)
    assert (await world.store.due(("fulfil",), ())).tasks is True
    assert await ids_in_order(world) == ["a"]


# --- what ends while it waits
async def test_a_waiting_task_that_is_cancelled_ends_at_once_and_is_passed_over(world: World) -> None:
    _, second, _ = await filled(world, "a", "b", "c")
    task = await head(world)
    answer = await operate(world, second, Verb.CANCEL)
    assert (answer.task.state, answer.task.turn) == (TaskState.COMPENSATED, Turn.ENDED)
    assert await ids_of(world, await done(world, task, hand_over=HERE)) == "c"


async def test_a_waiting_task_whose_limit_passes_is_undone_at_once_and_under_hold_judged_in_its_turn(
    world: World,
) -> None:
    await filled(world, "a")
    undone, held = (
        await world.submit("b", convoy=KEY, complete_within=5.0),
        await world.submit("c", convoy=KEY, complete_within=5.0),
    )
    await world.submit("d", convoy=KEY)
    task = await head(world)
    world.clock.move(6)
    term = await world.lead(1)
    failure = TaskFailure("limit", "its own limit passed")
    for number, ending in ((undone, BeginUndo(failure)), (held, Hold(failure))):
        row = await world.task(number)
        fields = {"fence": row.fence, "revision": row.revision, "state": row.state}
        await world.written(EndByLimit(actor="leader", task_no=number, ending=ending, term=term, **fields))
    assert (await world.task(undone)).state is TaskState.COMPENSATED
    assert (await world.task(held)).turn is Turn.WAITING
    await done(world, task)
    assert await world.claim() == []
    found = await convoy(world)
    assert (found.convoy.state, found.convoy.open_task) == (ConvoyState.STOPPED, held)
    await on_key(world, ConvoyVerb.SKIP)
    assert await ids_in_order(world) == ["d"]


async def test_a_late_report_does_not_wake_a_task_before_its_turn(world: World) -> None:
    first, _ = await filled(world, "a", "b", policy=policy(head="skip"))
    task, (charge,) = await world.running(await head(world), "charge")
    answer = await world.advance(task, ending=Hold(FAILED), hand_over=HERE)
    await operate(world, first, Verb.RESUBMIT)
    await world.report(charge)
    assert await world.claim() == []
    assert answer.next is not None
    await done(world, answer.next.task)
    (loaded,) = await world.claim()
    assert loaded.task.task_id == "a"


# --- the producer's sequence
async def test_by_sequence_tasks_are_handled_in_the_producers_order(world: World) -> None:
    await world.process()
    await numbered(world, 2, 3, 1)
    assert await ids_in_order(world) == ["s1", "s2", "s3"]


async def test_a_gap_holds_what_comes_after_it_and_is_visible(world: World) -> None:
    await world.process()
    await numbered(world, 1, 3, 6)
    assert await ids_in_order(world) == ["s1"]
    found = await convoy(world)
    assert (found.convoy.state, found.convoy.expected, found.missing) == (ConvoyState.GAP, 2, ((2, 2), (4, 5)))
    await numbered(world, 2)
    assert await ids_in_order(world) == ["s2", "s3"]
    assert (await convoy(world)).missing == ((4, 5),)


@pytest.mark.parametrize("word", ["wait", "skip", "park"])
async def test_a_gap_that_lasts_follows_the_policy(world: World, word: str) -> None:
    await world.process()
    await numbered(world, 2, policy=policy(gap=word, gap_within=60.0))
    assert await world.claim() == []
    due = await world.store.due(("fulfil",), ())
    assert (due.tasks, due.next_at) == (False, world.clock.at + 60_000_000)
    world.clock.move(60)
    if word == "skip":
        assert await ids_in_order(world) == ["s2"]
        return
    assert await world.claim() == []
    (alert,) = await world.store.alerts()
    assert alert.cause == "gap"
    assert (await convoy(world)).convoy.shown == ("gap" if word == "wait" else "parked")
    await numbered(world, 1)
    if word == "park":
        assert await world.claim() == []
        await on_key(world, ConvoyVerb.RELEASE)
    assert await ids_in_order(world) == ["s1", "s2"]
    assert await world.store.alerts() == []


async def test_what_comes_after_it_was_skipped_is_set_aside_and_told(world: World) -> None:
    await world.process()
    await numbered(world, 2)
    await world.claim()
    found = await on_key(world, ConvoyVerb.SKIP)
    assert found.convoy.expected == 3
    (late,) = await numbered(world, 1)
    (loaded,) = await world.claim()
    assert loaded.task.task_id == "s2"
    await done(world, loaded.task)
    assert await world.claim() == []
    task = await world.task(late)
    assert (task.state, task.turn) == (TaskState.HELD, Turn.SET_ASIDE)
    (alert,) = await world.store.alerts()
    assert (alert.task_id, alert.cause) == ("s1", "late")
    await operate(world, late, Verb.RESUBMIT)
    assert await ids_in_order(world) == ["s1"]


async def test_a_new_task_is_new_whatever_stands_beside_it_in_the_batch(world: World) -> None:
    await world.store.submit([submission("a", convoy=KEY, sequence=1)])
    same, new = await world.store.submit([submission("b", convoy=KEY, sequence=1), submission("new")])
    assert isinstance(same, Submitted)
    assert isinstance(new, Submitted)
    assert (same.task_id, same.created, new.created) == ("a", False, True)


async def test_the_same_number_again_answers_with_its_task_and_another_operation_is_refused(world: World) -> None:
    await world.process()
    (first,) = await numbered(world, 1)
    (same,) = await world.store.submit([submission("other-id", convoy=KEY, sequence=1)])
    assert same == Submitted(first, False, "s1")
    (other,) = await world.store.submit([submission("other-id", convoy=KEY, sequence=1, body_hash="another")])
    assert isinstance(other, Refusal)
    assert "sequence 1" in other.detail


async def test_twice_the_same_number_in_one_batch_is_one_task(world: World) -> None:
    await world.process()
    one, other = await world.store.submit(
        [submission("x", convoy=KEY, sequence=1), submission("y", convoy=KEY, sequence=1)]
    )
    assert isinstance(one, Submitted)
    assert other == Submitted(one.task_no, False, "x")


@pytest.mark.parametrize(("first", "second"), [(None, 1), (1, None)])
async def test_place_and_sequence_are_not_mixed(world: World, first: int | None, second: int | None) -> None:
    await world.process()
    await world.submit("a", convoy=KEY, sequence=first)
    (answer,) = await world.store.submit([submission("b", convoy=KEY, sequence=second)])
    assert isinstance(answer, Refusal)
    assert "ordered by" in answer.detail


async def test_nothing_comes_behind_the_end_mark_and_what_is_missing_before_it_is_named(world: World) -> None:
    await world.process()
    await numbered(world, 1)
    await world.submit("s4", convoy=KEY, sequence=4, end_of_sequence=True)
    for sequence, ends in ((5, False), (4, True), (3, True)):
        (answer,) = await world.store.submit(
            [submission(f"late-{sequence}", convoy=KEY, sequence=sequence, end_of_sequence=ends, body_hash="x")]
        )
        assert isinstance(answer, Refusal), sequence
    assert await ids_in_order(world) == ["s1"]
    assert (await convoy(world)).missing == ((2, 3),)
    await numbered(world, 3, 2)
    assert await ids_in_order(world) == ["s2", "s3", "s4"]


async def test_an_end_mark_below_a_number_that_came_is_refused(world: World) -> None:
    await world.process()
    await numbered(world, 5)
    (answer,) = await world.store.submit([submission("end", convoy=KEY, sequence=3, end_of_sequence=True)])
    assert isinstance(answer, Refusal)
    assert "sequence 5 is there" in answer.detail


async def test_a_convoy_by_place_may_end_too(world: World) -> None:
    await filled(world, "a")
    await world.submit("b", convoy=KEY, end_of_sequence=True)
    (answer,) = await world.store.submit([submission("c", convoy=KEY)])
    assert isinstance(answer, Refusal)
    assert "has ended" in answer.detail
    assert await ids_in_order(world) == ["a", "b"]


@pytest.mark.parametrize("numbers", [{}, {"sequence": 1}], ids=["by place", "by sequence"])
async def test_an_end_mark_that_comes_too_late_under_a_known_id_is_refused_and_ends_nothing(
    world: World, numbers: dict[str, int]
) -> None:
    await world.process()
    first = await world.submit("a", convoy=KEY, **numbers)
    (late,) = await world.store.submit([submission("a", convoy=KEY, end_of_sequence=True, **numbers)])
    assert isinstance(late, Refusal)
    assert (late.verdict, "another end mark" in late.detail) == ("conflict", True)
    (same,) = await world.store.submit([submission("a", convoy=KEY, **numbers)])
    assert same == Submitted(first, False)
    await world.submit("b", convoy=KEY, **dict.fromkeys(numbers, 2))
    assert await ids_in_order(world) == ["a", "b"]


async def test_an_end_mark_that_comes_too_late_under_a_known_number_is_refused_and_ends_nothing(world: World) -> None:
    await world.process()
    await numbered(world, 1)
    (late,) = await world.store.submit([submission("other-id", convoy=KEY, sequence=1, end_of_sequence=True)])
    assert isinstance(late, Refusal)
    assert (late.verdict, "another end mark" in late.detail) == ("conflict", True)
    await numbered(world, 2)
    assert await ids_in_order(world) == ["s1", "s2"]


@pytest.mark.parametrize("numbers", [{}, {"sequence": 1}], ids=["by place", "by sequence"])
async def test_an_end_mark_that_comes_again_is_the_same_task(world: World, numbers: dict[str, int]) -> None:
    await world.process()
    command = submission("a", convoy=KEY, end_of_sequence=True, **numbers)
    (first,) = await world.store.submit([command])
    assert isinstance(first, Submitted)
    assert await world.store.submit([command]) == [Submitted(first.task_no, False)]
    if numbers:
        other = msgspec.structs.replace(command, task_id="other-id")
        assert await world.store.submit([other]) == [Submitted(first.task_no, False, "a")]


async def test_a_number_whose_task_was_cancelled_is_not_missing_also_once_it_might_be_purged(world: World) -> None:
    await world.process()
    _, second = await numbered(world, 1, 2)
    task = await head(world)
    await operate(world, second, Verb.CANCEL)
    await done(world, task)
    world.clock.move(1_000)
    which = Purge(states=(TaskState.PROCESSED, TaskState.COMPENSATED), ended_before=world.clock())
    assert (await world.store.purge(which, actor="ann", limit=100)).count == 1
    await numbered(world, 3)
    assert await ids_in_order(world) == ["s3"]


# --- people's verbs on a key
async def test_move_to_head_puts_a_waiting_task_before_all_others_that_wait(world: World) -> None:
    *_, third = await filled(world, "a", "b", "c")
    task = await head(world)
    await on_key(world, ConvoyVerb.MOVE_TO_HEAD, task_no=third)
    await done(world, task)
    assert await ids_in_order(world) == ["c", "b"]


async def test_move_to_head_is_refused_for_what_does_not_wait_or_is_elsewhere_or_first(world: World) -> None:
    first, second, _ = await filled(world, "a", "b", "c")
    other = await world.submit("x", convoy="another")
    await head_of(world, "a")
    for number in (first, other, second, 99):
        await refused_on_key(world, ConvoyVerb.MOVE_TO_HEAD, task_no=number)


async def head_of(world: World, task_id: str) -> TaskRow:
    claimed = {loaded.task.task_id: loaded.task for loaded in await world.claim()}
    return claimed[task_id]


async def test_the_streams_of_several_keys_are_read_and_exported_under_their_keys(world: World) -> None:
    await world.process()
    for key in ("x", "y", "z"):
        for n in (1, 2, 3):
            await world.submit(f"{key}{n}", convoy=key)
    for verb in (ConvoyVerb.PARK, ConvoyVerb.MOVE_TO_HEAD, ConvoyVerb.RELEASE):
        for key in ("x", "y", "z"):
            last = (await convoy(world, key)).members[-1].task_no
            await on_key(world, verb, key, task_no=last if verb is ConvoyVerb.MOVE_TO_HEAD else None)
    for loaded in await world.claim():
        await failed(world, loaded.task)
        await on_key(world, ConvoyVerb.SKIP, loaded.task.task_id[0])
    rows = [row async for row in world.store.history()]
    named = {row.task_no: row.task_id for row in rows if row.task_no < 0}
    numbers = {-(await convoy(world, key)).convoy.convoy_no: key for key in ("x", "y", "z")}
    assert named == numbers
    for number, key in numbers.items():
        assert {row.task_id async for row in world.store.history(number)} == {key}


async def test_a_parked_key_takes_new_tasks_and_begins_none(world: World) -> None:
    await filled(world, "a", "b")
    task = await head(world)
    await on_key(world, ConvoyVerb.PARK)
    assert (await done(world, task, hand_over=HERE)).next is None
    await world.submit("c", convoy=KEY)
    assert await world.claim() == []
    await on_key(world, ConvoyVerb.RELEASE)
    assert await ids_in_order(world) == ["b", "c"]


async def test_an_idle_key_that_is_parked_begins_nothing_either(world: World) -> None:
    await filled(world, "a")
    await done(world, await head(world))
    await on_key(world, ConvoyVerb.PARK)
    await world.submit("b", convoy=KEY)
    assert await world.claim() == []
    assert (await world.store.due(("fulfil",), ())).tasks is False
    await on_key(world, ConvoyVerb.RELEASE)
    assert await ids_in_order(world) == ["b"]


async def test_a_policy_that_changes_under_a_waiting_head_holds_at_once(world: World) -> None:
    await filled(world, "a", "b")
    await failed(world, await head(world))
    await on_key(world, ConvoyVerb.SET, policy=ConvoyOverrides(head="skip"))
    assert await ids_in_order(world) == ["b"]


async def test_a_policy_that_changes_under_a_gap_holds_at_once(world: World) -> None:
    await world.process()
    await numbered(world, 2)
    await world.claim()
    world.clock.move(60)
    await on_key(world, ConvoyVerb.SET, policy=ConvoyOverrides(gap="skip", gap_within=30.0))
    assert await ids_in_order(world) == ["s2"]


@pytest.mark.parametrize("verb", [ConvoyVerb.RELEASE, ConvoyVerb.SKIP], ids=str)
async def test_a_verb_that_makes_no_sense_is_refused_naming_what_does(world: World, verb: ConvoyVerb) -> None:
    await filled(world, "a")
    assert "allowed: " in await refused_on_key(world, verb)


async def test_a_person_skips_only_the_head_they_saw(world: World) -> None:
    first, _ = await filled(world, "a", "b")
    await failed(world, await head(world))
    seen = (await convoy(world)).convoy.fence
    await operate(world, first, Verb.RESUBMIT)
    await failed(world, await head(world))
    await refused_on_key(world, ConvoyVerb.SKIP, "came_first", fence=seen)


@pytest.mark.odd_history("I40", reason="a process of an older release ends its task and passes nothing on")
async def test_a_key_whose_turn_nobody_passed_on_goes_on_once_that_is_found(world: World) -> None:
    await filled(world, "a", "b")
    task = await head(world)
    assert await world.store.look_at_forgotten() == 0
    # An older release knows no convoys: what it writes is what is written for a task that is in none.
    older = world.advance_command(task, ending=Process("1"))
    with without_convoys():
        await world.store.apply([older])
    assert await world.claim() == []
    assert await world.store.look_at_forgotten() == 1
    assert await ids_in_order(world) == ["b"]


# --- what stays
async def test_a_head_in_error_is_not_purged_from_under_its_key(world: World) -> None:
    await filled(world, "a", "b")
    await failed(world, await head(world))
    for alert in await world.store.take_alerts(10, 60.0):
        await world.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    which = Purge(states=(TaskState.HELD,), ended_before=world.clock())
    assert (await world.store.purge(which, actor="ann", limit=100)).count == 0


async def test_keep_going_on_with_the_open_task_needs_no_convoy(world: World) -> None:
    await filled(world, "a", "b")
    answer = await world.advance(await head(world), opened=[step()], ending=Keep())
    assert answer.next is None
    assert TASK_POLICY
