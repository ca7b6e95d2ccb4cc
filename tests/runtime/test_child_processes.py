"""Plain steps in child processes: what crosses over, and that no child outlives its attempt."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from child_steps import (
    WORKFLOWS,
    Parcel,
    child,
    fail_one,
    find_key_below,
    hang_for_long,
    hang_once,
    read_url_in_child,
    wait_until_news,
    weigh_one,
)
from runtime_world import QUICK, Machine, eventually, session_of, within

from arriero import Agent, App, Attempt, DefinitionError, TaskFailed, testing


async def pid_in(folder: Path) -> int:
    async def look() -> int | None:
        return int((folder / "pid").read_text()) if (folder / "pid").exists() else None

    return await eventually(look)


async def is_gone(pid: int) -> None:
    """Wait until a process is no more; one that nobody has collected yet has ended, too."""

    async def look() -> bool | None:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return True if state == "Z" else None

    await eventually(look)


async def test_arguments_result_time_and_checkpoint_cross_over(machine: Machine) -> None:
    app = machine.app([child], WORKFLOWS)
    async with app.running():
        task = await app.submit(weigh_one(Parcel("p-1", 5)))
        weighed = await within(task.result())
        (step,) = (await task.view()).steps
    assert isinstance(weighed, Parcel)
    assert weighed.id == f"p-1, p-1, {step.idempotency_key}"
    assert weighed.grams != os.getpid()
    assert step.checkpoint == {"weighed": "p-1"}
    assert len(await machine.events("attempt.extended")) == 1
    await machine.check()


async def test_a_child_without_a_parameter_for_it_finds_its_attempt(machine: Machine) -> None:
    app = machine.app([child], WORKFLOWS)
    async with app.running():
        task = await app.submit(find_key_below("key "))
        found = await within(task.result())
        (step,) = (await task.view()).steps
    assert found == f"key {step.idempotency_key}"


async def test_a_callback_among_the_arguments_crosses_over_with_its_url(machine: Machine) -> None:
    app = machine.app([child], WORKFLOWS, settings=msgspec.structs.replace(QUICK, public_url="https://shop"))
    async with app.running():
        task = await app.submit(read_url_in_child())
        assert (await within(task.result())).startswith("https://shop/v1/callbacks/1.")


@pytest.mark.parametrize(
    ("how", "cause", "message", "code", "in_doubt"),
    [
        ("permanent", "permanent", "too heavy", "heavy", False),
        ("transient", "transient", "busy", "busy", False),
        ("unknown", "unknown", "ValueError: no idea", "", True),
        ("die", "unknown", "its child process ended with exit code 3 before it had answered", "child_died", True),
        ("resource", "unknown", "scales() is not open in a child process", "", True),
    ],
)
async def test_what_a_child_raises_is_the_failure_of_its_attempt(
    machine: Machine, how: str, cause: str, message: str, code: str, in_doubt: bool
) -> None:
    app = machine.app([child], WORKFLOWS)
    async with app.running():
        task = await app.submit(fail_one(how))
        with pytest.raises(TaskFailed):
            await within(task.result())
        view = await task.view()
    (step,) = view.steps
    assert step.failure is not None
    assert (step.failure.kind, step.failure.code, step.in_doubt) == (cause, code, in_doubt)
    assert message in step.failure.message
    assert step.failure.details == ({"grams": 9} if how == "permanent" else None)
    assert (view.public == "It is too heavy.") is (how == "permanent")
    assert ("child_steps.py" in step.failure.at) is (how != "die")
    await machine.check()


async def test_a_child_that_hangs_is_killed_at_its_deadline_and_is_in_doubt(machine: Machine, tmp_path: Path) -> None:
    app = machine.app([child], WORKFLOWS)
    async with app.running():
        task = await app.submit(hang_once(str(tmp_path)))
        pid = await pid_in(tmp_path)
        assert await within(task.result()) >= 2
        await is_gone(pid)
    expired = await machine.event("recover.applied", step=1)
    assert (expired["in_doubt"], expired["failure"]["cause"]) == (True, "expired")
    await machine.check()


async def test_a_child_is_killed_when_its_process_drops_its_attempts(machine: Machine, tmp_path: Path) -> None:
    app = machine.app([child], WORKFLOWS)
    async with app.running():
        await app.submit(hang_for_long(str(tmp_path)))
        pid = await pid_in(tmp_path)
        session_of(app).agents.abandon()
        await is_gone(pid)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_all_processes_of_a_service_does_not_cut_a_call(
    machine: Machine, tmp_path: Path, sent: signal.Signals
) -> None:
    app = machine.app([child], WORKFLOWS)
    async with app.running():
        task = await app.submit(wait_until_news(str(tmp_path)))
        os.kill(await pid_in(tmp_path), sent)
        (tmp_path / "news").touch()
        assert await within(task.result()) == [-signal.SIGTERM, -signal.SIGTERM]
        (step,) = (await task.view()).steps
    assert (step.attempt, step.failure_count, step.in_doubt) == (1, 0, False)
    await machine.check()


@pytest.mark.parametrize(("sent", "is_long"), [(signal.SIGKILL, True), (signal.SIGSTOP, False)])
async def test_a_child_does_not_outlive_its_parent_nor_its_deadline(
    tmp_path: Path, sent: signal.Signals, is_long: bool
) -> None:
    code = f"import asyncio, child_steps; asyncio.run(child_steps.main({str(tmp_path)!r}, {is_long}))"
    paths = os.pathsep.join(path for path in sys.path if path)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": paths}, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        pid = await pid_in(tmp_path)
        program.send_signal(sent)
        await is_gone(pid)
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()


async def test_in_a_world_no_process_is_started() -> None:
    async with testing.running(App("child", agents=[child], workflows=WORKFLOWS)) as world:
        weighed = await (await world.app.submit(weigh_one(Parcel("p-1", 5)))).result()
    assert weighed.grams == os.getpid()


# --- what cannot run there is refused where it is declared
def test_a_function_that_a_child_could_not_import_is_refused_with_the_remedy() -> None:
    agent = Agent("refused")

    def inner(attempt: Attempt) -> None: ...

    async def coroutine(attempt: Attempt) -> None: ...

    in_program = type(inner)(inner.__code__, {"__name__": "__main__"}, "in_program")
    in_program.__qualname__, in_program.__annotations__ = "in_program", {"attempt": Attempt}
    declare: Any = agent.step(run_in="process")
    for function, remedy in (
        (inner, "define it with `def` at the top of a module"),
        (lambda attempt: None, "define it with `def` at the top of a module"),
        (coroutine, "is for plain functions"),
        (in_program, "move it to a module that this program imports"),
    ):
        with pytest.raises(DefinitionError, match=remedy):
            declare(function)
    with pytest.raises(DefinitionError, match="it must be 'thread' or 'process'"):
        agent.step(run_in="fork")(inner)  # type: ignore[call-overload]
    assert agent.steps == {}
