"""The tasks that a task's code has started: loaded, and as callers see them."""

import sys
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

import msgspec

from ..core.children import describe_child
from ..core.forks import find_source
from ..core.parents import ParentStep
from ..explain.children import Relatives, count_states, is_detached
from ..model import TASK_OPEN, Loaded, StepKind, StepRow, TaskRow, TaskState
from ..model.failures import read_task_failure
from ..store.readable import legible, legible_task
from ..store.state_store import StateStore
from .row_shapes import build_output, to_datetime

READ_TOGETHER = 1_000  # rows of children that one statement reads


class ChildView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that another task's code has started.

    Args:
        ordinal, step: number and label of the step that it is in its parent.
        id, workflow: of the child.
        state: as of a task; empty: it is not submitted yet, or was purged, or may not be seen.
        past: whether it belongs to a life of its parent that was undone before the parent ran again.
        detached: whether its parent neither waits for it nor undoes it.
        reason: why it is undone or waits for an operator, in words; empty: neither is so.
        submitted_at, ended_at: None: not yet.
    """

    ordinal: int
    step: str
    id: str
    workflow: str
    state: str
    past: bool
    detached: bool
    reason: str = ""
    submitted_at: datetime | None = None
    ended_at: datetime | None = None


async def load_children(steps: Iterable[StepRow], store: StateStore) -> dict[int, TaskRow]:
    """Load the tasks that some steps are, as far as they can be read, by the numbers of the steps.

    The child of a step that a fork has as a copy is the one of the task that has done the step.
    """
    asked = {find_source(step) or step.step_no: step.step_no for step in steps if step.kind is StepKind.CHILD}
    numbers = list(asked)
    found: dict[int, TaskRow] = {}
    for start in range(0, len(numbers), READ_TOGETHER):
        page = await store.list_children(numbers[start : start + READ_TOGETHER])
        found |= {asked[number]: legible(task) for number, task in page.items()}
    return found


async def load_family(loaded: Loaded, store: StateStore) -> Relatives:
    """Load the parent, the children and the batch of a task whose rows can be read."""
    batch_no = loaded.task.batch_no
    batch = None if batch_no is None else loaded.task.task_id
    if batch_no is not None and batch_no != loaded.task.task_no:
        batch = next((legible(one.task).task_id for one in await store.load_tasks((batch_no,))), None)
    number = loaded.task.parent_step
    parents: Mapping[int, ParentStep] = {} if number is None else await store.load_parents((number,))
    sources = {} if loaded.task.forked_from is None else await load_sources(loaded, store)
    return Relatives(parents.get(number or 0), await load_children(loaded.steps, store), sources, batch=batch)


async def load_sources(loaded: Loaded, store: StateStore) -> dict[int, ParentStep]:
    """Load the step from which a task is forked, and the steps that its copies are of, as far as their tasks are there."""
    numbers = [number for step in loaded.steps if (number := find_source(step)) is not None]
    numbers.append(loaded.task.forked_from or 0)
    found: dict[int, ParentStep] = {}
    for start in range(0, len(numbers), READ_TOGETHER):
        found |= await store.load_parents(numbers[start : start + READ_TOGETHER])
    return found


async def iterate_children(as_it_stands: Loaded, store: StateStore, after: int = 0) -> AsyncGenerator[ChildView]:
    """Iterate over the children of a task in the order of its steps, read page by page. ``after``: an ordinal."""
    loaded, _ = legible_task(as_it_stands)
    steps = [step for step in loaded.steps if step.kind is StepKind.CHILD and step.ordinal > after]
    for start in range(0, len(steps), READ_TOGETHER):
        page = steps[start : start + READ_TOGETHER]
        children = await load_children(page, store)
        for step in page:
            yield build_child_view(loaded.task, step, children.get(step.step_no))


def build_child_view(task: TaskRow, step: StepRow, child: TaskRow | None) -> ChildView:
    """Build the view of the child of a step of a task."""
    failure = None if child is None or child.failure is None else read_task_failure(child.failure)
    return ChildView(
        ordinal=step.ordinal,
        step=step.label,
        id=describe_child(task, step) if child is None else child.task_id,
        workflow=step.name,
        state="" if child is None else str(child.state),
        past=step.ordinal <= task.past_count,
        detached=is_detached(step),
        reason="" if failure is None else failure.reason,
        submitted_at=None if child is None else to_datetime(child.submitted_at),
        ended_at=None if child is None else to_datetime(child.ended_at),
    )


class TreeTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a tree, each behind the task that has started it.

    Args:
        depth: 0: the task that was asked for; 1: a task that it has started; and so on.
        parent, step: id of the task that has started it, and the label of the step that it is there; None: of the first one.
        state: empty: it is not submitted yet, or was purged, or may not be seen.
        children: how many tasks it has started. ``left_out``: how many of them are not listed.
        past, detached, reason, submitted_at, ended_at: as of ``ChildView``.
    """

    id: str
    workflow: str
    state: str
    depth: int
    parent: str | None = None
    step: str | None = None
    past: bool = False
    detached: bool = False
    reason: str = ""
    submitted_at: datetime | None = None
    ended_at: datetime | None = None
    children: int = 0
    left_out: int = 0


