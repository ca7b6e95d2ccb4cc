"""An App as client and as runner: what opens, what is refused, what a reopened file goes on with."""

import asyncio
from pathlib import Path

import pytest
from runtime_world import Machine, session_of, within

import arriero
from arriero import Agent, App, Attempt, InvalidInput, TaskFailed, UnknownTask, workflow
from arriero.store.contract import Unwritten

echoes = Agent("echoes")


@echoes.step
async def echo(attempt: Attempt, text: str) -> str:
    return text


@workflow
async def greet(name: str) -> str:
    return "hello " + await echo(name)


@workflow
async def nap(seconds: float) -> str:
    await arriero.sleep(seconds)
    return await echo("awake")


async def test_a_client_submits_and_asks_but_runs_nothing(machine: Machine) -> None:
    client = machine.app([echoes], [greet])
    async with client:
        task = await client.submit(greet("mule"), task_id="t")
        view = await task.view()
        assert (view.id, view.workflow, view.state, view.waiting_for) == ("t", "greet", "pending", "a Scheduler")
    assert await machine.events("process.started", "task.claimed") == []


async def test_the_first_submission_that_comes_while_its_app_is_being_closed_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = machine.app([echoes], [greet])
    waiting, refused = app.session.waiting, []
    close = waiting.close

    async def submit_and_close() -> None:
        with pytest.raises(Unwritten) as error:
            await within(app.submit(greet("mule")))
        refused.append(error.value)
        await close()

    monkeypatch.setattr(waiting, "close", submit_and_close)
    async with app:
        pass
    assert len(refused) == 1


async def test_what_a_client_submitted_a_runner_ends(machine: Machine) -> None:
    client, runner = machine.app([echoes], [greet]), machine.app([echoes], [greet])
    async with client:
        task = await client.submit(greet("mule"))
        async with runner.running():
            assert await within(task.result()) == "hello mule"
        assert (await task.view()).state == "processed"
    await machine.check()


async def test_a_handle_by_id_reads_the_result_as_its_declared_type(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    async with app.running():
        await app.submit(greet("mule"), task_id="t")
        assert await within(app.task("t", greet).result()) == "hello mule"
        assert await within(app.task("t").result()) == "hello mule"


async def test_a_runner_is_a_client_too_and_may_be_opened_inside_one(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    async with app:
        async with app.running():
            assert await within((await app.submit(greet("a"))).result()) == "hello a"
        assert (await (await app.submit(greet("b"))).view()).state == "pending"


async def test_an_app_that_is_not_open_says_how_to_open_it(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    with pytest.raises(InvalidInput, match="App machine is not open: use `async with"):
        await app.submit(greet("mule"))
    async with app:
        pass
    with pytest.raises(InvalidInput, match="is not open"):
        await app.task("t").view()


async def test_running_twice_in_one_process_is_refused(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    async with app.running():
        with pytest.raises(InvalidInput, match="is running already"):
            async with app.running():
                raise AssertionError("never reached")
        assert await within((await app.submit(greet("mule"))).result()) == "hello mule"


async def test_another_store_while_one_is_open_is_refused(machine: Machine, tmp_path: Path) -> None:
    app = machine.app([echoes], [greet])
    async with app:
        with pytest.raises(InvalidInput, match=r"is open on .*store\.db; close it before opening .*other\.db"):
            async with app.running(store=f"sqlite:///{tmp_path}/other.db"):
                raise AssertionError("never reached")
        assert not (tmp_path / "other.db").exists()
        async with app.running():
            pass


async def test_an_app_can_be_closed_and_opened_on_another_store(machine: Machine, tmp_path: Path) -> None:
    app = machine.app([echoes], [greet])
    for name in ("one.db", "two.db"):
        async with app.running(store=f"sqlite:///{tmp_path}/{name}"):
            assert await within((await app.submit(greet("mule"), task_id="t")).result()) == "hello mule"
        assert (tmp_path / name).exists()


async def test_the_environment_names_the_store_before_the_app_does(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_STORE", f"sqlite:///{tmp_path}/environment.db")
    async with machine.app():
        pass
    assert (tmp_path / "environment.db").exists()
    assert not machine.path.exists()


async def test_without_any_word_the_store_stands_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    app = App("plain")
    assert list(tmp_path.iterdir()) == []
    async with app:
        pass
    assert (tmp_path / "arriero.db").exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"roles": ["scheduler", "watcher"]}, "role 'watcher' is not known"),
        ({"roles": []}, "no role was named"),
        ({"agents": ["nobody"]}, "Agent 'nobody' is not in App machine; it has echoes"),
        ({"store": "mysql://x"}, "store 'mysql://x' is not known"),
    ],
)
async def test_what_cannot_be_run_is_refused_before_anything_is_opened(
    machine: Machine, options: dict[str, object], what: str
) -> None:
    app = machine.app([echoes], [greet])
    with pytest.raises(InvalidInput, match=what):
        app.running(**options)  # type: ignore[arg-type]  # bad on purpose
    assert not machine.path.exists()


async def test_a_reopened_file_goes_on_where_it_was(machine: Machine) -> None:
    first = machine.app([echoes], [nap, greet])
    async with first.running():
        task = await first.submit(nap(0.5), task_id="nap")
        await machine.event("step.opened", kind="timer")
    second = machine.app([echoes], [nap, greet])
    async with second.running():
        assert await within(second.task("nap", nap).result()) == "awake"
        assert session_of(second).context.process_no == 2
    assert task.id == "nap"
    await machine.check()


async def test_a_task_nobody_knows_is_said_to_be_unknown(machine: Machine) -> None:
    async with machine.app() as app:
        for ask in (app.task("nobody").view, app.task("nobody").result):
            with pytest.raises(UnknownTask, match=r"no task 'nobody' in the store sqlite:///"):
                await ask()


async def test_a_wait_that_times_out_leaves_the_task_going(machine: Machine) -> None:
    app = machine.app([echoes], [nap])
    async with app.running():
        task = await app.submit(nap(0.4))
        with pytest.raises(TimeoutError, match="it continues"):
            await task.result(timeout=0.05)
        assert await within(task.result()) == "awake"


async def test_many_may_wait_for_one_task(machine: Machine) -> None:
    app = machine.app([echoes], [nap])
    async with app.running():
        task = await app.submit(nap(0.1))
        waits = [asyncio.create_task(task.result()) for _ in range(5)]
        waits.pop().cancel()
        assert await within(asyncio.gather(*waits)) == ["awake"] * 4


async def test_how_a_failed_task_ended_is_told_to_who_waits_elsewhere(machine: Machine) -> None:
    @workflow
    async def buggy() -> None:
        raise ZeroDivisionError("a bug")

    runner, client = machine.app([], [buggy]), machine.app([], [buggy])
    async with client, runner.running():
        task = await client.submit(buggy())
        with pytest.raises(TaskFailed, match="ZeroDivisionError: a bug") as failed:
            await within(task.result())
        assert (failed.value.state, failed.value.code, failed.value.task_id) == ("held", "bug", task.id)
        assert (await task.view()).waiting_for == "an operator"


async def test_an_error_inside_the_block_still_drains_and_closes(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    with pytest.raises(LookupError):
        async with app.running():
            task = await app.submit(greet("mule"))
            await within(task.result())
            raise LookupError
    assert app.session._store is None
    retired = await machine.events("process.retired")
    assert [event["process"] for event in retired] == [1]
