"""Resubmitting: what failed is done again and nothing else, an undo goes on, what was undone runs anew."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from runtime_world import QUICK, Machine, within
from shop_world import DECLINED, HOLD, UNDO, WHO, Shop, check, held, opened, record, row_of, undone

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    InvalidInput,
    Permanent,
    StepFailed,
    Transient,
    VerbRefused,
    sleep,
    testing,
    workflow,
)
from arriero.testing.world import World

BROKEN = ConnectionError("reset before it happened")
TRIES = 3  # of one attempt


@pytest.fixture
def shop() -> Shop:
    return Shop()


# --- what failed is done again
async def test_only_the_failed_step_runs_again_under_its_key_and_all_results_are_kept(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2), task_id="o-1")
        await held(task, "declined")
        assert shop.called() == ["reserve", "charge"]
        await task.resubmit(**WHO)
        assert await task.result() == "receipt for 200"
        assert shop.called() == ["reserve", "charge", "charge", "post"]
        assert len(set(shop.called("charge"))) == 1
        assert [call.number for call in shop.calls] == [1, 1, 2, 1]
        view = await task.view()
        assert (view.state, view.incarnation, view.reason) == ("processed", 2, "")
        assert shop.standing == 3


async def test_a_task_may_be_resubmitted_as_often_as_it_fails(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED] * 5
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        for turn in range(5):
            await held(task)
            assert (await task.view()).incarnation == turn + 1
            await task.resubmit(**WHO)
        await task.result()
        assert [call.number for call in shop.calls if call.step == "charge"] == [1, 2, 3, 4, 5, 6]
        assert shop.called("reserve") == shop.called("reserve")[:1]


async def test_of_two_parallel_steps_that_failed_both_are_done_again(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    shop.script["reserve"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.at_once("good", 2))
        await held(task)
        await task.resubmit(**WHO)
        assert await task.result() == [2, "receipt for 2", "hello"]
        assert sorted(shop.called()) == ["charge", "charge", "post", "reserve", "reserve"]


@pytest.mark.parametrize("late", [Permanent("no stock", code="no_stock"), None], ids=["fails", "succeeds"])
async def test_what_a_step_came_to_after_the_task_was_held_counts(shop: Shop, late: Any) -> None:
    shop.script["charge"] += [DECLINED]
    shop.script["reserve"] += [Transient("busy", retry_after=5), late]
    async with opened(shop) as world:
        task = await world.app.submit(shop.at_once("good", 2))
        await held(task, "declined")
        assert row_of(world, task, "reserve").state == "running"
        await world.clock.advance(20)
        assert row_of(world, task, "reserve").state == ("completed" if late is None else "failed")
        assert (await task.view()).state == "held"
        calls = len(shop.called("reserve"))
        await task.resubmit(**WHO)
        assert await task.result() == [2, "receipt for 2", "hello"]
        assert len(shop.called("reserve")) == calls + (late is not None)


async def test_an_attempt_that_outlives_the_hold_goes_on_into_the_next_incarnation(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    shop.script["reserve"] += [Transient("busy", retry_after=5)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.at_once("good", 2))
        await held(task, "declined")
        await task.resubmit(**WHO)
        assert await task.result() == [2, "receipt for 2", "hello"]
        assert [call.number for call in shop.calls if call.step == "reserve"] == [1, 1]  # two tries of one attempt


async def test_a_request_that_was_withdrawn_when_the_task_was_held_is_asked_for_again(shop: Shop) -> None:
    busy = Agent("busy", max_in_flight=1)

    @busy.step(complete_within=30)
    def work(attempt: Attempt, number: int) -> int:
        shop.calls.append((number, attempt.idempotency_key))  # type: ignore[arg-type]
        if shop.script["work"]:
            raise shop.script["work"].popleft()
        return number

    @workflow(supervision=HOLD)
    async def both() -> list[int]:
        return list(await asyncio.gather(work(1), work(2), work(3)))

    shop.script["work"] += [DECLINED]
    app = App("busy", agents=[busy], workflows=[both])
    async with testing.running(app) as world:
        task = await world.app.submit(both())
        await held(task)
        assert "withdrawn" in {step.state for step in record(world, task).steps}
        await task.resubmit(**WHO)
        assert await task.result() == [1, 2, 3]
        check(world)


async def test_what_the_handler_of_a_failure_did_is_kept_and_left_when_the_step_then_succeeds(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            return await shop.charge(card, 1)
        except StepFailed:
            await shop.post("the card was refused")
            raise

    shop.script["charge"] += [DECLINED, DECLINED]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        for _ in range(2):
            await held(task, "declined")
            await task.resubmit(**WHO)
        assert await task.result() == "receipt for 1"
        assert shop.called() == ["charge", "post", "charge", "charge"]  # the letter is not written a second time
        assert row_of(world, task, "post").state == "completed"


async def test_what_the_handler_did_is_undone_too_when_the_task_is_compensated_later(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            return await shop.charge(card, 1)
        except StepFailed:
            await shop.reserve(1)
            raise

    shop.script["charge"] += [DECLINED]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        await held(task)
        await task.resubmit(**WHO)
        await task.result()
        await task.compensate(**WHO)
        await undone(task)
        assert sorted(shop.undone) == ["charge", "reserve"]
        assert shop.standing == 0


@pytest.mark.parametrize("what", ["step", "timer"])
async def test_the_other_way_may_do_with_other_arguments_what_the_handler_did(shop: Shop, what: str) -> None:
    """The first letter of the handler is not the first letter of the way that the workflow goes now."""

    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            receipt = await shop.charge(card, 1)
        except StepFailed:
            await (sleep(60) if what == "timer" else shop.post("the card was refused"))
            raise
        await (sleep(5) if what == "timer" else shop.post(receipt))
        await shop.reserve(1)
        return receipt

    shop.script["charge"] += [DECLINED]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        await held(task, "declined")
        await task.resubmit(**WHO)
        assert await task.result() == "receipt for 1"
        letters = [call.arguments for call in shop.calls if call.step == "post"]
        assert letters == ([] if what == "timer" else [("the card was refused",), ("receipt for 1",)])


async def test_a_step_never_gets_the_result_of_one_that_was_asked_for_with_other_arguments(shop: Shop) -> None:
    """Not even when the code ends right after it: either the letter is written, or the task is held."""

    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            receipt = await shop.charge(card, 1)
        except StepFailed:
            await shop.post("the card was refused")
            raise
        return await shop.post(receipt)

    shop.script["charge"] += [DECLINED]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        await held(task, "declined")
        await task.resubmit(**WHO)
        await world.clock.advance(60)
        view = await task.view()
        is_written = ("receipt for 1",) in [call.arguments for call in shop.calls if call.step == "post"]
        assert is_written == (view.state == "processed"), await task.result()


async def test_what_both_ways_did_under_one_name_is_undone_each_under_a_key_of_its_own(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            receipt = await shop.charge(card, 1)
        except StepFailed:
            await shop.reserve(7)
            raise
        await shop.reserve(8)
        return receipt

    shop.script["charge"] += [DECLINED]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        await held(task, "declined")
        await task.resubmit(**WHO)
        await task.result()
        assert shop.standing == 3
        await task.compensate(**WHO)
        await undone(task)
        assert (sorted(shop.undone), shop.standing) == (["charge", "reserve", "reserve"], 0)
        keys = [s.idempotency_key for s in record(world, task).steps]
        assert len(set(keys)) == len(keys) == 6


async def test_a_step_edited_on_the_way_that_was_left_shares_no_key_with_the_one_of_its_name(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            receipt = await shop.charge(card, 1)
        except StepFailed:
            try:
                await shop.reserve(7)
            except StepFailed as failed:
                raise Permanent("neither", code="neither") from failed
            raise
        await shop.reserve(8)
        return receipt

    shop.script["charge"] += [DECLINED]
    shop.script["reserve"] += [DECLINED]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        await held(task, "neither")
        await task.resubmit(**WHO, arguments={"pieces": 6}, step="reserve")
        assert await task.result() == "receipt for 1"
        assert [call.arguments for call in shop.calls if call.step == "reserve"] == [(7,), (8,)]


async def test_what_went_on_beside_the_handler_is_not_done_twice(shop: Shop) -> None:
    """It was the second letter while the handler wrote the first; whether it is the same now, nobody can tell."""

    @workflow(supervision=HOLD)
    async def side_by_side(card: str) -> None:
        async def paying() -> None:
            try:
                await shop.charge(card, 1)
            except StepFailed:
                await shop.post("refused")
                await sleep(30)
                raise

        async def greeting() -> None:
            await sleep(5)
            await shop.post("hello")

        await asyncio.gather(paying(), greeting())

    shop.script["charge"] += [DECLINED]
    async with opened(shop, side_by_side) as world:
        task = await world.app.submit(side_by_side("good"))
        await held(task, "declined")
        await task.resubmit(**WHO)
        await held(task, "code and record disagree")
        assert (
            "asks for step post as #1, with these arguments it was #2 before; give it a key="
            in (await task.view()).reason
        )
        assert [call.arguments for call in shop.calls if call.step == "post"] == [("refused",), ("hello",)]


async def test_what_an_attempt_on_the_way_that_was_left_comes_to_goes_to_nobody_else(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> int:
        try:
            await shop.charge(card, 1)
        except StepFailed:
            left = asyncio.get_running_loop().create_task(shop.reserve(7))
            await sleep(1)
            assert not left.done()
            raise
        return await shop.reserve(8)

    shop.script["charge"] += [DECLINED]
    shop.script["reserve"] += [Transient("busy", retry_after=9), Transient("busy", retry_after=20)]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        await held(task, "declined")
        await task.resubmit(**WHO)
        await world.clock.advance(15)
        states = {row.arguments: row.state for row in record(world, task).steps if row.name == "reserve"}
        assert states == {'{"pieces":7}': "completed", '{"pieces":8}': "running"}
        assert await task.result() == 8


async def test_a_handler_that_did_more_than_one_step_goes_on_where_it_was(shop: Shop) -> None:
    """Its first step stays, its second, which failed, is done again: the first failure was caught and stays one."""

    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            return await shop.charge(card, 1)
        except StepFailed:
            await shop.post("refused")
        await sleep(1)
        await shop.reserve(1)
        return "by letter"

    shop.script["charge"] += [DECLINED]
    shop.script["reserve"] += [DECLINED]
    async with opened(shop, with_handler) as world:
        task = await world.app.submit(with_handler("good"))
        await held(task)
        await task.resubmit(**WHO)
        assert await task.result() == "by letter"
        assert shop.called() == ["charge", "post", "reserve", "reserve"]


async def test_a_failure_that_the_workflow_caught_is_not_done_again_even_when_it_ends_at_the_same_instant(
    shop: Shop,
) -> None:
    @workflow(supervision=HOLD)
    async def refusing(card: str) -> str:
        try:
            return await shop.charge(card, 1)
        except StepFailed:
            pass
        raise Permanent("not today", code="not_today")

    shop.script["charge"] += [DECLINED]
    async with opened(shop, refusing) as world:
        task = await world.app.submit(refusing("good"))
        await held(task, "not today")
        await task.resubmit(**WHO)
        await held(task, "not today")
        assert shop.called() == ["charge"]


async def test_a_failure_behind_a_refusal_of_the_workflow_is_done_again(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def refusing(card: str) -> str:
        try:
            return await shop.charge(card, 1)
        except StepFailed as failed:
            await shop.post("refused")
            raise Permanent("no money", code="no_money") from failed

    shop.script["charge"] += [DECLINED]
    async with opened(shop, refusing) as world:
        task = await world.app.submit(refusing("good"))
        await held(task, "no money")
        await task.resubmit(**WHO)
        assert await task.result() == "receipt for 1"
        assert shop.called() == ["charge", "post", "charge"]


async def test_after_its_limit_a_task_goes_on_with_a_limit_anew_and_its_timer_as_it_was(shop: Shop) -> None:
    @workflow(supervision=HOLD, complete_within=40)
    async def late(card: str) -> str:
        await shop.reserve(1)
        await sleep(60)
        return await shop.charge(card, 1)

    async with opened(shop, late) as world:
        task = await world.app.submit(late("good"))
        began = world.clock.now()
        await held(task, "complete_within")
        assert (world.clock.now() - began).total_seconds() == pytest.approx(40, abs=0.1)
        await task.resubmit(**WHO)
        assert await task.result() == "receipt for 1"
        assert (world.clock.now() - began).total_seconds() == pytest.approx(60, abs=0.1)
        assert shop.called() == ["reserve", "charge"]


async def test_chance_and_time_are_the_same_after_a_resubmission(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def drawn() -> str:
        first, began = arriero.uuid(), arriero.now()
        await shop.post(f"{first} {began}")
        return await shop.charge(str(arriero.uuid()), arriero.random().randrange(10**6))

    shop.script["charge"] += [DECLINED]
    async with opened(shop, drawn) as world:
        task = await world.app.submit(drawn())
        await held(task)
        await world.clock.advance(1000)
        await task.resubmit(**WHO)
        await task.result()
        assert len({call.arguments for call in shop.calls if call.step == "charge"}) == 1
        assert shop.called() == ["post", "charge", "charge"]


async def test_a_task_of_one_step_is_resubmitted_with_other_arguments(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.charge("bad", 5).options(supervision=HOLD))
        await held(task)
        await task.resubmit(**WHO, arguments={"card": "good"})
        assert await task.result() == "receipt for 5"
        assert [call.arguments for call in shop.calls] == [("bad", 5), ("good", 5)]


# --- whatever the workflow looks like
Node = tuple[str, int, tuple["Node", ...]]  # what, its number, its parts


def _program(chance: random.Random, numbers: Iterator[int], depth: int) -> Node:
    """Steps and timers in a row, at once, and with a handler that does some of its own and then fails all the same."""
    what = chance.choice(["step", "row", "at once", "try", "sleep"]) if depth else "step"
    parts = {"step": 0, "sleep": 0, "try": 2}.get(what, chance.randint(1, 3))
    return what, next(numbers), tuple(_program(chance, numbers, depth - 1) for _ in range(parts))


def _output(node: Node) -> list[int]:
    """What a program gives when nothing fails."""
    what, number, parts = node
    inner = parts[:1] if what == "try" else parts
    return [number] if what == "step" else [one for part in inner for one in _output(part)]


@pytest.mark.parametrize("seed", range(150))
async def test_whatever_fails_and_is_resubmitted_ends_as_if_nothing_had_failed(shop: Shop, seed: int) -> None:
    """The record is replayed again and again meanwhile, as after restarts."""
    chance = random.Random(seed)
    program = _program(chance, count(1), 4)
    has_keys = chance.random() < 0.5  # else the steps are told from one another by their occurrence

    async def run(node: Node) -> list[int]:
        what, number, parts = node
        match what:
            case "step":
                call = shop.reserve(number)
                return [await (call.options(key=f"k{number}") if has_keys else call)]
            case "sleep":
                await sleep(number)
                return []
            case "at once":
                return [one for part in await asyncio.gather(*map(run, parts)) for one in part]
            case "try":
                try:
                    return await run(parts[0])
                except StepFailed:
                    await run(parts[1])
                    raise
        return [one for part in parts for one in await run(part)]

    @workflow(supervision=HOLD)
    async def drawn() -> list[int]:
        return await run(program)

    async def replay_often(world: World) -> None:
        assert world.app.session.node is not None
        assert world.app.session.node.session is not None
        scheduler = world.app.session.node.session.scheduler
        for _ in range(chance.randrange(12)):
            for _ in range(chance.randrange(1, 30)):
                await asyncio.sleep(0)
            for task_no in list(scheduler.drivers):
                scheduler.reload_soon(task_no, ())

    shop.script["reserve"] += [chance.choice([DECLINED, None, None]) for _ in range(12)]
    async with opened(shop, drawn) as world:
        task = await world.app.submit(drawn())
        for _ in range(20):
            replaying = asyncio.get_running_loop().create_task(replay_often(world))
            await world.clock.advance(200)
            await replaying
            if (await task.view()).state == "processed":
                break
            assert (await task.view()).reason == "declined"
            await task.resubmit(**WHO)
        assert await task.result() == _output(program)
        rows = [row for row in record(world, task).steps if row.kind == "step"]
        assert shop.standing == sum(row.state == "completed" for row in rows)
        if has_keys:
            # A handler's step that was set back and not asked for again was called once less than its attempt's number.
            calls = {row.key: row.attempt - (row.state == "withdrawn") for row in rows}
            assert Counter(f"k{call.arguments[0]}" for call in shop.calls) == Counter(calls)


# --- edited arguments
async def test_edited_arguments_are_sent_under_a_new_key_and_the_rest_stays_as_it_was(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED, DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("bad", 2))
        await held(task)
        await task.resubmit(**WHO, arguments={"card": "worse"})
        await held(task)
        await task.resubmit(**WHO, arguments={"pence": 7}, step="charge")
        assert await task.result() == "receipt for 7"
        arguments = [call.arguments for call in shop.calls if call.step == "charge"]
        assert arguments == [("bad", 200), ("worse", 200), ("worse", 7)]
        assert len(set(shop.called("charge"))) == 3
        row = row_of(world, task, "charge")
        assert (row.arguments, row.asked) == ('{"card":"worse","pence":7}', '{"card":"bad","pence":200}')


async def test_the_undo_of_an_edited_step_is_told_what_was_sent(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("bad", 2))
        await held(task)
        await task.resubmit(**WHO, arguments={"card": "good"})
        await task.result()
        await task.compensate(**WHO)
        await undone(task)
        undo = next(s for s in record(world, task).steps if s.kind == "compensation" and s.name == "charge")
        assert undo.arguments == '{"card":"good","pence":200}'
        assert shop.books[shop.called("charge")[-1]] == 0


async def test_of_several_failed_steps_the_edited_one_must_be_named(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    shop.script["reserve"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.at_once("bad", 2))
        await held(task)
        with pytest.raises(InvalidInput, match="name the step.*reserve, charge"):
            await task.resubmit(**WHO, arguments={"card": "good"})
        assert (await task.view()).state == "held"
        await task.resubmit(**WHO, arguments={"card": "good"}, step="charge")
        assert await task.result() == [2, "receipt for 2", "hello"]
        assert [call.arguments for call in shop.calls if call.step == "charge"][-1] == ("good", 2)


async def test_arguments_of_a_step_in_doubt_are_edited_only_once_it_is_known_not_to_have_happened(shop: Shop) -> None:
    shop.script["charge"] += [BROKEN] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("bad", 2))
        await held(task)
        with pytest.raises(VerbRefused, match="charge may have happened with its old arguments") as refused:
            await task.resubmit(**WHO, arguments={"card": "good"})
        assert (refused.value.state, refused.value.verb) == ("held", "resubmit")
        assert "answer" in refused.value.allowed
        await task.answer(**WHO, step="charge", did_not_happen=True)
        assert (await task.view()).state == "held"
        await task.resubmit(**WHO, arguments={"card": "good"})
        assert await task.result() == "receipt for 200"
        assert len(set(shop.called("charge"))) == 2


async def test_a_step_in_doubt_is_done_again_as_it_is_under_its_old_key(shop: Shop) -> None:
    shop.script["charge"] += ["lost"] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await held(task)
        assert row_of(world, task, "charge").in_doubt
        await task.resubmit(**WHO)
        await task.result()
        assert len(set(shop.called("charge"))) == 1
        assert not row_of(world, task, "charge").in_doubt
        assert shop.standing == 3


@pytest.mark.parametrize(
    ("arguments", "step", "match"),
    [
        ({"card": 5}, None, "card"),
        ({"pence": "many"}, None, "pence"),
        ({"colour": "red"}, None, "colour"),
        ({}, None, "at least one"),
        (["bad"], None, "by parameter name"),
        ({"card": "good"}, "nothing", "no step 'nothing'.*reserve, charge"),
        ({"pieces": 9}, "reserve", "done again can be edited: charge"),
    ],
    ids=["type", "other type", "unknown parameter", "none", "no names", "unknown step", "step that is done"],
)
async def test_what_cannot_be_edited_is_refused_and_changes_nothing(
    shop: Shop, arguments: Any, step: str | None, match: str
) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("bad", 2))
        await held(task)
        before = record(world, task)
        with pytest.raises(InvalidInput, match=match):
            await task.resubmit(**WHO, arguments=arguments, step=step)
        assert record(world, task) == before


@pytest.mark.parametrize("name", ["order", "strict"])
async def test_a_state_that_allows_no_resubmission_is_named_also_when_arguments_are_given(
    shop: Shop, name: str
) -> None:
    async with opened(shop) as world:
        call = getattr(shop, name)("good", 2)
        task = await world.app.submit(call)
        await task.result()
        with pytest.raises(VerbRefused) as refused:
            await task.resubmit(**WHO, arguments={"card": "good"})
        assert (refused.value.state, refused.value.allowed) == ("processed", ("compensate",))


async def test_an_undo_that_failed_is_named_as_what_takes_no_edited_arguments(shop: Shop) -> None:
    shop.script["post"] += [DECLINED]
    shop.script["undo charge"] += [Permanent("the bank is closed")]
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("good", 2))
        await held(task)
        with pytest.raises(VerbRefused, match="is being undone: arguments cannot be edited"):
            await task.resubmit(**WHO, arguments={"card": "good"})


@pytest.mark.parametrize("signed", [{"by": "", "reason": "x"}, {"by": "ana", "reason": " "}, {"by": 7, "reason": "x"}])
async def test_nobody_resubmits_without_saying_who_and_why(shop: Shop, signed: dict[str, Any]) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("bad", 2))
        await held(task)
        with pytest.raises(InvalidInput, match="who asks for it and why|by"):
            await task.resubmit(**signed)
        assert (await task.view()).incarnation == 1


# --- an undo that failed
async def test_a_failed_undo_goes_on_from_where_it_stopped_and_is_undone_only_at_its_end(shop: Shop) -> None:
    shop.script["post"] += [DECLINED]
    shop.script["undo charge"] += [Permanent("the bank is closed")]
    shop.script["undo reserve"] += [Permanent("no key")]
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("good", 2), reply_to="web")
        failed = await held(task, "the bank is closed")
        assert failed.open_compensations == ("charge", "reserve")
        await task.resubmit(**WHO)
        failed = await held(task, "no key")
        assert (failed.open_compensations, shop.undone) == (("reserve",), ["charge"])
        await task.resubmit(**WHO)
        ended = await undone(task, "declined")
        assert (ended.step, ended.code, ended.open_compensations) == ("post", "declined", ())
        assert shop.undone == ["charge", "reserve"]
        assert shop.standing == 0
        kinds = [s.kind for s in await world._store.load_statuses("web", 100)]
        assert kinds.count("compensated") == 1
        assert kinds[-1] == "compensated"
        assert kinds[2:] == ["failed", "held", "failed", "held", "failed", "compensated"]


async def test_an_undo_stuck_in_doubt_is_not_resubmitted_before_the_doubt_is_answered(shop: Shop) -> None:
    shop.script["post"] += [BROKEN] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("good", 2))
        await held(task, "post may have happened and has no compensation")
        with pytest.raises(VerbRefused, match="post may have happened.*answer it first"):
            await task.resubmit(**WHO)
        with pytest.raises(VerbRefused, match="resubmit continues it"):
            await task.compensate(**WHO)
        assert shop.undone == []
        await task.answer(**WHO, step="post", did_not_happen=True)
        await task.resubmit(**WHO)
        await undone(task)
        assert shop.undone == ["charge", "reserve"]


async def test_what_had_happened_after_all_and_cannot_be_undone_stays_and_the_rest_is_undone(shop: Shop) -> None:
    shop.script["post"] += ["lost"] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("good", 2))
        await held(task)
        await task.answer(**WHO, step="post", result="the letter")
        await task.resubmit(**WHO)
        await undone(task)
        assert shop.undone == ["charge", "reserve"]
        assert shop.standing == 1


async def test_a_compensation_that_a_person_carried_out_is_not_carried_out_again(shop: Shop) -> None:
    shop.script["post"] += [DECLINED]
    shop.script["undo charge"] += [Permanent("the bank is closed")]
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("good", 2))
        await held(task)
        await task.answer(**WHO, step="undo:charge")
        assert (await task.view()).state == "held"
        await task.resubmit(**WHO)
        await undone(task)
        assert shop.undone == ["reserve"]


# --- what was undone
async def test_what_was_undone_runs_anew_under_new_keys_and_another_seed(shop: Shop) -> None:
    drawn: list[str] = []

    @workflow(supervision=UNDO)
    async def fresh(card: str) -> str:
        drawn.append(str(arriero.uuid()))
        await shop.reserve(1)
        return await shop.charge(card, 1)

    shop.script["charge"] += [DECLINED]
    async with opened(shop, fresh) as world:
        task = await world.app.submit(fresh("bad"), task_id="o-1", reply_to="web")
        await undone(task)
        await task.resubmit(**WHO, arguments={"card": "good"})
        assert await task.result() == "receipt for 1"
        assert shop.called() == ["reserve", "charge", "reserve", "charge"]
        assert len({call.key for call in shop.calls}) == 4
        assert [call.arguments for call in shop.calls if call.step == "charge"] == [("bad", 1), ("good", 1)]
        assert len(set(drawn)) == 2
        view = await task.view()
        assert (view.incarnation, view.failure_count) == (2, 0)
        assert shop.standing == 2
        same = await world.app.submit(fresh("bad"), task_id="o-1")
        assert await same.result() == "receipt for 1"
        with pytest.raises(InvalidInput, match="another body"):
            await world.app.submit(fresh("good"), task_id="o-1")
        await task.compensate(**WHO)
        await undone(task)
        assert shop.standing == 0
        await task.resubmit(**WHO)
        assert await task.result() == "receipt for 1"
        assert len({call.key for call in shop.calls}) == 6
        assert shop.standing == 2


async def test_a_step_of_a_life_that_was_undone_can_be_named_no_more(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("bad", 2))
        await undone(task)
        before = record(world, task)
        with pytest.raises(VerbRefused, match="workflow's arguments, not a step's"):
            await task.resubmit(**WHO, arguments={"card": "good"}, step="charge")
        with pytest.raises(InvalidInput, match="card"):
            await task.resubmit(**WHO, arguments={"card": 7})
        assert record(world, task) == before
        shop.script["charge"] += [Transient("busy", retry_after=9)]
        await task.resubmit(**WHO)
        await world.clock.advance(1)
        with pytest.raises(InvalidInput, match="it has reserve, charge$"):
            await task.answer(**WHO, step="undo:reserve")


async def test_an_undone_task_of_one_step_runs_anew_with_other_arguments(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.charge("bad", 5).options(supervision=UNDO))
        await undone(task)
        await task.resubmit(**WHO, arguments={"card": "good"})
        assert await task.result() == "receipt for 5"
        assert [call.arguments for call in shop.calls] == [("bad", 5), ("good", 5)]


# --- with a restart between each
async def restarted(machine: Machine, app: App, task_id: str, match: str = "") -> Any:
    """A process starts, drives the task to its end and stops."""
    app.session.settings = QUICK
    async with app.running(store=machine.url):
        task: Any = app.task(task_id)
        if not match:
            return await within(task.result())
        with pytest.raises(arriero.TaskFailed, match=match):
            await within(task.result())
    await machine.check()
    return None


async def as_client(machine: Machine, app: App, task_id: str, verb: str, **what: Any) -> None:
    """A process that runs nothing asks for a verb, and is gone."""
    app.session.given_store = machine.url
    async with app:
        await getattr(app.task(task_id), verb)(**WHO, **what)
    await machine.check(complete=False)


async def test_edited_arguments_replay_after_every_restart(machine: Machine, shop: Shop) -> None:
    shop.script["charge"] += [DECLINED, DECLINED]
    shop.script["post"] += [DECLINED, DECLINED]
    app = shop.app()
    app.session.given_store = machine.url
    async with app:
        await app.submit(shop.order("bad", 2), task_id="o-1")
    await restarted(machine, shop.app(), "o-1", "declined")
    await as_client(machine, shop.app(), "o-1", "resubmit", arguments={"card": "worse"})
    await restarted(machine, shop.app(), "o-1", "declined")
    await as_client(machine, shop.app(), "o-1", "resubmit", arguments={"card": "good"}, step="charge")
    await restarted(machine, shop.app(), "o-1", "declined")
    await as_client(machine, shop.app(), "o-1", "resubmit")
    await restarted(machine, shop.app(), "o-1", "declined")
    await as_client(machine, shop.app(), "o-1", "resubmit", arguments={"text": "thanks"})
    assert await restarted(machine, shop.app(), "o-1") == "receipt for 200"
    arguments = [call.arguments for call in shop.calls if call.step in ("charge", "post")]
    assert arguments == [
        ("bad", 200),
        ("worse", 200),
        ("good", 200),
        ("receipt for 200",),
        ("receipt for 200",),
        ("thanks",),
    ]
    assert shop.called("reserve") == shop.called("reserve")[:1]


async def test_a_task_held_for_a_bug_goes_on_with_the_release_that_mends_it(machine: Machine, shop: Shop) -> None:
    def release(number: int) -> App:
        @workflow(name="release", supervision=HOLD)
        async def fulfil(card: str) -> str:
            await shop.reserve(1)
            receipt = await shop.charge(card, 1)
            if number == 1:
                raise ZeroDivisionError("a bug of the first release")
            return receipt.upper()

        app = App("shop", agents=[shop.agent], workflows=[fulfil])
        app.session.given_store = machine.url
        return app

    first = release(1)
    async with first:
        await first.submit(first.workflows[0]("good"), task_id="o-1")
    await restarted(machine, release(1), "o-1", "a bug of the first release")
    await as_client(machine, release(1), "o-1", "resubmit")
    await restarted(machine, release(1), "o-1", "a bug of the first release")  # the same code fails the same way
    await as_client(machine, release(2), "o-1", "resubmit")
    assert await restarted(machine, release(2), "o-1") == "RECEIPT FOR 1"
    assert shop.called() == ["reserve", "charge"]


async def test_an_undo_and_the_life_after_it_survive_a_restart_between_each(machine: Machine, shop: Shop) -> None:
    shop.script["post"] += [BROKEN] * TRIES
    shop.script["undo charge"] += [Permanent("the bank is closed")]
    app = shop.app()
    app.session.given_store = machine.url
    async with app:
        await app.submit(shop.strict("good", 2), task_id="o-1")
    await restarted(machine, shop.app(), "o-1", "post may have happened")
    await as_client(machine, shop.app(), "o-1", "answer", step="post", did_not_happen=True)
    await as_client(machine, shop.app(), "o-1", "resubmit")
    await restarted(machine, shop.app(), "o-1", "the bank is closed")
    await as_client(machine, shop.app(), "o-1", "resubmit")
    await restarted(machine, shop.app(), "o-1", "compensated")
    assert (shop.undone, shop.standing) == (["charge", "reserve"], 0)
    await as_client(machine, shop.app(), "o-1", "resubmit", arguments={"pieces": 3})
    assert await restarted(machine, shop.app(), "o-1") == "receipt for 300"
    await as_client(machine, shop.app(), "o-1", "compensate")
    await restarted(machine, shop.app(), "o-1", "compensated")
    assert shop.undone == ["charge", "reserve"] * 2


async def test_a_branch_that_was_left_is_left_again_after_a_restart(machine: Machine, shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def with_handler(card: str) -> str:
        try:
            receipt = await shop.charge(card, 1)
        except StepFailed:
            await shop.reserve(1)
            await shop.reserve(2)
            raise
        await shop.reserve(1)
        return await shop.post(receipt)

    shop.script["charge"] += [DECLINED]
    shop.script["post"] += [DECLINED]
    app = shop.app(with_handler)
    app.session.given_store = machine.url
    async with app:
        await app.submit(with_handler("good"), task_id="o-1")
    await restarted(machine, shop.app(with_handler), "o-1", "declined")
    assert shop.called() == ["charge", "reserve", "reserve"]
    await as_client(machine, shop.app(with_handler), "o-1", "resubmit")
    await restarted(machine, shop.app(with_handler), "o-1", "declined")
    assert shop.called() == ["charge", "reserve", "reserve", "charge", "post"]  # what the handler reserved is had now
    await as_client(machine, shop.app(with_handler), "o-1", "resubmit")
    assert await restarted(machine, shop.app(with_handler), "o-1") == "receipt for 1"
    await as_client(machine, shop.app(with_handler), "o-1", "compensate")
    await restarted(machine, shop.app(with_handler), "o-1", "compensated")
    assert shop.standing == 1  # the letter
