"""Workflows that operators pause for new tasks, as Python, ``app.sync``, the command line and HTTP see it."""

from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from arriero import Agent, App, Entry, InvalidInput, UnknownName, VerbRefused, WorkflowPaused, testing, workflow
from arriero.cli.main import commands
from arriero.operations.problems import ExitCode, find_meaning

bank = Agent("bank")
WHY: dict[str, str] = {"by": "ana", "reason": "the release is wrong"}


@bank.step(effect_free=True)
async def charge(order: str) -> str:
    return f"receipt-{order}"


@workflow
async def fulfil(order: str) -> str:
    return await charge(order)


def shop(store: str | None = None) -> App:
    return App("shop", agents=[bank], workflows=[fulfil], store=store)


async def test_tasks_that_are_submitted_while_the_workflow_is_paused_begin_once_it_is_resumed() -> None:
    async with testing.running(shop()) as world:
        handle = world.app.workflow_named("fulfil")
        assert (await handle.view()).state == "active"
        view = await handle.pause(**WHY)
        assert (view.state, view.paused_by, view.pause_reason) == ("paused", "ana", "the release is wrong")
        task = await world.app.submit(fulfil("1"))
        await world.clock.advance(timedelta(minutes=5))
        assert (await task.view()).state == "pending"
        assert (await handle.view()).waiting == 1
        view = await handle.resume(by="bo", reason="fixed")
        assert view.state == "active"
        assert await task.result() == "receipt-1"


async def test_a_workflow_that_refuses_raises_an_error_that_names_who_why_and_the_command() -> None:
    async with testing.running(shop()) as world:
        await world.app.workflow_named("fulfil").pause(refuse=True, **WHY)
        with pytest.raises(
            WorkflowPaused, match=r"'fulfil'.* by ana .*the release is wrong.*arriero workflow resume fulfil"
        ):
            await world.app.submit(fulfil("1"))
        with pytest.raises(WorkflowPaused, match="line 1"):
            await world.app.submit_ledger("day-1", [Entry(fulfil("1"))])
        task = await world.app.submit(charge("1"))  # a task of this one step is another workflow
        assert await task.result() == "receipt-1"
    meaning = find_meaning(WorkflowPaused)
    assert (meaning.problem.code, meaning.problem.status, meaning.exit_code) == (
        "workflow-paused",
        409,
        ExitCode.REFUSED,
    )


async def test_tasks_of_one_step_are_paused_by_the_name_of_their_workflow() -> None:
    async with testing.running(shop()) as world:
        await world.app.workflow_named("step:charge").pause(**WHY)
        task = await world.app.submit(charge("1"))
        other = await world.app.submit(fulfil("2"))
        assert await other.result() == "receipt-2"
        assert (await task.view()).state == "pending"
        await world.app.workflow_named("step:charge").resume(**WHY)
        assert await task.result() == "receipt-1"


async def test_a_schedule_of_a_paused_workflow_waits_and_runs_the_last_missed_instant_late() -> None:
    app = shop()
    app.schedule("hourly", fulfil("all"), every=3600)
    async with testing.running(app) as world:
        await world.app.workflow_named("fulfil").pause(**WHY)
        await world.clock.advance(timedelta(hours=3, minutes=5))
        (view,) = await world.app.schedules.list()
        assert (view.runs, view.passed_over, view.problem) == (0, 0, "")
        await world.app.workflow_named("fulfil").resume(**WHY)
        await world.clock.advance(timedelta(minutes=1))
        (view,) = await world.app.schedules.list()
        assert (view.runs, view.passed_over) == (1, 2)


async def test_bad_input_is_refused_by_name() -> None:
    async with testing.running(shop()) as world:
        with pytest.raises(UnknownName, match="fulfill"):
            await world.app.workflow_named("fulfill").pause(**WHY)
        with pytest.raises(InvalidInput):
            await world.app.workflow_named("fulfil").pause(by="", reason="x")
        with pytest.raises(VerbRefused, match="is not paused"):
            await world.app.workflow_named("fulfil").resume(**WHY)
        await world.app.workflow_named("fulfil").pause(**WHY)
        with pytest.raises(VerbRefused, match="already, by ana: the release is wrong"):
            await world.app.workflow_named("fulfil").pause(by="bo", reason="too")


def test_the_command_line_and_the_sync_front_answer_alike(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    app = shop(store)
    task = app.sync.submit(fulfil("1"), task_id="1")
    view = app.sync.workflow_named("fulfil").pause(**WHY)
    assert (view.state, view.waiting) == ("paused", 1)

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(commands, [*words, "--store", store])
        return done.exit_code, done.output

    code, told = run("workflow", "list")
    assert (code, "the release is wrong" in told) == (0, True)
    code, told = run("workflow", "show", "fulfil")
    assert code == 0
    assert "ana paused workflow fulfil of App 'shop' for new tasks: \"the release is wrong\"" in told
    assert "arriero workflow resume fulfil --app-name shop" in told
    code, told = run("task", "explain", "1")
    assert "is paused for new tasks, by ana" in told
    assert "arriero workflow resume fulfil --app-name shop --reason WHY" in told
    code, told = run("doctor")
    assert "workflow 'fulfil' of App 'shop' is paused for new tasks, by ana" in told
    code, told = run("workflow", "pause", "fulfil", "--refuse", "--by", "bo", "--reason", "nothing may pile up")
    assert (code, "takes no new tasks" in told) == (0, True)
    with pytest.raises(WorkflowPaused, match="nothing may pile up"):
        app.sync.submit(fulfil("2"))
    assert app.sync.submit(fulfil("1"), task_id="1").id == task.id  # a known one answers as always
    code, _ = run("workflow", "resume", "fulfil", "--by", "ana", "--reason", "fixed")
    assert code == 0
    assert {one.workflow: one.state for one in app.sync.workflows_view()}["fulfil"] == "active"
