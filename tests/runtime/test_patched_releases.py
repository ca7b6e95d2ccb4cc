"""Releases of one workflow over the same tasks, each in the processes of its time: ``arriero.patched`` keeps both branches apart."""

from pathlib import Path
from typing import Any

import pytest
from runtime_world import Machine, within

import arriero
from arriero import Agent, App, Signal, TaskHeld, Workflow, workflow

go = Signal("go", int)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state.db")


def shop(machine: Machine, release: int, called: list[str]) -> tuple[App, Workflow[[int], list[Any]]]:
    """The shop as a release has it: 1 knows the old bank alone, 2 both, 3 the new one alone."""
    banks = Agent("banks")

    @banks.step
    async def check(number: int) -> None:
        called.append(f"check {number}")

    @banks.step
    async def old_bank(number: int) -> str:
        called.append(f"old {number}")
        return "old"

    @banks.step
    async def new_bank(number: int) -> str:
        called.append(f"new {number}")
        return "new"

    @workflow
    async def pay(number: int) -> list[Any]:
        await check(number)
        bank = new_bank if release == 3 or (release == 2 and arriero.patched("new-bank")) else old_bank
        paid = await bank(number)
        return [paid, await go.wait()]

    return machine.app([banks], [pay]), pay


async def pay_until_the_wait(machine: Machine, release: int, name: str) -> list[str]:
    called: list[str] = []
    app, pay = shop(machine, release, called)
    async with app.running():
        await app.submit(pay(7), task_id=name)
        await machine.event("step.opened", task=name, name="signal:go")
    return called


async def finish(machine: Machine, release: int, *names: str) -> tuple[list[str], list[Any]]:
    called: list[str] = []
    app, _ = shop(machine, release, called)
    found: list[Any] = []
    async with app.running():
        for name in names:
            await app.task(name).send(go(1), signal_id="go")
            try:
                found.append(await within(app.task(name).result()))
            except TaskHeld as error:
                found.append(error.code)
    return called, found


async def test_a_task_ends_in_the_branch_in_which_it_began_whatever_release_runs_it(machine: Machine) -> None:
    assert await pay_until_the_wait(machine, 1, "old") == ["check 7", "old 7"]
    assert await pay_until_the_wait(machine, 2, "new") == ["check 7", "new 7"]
    assert await finish(machine, 2, "old", "new") == ([], [["old", 1], ["new", 1]])
    await machine.check()


async def test_the_release_without_the_old_branch_holds_the_old_tasks_alone(machine: Machine) -> None:
    await pay_until_the_wait(machine, 1, "old")
    await pay_until_the_wait(machine, 2, "new")
    assert await finish(machine, 3, "old", "new") == ([], ["replay", ["new", 1]])
    await machine.check()


async def test_a_release_that_was_taken_back_and_came_again_finds_the_mark(machine: Machine) -> None:
    """In between, the release before runs no task past the point at which the branches part: it would disagree."""
    await pay_until_the_wait(machine, 2, "new")
    assert (await finish(machine, 1, "new"))[1] == ["replay"]
    called: list[str] = []
    app, _ = shop(machine, 2, called)
    async with app.running():
        await app.task("new").resubmit(by="ana", reason="rolled forward again")
        assert await within(app.task("new").result()) == ["new", 1]
    assert called == []
    await machine.check()
