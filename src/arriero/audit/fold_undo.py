"""The fold of an undo, and its invariants."""

from ..events.task import UndoPlanned
from ..model import StepState, TaskState
from .fold import STEP_IS_OPEN, TaskFold


def begin_undo(task: TaskFold) -> None:
    task.refuse_after_end("undo begun")
    task.judge_pivot("the undo began")
    task.undo_began = True
    task.state = TaskState.COMPENSATING


def plan_undo(task: TaskFold, event: UndoPlanned) -> None:
    task.judge_pivot("the undo was planned")
    task.plan = list(event.steps)
    for step in task.life:
        if step.kind == "step" and step.state in STEP_IS_OPEN:
            task.convict("I28", f"the undo was planned while step {step.ordinal} was {step.state}")
    forward = [s for s in reversed(task.life) if s.kind == "step"]
    wanted = [s.ordinal for s in forward if s.may_have_happened and s.undoable]
    wanted += [s.ordinal for s in forward if s.state is StepState.COMPLETED and s.undoable]
    found = [task.steps[ordinal].undoes for ordinal in task.plan]
    if set(found) != set(wanted):
        task.convict("I30", f"the undo plan undoes steps {found}, it should undo {wanted}")
    elif found != wanted:
        task.convict("I28", f"the undo plan undoes steps in the order {found}, it should be {wanted}")
