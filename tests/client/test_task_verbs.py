"""What people do to tasks besides resubmitting them: undo, stop, extend, answer, pause; and who wins when two act at once."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import pytest
from runtime_world import QUICK, Machine, eventually, until, within
from shop_world import DECLINED, HOLD, UNDO, WHO, Shop, check, held, opened, record, row_of, undone

from arriero import (
    Agent,
    App,
    Attempt,
    InvalidInput,
    Permanent,
    Supervision,
    Task,
    TaskCompensated,
    TaskFailed,
    Transient,
    Undo,
    UnknownTask,
    VerbRefused,
    sleep,
    testing,
    workflow,
)
from arriero.model import TaskState
from arriero.store.contract import Purge
from arriero.testing.world import World

T = TypeVar("T")
BROKEN = ConnectionError("reset before it happened")
TRIES = 3  # of one attempt
VERBS: dict[str, dict[str, Any]] = {
    "resubmit": {},
    "compensate": {},
    "cancel": {},
    "extend": {"within": 6000},
    "adjust": {"deadline": 6000},
    "answer": {"step": "reserve", "result": 1},
    "pause": {},
    "resume": {},
    "snooze": {"delay": 60},
}


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def refused(task: Task[Any], verb: str, match: str, **what: Any) -> VerbRefused:
    """The verb is refused, and the error says of which task, in which state, and what is allowed there."""
    view = await task.view()
    with pytest.raises(VerbRefused, match=match) as found:
        await getattr(task, verb)(**WHO, **what)
    error = found.value
    assert (error.task_id, error.verb, error.state) == (task.id, verb, view.state)
    assert repr(task.id) in str(error)
    assert await task.view() == view
    return error


# --- asking
@pytest.mark.parametrize("verb", VERBS)
async def test_a_task_that_is_not_there_is_unknown_to_every_verb(shop: Shop, verb: str) -> None:
    async with opened(shop) as world:
        with pytest.raises(UnknownTask, match="no task 'o-9'"):
            await getattr(world.app.task("o-9"), verb)(**WHO, **VERBS[verb])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("who", [{"by": "", "reason": "x"}, {"by": "ana", "reason": ""}, {"by": "ana", "reason": None}])
async def test_every_verb_says_who_and_why(shop: Shop, verb: str, who: dict[str, Any]) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1), delay=60)
        before = record(world, task)
        with pytest.raises(InvalidInput):
            await getattr(task, verb)(**who, **VERBS[verb])
        assert record(world, task) == before


@pytest.mark.parametrize("verb", ["resubmit", "cancel", "extend", "pause", "resume", "snooze"])
async def test_what_an_ended_task_does_not_allow_is_refused_with_what_it_allows(shop: Shop, verb: str) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1))
        await task.result()
        error = await refused(task, verb, "is processed: .* is not allowed there; allowed: compensate", **VERBS[verb])
        assert error.allowed == ("compensate",)


# --- compensate
async def test_what_was_processed_is_undone_in_reverse_and_its_result_is_then_that(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2), reply_to="web")
        await task.result()
        await task.compensate(by="bo", reason="sent back")
        ended = await undone(task, "compensated by bo: sent back")
        assert (shop.undone, ended.code) == (["charge", "reserve"], "compensated")
        assert shop.standing == 1  # a letter cannot be undone
        assert (await task.view()).incarnation == 2
        kinds = [(s.kind, s.incarnation) for s in await world._store.load_statuses("web", 100)]
        assert kinds[2:] == [("completed", 1), ("failed", 2), ("compensated", 2)]


async def test_what_is_held_is_undone_with_what_may_have_happened_first(shop: Shop) -> None:
    shop.script["charge"] += ["lost"] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await held(task)
        await task.compensate(**WHO)
        await undone(task)
        assert (shop.undone, shop.standing) == (["charge", "reserve"], 0)


@pytest.mark.parametrize("doubt", [False, True], ids=["done", "in doubt"])
async def test_past_a_pivot_nothing_is_compensated_and_the_pivot_is_named(shop: Shop, doubt: bool) -> None:
    shop.script["ship" if doubt else "charge"] += [BROKEN] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.shipped("good", 2))
        await held(task)
        error = await refused(task, "compensate", "cannot be compensated: step ship is a pivot and has or may have")
        assert (error.state, shop.undone) == ("held", [])
        if doubt:
            await task.answer(**WHO, step="ship", did_not_happen=True)
            await task.compensate(**WHO)
            await undone(task)
            assert shop.undone == ["reserve"]
            return
        await task.answer(**WHO, step="charge", did_not_happen=True)
        await task.resubmit(**WHO)
        assert await task.result() == "2 shipped"
        await refused(task, "compensate", "ship is a pivot")


async def test_a_step_that_cannot_be_undone_holds_the_task_in_doubt_after_the_rest_is_undone(shop: Shop) -> None:
    shop.script["post"] += ["lost"] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await held(task)
        await task.compensate(**WHO)
        await held(task, "post may have happened and has no compensation")
        assert shop.undone == ["charge", "reserve"]
        await refused(task, "resubmit", "post may have happened")
        await task.answer(**WHO, step="post", result="the letter")
        await task.resubmit(**WHO)
        await undone(task, "compensated by ana")


# --- cancel
async def test_a_task_that_waits_to_begin_is_cancelled_before_anything_happens(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 1), delay=3600, reply_to="web")
        began = world.clock.now()
        await task.cancel(by="bo", reason="not wanted")
        ended = await undone(task, "cancelled by bo: not wanted")
        assert (ended.code, shop.calls) == ("cancelled", [])
        assert world.clock.now() - began < timedelta(seconds=60)
        kinds = [s.kind for s in await world._store.load_statuses("web", 100)]
        assert kinds == ["received", "failed", "compensated"]


async def test_an_attempt_that_runs_when_its_task_is_cancelled_is_waited_for_and_undone_too(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=9)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await world.clock.advance(1)
        await task.cancel(**WHO)
        await world.clock.advance(1)
        assert (await task.view()).state == "compensating"
        assert shop.undone == []
        await undone(task)
        assert (shop.called(), shop.undone) == (["reserve", "charge", "charge"], ["charge", "reserve"])
        assert shop.standing == 0


async def test_a_sleeping_task_is_cancelled_at_once(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))
        await world.clock.advance(5)
        began = world.clock.now()
        await task.cancel(**WHO)
        await undone(task)
        assert (shop.undone, world.clock.now() - began < timedelta(seconds=30)) == (["reserve"], True)


async def test_a_request_that_cools_off_is_withdrawn_when_its_task_is_cancelled(shop: Shop) -> None:
    @workflow(supervision=Supervision(attempts=1, rounds=3, cool_off=500))
    async def patient(card: str) -> str:
        await shop.reserve(1)
        return await shop.charge(card, 1)

    shop.script["charge"] += [DECLINED, DECLINED]
    shop.script["charge"].clear()
    shop.script["charge"] += ["lost"] * TRIES
    async with opened(shop, patient) as world:
        task = await world.app.submit(patient("good"))
        await world.clock.advance(5)
        await task.cancel(**WHO)
        await undone(task)
        assert shop.undone == ["charge", "reserve"]  # it may have happened, though it was withdrawn
        assert shop.standing == 0


async def test_past_a_pivot_a_cancelled_task_is_held_and_goes_on_when_resubmitted(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=9)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.shipped("good", 2))
        await world.clock.advance(1)
        await task.cancel(**WHO)
        error = await held(task, "cancelled by ana: she says so .not undone: step ship is a pivot")
        assert (error.state, shop.undone) == ("held", [])
        await world.clock.advance(20)
        assert row_of(world, task, "charge").state == "completed"  # its attempt went on
        await task.resubmit(**WHO)
        assert await task.result() == "2 shipped"
        assert shop.called() == ["reserve", "ship", "charge", "charge"]


async def test_a_task_cancelled_while_its_pivot_is_attempted_is_held_when_the_pivot_happened(shop: Shop) -> None:
    shop.script["ship"] += [Transient("busy", retry_after=9)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.shipped("good", 2))
        await world.clock.advance(1)
        await task.cancel(**WHO)
        await held(task, "ship is a pivot")
        assert shop.undone == []
        await refused(task, "compensate", "ship is a pivot")
        await task.resubmit(**WHO)
        assert await task.result() == "2 shipped"
        assert shop.called() == ["reserve", "ship", "ship", "charge"]


async def test_a_task_cancelled_while_its_pivot_is_attempted_is_undone_when_the_pivot_surely_failed(
    shop: Shop,
) -> None:
    shop.script["ship"] += [Transient("busy", retry_after=9), Permanent("no carrier")]
    async with opened(shop) as world:
        task = await world.app.submit(shop.shipped("good", 2))
        await world.clock.advance(1)
        await task.cancel(**WHO)
        await undone(task, "cancelled by ana")
        assert shop.undone == ["reserve"]


async def test_cancelling_twice_tells_that_it_is_being_undone_already(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=9)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await world.clock.advance(1)
        await task.cancel(**WHO)
        error = await refused(task, "cancel", "is compensating: cancel is not allowed there")
        assert error.allowed == ("answer", "pause", "snooze")


# --- extend
async def test_a_limit_is_moved_to_so_long_from_now_and_holds_there(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))  # within 600 seconds; it sleeps for 60
        await refused(task, "extend", "only moves it later", within=600)
        await task.extend(**WHO, within=timedelta(seconds=700))
        assert await task.result() == "receipt for 2"


async def test_a_task_that_would_miss_its_limit_makes_it_when_extended(shop: Shop) -> None:
    @workflow(complete_within=30, supervision=HOLD)
    async def late() -> str:
        await sleep(60)
        return await shop.post("at last")

    async with opened(shop, late) as world:
        first, second = await world.app.submit(late()), await world.app.submit(late())
        await world.clock.advance(29)
        await second.extend(**WHO, within=60)
        await held(first, "complete_within")
        assert await second.result() == "at last"


async def test_a_task_without_a_limit_of_its_own_has_nothing_to_extend(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2), delay=60)
        await refused(task, "extend", "no limit of its own", within=60)


@pytest.mark.parametrize("within", [0, -1, float("nan"), "soon", None])
async def test_a_limit_that_is_no_time_is_refused(shop: Shop, within: Any) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))
        with pytest.raises(InvalidInput, match="within"):
            await task.extend(**WHO, within=within)


# --- answer
async def test_a_request_that_no_agent_takes_is_answered_and_the_task_goes_on(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=20)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await world.clock.advance(1)
        await task.answer(**WHO, step="charge", result="by bank transfer")
        assert await task.result() == "by bank transfer"
        answered = row_of(world, task, "charge")
        await world.clock.advance(60)
        assert row_of(world, task, "charge") == answered  # what the attempt came to changes nothing
        reports = [e for e in await _events(world) if e["type"] == "step.report" and e["step"] == answered.ordinal]
        assert [event["verdict"] for event in reports] == ["stale"]


async def test_a_waiting_retry_is_answered_and_never_begins(shop: Shop) -> None:
    @workflow(supervision=Supervision(attempts=2, rounds=2, cool_off=500))
    async def patient(card: str) -> str:
        return await shop.charge(card, 1)

    shop.script["charge"] += [BROKEN] * TRIES * 2
    async with opened(shop, patient) as world:
        task = await world.app.submit(patient("good"))
        await world.clock.advance(60)
        row = row_of(world, task, "charge")
        assert (row.state, row.in_doubt) == ("pending", True)
        await task.answer(**WHO, step="charge", result="cash")
        assert await task.result() == "cash"
        assert len(shop.calls) == TRIES * 2


@pytest.mark.parametrize("held_task", [True, False], ids=["failed", "withdrawn"])
async def test_what_failed_or_was_withdrawn_is_answered_while_the_task_is_held(shop: Shop, held_task: bool) -> None:
    busy = Agent("busy", max_in_flight=1)

    @busy.step
    def work(attempt: Attempt, number: int) -> int:
        if number == 1:
            raise DECLINED
        return number

    @workflow(supervision=HOLD)
    async def both() -> list[int]:
        return list(await asyncio.gather(work(1), work(2), work(3)))

    async with testing.running(App("busy", agents=[busy], workflows=[both])) as world:
        task = await world.app.submit(both())
        await held(task)
        await task.answer(**WHO, step="1", result=10)
        if not held_task:
            (withdrawn, *_) = [s for s in record(world, task).steps if s.state == "withdrawn"]
            await task.answer(**WHO, step=withdrawn.label, result=30)
        await task.resubmit(**WHO)
        assert await task.result() == ([10, 2, 3] if held_task else [10, 2, 30])
        check(world)


async def test_a_result_of_another_type_or_none_or_two_are_refused(shop: Shop) -> None:
    shop.script["charge"] += [BROKEN] * TRIES
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await held(task)
        before = record(world, task)
        for what, match in (
            ({"step": "charge", "result": 5}, "str"),
            ({"step": "charge", "result": None}, "str"),
            ({"step": "charge"}, "give the result of step charge"),
            ({"step": "charge", "result": "x", "did_not_happen": True}, "not both"),
            ({"step": "post", "result": "x"}, "no step 'post'; it has reserve, charge"),
            ({"step": "undo:charge"}, "no step 'undo:charge'"),
            ({"step": "9", "result": "x"}, "no step '9'"),
        ):
            with pytest.raises(InvalidInput, match=match):
                await task.answer(**WHO, **what)
        assert record(world, task) == before
        await refused(task, "answer", "reserve has a result already; it never changes", step="reserve", result=2)
        await refused(task, "answer", "reserve has a result already", step="1", did_not_happen=True)


async def test_a_step_is_found_by_its_name_before_its_number(shop: Shop) -> None:
    numbered = Agent("numbered")

    @numbered.step(name="2")
    def named_two(attempt: Attempt) -> int:
        raise BROKEN

    @numbered.step(name="other")
    def other(attempt: Attempt) -> int:
        raise BROKEN

    @workflow(supervision=HOLD)
    async def both() -> list[int]:
        return list(await asyncio.gather(named_two(), other()))

    async with testing.running(App("numbered", agents=[numbered], workflows=[both])) as world:
        task = await world.app.submit(both())
        await held(task)
        await task.answer(**WHO, step="2", result=7)
        assert {s.name: s.result for s in record(world, task).steps} == {"2": "7", "other": None}


async def test_an_attempt_under_way_cannot_be_said_not_to_have_happened(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=20)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await world.clock.advance(1)
        await refused(task, "answer", "is being attempted now", step="charge", did_not_happen=True)


async def test_what_is_sure_cannot_be_settled(shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await held(task)
        await refused(task, "answer", "charge is not in doubt", step="charge", did_not_happen=True)


async def test_a_compensation_under_way_is_answered_and_the_next_begins(shop: Shop) -> None:
    slow = Agent("slow")
    calls: list[str] = []

    @slow.step
    def first(attempt: Attempt) -> int:
        return 1

    @first.compensation
    def undo_first(undo: Undo[int]) -> None:
        calls.append("first")

    @slow.step
    def second(attempt: Attempt) -> int:
        return 2

    @second.compensation
    def undo_second(undo: Undo[int]) -> None:
        calls.append("second")
        if len(calls) == 1:
            raise Transient("busy", retry_after=15)

    @workflow
    async def both() -> None:
        await first()
        await second()
        raise Permanent("no")

    async with testing.running(App("slow", agents=[slow], workflows=[both])) as world:
        task = await world.app.submit(both())
        await world.clock.advance(1)
        assert calls == ["second"]
        await task.answer(**WHO, step="undo:second")
        await undone(task)
        assert calls == ["second", "first"]
        check(world)


async def test_a_request_that_an_undo_left_out_cannot_be_called_done_afterwards(machine: Machine, shop: Shop) -> None:
    """The plan stands already: what is called done now would be left standing in a task that is called undone."""
    nobody = Agent("nobody")

    @nobody.step
    def never(attempt: Attempt) -> int:
        raise AssertionError("nobody hosts its Agent")

    @never.compensation
    def undo_never(undo: Undo[int]) -> None:
        raise AssertionError("nobody hosts its Agent")

    @workflow(supervision=UNDO)
    async def both() -> None:
        await shop.reserve(1)
        await asyncio.gather(shop.charge("bad", 1), never())

    shop.script["charge"] += [DECLINED]
    shop.script["undo reserve"] += [Permanent("no key")]
    app = App("shop", agents=[shop.agent, nobody], workflows=[both])
    app.session.settings = QUICK
    async with app.running(store=machine.url, agents=["shop"]):
        task = await app.submit(both())
        with pytest.raises(TaskFailed, match="no key"):
            await within(task.result())
        await refused(task, "answer", "step never did not happen", step="never", result=1)
        await task.resubmit(**WHO)
        with pytest.raises(TaskCompensated):
            await within(task.result())
    assert shop.undone == ["reserve"]
    await machine.check()


# --- pause and resume
async def test_a_paused_task_lets_its_attempt_end_and_begins_nothing_new(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=9)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await world.clock.advance(1)
        await task.pause(**WHO)
        view = await task.view()
        assert (view.state, view.paused, view.waiting_for) == ("processing", True, "an operator who resumes it")
        await world.clock.advance(3600)
        assert (row_of(world, task, "charge").state, shop.called()[-1]) == ("completed", "charge")
        await refused(task, "pause", "is paused already")
        await task.resume(**WHO)
        assert await task.result() == "receipt for 200"
        await refused(task, "resume", "is processed")


async def test_a_task_that_is_not_paused_is_not_resumed(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2), delay=60)
        error = await refused(task, "resume", "is not paused")
        assert error.allowed == ("compensate", "cancel", "adjust", "pause", "snooze")


async def test_a_task_paused_before_it_began_begins_when_it_is_resumed_and_due(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2), delay=60)
        await task.pause(**WHO)
        await world.clock.advance(600)
        assert shop.calls == []
        await task.resume(**WHO)
        await task.result()


async def test_a_delay_stays_when_a_task_is_paused_and_resumed_before_its_time(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2), delay=60)
        await task.pause(**WHO)
        await task.resume(**WHO)
        await world.clock.advance(50)
        assert shop.calls == []
        await task.result()


async def test_a_cool_off_ends_when_the_task_is_resumed(shop: Shop) -> None:
    @workflow(supervision=Supervision(attempts=1, rounds=2, cool_off=5000))
    async def patient(card: str) -> str:
        return await shop.charge(card, 1)

    shop.script["charge"] += [BROKEN] * TRIES
    async with opened(shop, patient) as world:
        task = await world.app.submit(patient("good"))
        await world.clock.advance(60)
        began = world.clock.now()
        await task.pause(**WHO)
        await world.clock.advance(10_000)
        assert len(shop.calls) == TRIES
        await task.resume(**WHO)
        assert await task.result() == "receipt for 1"
        assert world.clock.now() - began < timedelta(seconds=10_060)


async def test_a_retry_that_is_asked_while_paused_waits_too(shop: Shop) -> None:
    @workflow(supervision=Supervision(attempts=3))
    async def patient(card: str) -> str:
        return await shop.charge(card, 1)

    shop.script["charge"] += [Transient("busy", retry_after=9), BROKEN, BROKEN]
    async with opened(shop, patient) as world:
        task = await world.app.submit(patient("good"))
        await world.clock.advance(1)
        await task.pause(**WHO)
        await world.clock.advance(3600)
        assert len(shop.calls) == TRIES
        await task.resume(**WHO)
        await task.result()


@pytest.mark.parametrize("passes", [10, 500], ids=["before its time", "after its time"])
async def test_a_timer_goes_on_while_its_task_is_paused(shop: Shop, passes: float) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))
        began = world.clock.now()
        await world.clock.advance(5)
        await task.pause(**WHO)
        await world.clock.advance(passes)
        assert shop.called() == ["reserve"]
        await task.resume(**WHO)
        await task.result()
        assert world.clock.now() - began < timedelta(seconds=max(60, passes + 5) + 2)


async def test_an_undo_is_paused_between_two_compensations_and_goes_on(shop: Shop) -> None:
    shop.script["post"] += [DECLINED]
    shop.script["undo charge"] += [Transient("busy", retry_after=9)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("good", 2))
        await world.clock.advance(1)
        assert (await task.view()).state == "compensating"
        await task.pause(**WHO)
        await world.clock.advance(3600)
        assert shop.undone == ["charge"]
        assert (await task.view()).state == "compensating"
        await task.resume(**WHO)
        await undone(task)
        assert shop.undone == ["charge", "reserve"]


async def test_the_limit_of_a_paused_task_does_not_end_it_and_extended_it_goes_on(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))
        await world.clock.advance(1)
        await task.pause(**WHO)
        await world.clock.advance(6000)
        assert (await task.view()).state == "processing"
        await task.extend(**WHO, within=600)
        await task.resume(**WHO)
        assert await task.result() == "receipt for 2"


@pytest.mark.parametrize("verb", ["cancel", "compensate"])
async def test_a_paused_task_is_undone_without_being_resumed(shop: Shop, verb: str) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))
        await world.clock.advance(1)
        await task.pause(**WHO)
        await getattr(task, verb)(**WHO)
        await undone(task)
        assert (shop.undone, (await task.view()).paused) == (["reserve"], False)


async def test_a_step_answered_while_its_task_is_paused_is_seen_when_it_is_resumed(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=20)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await world.clock.advance(1)
        await task.pause(**WHO)
        await task.answer(**WHO, step="charge", result="cash")
        await world.clock.advance(3600)
        assert shop.called()[-1] == "charge"
        await task.resume(**WHO)
        assert await task.result() == "cash"


# --- purged
async def test_the_result_of_a_task_that_was_purged_is_not_waited_for(machine: Machine, shop: Shop) -> None:
    async with client(machine, shop).running(store=machine.url) as app:
        task = await app.submit(shop.reserve(1), task_id="o-1")
        assert await within(task.result()) == 1
        store = app.session.store
        assert (await store.purge(Purge(states=tuple(TaskState), ended_before=store.now()), actor="t", limit=9)).count
        with pytest.raises(UnknownTask, match="o-1"):
            await task.result(60)


async def test_a_handle_of_a_purged_task_answers_with_the_task_that_was_submitted_under_its_id_since(
    machine: Machine, shop: Shop
) -> None:
    async with client(machine, shop).running(store=machine.url) as app:
        task = await app.submit(shop.reserve(1), task_id="o-1")
        assert await within(task.result()) == 1
        store = app.session.store
        await store.purge(Purge(states=tuple(TaskState), ended_before=store.now()), actor="t", limit=9)
        assert await within((await app.submit(shop.reserve(2), task_id="o-1")).result()) == 2
        assert (await task.view()).state == "processed"
        assert await task.result(60) == 2


# --- restarts: every state survives
def client(machine: Machine, shop: Shop, *more: Any) -> App:
    app = shop.app(*more)
    app.session.given_store = machine.url
    app.session.settings = QUICK
    return app


async def test_a_task_put_down_for_an_agent_elsewhere_is_paused_answered_resumed_and_goes_on(
    machine: Machine, shop: Shop
) -> None:
    """Nobody but the person's answer wakes it."""
    app = client(machine, shop)
    async with app.running(store=machine.url, roles=["scheduler", "supervisor"]):
        task = await app.submit(shop.charge("good", 2), task_id="o-1")
        await machine.event("task.released", why="put_down", not_before=None)
        await task.pause(**WHO)
        await task.answer(**WHO, step="charge", result="cash")
        await task.resume(**WHO)
        assert await task.result(60) == "cash"
    await machine.check()


