"""Plain data: tasks that the code of another task has started, its children.

A child is a step of its parent: a row of the kind ``child``, which runs until the child has ended. It is undone as a whole, by a
compensation without an Agent. The row of the child names that step as ``parent_step``. How it is submitted stands in the policy
of the step, see ``policies.ChildOptions``.
"""

from . import StepKind, StepRow

DEPTH_MAX = 20  # generations below a task that was submitted: a workflow that starts itself ends here
CHILDREN_OPEN_MAX = 10_000  # children of one task that have not ended


def is_child_work(step: StepRow) -> bool:
    """Returns True for what a child does and no Agent: the step that it is, and the undo of it."""
    return step.kind is StepKind.CHILD or (step.kind is StepKind.COMPENSATION and not step.agent)


def build_child_id(parent_id: str, step: StepRow) -> str:
    """The id of a child that was given none: ``trip-7/book_hotel.3``. A step's ordinal is never used twice in a task."""
    return f"{parent_id}/{step.name}.{step.ordinal}"
