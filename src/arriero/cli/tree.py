"""``arriero task tree``: a task with all tasks that its code has started, and their code."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import click

from ..client.children import TreeNode, TreeTask, load_tree
from ..client.session import find_task
from ..client.task_shapes import TaskAnswer
from ..core.parents import ParentStep
from ..explain.children import Relatives, summarize_children
from ..model import Loaded
from ..store.readable import legible_task
from ..text.escaping import one_line, shell_argument
from ..text.format import format_count
from .options import json_option, store_option
from .output import display_width, encodes_symbols, format_state, print_json, print_text, terminal_width

TASKS_SHOWN = 100
REASON_MIN = 30  # places; where fewer are left beside the columns, a reason stands on the next line


class _TreeLine(NamedTuple):
    """A line of the tree. ``branch``: what is drawn in front of it; ``under``: in front of its next line. No task: some are left out."""

    branch: str
    under: str
    task: TreeTask | None
    left: str = ""


@click.command("tree", short_help="Show a task and the tasks that it has started.")
@click.argument("task_id", metavar="ID")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0, 100_000),
    default=TASKS_SHOWN,
    show_default=True,
    help="Maximum number of tasks below the first one. Held tasks come first, then open ones. 0 shows all.",
)
@store_option
@json_option
def show_tree(task_id: str, limit: int, store: str | None, as_json: bool) -> None:
    """Show a task with its child tasks, their child tasks, and so on, each with its state.

    With --json each task is a line that names its parent, after the line of that parent.
    """
    root, parent = asyncio.run(_load(task_id, store, limit))
    if as_json:
        for one in root.list_tasks():
            print_json(one)
        return
    if parent is not None:
        task = shell_argument(parent.task_id)
        print_text(f"child {parent.label} of task {parent.task_id} (`arriero task tree {task}`)")
    _print_lines(list(_draw(root, "", "")))
    _print_summary(root)


async def _load(task_id: str, url: str | None, limit: int) -> tuple[TreeNode, ParentStep | None]:
    from .stores import open_store_to_read

    async with open_store_to_read(url) as store:
        loaded = await find_task(task_id, store)
        number = legible_task(loaded)[0].task.parent_step
        parents = {} if number is None else await store.load_parents((number,))
        return await load_tree(loaded, store, limit), parents.get(number or 0)


def _draw(node: TreeNode, branch: str, under: str) -> Iterator[_TreeLine]:
    """The lines of a task and of all below it."""
    middle, last, through = ("├─ ", "└─ ", "│  ") if encodes_symbols() else ("|- ", "`- ", "|  ")
    yield _TreeLine(branch, under + (through if node.children or node.left else "   "), node.task)
    for number, child in enumerate(node.children, start=1):
        is_last = number == len(node.children) and not node.left
        yield from _draw(child, under + (last if is_last else middle), under + ("   " if is_last else through))
    if node.left:
        yield _TreeLine(under + last, under + "   ", None, f"and {node.task.left_out:,} more: {node.left}")


def _print_lines(lines: list[_TreeLine]) -> None:
    tasks = [(line, line.task) for line in lines if line.task is not None]
    widths = (
        max(display_width(line.branch + one_line(task.id)) for line, task in tasks),
        max(len(task.state) for _, task in tasks) + (0 if terminal_width() is None else 2),
        max(display_width(one_line(task.workflow)) for _, task in tasks),
    )
    for line in lines:
        if line.task is None:
            print_text(line.left, first=line.branch, hanging=len(line.branch))
        else:
            _print_task(line, line.task, widths)


def _print_task(line: _TreeLine, task: TreeTask, widths: tuple[int, int, int]) -> None:
    name, state, workflow = line.branch + one_line(task.id), format_state(task.state), one_line(task.workflow)
    cells = zip((name, state, workflow), (name, click.unstyle(state), workflow), widths, strict=True)
    columns = [shown + " " * (width - display_width(plain)) for shown, plain, width in cells]
    head = "  ".join(columns)
    says = "; ".join(part for part in (_describe_kind(task), one_line(task.reason)) if part)
    room = terminal_width()
    if not says or room is None or room - display_width(click.unstyle(head)) >= REASON_MIN:
        hanging = display_width(click.unstyle(head)) + 2
        print_text(says, first=f"{head}  " if says else head.rstrip(), hanging=hanging)
        return
    print_text("", first=head.rstrip())
    print_text(says, first=f"{line.under}  ", hanging=display_width(line.under) + 2)


def _describe_kind(task: TreeTask) -> str:
    """Describe what its parent has to do with it, where that is not as usual; and a task that is not there."""
    if not task.state:
        return "not submitted yet, or purged"
    marks = (("detached", task.detached), ("of a life undone before", task.past))
    return ", ".join(word for word, is_so in marks if is_so)


def _print_summary(root: TreeNode) -> None:
    """Count the tasks below the first one, and name the command that explains the first one that is held."""
    tasks = list(root.list_tasks())
    listed, left = len(tasks) - 1, sum(task.left_out for task in tasks)
    if not listed and not left:
        click.echo("it has started no other task")
        return
    states = Counter(task.state or "not there" for task in tasks[1:])
    known = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items(), key=lambda one: one[0] != "held"))
    more = f"; {left:,} more are not listed (--limit 0 lists all)" if left else ""
    click.echo()
    print_text(f"{format_count(listed, 'task')} below it: {known}{more}")
    held = next((task for task in tasks[1:] if task.state == "held"), None)
    if held is not None:
        print_text(f"next: arriero task explain {shell_argument(held.id)}")


def format_parent(one: TaskAnswer) -> str:
    """Format whose child a task is; empty: it is none."""
    return "" if one.parent is None else f"{one.parent}, as its child {one.parent_step}"


def format_children(loaded: Loaded, family: Relatives | None) -> str:
    """Format how many children a task has, by state, and the command that shows them; empty: none."""
    if family is None or not (counted := summarize_children(legible_task(loaded)[0], family.children)):
        return ""
    return f"{counted}; `arriero task tree {shell_argument(loaded.task.task_id)}`"