async def test_a_pause_outlives_every_process(machine: Machine, shop: Shop) -> None:
    async with client(machine, shop) as app:
        task = await app.submit(shop.order("good", 2), task_id="o-1")
        await task.pause(**WHO)
    async with client(machine, shop).running(store=machine.url) as app:
        other = await app.submit(shop.order("good", 1), task_id="o-2")
        await within(other.result())
        assert (await app.task("o-1").view()).paused
    async with client(machine, shop) as app:
        await app.task("o-1").resume(**WHO)
    async with client(machine, shop).running(store=machine.url) as app:
        assert await within(app.task("o-1").result()) == "receipt for 200"
    await machine.check()


async def test_a_task_cancelled_and_one_compensated_while_nobody_runs_are_undone_by_the_next_process(
    machine: Machine, shop: Shop
) -> None:
    async with client(machine, shop).running(store=machine.url) as app:
        done = await app.submit(shop.order("good", 2), task_id="done")
        await within(done.result())
        await app.submit(shop.slow("good", 2), task_id="sleeping")
        await machine.event("task.released", task="sleeping", why="put_down")
    async with client(machine, shop) as app:
        await app.task("done").compensate(**WHO)
        await app.task("sleeping").cancel(**WHO)
        assert (await app.task("done").view()).state == "compensating"
        with pytest.raises(TimeoutError, match="no Scheduler is alive"):
            await app.task("done").result(0.05)
    async with client(machine, shop).running(store=machine.url) as app:
        for name in ("done", "sleeping"):
            with pytest.raises(TaskCompensated):
                await within(app.task(name).result())
    assert sorted(shop.undone) == ["charge", "reserve", "reserve"]
    await machine.check()


