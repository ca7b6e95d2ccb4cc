"""One bad deploy holds many tasks: people get one message, doctor one cause, and one command selects them all."""

import asyncio
from pathlib import Path

from arriero import Agent, App, Attempt, Supervision, workflow
from arriero.client.diagnosis import diagnose_tasks
from arriero.core.alerts import Alert

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
            one for one in await diagnose_tasks(app.session.store, []) if one.about == "error" and one.level != "care"
        ]
        assert grouped.says.startswith(f"{TASKS} tasks of fulfil held by one cause: bug [bug]")
        assert "arriero task resubmit --state error --workflow fulfil --code bug" in grouped.remedy

    again = App("shop", agents=[stock], workflows=[mended], store=store)
    async with again.running():
        await again.tasks(state="error", workflow="fulfil", code="bug").resubmit(by="ana", reason="mended")
        for task in tasks:
            assert await again.task(task.id).result(timeout=60) == task.id
