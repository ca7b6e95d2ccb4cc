"""The parent of a child, as the child, its verbs and its views know it."""

import msgspec

from ..model import STEP_BITS, StepRow, TaskRow, TaskState
from .supervision import decode_step_policy


class ParentStep(msgspec.Struct, frozen=True, gc=False):
    """The step that a child is, and the task whose code or undo asks for it, as they stand."""

    step_no: int
    task_id: str
    app: str
    workflow: str
    state: TaskState
    undoing: bool
    past_count: int
    name: str
    key: str
    policy: str

    @property
    def label(self) -> str:
        """The step for operators."""
        return self.name if self.key == "#1" else f"{self.name}[{self.key}]"

    @property
    def is_undone(self) -> bool:
        """True if the undo of the task has begun since it asked for the child."""
        is_past = self.step_no & ((1 << STEP_BITS) - 1) <= self.past_count
        return is_past or self.undoing or self.state in (TaskState.COMPENSATING, TaskState.COMPENSATED)

    @property
    def is_detached(self) -> bool:
        """True if the task neither waits for the child nor undoes it."""
        options = decode_step_policy(self.policy).child
        return options is not None and options.is_detached


def build_parent_step(task: TaskRow, step: StepRow) -> ParentStep:
    """Build what is known of a parent from its rows."""
    return ParentStep(
        step.step_no,
        task.task_id,
        task.app,
        task.workflow,
        task.state,
        task.undoing,
        task.past_count,
        step.name,
        step.key,
        step.policy,
    )