class TreeNode:
    """A task with the tasks that it has started. ``left``: states of those that are not listed, in words."""

    def __init__(self, task: TreeTask) -> None:
        self.task = task
        self.children: list[TreeNode] = []
        self.left = ""

    def list_tasks(self) -> Iterator[TreeTask]:
        """List the tasks of the tree, each behind its parent, in the order of the steps."""
        yield self.task
        for child in self.children:
            yield from child.list_tasks()


async def load_tree(as_it_stands: Loaded, store: StateStore, limit: int) -> TreeNode:
    """Load a task with all that it has started, level by level.

    Args:
        limit: tasks beside the first one; 0: all. Tasks that are held come before those that are open, and these before others.
    Raises: StoreError.
    """
    loaded, _ = legible_task(as_it_stands)
    failure = None if loaded.task.failure is None else read_task_failure(loaded.task.failure)
    root = TreeNode(
        build_output(
            TreeTask, loaded.task, id=loaded.task.task_id, depth=0, reason="" if failure is None else failure.reason
        )
    )
    level, room = [(root, loaded)], limit or sys.maxsize
    while level:
        found = [(node, of, [step for step in of.steps if step.kind is StepKind.CHILD]) for node, of in level]
        rows = await load_children([step for _, _, steps in found for step in steps], store)
        asked = [(_find_urgency(rows.get(step.step_no)), step.step_no) for _, _, steps in found for step in steps]
        shown = {number for _, number in sorted(asked)[:room]}
        room -= len(shown)
        level = []
        for node, of, steps in found:
            level += await _add_children(node, of, steps, rows, shown, store)
    return root


def _find_urgency(child: TaskRow | None) -> int:
    if child is None:
        return 2
    return 0 if child.state is TaskState.HELD else 1 if child.state in TASK_OPEN else 3


async def _add_children(
    node: TreeNode,
    loaded: Loaded,
    steps: Sequence[StepRow],
    rows: Mapping[int, TaskRow],
    shown: AbstractSet[int],
    store: StateStore,
) -> list[tuple[TreeNode, Loaded]]:
    """Add the children that are shown to a task. Returns them, as far as they are there."""
    left = [rows.get(step.step_no) for step in steps if step.step_no not in shown]
    node.task = msgspec.structs.replace(node.task, children=len(steps), left_out=len(left))
    node.left = count_states(left)
    found: list[tuple[TreeNode, Loaded]] = []
    for step in steps:
        if step.step_no not in shown:
            continue
        row = rows.get(step.step_no)
        view = build_child_view(loaded.task, step, row)
        fields = {name: value for name, value in msgspec.structs.asdict(view).items() if name != "ordinal"}
        child = TreeNode(TreeTask(**fields, depth=node.task.depth + 1, parent=node.task.id))
        node.children.append(child)
        if row is not None and (of_child := await store.load(row.task_no)) is not None:
            found.append((child, legible_task(of_child)[0]))
    return found
