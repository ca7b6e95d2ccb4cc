"""Children in words: which of them a task waits for, and for which task an operator looks at one of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.children import describe_child, find_child_step
from ..core.forks import find_source
from ..core.parents import ParentStep
from ..core.supervision import read_step_policy
from ..model import STEP_BITS, Loaded, StepKind, StepRow, StepState, TaskRow, TaskState, split_number
from ..text.escaping import shell_argument


class Relatives(NamedTuple):
    """The parent and the children of a task, as they are read beside it, and of a fork the steps that others have done.

    Args:
        children: by the number of their step; one that was not submitted yet, was purged, or may not be seen is left out.
        sources: by number, the step from which a task is forked, and those that its copies are of; with their tasks.
        forks: the first tasks that are forked from it, if they were asked for.
        batch: id of the task that handles its message in a batch, which may be itself.
    """

    parent: ParentStep | None
    children: Mapping[int, TaskRow]
    sources: Mapping[int, ParentStep] = {}
    forks: Sequence[TaskRow] = ()
    batch: str | None = None

    def with_forks(self, forks: Sequence[TaskRow]) -> "Relatives":
        """Return them with the forks of the task."""
        return Relatives(self.parent, self.children, self.sources, forks, self.batch)

    def show_parent(self, task: TaskRow) -> dict[str, Any]:
        """The fields of a task that name its parent, and the task that it is forked from."""
        parent, origin = self.parent, self.sources.get(task.forked_from or 0)
        return {
            "parent": None if parent is None else parent.task_id,
            "parent_step": None if parent is None else parent.label,
            "forked_from": None if origin is None else origin.task_id,
            "forked_step": None if origin is None else origin.label,
            "batch": self.batch,
        }

    def show_child(self, loaded: Loaded, step: StepRow) -> dict[str, Any]:
        """The fields of a step that name the task which it is, which undoes itself for it, or which has done it; else none."""
        copied = self._show_copy(step) if self.sources else {}
        if not step.is_of_child:
            return copied
        child, asked = self.children.get(find_child_step(step)), find_asked_step(loaded, step)
        return {
            "child": None
            if child is None and copied
            else describe_child(loaded.task, asked)
            if child is None
            else child.task_id,
            "child_state": None if child is None else str(child.state),
            "detached": is_detached(asked),
            **copied,
        }

    def _show_copy(self, step: StepRow) -> dict[str, Any]:
        if (number := find_source(step)) is None:
            return {}
        source = self.sources.get(number)
        return {"copied_from": "" if source is None else source.task_id, "copied_step": split_number(number)[1]}


NO_FAMILY = Relatives(None, {})


def find_asked_step(loaded: Loaded, step: StepRow) -> StepRow:
    """Find the step that is the child; ``step``: that one, or the undo of it. A task may have thousands: none is looked through."""
    if step.undoes is None:
        return step
    place = (step.undoes & (1 << STEP_BITS) - 1) - 1
    found = loaded.steps[place] if place < len(loaded.steps) else step
    return found if found.step_no == step.undoes else loaded.find_step(step.undoes) or step


def is_detached(step: StepRow) -> bool:
    """Returns True for a child that its parent neither waits for nor undoes."""
    options = read_step_policy(step).child
    return options is not None and options.is_detached


def list_work_of_children(life: Sequence[StepRow]) -> list[StepRow]:
    """List the steps that children do now, and the undos."""
    return [step for step in life if step.is_of_child and step.state is StepState.RUNNING]


def describe_wait_for_children(loaded: Loaded, children: Mapping[int, TaskRow]) -> str:
    """Describe which children a task waits for, in a few words: the first one that is held, else the first one; empty: none."""
    steps = list_work_of_children(loaded.life)
    if not steps:
        return ""
    step = next((one for one in steps if is_held(children.get(find_child_step(one)))), steps[0])
    child = children.get(find_child_step(step))
    name = describe_child(loaded.task, find_asked_step(loaded, step)) if child is None else child.task_id
    state = "not submitted yet" if child is None else child.state
    more = len(steps) - 1
    counted = f" and {more:,} more {'child' if more == 1 else 'children'}" if more else ""
    return f"task {name} ({state}){counted}"


def summarize_children(loaded: Loaded, children: Mapping[int, TaskRow]) -> str:
    """Count the children of a task by state: ``3: 1 held, 1 processing, 1 processed``; empty: it has none."""
    steps = [step for step in loaded.life if step.kind is StepKind.CHILD]
    if not steps:
        return ""
    return f"{len(steps):,}: {count_states(children.get(step.step_no) for step in steps)}"


def count_states(children: Any) -> str:
    """Count tasks by state, those that are held first. None stands for one that is not there."""
    states = Counter("not submitted or purged" if child is None else str(child.state) for child in children)
    known = ["held", *(str(state) for state in TaskState if state is not TaskState.HELD)]
    order = sorted(states, key=lambda state: known.index(state) if state in known else len(known))
    return ", ".join(f"{states[state]:,} {state}" for state in order)


def is_held(child: TaskRow | None) -> bool:
    return child is not None and child.state is TaskState.HELD


def format_explain(task_id: str) -> str:
    """The command that explains a task."""
    return f"`arriero task explain {shell_argument(task_id)}`"
