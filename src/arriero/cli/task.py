"""``arriero task``: the group, ``arriero task list`` and ``arriero task show``."""

import asyncio

import click
import msgspec

from ..client.payload_record import read_record
from ..client.session import find_task
from ..client.task_shapes import (
    ListedTask,
    TaskContext,
    build_listed_task,
    build_shown_task,
    name_apps,
)
from ..client.task_view import load_tasks_ahead, read_family, read_holders, read_published, read_times
from ..client.tasks import TaskSelector
from ..explain.convoys import TasksAhead
from ..explain.outages import format_next_attempt, format_short_failure
from ..explain.past import may_have_waited
from ..inspection.attempts import Retrying
from ..model import TASK_OPEN, Instant, Loaded, TaskRow
from ..model.instants import as_datetime
from ..store.readable import legible_task
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from ..text.format import format_duration
from .callbacks import complete_callback
from .history import print_record
from .near_misses import NearMissGroup
from .operation_commands import format_options, gather_options
from .options import NUMBER, json_option, print_empty, store_option
from .output import (
    format_time,
    format_time_between,
    print_json,
    print_table,
    truncate,
)
from .shown_task import print_task
from .signals import list_signals, send_request, send_signal
from .stores import open_store_to_read
from .task_verbs import VERB_COMMANDS
from .tree import format_children, show_tree
from .watch import watch_task

PAGE = 1_000
COUNTED_MAX = 100_000  # of the tasks that are not shown


class PageRequest(msgspec.Struct, frozen=True):
    """The part of the tasks that is shown: between two numbers, ``limit`` of them (0: all).

    The newest come first. With ``after`` they come in the order of submission: the one who reads all page by page continues
    after the last number that was shown.
    """

    after: int | None
    before: int | None
    limit: int

    @property
    def newest_first(self) -> bool:
        return self.after is None


class TaskPage(msgspec.Struct, frozen=True):
    """The tasks that are shown, at an instant, and the count of further ones, up to ``COUNTED_MAX``.

    ``took``: seconds of tasks whose rows alone do not say how long they took.
    """

    now: Instant
    rows: list[TaskRow]
    retrying: dict[int, Retrying]
    took: dict[int, float]
    more: int


@click.command("list", short_help="List tasks, the newest first.")
@gather_options(TaskSelector, "which")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of tasks. 0 lists all.",
)
@click.option("--before", metavar="NO", type=NUMBER, help="Only tasks before this number, which is the next page.")
@click.option("--after", metavar="NO", type=NUMBER, help="Only tasks after this number, in the order of submission.")
@store_option
@json_option
def list_tasks(
    which: TaskSelector, limit: int, before: int | None, after: int | None, store: str | None, as_json: bool
) -> None:
    """List tasks, the newest first, with the last failure of what is tried again.

    Standard error says how many more there are. With --after they come in the order of submission: --after 0 begins
    with the oldest. A narrow terminal leaves out the columns submitted, failed and took.
    """
    page = PageRequest(after, before, limit)
    found = asyncio.run(_load_page(store, which.check("--"), page, with_times=not as_json))
    tasks = [build_listed_task(row, found.retrying.get(row.task_no)) for row in found.rows]
    if as_json:
        for task in tasks:
            print_json(task)
    elif not tasks:
        print_empty("tasks", format_options(which))
    else:
        print_table(
            ("no", "id", "workflow", "state", "failed", "submitted", "took", "reason"),
            [_format_cells(task, found) for task in name_apps(tasks)],
            states=[task.state for task in tasks],
            optional=("submitted", "failed", "took"),
        )
    if found.more:
        click.echo(f"arriero: {_format_more(found, page)}", err=True)


async def _load_page(url: str | None, which: TaskSelector, page: PageRequest, *, with_times: bool) -> TaskPage:
    async with open_store_to_read(url) as store:
        now = store.now()
        meant = which.build_filter(now)
        rows = await _load_rows(store, meant, page)
        retrying = await store.retrying_steps(
            [row.task_no for row in rows if row.state in TASK_OPEN and row.failure_count]
        )
        more = 0
        if rows and len(rows) == page.limit:
            after, before = _remaining_range(rows, page)
            more = await store.count_listed(meant, after=after, before=before, limit=COUNTED_MAX)
        took = await _measure_durations(store, rows, now) if with_times else {}
        return TaskPage(now, rows, {step.task_no: step for step in retrying}, took, more)