async def test_an_attempt_that_runs_in_another_process_is_answered_here_and_its_report_is_kept_as_stale(
    machine: Machine,
) -> None:
    stop = asyncio.Event()
    begun: list[int] = []
    road = Agent("road")

    @road.step
    async def walk(attempt: Attempt) -> str:
        begun.append(attempt.number)
        await stop.wait()
        return "walked"

    @workflow
    async def journey() -> str:
        return await walk()

    worker, other = machine.app([road], [journey]), machine.app([road], [journey])
    async with worker.running():
        task = await worker.submit(journey(), task_id="o-1")
        await until(lambda: begun)
        async with other:
            await other.task("o-1").answer(**WHO, step="walk", result="carried")
        assert await within(task.result()) == "carried"
        stop.set()
        await machine.event("step.report", verdict="stale")
    assert begun == [1]
    await machine.check()


async def test_a_process_that_holds_a_task_finds_out_that_another_cancelled_it(machine: Machine) -> None:
    stop = asyncio.Event()
    undone_steps: list[str] = []
    begun: list[int] = []
    road = Agent("road")

    @road.step
    async def walk(attempt: Attempt) -> str:
        begun.append(attempt.number)
        await stop.wait()
        return "walked"

    @walk.compensation
    async def walk_back(undo: Undo[str]) -> None:
        undone_steps.append(str(undo.result))

    @workflow
    async def journey() -> list[str]:
        return [await walk(), await walk()]

    worker, other = machine.app([road], [journey]), machine.app([road], [journey])
    async with worker.running():
        task = await worker.submit(journey(), task_id="o-1")
        await until(lambda: begun)
        async with other:
            await other.task("o-1").cancel(**WHO)
            await eventually(lambda: _state_is(other, "compensating"))
        stop.set()
        with pytest.raises(TaskCompensated, match="cancelled by ana"):
            await within(task.result())
    assert (begun, undone_steps) == ([1], ["walked"])
    await machine.check()


