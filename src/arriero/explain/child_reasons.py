"""Reasons of tasks that have children, and of those that are children."""

from collections.abc import Callable

from ..core.children import describe_child, find_child_step
from ..model import TASK_ENDED, Instant, Loaded, StepKind, StepRow, TaskRow, TaskState
from ..model.failures import read_task_failure
from ..text.escaping import shell_argument
from .children import (
    NO_FAMILY,
    Relatives,
    count_states,
    find_asked_step,
    format_explain,
    is_held,
    list_work_of_children,
)
from .task_situation import STEPS_TOLD_MAX, Reason

At = Callable[[Instant], str]  # an instant, and how long ago that is


def list_child_reasons(loaded: Loaded, family: Relatives | None, at: At) -> list[Reason]:
    """List what the open children of a task do, those that are held first, and the undos that wait for children."""
    children = NO_FAMILY.children if family is None else family.children
    steps = list_work_of_children(loaded.life)
    held = [step for step in steps if is_held(children.get(find_child_step(step)))]
    others = [step for step in steps if not is_held(children.get(find_child_step(step)))]
    told = [*held[:STEPS_TOLD_MAX], *others[: max(0, STEPS_TOLD_MAX - len(held))]]
    found = [_describe_child(loaded, step, children.get(find_child_step(step)), at) for step in told]
    if left := [step for step in steps if step not in told]:
        states = count_states(children.get(find_child_step(step)) for step in left)
        tree = f"`arriero task tree {shell_argument(loaded.task.task_id)}` shows them"
        found.append(
            Reason(
                "more_children", f"and {len(left):,} more {'child' if len(left) == 1 else 'children'}: {states}; {tree}"
            )
        )
    return found


def _describe_child(loaded: Loaded, step: StepRow, child: TaskRow | None, at: At) -> Reason:
    asked = find_asked_step(loaded, step)
    task_id = describe_child(loaded.task, asked) if child is None else child.task_id
    is_undo = step.kind is StepKind.COMPENSATION
    what = (
        f"the undo of child {asked.label} is done by task {task_id}"
        if is_undo
        else f"child {asked.label} is task {task_id}"
    )
    look = format_explain(task_id)
    if child is None:
        return Reason("child_pending", f"{what}, which is about to be submitted", step.label)
    if child.state is TaskState.HELD:
        return _describe_held_child(loaded, step, child, what, at)
    if child.state in TASK_ENDED and not is_undo:
        return Reason("child_ended", f"{what}, which is {child.state}; this task is about to take that up", step.label)
    paused = ", paused" if child.paused_at is not None else ""
    cancelled = "; the undo waits for its end" if loaded.task.state is TaskState.COMPENSATING and not is_undo else ""
    says = f"{what}, which is {child.state}{paused}{cancelled}; {look} says what it waits for"
    return Reason("child_running", says, step.label, step.opened_at)


def _describe_held_child(loaded: Loaded, step: StepRow, child: TaskRow, what: str, at: At) -> Reason:
    why = "" if child.failure is None else f": {read_task_failure(child.failure).reason}"
    since = "" if child.ended_at is None else f" since {at(child.ended_at)}"
    waits = "this task waits until an operator has resolved it"
    kind = "child_held"
    if loaded.task.state is not TaskState.PROCESSING:
        verb = "resubmit" if child.undoing else "compensate"
        command = f"`arriero task {verb} {shell_argument(child.task_id)} --reason TEXT`"
        waits = f"the undo waits until it is undone: {command} asks for that; why it is held"
        kind = "undo_waits_for_child"
    says = f"{what}, which is held{since}{why}; {waits}: {format_explain(child.task_id)}"
    return Reason(kind, says, step.label, child.ended_at)


def describe_parent(task: TaskRow, family: Relatives | None) -> list[Reason]:
    """Describe whose child a task is, and what waits for it; nothing of a task that is none."""
    if task.parent_step is None:
        return []
    parent = None if family is None else family.parent
    if parent is None:
        return [
            Reason(
                "child_of_none",
                "it is the child of a task that was purged, or that you may not see; nothing waits for it",
            )
        ]
    name = f"child {parent.label} of task {parent.task_id}"
    look = format_explain(parent.task_id)
    if parent.is_detached:
        return [Reason("child_of", f"it is the detached {name}, which neither waits for it nor undoes it; {look}")]
    is_open = task.state not in (TaskState.PROCESSED, TaskState.COMPENSATED)
    if not is_open:
        return [Reason("child_of", f"it is {name}, which is {parent.state}; {look}")]
    if parent.state is TaskState.COMPENSATING:
        waits = "whose undo waits for it" + (
            " and is stopped until it is resolved" if task.state is TaskState.HELD else ""
        )
    elif parent.state is TaskState.PROCESSING:
        waits = "whose code waits for it"
    else:
        waits = f"which is {parent.state}"
    return [Reason("child_of", f"it is {name}, {waits}; {look}")]
