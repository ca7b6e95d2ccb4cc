"""The code of the next task of a convoy ran ahead: what it asks for first begins with the commit that brings its turn."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from store_world import COMPLETE_WITHIN, FAILED, Event, World, kinds, step

from arriero.model import (
    ConvoyState,
    ConvoyVerb,
    Instant,
    Loaded,
    StepState,
    TaskRow,
    TaskState,
    Turn,
    Verb,
    later,
)
from arriero.model.answers import Applied, ConvoyApplied
from arriero.model.commands import Advance, Ahead, EndByLimit, HandOver, Operate, OperateConvoy
from arriero.model.moves import BeginUndo, Hold, NewStep, Process
from arriero.model.policies import ConvoyPolicy, Supervision, TaskPolicy

KEY = "customer-7"
SKIPS = msgspec.json.encode(TaskPolicy(None, Supervision(), ConvoyPolicy(head="skip"))).decode()
REQUEST = step(take=True)


async def filled(world: World, *task_ids: str, **changes: Any) -> list[int]:
    """Tasks submitted to one convoy, in this order."""
    await world.process()
    return [await world.submit(task_id, convoy=KEY, **changes) for task_id in task_ids]


async def head(world: World) -> TaskRow:
    (loaded,) = await world.claim()
    return loaded.task


async def ahead_of(world: World, task_no: int, *opened: NewStep, state: str | None = None) -> Ahead:
    """What a task asks for first, as it stands now."""
    return Ahead(task_no, (await world.task(task_no)).link, state, opened or (REQUEST,))


async def done(world: World, task: TaskRow, ahead: Ahead | None = None, state: str | None = None) -> Applied:
    """The end of a task whose process goes on with the next one."""
    ending = Process('"done"', state)
    return await world.advance(task, ending=ending, hand_over=HandOver(("fulfil",), ahead))


async def operate(world: World, task_no: int, verb: Verb, **changes: Any) -> None:
    task = await world.task(task_no)
    fields = {"actor": "ann", "verb": verb, "task_no": task_no, "incarnation": task.incarnation, "by": "ann"}
    await world.written(Operate(reason="test", **(fields | changes)))


async def on_key(world: World, verb: ConvoyVerb, **changes: Any) -> None:
    found = await world.store.find_convoy(KEY)
    assert found is not None
    fields = {"actor": "ann", "verb": verb, "convoy_no": found.convoy.convoy_no, "fence": None, "by": "ann"}
    answer = await world.apply(OperateConvoy(reason="test", **(fields | changes)))
    assert isinstance(answer, ConvoyApplied), answer


# --- what begins with the commit
async def test_the_first_request_is_recorded_and_dispatched_with_the_commit_that_ends_the_former(world: World) -> None:
    first, second = await filled(world, "a", "b")
    answer = await done(world, await head(world), await ahead_of(world, second))
    assert answer.next == await world.load(second)
    (request,) = answer.next.steps
    assert (request.state, request.locked_by, request.fence) == (StepState.RUNNING, 1, 1)
    assert request.complete_by == later(Instant(world.clock.at), COMPLETE_WITHIN)
    assert answer.begun is not None
    (dispatch,) = answer.begun
    assert (dispatch.step, dispatch.task_id, dispatch.now) == (request, "b", world.clock.at)
    assert answer.dispatches == ()  # those are of the task that ended
    assert kinds(await world.last_events(first))[-1] == "convoy.closed"
    links = await world.links(second)
    assert len(links) == 2
    assert kinds(links[1]) == ["convoy.opened", "task.claimed", "step.opened", "step.dispatched"]


async def test_a_request_for_which_no_place_was_taken_waits_for_any_agent(world: World) -> None:
    _, second = await filled(world, "a", "b")
    answer = await done(world, await head(world), await ahead_of(world, second, REQUEST, step("ship")))
    assert answer.begun is not None
    assert [dispatch.step.name for dispatch in answer.begun] == ["charge"]
    assert answer.next is not None
    assert [request.state for request in answer.next.steps] == [StepState.RUNNING, StepState.PENDING]
    (taken,) = await world.take()
    assert (taken.step.name, taken.step.task_no) == ("ship", second)


async def test_code_that_takes_no_place_has_begun_all_the_same(world: World) -> None:
    _, second = await filled(world, "a", "b")
    answer = await done(world, await head(world), await ahead_of(world, second, step()))
    assert answer.begun == ()
    assert answer.next == await world.load(second)
    assert len(answer.next.steps) == 1


async def test_what_began_goes_on_to_its_end_and_begins_the_one_behind(world: World) -> None:
    task_nos = await filled(world, "a", "b", "c", "d")
    answer = await done(world, await head(world), await ahead_of(world, task_nos[1]))
    for task_no in task_nos[2:]:
        assert answer.next is not None
        hand_over = HandOver(("fulfil",), await ahead_of(world, task_no))
        ended = world.reported(answer.next.steps[0])
        answer = await world.advance(answer.next.task, [ended], (), Process("1"), hand_over=hand_over)
        assert answer.begun is not None
        assert [dispatch.step.task_no for dispatch in answer.begun] == [task_no]
    assert [len(await world.links(task_no)) for task_no in task_nos] == [3, 3, 3, 2]


async def test_a_task_held_task_that_its_key_passes_over_begins_the_next(world: World) -> None:
    _, second = await filled(world, "a", "b", policy=SKIPS)
    hand_over = HandOver(("fulfil",), await ahead_of(world, second))
    answer = await world.advance(await head(world), ending=Hold(FAILED), hand_over=hand_over)
    assert answer.begun is not None
    assert [dispatch.task_id for dispatch in answer.begun] == ["b"]


async def test_two_keys_go_on_in_one_batch(world: World) -> None:
    await world.process()
    task_nos = {name: await world.submit(name, convoy=name[0]) for name in ("x1", "y1", "x2", "y2")}
    commands: list[Advance] = []
    for loaded in await world.claim():
        ahead = await ahead_of(world, task_nos[f"{loaded.task.task_id[0]}2"])
        hand_over = HandOver(("fulfil",), ahead)
        commands.append(world.advance_command(loaded.task, ending=Process("1"), hand_over=hand_over))
    answers = await world.store.apply(commands)
    for answer, name in zip(answers, ("x2", "y2"), strict=True):
        assert isinstance(answer, Applied)
        assert answer.next == await world.load(task_nos[name])
        assert answer.begun is not None
        assert [dispatch.task_id for dispatch in answer.begun] == [name]


# --- who is behind
async def test_following_names_the_one_behind_as_it_stands_with_its_arguments(world: World) -> None:
    await filled(world, "a", "b")
    third = await world.submit("c", convoy=KEY, arguments='{"pieces":9}')
    answer = await done(world, await head(world))
    assert answer.following == Loaded(await world.task(third), '{"pieces":9}', ())
    assert answer.next is not None
    assert (await done(world, answer.next.task)).following is None


async def test_following_tells_what_was_edited_and_who_came_between(world: World) -> None:
    *_, fourth = await filled(world, "a", "b", "c", "d")
    answer = await done(world, await head(world))
    await edited(world, fourth)
    assert answer.next is not None
    answer = await done(world, answer.next.task)
    assert answer.following == Loaded(await world.task(fourth), '{"pieces":3}', ())
    fifth = await world.submit("e", convoy=KEY)
    await on_key(world, ConvoyVerb.MOVE_TO_HEAD, task_no=fifth)
    assert answer.next is not None
    answer = await done(world, answer.next.task)
    assert answer.next == await world.load(fifth)
    assert answer.following == Loaded(await world.task(fourth), '{"pieces":3}', ())


async def test_what_following_tells_is_enough_to_begin_the_one_behind(world: World) -> None:
    _, second, third = await filled(world, "a", "b", "c")
    answer = await done(world, await head(world), await ahead_of(world, second))
    assert answer.following is not None
    assert answer.next is not None
    ahead = Ahead(third, answer.following.task.link, None, (REQUEST,))
    ended = [world.reported(answer.next.steps[0])]
    hand_over = HandOver(("fulfil",), ahead)
    last = await world.advance(answer.next.task, ended, (), Process("1"), hand_over=hand_over)
    assert last.begun is not None
    assert last.next == await world.load(third)


async def test_following_is_never_the_one_whose_turn_has_come(world: World) -> None:
    """Also when another was passed over before it. A store may not know then who is behind."""
    await filled(world, "a", policy=SKIPS)
    second = await world.submit("b", convoy=KEY, policy=SKIPS, complete_within=60.0)
    _, fourth = [await world.submit(task_id, convoy=KEY) for task_id in ("c", "d")]
    task = await head(world)
    row, _ = await world.task(second), world.clock.move(60)
    fields = {"fence": row.fence, "revision": row.revision, "state": row.state, "task_no": second}
    await world.written(EndByLimit(actor="leader", ending=Hold(FAILED), term=await world.lead(1), **fields))
    answer = await done(world, task)
    assert answer.next is not None
    assert answer.next.task.task_id == "c"
    assert answer.following is None or answer.following == Loaded(await world.task(fourth), '{"pieces":2}', ())


# --- when it does not count
async def paused_and_resumed(world: World, task_no: int) -> None:
    await operate(world, task_no, Verb.PAUSE)
    await operate(world, task_no, Verb.RESUME)


async def edited(world: World, task_no: int) -> None:
    await operate(world, task_no, Verb.CANCEL)
    await operate(world, task_no, Verb.RESUBMIT, arguments='{"pieces":3}')


async def limit_passed(world: World, task_no: int) -> None:
    world.clock.move(60)


async def cancelled(world: World, task_no: int) -> None:
    await operate(world, task_no, Verb.CANCEL)


async def another_at_the_head(world: World, task_no: int) -> None:
    await on_key(world, ConvoyVerb.MOVE_TO_HEAD, task_no=task_no + 1)


@pytest.mark.parametrize(
    ("happens", "turn_of"),
    [
        (paused_and_resumed, "b"),
        (edited, "b"),
        (limit_passed, "b"),
        (cancelled, "c"),
        (another_at_the_head, "c"),
    ],
)
async def test_what_moved_on_is_claimed_as_before_and_begins_nothing(
    world: World, happens: Callable[[World, int], Awaitable[None]], turn_of: str
) -> None:
    await filled(world, "a")
    second = await world.submit("b", convoy=KEY, complete_within=60.0)
    await world.submit("c", convoy=KEY)
    task, ahead = await head(world), await ahead_of(world, second)
    await happens(world, second)
    answer = await done(world, task, ahead)
    assert answer.begun is None
    assert answer.next is not None
    assert (answer.next.task.task_id, answer.next.task.locked_by, answer.next.steps) == (turn_of, 1, ())
    assert answer.next == await world.load(answer.next.task.task_no)
    assert (await world.load(second)).steps == ()
    assert await world.take() == []
    assert (await world.opened(answer.next.task, step()))[0].opened_count == 1


@pytest.mark.parametrize(
    ("run_with", "becomes", "counts"),
    [(None, None, True), (None, "1", False), ("1", "1", True), ("1", "2", False), ("1", None, False)],
)
async def test_it_counts_only_with_the_state_of_the_key_that_the_code_was_run_with(
    world: World, run_with: str | None, becomes: str | None, counts: bool
) -> None:
    _, second = await filled(world, "a", "b")
    ahead = await ahead_of(world, second, state=run_with)
    answer = await done(world, await head(world), ahead, becomes)
    assert (answer.begun is not None) is counts
    assert answer.next is not None
    assert answer.next.convoy is not None
    assert (answer.next.convoy.value, len(answer.next.steps)) == (becomes, int(counts))


async def test_a_state_of_the_key_from_an_earlier_task_counts_too(world: World) -> None:
    *_, third = await filled(world, "a", "b", "c")
    answer = await done(world, await head(world), state="1")
    assert answer.next is not None
    assert (await done(world, answer.next.task, await ahead_of(world, third, state="1"))).begun is not None


async def paused(world: World, task_no: int) -> None:
    await operate(world, task_no, Verb.PAUSE)


async def retired(world: World, task_no: int) -> None:
    await world.process("p2")
    await world.lose(1)


async def parked(world: World, task_no: int) -> None:
    await on_key(world, ConvoyVerb.PARK)


@pytest.mark.parametrize("happens", [paused, retired, parked])
async def test_what_is_not_handed_over_begins_nothing(
    world: World, happens: Callable[[World, int], Awaitable[None]]
) -> None:
    _, second = await filled(world, "a", "b")
    task = await head(world)
    await happens(world, second)
    answer = await done(world, task, await ahead_of(world, second))
    assert (answer.next, answer.begun) == (None, None)
    left = await world.load(second)
    assert (left.task.locked_by, left.task.state, left.steps) == (None, TaskState.PENDING, ())


@pytest.mark.parametrize("changes", [{"workflow": "another"}, {"delay": 60.0}], ids=str)
async def test_what_this_process_cannot_begin_yet_begins_nothing(world: World, changes: dict[str, Any]) -> None:
    await filled(world, "a")
    second = await world.submit("b", convoy=KEY, **changes)
    answer = await done(world, await head(world), await ahead_of(world, second))
    assert (answer.next, answer.begun) == (None, None)
    assert (await world.load(second)).steps == ()


async def test_a_task_that_comes_back_to_be_undone_begins_nothing_forward(world: World) -> None:
    first, _ = await filled(world, "a", "b")
    task, (charge,) = await world.running(await head(world), "charge")
    hand_over = HandOver(("fulfil",))
    answer = await world.advance(task, [world.reported(charge)], ending=Process("1"), hand_over=hand_over)
    await operate(world, first, Verb.COMPENSATE)
    assert answer.next is not None
    answer = await done(world, answer.next.task, await ahead_of(world, first, step("ship", take=True)))
    assert answer.begun is None
    assert answer.next == await world.load(first)
    assert answer.next.task.state is TaskState.COMPENSATING
    assert [request.name for request in answer.next.steps] == ["charge"]


async def test_a_key_that_stands_still_on_an_error_begins_nothing(world: World) -> None:
    first, second = await filled(world, "a", "b")
    hand_over = HandOver(("fulfil",), await ahead_of(world, second))
    answer = await world.advance(await head(world), ending=Hold(FAILED), hand_over=hand_over)
    assert (answer.next, answer.begun) == (None, None)
    found = await world.store.find_convoy(KEY)
    assert found is not None
    assert (found.convoy.state, found.convoy.open_task) == (ConvoyState.STOPPED, first)
    assert ((await world.task(second)).turn, (await world.load(second)).steps) == (Turn.WAITING, ())


async def test_the_undo_of_the_former_is_not_its_end(world: World) -> None:
    _, second = await filled(world, "a", "b")
    hand_over = HandOver(("fulfil",), await ahead_of(world, second))
    task, _ = await world.running(await head(world), "charge")
    answer = await world.advance(task, ending=BeginUndo(FAILED), hand_over=hand_over)
    assert (answer.next, answer.begun) == (None, None)
    assert (await world.load(second)).steps == ()


# --- nothing but the number of commits differs
def without(row: msgspec.Struct, *names: str) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(row).items() if name not in names}


def told(events: list[Event]) -> list[Event]:
    """Events of its turn, whichever convoy it is in."""
    turn = events[kinds(events).index("convoy.opened") :]
    return [{name: value for name, value in event.items() if name != "convoy"} for event in turn]


async def test_what_is_written_equals_what_claim_and_first_advance_would_have_written_apart(world: World) -> None:
    await world.process()
    numbers = {name: await world.submit(name, convoy=name[0]) for name in ("x1", "y1", "x2", "y2")}
    requests = (REQUEST, step("reserve", wait_within=5.0), step("ship", "own", agent="carrier", take=True))
    heads = {loaded.task.task_id: loaded.task for loaded in await world.claim()}
    at_once = await done(world, heads["x1"], await ahead_of(world, numbers["x2"], *requests), "1")
    assert at_once.begun is None  # of another state of the key
    ahead = await ahead_of(world, numbers["y2"], *requests, state="1")
    together = await done(world, heads["y1"], ahead, "1")
    assert at_once.next is not None
    apart = await world.advance(at_once.next.task, opened=requests)
    assert together.next is not None
    assert together.begun is not None
    one, other = await world.load(numbers["x2"]), await world.load(numbers["y2"])
    of_task = ("task_no", "task_id", "convoy_no", "link", "head")
    of_step = ("step_no", "task_no")
    assert without(one.task, *of_task) == without(other.task, *of_task)
    assert [without(row, *of_step) for row in one.steps] == [without(row, *of_step) for row in other.steps]
    assert [without(d.step, *of_step) for d in apart.dispatches] == [without(d.step, *of_step) for d in together.begun]
    assert told(await world.events(numbers["x2"])) == told(await world.events(numbers["y2"]))
    assert other.task.link == one.task.link - 1
