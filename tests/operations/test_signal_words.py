"""What operators read of a task that waits for signals: what it waits for, and the command that sends it."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from json_senders import call
from runtime_world import eventually
from signal_shop import open_app, paid, sell

from arriero import App, Task, workflow
from arriero.client.session import load_task
from arriero.model.commands import SendSignal
from arriero.model.signals import is_wait


@workflow
async def pay_soon() -> int:
    return await paid.wait(within=timedelta(days=2))


async def wait_until_it_waits(app: App, task: Task[Any], count: int) -> None:
    async def waits() -> bool | None:
        loaded = await load_task(app.session, task.id)
        return (sum(map(is_wait, loaded.steps)) == count and loaded.task.locked_by is None) or None

    await eventually(waits)


async def test_operators_read_what_a_task_waits_for_and_the_command_that_sends_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'signals.db'}"
    app = open_app(url)
    async with app.running():
        task = await app.submit(sell(), task_id="order-1")
        await wait_until_it_waits(app, task, 2)
        assert (await task.view()).waiting_for == "signal approved"
        for name, value in (("signal:other", "5"), ("signal:approved", '"unfit"')):
            number = (await load_task(app.session, "order-1")).task.task_no
            await app.session.send(
                SendSignal(actor="signal", task_no=number, name=name, signal_id=name, value=value, sent_by="sql")
            )

        async def is_aside() -> bool | None:
            return (await load_task(app.session, "order-1")).task.inbox == 1 or None

        await eventually(is_aside)
        findings = json.loads((await call(url, "doctor", "--json")).stdout)["findings"]
        (finding,) = [one for one in findings if one["about"] == "signals"]
        assert finding["level"] == "care"
        assert finding["says"].startswith("signal approved to task order-1, number 2, sent at 2")
        assert "is set aside: signal approved" in finding["says"]
        remedy = (
            "send a value that fits: arriero task send order-1 approved JSON; arriero task signals order-1 shows it"
        )
        assert finding["remedy"] == remedy
    explained = (await call(url, "task", "explain", "order-1", "--json")).stdout
    reasons = {one["kind"]: one["says"] for one in json.loads(explained)["reasons"]}
    assert reasons["inbox"].startswith("1 signal is kept until its code waits for what it got: signal other (1)")
    assert reasons["set_aside_signals"].startswith("1 signal is set aside, since the code cannot read the value")
    assert "the last is number 2" in reasons["set_aside_signals"]
    text = (await call(url, "task", "explain", "order-1")).stdout
    assert "`arriero task send order-1 approved JSON` sends it" in " ".join(text.split())
    assert "it waits for signal paid, without a limit" in " ".join(text.split())
    shown = (await call(url, "task", "show", "order-1")).stdout
    assert "signal approved" in shown
    assert "waits without a limit" in shown
    refused = await call(
        url, "task", "answer", "order-1", "approved", "--did-not-happen", "--by", "ana", "--reason", "asked"
    )
    assert refused.exit_code == 2
    assert "send it instead: arriero task send order-1 approved JSON" in refused.stderr
    listed = (await call(url, "task", "signals", "order-1", "--json")).stdout.splitlines()
    assert [json.loads(line)["state"] for line in listed] == ["waiting", "set_aside"]


async def test_a_task_that_waits_without_a_limit_is_no_trouble_to_doctor_and_is_found_by_what_it_waits_for(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'signals.db'}"
    app = open_app(url)
    async with app.running():
        task = await app.submit(sell(), task_id="order-1")
        await wait_until_it_waits(app, task, 2)
        looked_at = json.loads((await call(url, "doctor", "--json")).stdout)
        about = {one["about"] for one in looked_at["findings"] if one["level"] == "care"}
        assert not about & {"waiting", "held", "signals", "code", "attempts"}, looked_at
        for name, ids in (("signal:paid", ["order-1"]), ("signal:other", [])):
            listed = (await call(url, "task", "list", "--step", name, "--json")).stdout.splitlines()
            assert [json.loads(line)["id"] for line in listed] == ids


async def test_the_end_of_a_wait_is_shown_where_it_has_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'signals.db'}"
    app = App("shop", workflows=[pay_soon], store=url)
    async with app.running():
        task = await app.submit(pay_soon(), task_id="order-1")
        await wait_until_it_waits(app, task, 1)
        assert (await task.view()).waiting_for.startswith("signal paid until 2")
    shown = (await call(url, "task", "show", "order-1")).stdout
    assert "waits until 2" in shown
