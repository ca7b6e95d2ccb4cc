"""One bad deploy holds many tasks: people get one message, doctor one cause, and one command selects them all."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from arriero import Agent, App, Attempt, InvalidInput, Supervision, TaskFailed, testing, workflow
from arriero.client.diagnosis import diagnose_tasks
from arriero.core.alerts import Alert
from arriero.model.instants import as_datetime

TASKS = 30


async def test_tasks_that_one_deploy_holds_are_one_message_and_are_resubmitted_as_one(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/arriero.db"
    stock = Agent("stock")

    @stock.step(supervision=Supervision(attempts=1))
    async def reserve(attempt: Attempt, order: str) -> str:
        return order

    @workflow(name="fulfil")
    async def broken(order: str) -> str:
        raise RuntimeError(f"a typo of the release, at order {order}")

    @workflow(name="fulfil")
    async def mended(order: str) -> str:
        return await reserve(order)

    told: list[Alert] = []
    enough = asyncio.Event()

    app = App("shop", agents=[stock], workflows=[broken], store=store)

    @app.on_alert
    async def tell(alert: Alert) -> None:
        told.append(alert)
        if sum(one.count for one in told) >= TASKS:
            enough.set()

    async with app.running():
        tasks = [await app.submit(broken(f"o-{number}"), task_id=f"o-{number}") for number in range(TASKS)]
        await asyncio.wait_for(enough.wait(), 60)
        assert sum(one.count for one in told) == TASKS
        assert len(told) <= TASKS // 2  # the first ones, then what was collected
        alerts = await app.session.store.alerts(limit=100)
        assert sorted(alert.task_id for alert in alerts) == sorted(task.id for task in tasks)  # each has its own
        (grouped,) = [
            one for one in await diagnose_tasks(app.session.store, []) if one.about == "held" and one.level != "care"
        ]
        assert grouped.says.startswith(f"{TASKS} tasks of fulfil held by one cause: bug [bug]")
        assert "arriero task resubmit --state held --workflow fulfil --code bug" in grouped.remedy
        found = await app.alert_causes()
        (cause,) = found.causes
        assert (found.complete, cause.workflow, cause.cause, cause.count) == (True, "fulfil", "bug", TASKS)
        assert cause.command == "arriero task resubmit --state held --workflow fulfil --code bug"
        assert (cause.first_at, cause.last_at) == (
            as_datetime(alerts[0].opened_at),
            as_datetime(alerts[-1].opened_at),
        )
        assert [one.task_id async for one in app.alerts()] == [alert.task_id for alert in alerts]

    again = App("shop", agents=[stock], workflows=[mended], store=store)
    async with again.running():
        await again.tasks(state="held", workflow="fulfil", code="bug").resubmit(by="ana", reason="mended")
        for task in tasks:
            assert await again.task(task.id).result(timeout=60) == task.id
        assert (await again.alert_causes()).causes == ()
        assert [one.state async for one in again.alerts(state="all")] == ["closed"] * TASKS
        with pytest.raises(InvalidInput, match="state 'closed' of alerts is not known"):
            again.alerts(state="closed")


async def test_only_the_first_open_alerts_are_grouped_and_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.client.alerts.GROUPED_MAX", 2)

    @workflow
    async def fulfil(order: str) -> None:
        raise RuntimeError("a typo of the release")

    async with testing.running(App("shop", workflows=[fulfil])) as world:
        for number in range(3):
            with suppress(TaskFailed):
                await (await world.app.submit(fulfil(str(number)))).result()
            found = await world.app.alert_causes()
            assert (found.causes[0].count, found.complete) == ((number + 1, True) if number < 2 else (2, False))


def test_code_without_a_loop_lists_alerts_and_their_causes(tmp_path: Path) -> None:
    @workflow
    async def fulfil(order: str) -> None:
        raise RuntimeError("a typo of the release")

    app = App("shop", workflows=[fulfil], store=f"sqlite:///{tmp_path}/arriero.db")
    with app.sync.running() as front:
        for order in ("a", "b"):
            with suppress(TaskFailed):
                front.submit(fulfil(order), task_id=order).result(timeout=60)
        assert [one.task_id for one in front.alerts()] == ["a", "b"]
        (cause,) = front.alert_causes().causes
        assert (cause.count, cause.first_task) == (2, "a")