async def _state_is(app: App, state: str) -> bool | None:
    return True if (await app.task("o-1").view()).state == state else None


async def _events(world: World) -> list[dict[str, Any]]:
    return [event for row in world._store.log for event in msgspec.json.decode(row.events)]


# --- races
RACES = int(os.environ.get("ARRIERO_RACES", "300"))  # make torture runs two thousand of each
AT_ONCE = 20
TURNS_MAX = 120  # of the event loop; a task beside others takes some tens of them


async def _some_turns(chance: random.Random, at_most: int = TURNS_MAX) -> None:
    for _ in range(chance.randrange(at_most)):
        await asyncio.sleep(0)


async def _race(world: World, calls: list[Any], one: Callable[[Task[Any]], Awaitable[T]]) -> list[tuple[Task[Any], T]]:
    """Submit tasks and let somebody act on each meanwhile; a while later, each task with what came of the act."""

    async def play(call: Any) -> tuple[Task[Any], T]:
        task = await world.app.submit(call)
        return task, await one(task)

    played = await asyncio.gather(*map(play, calls))
    await world.clock.advance(90)
    return played


async def _state(task: Task[Any]) -> str:
    return (await task.view()).state


def _stands(shop: Shop, world: World, task: Task[Any]) -> int:
    """Effects of a task that stand; a letter never counts, it cannot be undone."""
    rows = [s for s in record(world, task).steps if s.kind == "step" and s.name != "post"]
    return sum(shop.books[row.idempotency_key] for row in rows)


