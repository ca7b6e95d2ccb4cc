"""What later releases bring is refused today by a typed error that says so, and nothing is kept of the call."""

from typing import Any

import pytest
from runtime_world import Machine, within

import arriero
from arriero import Agent, App, Attempt, InvalidInput, NotYetBuilt, TaskFailed, testing, workflow

mules = Agent("mules")


@mules.step
async def load(attempt: Attempt) -> str:
    return "salt"


@workflow
async def carry() -> str:
    return await load()


@pytest.mark.parametrize(
    "option",
    [
        {"convoy": "customer-7"},
        {"convoy": "customer-7", "sequence": 1},
        {"sequence": 1},
        {"end_of_sequence": True},
    ],
    ids=lambda option: "+".join(option),
)
async def test_an_option_of_submit_that_is_not_built_is_refused_and_nothing_is_kept(
    machine: Machine, option: dict[str, Any]
) -> None:
    async with machine.app([mules], [carry]) as app:
        with pytest.raises(NotYetBuilt, match=rf"submit\(({'|'.join(option)})=\): it comes with a later release"):
            await app.submit(carry(), task_id="t", **option)
        assert await app._store_open().list_tasks() == []


async def test_ledgers_are_refused(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        with pytest.raises(NotYetBuilt, match="submit_ledger"):
            await app.submit_ledger("2026-01", [])


async def test_child_tasks_are_refused_before_they_are_made() -> None:
    @workflow
    async def parent(how: str) -> str:
        if how == "await":
            return await carry()
        if how == "start":
            await arriero.start(carry())
        return await carry().options(task_id="child")

    async with testing.running(App("parent", agents=[mules], workflows=[parent, carry])) as world:
        for how in ("await", "start", "options"):
            with pytest.raises(TaskFailed, match="NotYetBuilt.*child tasks come with a later release") as failed:
                await within((await world.app.submit(parent(how))).result())
            assert failed.value.state == "error"


async def test_the_state_of_a_convoy_is_refused_in_a_workflow() -> None:
    @workflow
    async def keep(what: str) -> None:
        if what == "keep":
            arriero.keep_convoy_state(1)
        else:
            arriero.convoy_state(int)

    async with testing.running(App("keep", workflows=[keep])) as world:
        for what in ("keep", "ask"):
            with pytest.raises(TaskFailed, match="NotYetBuilt.*convoys come with a later release"):
                await within((await world.app.submit(keep(what))).result())


def test_all_of_them_are_input_errors_a_caller_can_catch_as_one() -> None:
    assert issubclass(NotYetBuilt, InvalidInput)
