"""What later releases bring is refused today by a typed error that says so, and nothing is kept of the call."""

import pytest
from runtime_world import within

import arriero
from arriero import Agent, App, Attempt, InvalidInput, NotYetBuilt, TaskFailed, testing, workflow

mules = Agent("mules")


@mules.step
async def load(attempt: Attempt) -> str:
    return "salt"


@workflow
async def carry() -> str:
    return await load()


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


def test_all_of_them_are_input_errors_a_caller_can_catch_as_one() -> None:
    assert issubclass(NotYetBuilt, InvalidInput)
