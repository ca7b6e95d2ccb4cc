"""A failed step that an operator answers while its task is undone."""

from store_world import FAILED, World, gave_up, undo_of

from arriero.core.lease import on_process_lost
from arriero.model import StepState, TaskState, Verb
from arriero.model.commands import Operate
from arriero.model.moves import BeginUndo, PlanUndo


async def test_a_compensation_is_parked_with_its_task_though_a_failed_step_was_answered_meanwhile(
    world: World,
) -> None:
    """The answered step has two results, so as many results were recorded as steps were opened."""
    for number in range(1, 5):
        await world.process(f"p{number}")
    task, (charge,) = await world.running(await world.held(), "charge")
    failed = world.reported(charge, gave_up(in_doubt=True))
    task = (await world.advance(task, [failed], ending=BeginUndo(FAILED))).task
    await world.advance(task, ending=PlanUndo(FAILED, (undo_of(charge, take=True),)))
    answer = Operate(
        actor="operator",
        verb=Verb.ANSWER,
        task_no=1,
        incarnation=1,
        by="ana",
        reason="it happened",
        step=1,
        result='"x"',
    )
    await world.written(answer)
    for process_no in (1, 2, 3):
        if process_no > 1:
            await world.claim(process_no)
            await world.take(process_no)
        await world.lose(process_no)
        (command,) = on_process_lost(await world.store.load_held(process_no, 10), process_no, "other")
        await world.written(command)
    held = await world.load(1)
    assert (held.task.state, held.task.open_count) == (TaskState.HELD, 0)
    assert held.steps[1].state is StepState.PLANNED
    assert await world.take(4) == []
