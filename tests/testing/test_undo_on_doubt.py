"""An undo that meets a step in doubt which nothing undoes: as the workflow says, it undoes the rest or stops there."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from server_world import open_server

from arriero import (
    Agent,
    App,
    Attempt,
    DefinitionError,
    Retry,
    StepFailed,
    Supervision,
    Task,
    TaskCompensated,
    TaskFailed,
    Undo,
    VerbRefused,
    sleep,
    testing,
    workflow,
)

warehouse, bank = Agent("warehouse"), Agent("bank")
SETTLED: list[dict[str, Any]] = [{"result": "parcel by hand"}, {"did_not_happen": True}]


@bank.step
async def charge(attempt: Attempt, order: str) -> str:
    return f"receipt-{order}"


@charge.compensation
async def refund(undo: Undo[str], order: str) -> None:
    pass


@warehouse.step(retry=Retry(tries=1), supervision=Supervision(attempts=1))
async def send(attempt: Attempt, order: str) -> str:
    return f"parcel-{order}"


async def _sell(order: str) -> str:
    await charge(order)
    return await send(order)


sell = workflow(name="sell")(_sell)
sell_or_ask = workflow(name="sell_or_ask", supervision=Supervision(then="hold"))(_sell)
sell_strictly = workflow(name="sell_strictly", undo_on_doubt="stop")(_sell)
shop = App("shop", agents=[warehouse, bank], workflows=[sell, sell_or_ask, sell_strictly])


async def _sell_and_wait(order: str) -> None:
    await charge(order)
    with suppress(StepFailed):
        await send(order)
    await sleep(7 * 3600)


WAITING = {
    "sell_and_wait": workflow(name="sell_and_wait")(_sell_and_wait),
    "sell_and_wait_strictly": workflow(name="sell_and_wait_strictly", undo_on_doubt="stop")(_sell_and_wait),
}
waiting_shop = App("shop", agents=[warehouse, bank], workflows=list(WAITING.values()))


async def _hold(task: Task[str], code: str = "in_doubt") -> str:
    """Wait until the task is held, and return the reason."""
    with pytest.raises(TaskFailed) as failed:
        await task.result()
    assert (failed.value.state, failed.value.code) == ("held", code)
    return failed.value.reason


def _undone(world: testing.World) -> list[str]:
    return [one.step for one in world.undone()]


@pytest.mark.parametrize("answer", SETTLED)
async def test_the_rest_is_undone_and_the_task_ends_compensated_once_the_doubt_is_answered(
    answer: dict[str, Any],
) -> None:
    async with testing.running(shop) as world:
        world.answers(send, ConnectionError("no answer"))
        task = await world.app.submit(sell("o-1"))
        assert "everything else was undone, but send may have happened and has no compensation" in await _hold(task)
        assert _undone(world) == ["charge"]
        with pytest.raises(VerbRefused, match="send may have happened and has no compensation: answer it first"):
            await task.resubmit(by="ana", reason="too early")
        await task.answer(by="ana", reason="asked the warehouse", step="send", **answer)
        await task.resubmit(by="ana", reason="settled")
        with pytest.raises(TaskCompensated):
            await task.result()
        assert _undone(world) == ["charge"]
        assert (await task.view()).nothing_to_undo == (("send",) if "result" in answer else ())


async def test_under_stop_nothing_is_undone_before_the_answer() -> None:
    async with testing.running(shop) as world:
        world.answers(send, ConnectionError("no answer"))
        task = await world.app.submit(sell_strictly("o-1"))
        assert "then the undo stopped: send may have happened" in await _hold(task)
        assert _undone(world) == []
        with pytest.raises(VerbRefused, match="answer it first"):
            await task.resubmit(by="ana", reason="too early")
        await task.answer(by="ana", reason="asked the warehouse", step="send", did_not_happen=True)
        await task.resubmit(by="ana", reason="settled")
        with pytest.raises(TaskCompensated):
            await task.result()
        assert _undone(world) == ["charge"]


async def test_a_person_who_compensates_a_held_task_has_the_rest_undone() -> None:
    async with testing.running(shop) as world:
        world.answers(send, ConnectionError("no answer"))
        task = await world.app.submit(sell_or_ask("o-1"))
        assert "no answer" in await _hold(task, "")
        await task.compensate(by="ana", reason="too late to send it")
        assert "compensated by ana: too late to send it; everything else was undone" in await _hold(task)
        assert _undone(world) == ["charge"]


async def test_the_convoy_of_a_task_that_is_held_in_doubt_waits_until_it_ended() -> None:
    async with testing.running(shop) as world:
        world.answers(send, ConnectionError("no answer"), "parcel-2")
        first = await world.app.submit(sell("o-1"), convoy="customer-7")
        second = await world.app.submit(sell("o-2"), convoy="customer-7")
        await _hold(first)
        assert (await second.view()).state == "pending"
        await first.answer(by="ana", reason="asked the warehouse", step="send", did_not_happen=True)
        await first.resubmit(by="ana", reason="settled")
        assert await second.result() == "parcel-2"
        assert (await first.view()).state == "compensated"


@pytest.mark.parametrize("which", ["sell_and_wait", "sell_and_wait_strictly"])
async def test_a_cancelled_task_in_doubt_is_undone_as_its_workflow_says_from_python_and_over_http(which: str) -> None:
    for over_http in (False, True):
        async with testing.running(waiting_shop) as world:
            world.answers(send, ConnectionError("no answer"))
            task = await world.app.submit(WAITING[which]("o-1"), task_id="o-1")
            await world.clock.advance(timedelta(minutes=1))
            assert (await task.view()).state == "processing"
            if over_http:
                async with open_server(world.app, opened=False) as server:
                    answer = await server.http.post("/v1/tasks/o-1:cancel", json={"reason": "the customer called"})
                    assert answer.status_code == 200, answer.text
            else:
                await task.cancel(by="ana", reason="the customer called")
            reason = await _hold(task)
            assert ("everything else was undone" in reason) is (which == "sell_and_wait")
            assert ("then the undo stopped" in reason) is (which != "sell_and_wait")
            assert _undone(world) == (["charge"] if which == "sell_and_wait" else [])


@pytest.mark.parametrize("which", ["sell_and_wait", "sell_and_wait_strictly"])
async def test_a_schedule_that_cancels_its_run_in_doubt_has_it_undone_as_the_workflow_says(which: str) -> None:
    app = App("shop", agents=[warehouse, bank], workflows=list(WAITING.values()))
    app.schedule("hourly", WAITING[which]("o-1"), cron="0 * * * *", overlap="cancel_running")
    async with testing.running(app) as world:
        world.answers(send, ConnectionError("no answer"), *["parcel"] * 5)
        await world.clock.advance(timedelta(hours=1, seconds=5))
        run = (await world.app.schedules.show("hourly")).last_task
        assert run is not None
        await world.clock.advance(timedelta(hours=1))
        view = await world.app.task(run).view()
        assert (view.state, view.failure.code if view.failure else None) == ("held", "in_doubt")
        assert _undone(world) == (["charge"] if which == "sell_and_wait" else [])
        following = (await world.app.schedules.show("hourly")).last_task
        assert following not in (None, run)


def test_another_word_for_undo_on_doubt_is_refused_by_name() -> None:
    with pytest.raises(
        DefinitionError, match="workflow sell: undo_on_doubt is 'wait'; it must be 'continue' or 'stop'"
    ):
        workflow(name="sell", undo_on_doubt="wait")(_sell)  # type: ignore[call-overload]