async def _measure_durations(store: StateStore, rows: list[TaskRow], now: Instant) -> dict[int, float]:
    """Read the histories of those tasks alone for which an operator may have waited."""
    waited = [row for row in rows if may_have_waited(row)]
    return {row.task_no: (await read_times(store, row.task_no)).measure_task(row, now).took or 0.0 for row in waited}


async def _load_rows(store: StateStore, meant: TaskFilter, page: PageRequest) -> list[TaskRow]:
    rows: list[TaskRow] = []
    while not page.limit or len(rows) < page.limit:
        limit = min(PAGE, page.limit - len(rows)) if page.limit else PAGE
        after, before = _remaining_range(rows, page)
        found = await store.list_tasks(meant, after=after, before=before, newest_first=page.newest_first, limit=limit)
        rows += found
        if len(found) < limit:
            break
    return rows


def _remaining_range(rows: list[TaskRow], page: PageRequest) -> tuple[int, int | None]:
    """Return the numbers between which the tasks after those lie."""
    if not rows:
        return page.after or 0, page.before
    last = rows[-1].task_no
    return (page.after or 0, last) if page.newest_first else (last, page.before)


def _format_more(found: TaskPage, page: PageRequest) -> str:
    count = f"{'at least ' if found.more >= COUNTED_MAX else ''}{found.more:,}"
    after, before = _remaining_range(found.rows, page)
    return f"and {count} more; --limit 0 shows all, {f'--before {before}' if page.newest_first else f'--after {after}'} the next"


def _format_state(task: ListedTask, now: Instant) -> str:
    if task.paused:
        return f"{task.state}, paused"
    is_snoozed = task.snoozed_until is not None and task.snoozed_until > as_datetime(now)
    return f"{task.state}, snoozed" if is_snoozed else task.state


def _format_cells(task: ListedTask, found: TaskPage) -> tuple[str, ...]:
    return (
        str(task.no),
        task.id,
        task.workflow,
        _format_state(task, found.now),
        str(task.failure_count),
        format_time(task.submitted_at),
        format_duration(found.took[task.no])
        if task.no in found.took
        else format_time_between(task.submitted_at, task.ended_at),
        _format_reason(task, found),
    )


def _format_reason(task: ListedTask, found: TaskPage) -> str:
    """Format why a task ended as it did; of a task running the step that is tried again, when, and why."""
    step = found.retrying.get(task.no)
    if step is None:
        return truncate(task.reason)
    return f"{step.step}, {format_next_attempt(step, found.now)}: {format_short_failure(step.failure)}"


@click.group(cls=NearMissGroup, invoke_without_command=True)
@click.pass_context
def task(context: click.Context) -> None:
    """Show tasks, and act on them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@task.command("show", short_help="Show one task.")
@click.argument("task_id", metavar="ID")
@click.option(
    "--policy", "with_policy", is_flag=True, help="Also show the policies, and how often each step may be called."
)
@click.option("--trace", "with_trace", is_flag=True, help="Also show the traceback of each failure.")
@store_option
@json_option
def show_task(task_id: str, with_policy: bool, with_trace: bool, store: str | None, as_json: bool) -> None:
    """Show one task: its steps, attempts and failures, what it waits for, what is still to be undone."""
    loaded, beside, ahead = asyncio.run(_load_shown(task_id, store))
    one = build_shown_task(loaded, beside, ahead)
    if as_json:
        print_json(one)
    else:
        children = format_children(loaded, beside.family)
        print_task(one, legible_task(loaded)[0], children, with_policy=with_policy, with_trace=with_trace)
        print_record(beside.record)


async def _load_shown(task_id: str, store: str | None) -> tuple[Loaded, TaskContext, TasksAhead | None]:
    async with open_store_to_read(store) as opened:
        loaded = await find_task(task_id, opened)
        times, holders = await read_times(opened, loaded.task.task_no), await read_holders(loaded, opened)
        record, published = await read_record(loaded, opened), await read_published(opened, loaded.task.task_no)
        beside = TaskContext(times, holders, opened.now(), record, published, await read_family(loaded, opened))
        return loaded, beside, await load_tasks_ahead(loaded, opened)


task.add_command(list_tasks)
task.add_command(show_tree)
task.add_command(watch_task)
task.add_command(send_signal)
task.add_command(send_request)
task.add_command(list_signals)
task.add_command(complete_callback)
for verb in VERB_COMMANDS:
    task.add_command(verb)