async def test_of_a_cancellation_and_the_end_exactly_one_wins_and_the_books_are_whole_or_undone(shop: Shop) -> None:
    chance = random.Random(1)
    met: Counter[str] = Counter()

    async def cancel(task: Task[Any]) -> VerbRefused | None:
        await _some_turns(chance)
        try:
            await task.cancel(**WHO)
        except VerbRefused as refusal:
            return refusal
        return None

    async with opened(shop) as world:
        for _ in range(RACES // AT_ONCE):
            for task, refusal in await _race(world, [shop.order("good", 2) for _ in range(AT_ONCE)], cancel):
                ended = await _state(task)
                assert (ended, _stands(shop, world, task)) == (("processed", 2) if refusal else ("compensated", 0))
                if refusal is not None:
                    assert (refusal.state, refusal.allowed) == ("processed", ("compensate",))
                    assert "is processed: cancel is not allowed there; allowed: compensate" in str(refusal)
                met[f"{ended} after {len(record(world, task).steps)} steps"] += 1
    assert sum(met.values()) == RACES
    assert len(met) >= 4, met  # it was cancelled before, between and after its steps


@pytest.mark.parametrize("seed", [2, 5, 7, 8, 11, 12])
async def test_a_result_asked_for_just_as_the_world_comes_to_rest_is_given(shop: Shop, seed: int) -> None:
    """Whoever asks after everybody else came to rest, does not ask in vain: the task has ended."""
    chance = random.Random(seed)
    async with opened(shop) as world:
        for _ in range(600):
            task = await world.app.submit(shop.order("good", 2))
            await _some_turns(chance)
            with suppress(VerbRefused):
                await task.cancel(**WHO)
            with suppress(TaskFailed):
                await task.result()


async def test_of_two_resubmissions_exactly_one_wins_and_the_loser_is_told_what_the_task_is(shop: Shop) -> None:
    chance = random.Random(2)
    won: Counter[str] = Counter()

    async def one_of_two(task: Task[Any], who: str) -> int:
        await _some_turns(chance, 4)
        try:
            await task.resubmit(by=who, reason="she says so")
        except VerbRefused as refusal:
            assert refusal.state in ("pending", "processing", "processed")
            said = ("you saw incarnation 1", f"is {refusal.state}: resubmit is not allowed there")
            assert any(one in str(refusal) for one in said)
            return 0
        won[who] += 1
        return 1

    async def both(task: Task[Any]) -> int:
        await until(lambda: record(world, task).task.state == "held")
        return sum(await asyncio.gather(one_of_two(task, "ana"), one_of_two(task, "bo")))

    async with opened(shop) as world:
        for _ in range(RACES // AT_ONCE):
            shop.script["charge"] += [DECLINED] * AT_ONCE
            for task, winners in await _race(world, [shop.order("good", 2) for _ in range(AT_ONCE)], both):
                assert (winners, await _state(task), _stands(shop, world, task)) == (1, "processed", 2)
                assert (await task.view()).incarnation == 2
    assert won.total() == RACES
    assert min(won.values()) > RACES / 10


async def test_of_a_compensation_and_the_end_the_task_is_undone_whoever_comes_first(shop: Shop) -> None:
    chance = random.Random(3)
    met: Counter[int] = Counter()

    async def compensate(task: Task[Any]) -> None:
        await _some_turns(chance)
        await task.compensate(**WHO)  # neither the open task nor the ended one refuses it

    async with opened(shop) as world:
        for _ in range(RACES // AT_ONCE):
            for task, _ in await _race(world, [shop.order("good", 2) for _ in range(AT_ONCE)], compensate):
                assert (await _state(task), _stands(shop, world, task)) == ("compensated", 0)
                met[(await task.view()).incarnation] += 1
    assert met.total() == RACES
    assert min(met[1], met[2]) > RACES / 20


async def test_of_a_cancellation_and_a_failure_nothing_is_left_standing(shop: Shop) -> None:
    chance = random.Random(4)
    met: Counter[bool] = Counter()

    async def cancel_or_compensate(task: Task[Any]) -> bool:
        await _some_turns(chance)
        try:
            await task.cancel(**WHO)
        except VerbRefused as refusal:
            assert refusal.state == "held"
            await task.compensate(**WHO)
            return True
        return False

    async with opened(shop) as world:
        for _ in range(RACES // AT_ONCE):
            shop.script["charge"].clear()
            shop.script["charge"] += ["lost"] * 3 * AT_ONCE if chance.random() < 0.5 else [DECLINED] * AT_ONCE
            calls = [shop.order("good", 2) for _ in range(AT_ONCE)]
            for task, was_held in await _race(world, calls, cancel_or_compensate):
                assert (await _state(task), _stands(shop, world, task)) == ("compensated", 0)
                met[was_held] += 1
    assert met.total() == RACES
    assert min(met[True], met[False]) > RACES / 20


async def test_any_verbs_at_any_time_leave_whole_books_and_a_clean_history(shop: Shop) -> None:
    """Several people at once, each with a verb of their own; at the end every task is resumed and brought to an end."""
    chance = random.Random(5)
    carried: Counter[str] = Counter()

    async def person(task: Task[Any]) -> None:
        for _ in range(3):
            await _some_turns(chance)
            verb = chance.choice(list(VERBS))
            what = {"step": "charge", "result": "by hand"} if verb == "answer" else VERBS[verb]
            try:
                await getattr(task, verb)(**WHO, **what)
                carried[verb] += 1
            except InvalidInput:
                carried["refused"] += 1

    async with opened(shop) as world:
        for _ in range(RACES // 4):
            shop.script["charge"].clear()
            shop.script["charge"] += chance.choice([[], [DECLINED], ["lost"] * TRIES, [BROKEN] * TRIES * 2])
            call = chance.choice([shop.order, shop.strict, shop.at_once, shop.slow])("good", 2)
            task = await world.app.submit(call, reply_to="web")
            await asyncio.gather(person(task), person(task))
            if (await task.view()).paused:
                await task.resume(**WHO)
            await world.clock.advance(90)
            state = await _state(task)
            rows = record(world, task).life
            if state == "compensated":
                by_hand = {row.idempotency_key for row in rows if row.result == '"by hand"'}
                assert sum(shop.books[row.idempotency_key] for row in rows if row.name != "post") <= len(by_hand)
            assert state in ("processed", "compensated", "held")
    assert set(VERBS) <= set(carried)


# --- snooze
async def test_the_attempt_under_way_ends_and_what_follows_begins_at_the_end_of_the_snooze(shop: Shop) -> None:
    shop.script["charge"] += [Transient("busy", retry_after=20)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2))
        await world.clock.advance(5)
        await task.snooze(**WHO, delay=timedelta(hours=2))
        await world.clock.advance(7_199)
        view = await task.view()
        assert (shop.called(), view.state) == (["reserve", "charge", "charge"], "processing")
        assert view.snoozed_until is not None
        assert view.waiting_for == f"the end of its snooze at {view.snoozed_until.isoformat(timespec='seconds')}"
        await world.clock.advance(2)
        assert await task.result() == "receipt for 200"


async def test_a_task_that_sleeps_wakes_at_the_end_of_the_snooze(shop: Shop) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.slow("good", 2))
        began = world.clock.now()
        await world.clock.advance(5)
        await task.snooze(**WHO, delay=500)
        await task.result()
        assert timedelta(seconds=505) <= world.clock.now() - began < timedelta(seconds=507)


async def test_a_snooze_that_was_too_long_is_replaced_by_a_shorter_one_and_the_task_keeps_its_own_start(
    shop: Shop,
) -> None:
    async with opened(shop) as world:
        task = await world.app.submit(shop.order("good", 2), delay=60)
        began = world.clock.now()
        await task.snooze(**WHO, delay=timedelta(days=30))
        await task.snooze(**WHO, delay=5)
        await task.result()
        assert timedelta(seconds=60) <= world.clock.now() - began < timedelta(seconds=62)


async def test_an_undo_is_snoozed_between_two_compensations(shop: Shop) -> None:
    shop.script["post"] += [DECLINED]
    shop.script["undo charge"] += [Transient("busy", retry_after=9)]
    async with opened(shop) as world:
        task = await world.app.submit(shop.strict("good", 2))
        await world.clock.advance(1)
        await task.snooze(**WHO, delay=3_600)
        await world.clock.advance(3_599)
        assert ((await task.view()).state, shop.undone) == ("compensating", ["charge"])
        await undone(task)
        assert shop.undone == ["charge", "reserve"]
