"""The mark of a patch: a row of its task that is complete from the beginning, whoever opens it."""

import pytest
from store_world import NOON, World, kinds, step

from arriero.model import StepKind, StepState, TaskState, Verb
from arriero.model.commands import Operate, Start
from arriero.model.failures import TaskFailure
from arriero.model.moves import Compensate, Hold, NewStep, Process

MARK = NewStep(kind=StepKind.TIMER, name="patch:new-bank", key="#1")


def resubmission(task_no: int) -> Operate:
    return Operate(
        actor="o", verb=Verb.RESUBMIT, task_no=task_no, incarnation=1, by="ana", reason="mended", store_id="s"
    )


async def test_a_mark_is_complete_when_it_is_opened_and_keeps_no_task_open(world: World) -> None:
    task = await world.held()
    task, (mark,) = await world.opened(task, MARK)
    assert (mark.state, mark.result, mark.result_number, mark.finished_at) == (StepState.COMPLETED, None, None, NOON)
    assert (task.opened_count, task.open_count, task.result_count) == (1, 0, 0)
    assert await world.step(mark.step_no) == mark
    await world.advance(task, ending=Process("1"))
    assert (await world.task(task.task_no)).state is TaskState.PROCESSED
    await world.check_chains()


async def test_a_mark_is_opened_by_the_submission_that_begins_the_task(world: World) -> None:
    await world.process()
    start = Start(process_no=1, opened=(MARK, step()))
    task_no = await world.submit(start=start)
    loaded = await world.load(task_no)
    assert [(one.name, one.state) for one in loaded.steps] == [
        ("patch:new-bank", StepState.COMPLETED),
        ("charge", StepState.PENDING),
    ]
    assert "step.opened" in kinds(await world.events(task_no))


async def test_a_mark_outlasts_a_hold_and_a_resubmission(world: World) -> None:
    task = await world.held()
    task, (mark, _) = await world.opened(task, MARK, step())
    await world.advance(task, ending=Hold(TaskFailure("bug", "line 3")))
    assert await world.step(mark.step_no) == mark
    await world.written(resubmission(task.task_no))
    assert await world.step(mark.step_no) == mark


@pytest.mark.parametrize("again", [False, True])
async def test_a_life_that_was_undone_leaves_its_mark_behind(world: World, again: bool) -> None:
    task = await world.held()
    task, _ = await world.opened(task, MARK)
    await world.advance(task, ending=Compensate(TaskFailure("refused", "no")))
    await world.written(resubmission(task.task_no))
    (loaded,) = await world.claim()
    assert list(loaded.life) == []
    if again:
        _, (mark,) = await world.opened(loaded.task, MARK)
        assert (mark.ordinal, mark.state) == (2, StepState.COMPLETED)
    await world.check_chains()
