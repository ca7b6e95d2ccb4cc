"""``arriero task list``."""

import asyncio

import click
import msgspec

from ..core.attempts import Retrying
from ..core.elapsed import may_have_waited
from ..core.outages import next_attempt, shown_reason
from ..core.wording import span
from ..model import TASK_OPEN, Instant, TaskRow
from ..store.base import StateStore, TaskFilter
from ..task_view import read_times
from .filters import Which, filter_options
from .output import cut, print_json, print_table, shown_span, shown_time
from .shapes import ListedTask, listed, told_apart
from .stores import json_option, reading, store_option

NUMBER_MAX = 2**63 - 1
PAGE = 1_000
COUNTED_MAX = 100_000  # of the tasks that are not shown
_NUMBER = click.IntRange(0, NUMBER_MAX)


class Page(msgspec.Struct, frozen=True):
    """Which part of the tasks is shown: between two numbers, ``limit`` of them (0: all).

    The newest come first. With ``after`` they come in the order of submission: whoever reads all page by page goes on
    after the last number that was shown.
    """

    after: int | None
    before: int | None
    limit: int

    @property
    def newest_first(self) -> bool:
        return self.after is None


class Listed(msgspec.Struct, frozen=True):
    """What is shown, at an instant, and how many more there are; counted up to ``COUNTED_MAX``.

    ``took``: seconds of tasks whose rows alone do not tell how long they took.
    """

    now: Instant
    rows: list[TaskRow]
    retrying: dict[int, Retrying]
    took: dict[int, float]
    more: int


@click.command("list", short_help="List tasks, the newest first.")
@filter_options
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0, 100_000),
    default=50,
    show_default=True,
    help="So many at most; 0: all.",
)
@click.option("--before", metavar="NO", type=_NUMBER, help="Only tasks before this number: the next page.")
@click.option("--after", metavar="NO", type=_NUMBER, help="Only tasks after this number, in the order of submission.")
@store_option
@json_option
def list_tasks(
    which: Which, limit: int, before: int | None, after: int | None, store: str | None, as_json: bool
) -> None:
    """List tasks, the newest first, with the last failure of what is tried again.

    Standard error says how many more there are. With --after they come in the order of submission: --after 0 begins
    with the oldest.
    """
    page = Page(after, before, limit)
    found = asyncio.run(_list(store, which, page, with_times=not as_json))
    tasks = [listed(row, found.retrying.get(row.task_no)) for row in found.rows]
    if as_json:
        for task in tasks:
            print_json(task)
    else:
        print_table(
            ("no", "id", "workflow", "state", "failed", "submitted", "took", "reason"),
            [_cells(task, found) for task in told_apart(tasks)],
        )
    if found.more:
        click.echo(f"arriero: {_more(found, page)}", err=True)


async def _list(url: str | None, which: Which, page: Page, *, with_times: bool) -> Listed:
    async with reading(url) as store:
        now = store.now()
        meant = which.filter(now)
        rows = await _rows(store, meant, page)
        retrying = await store.retrying_steps(
            [row.task_no for row in rows if row.state in TASK_OPEN and row.failure_count]
        )
        more = 0
        if rows and len(rows) == page.limit:
            after, before = _rest(rows, page)
            more = await store.count_listed(meant, after=after, before=before, limit=COUNTED_MAX)
        took = await _took(store, rows, now) if with_times else {}
        return Listed(now, rows, {step.task_no: step for step in retrying}, took, more)


async def _took(store: StateStore, rows: list[TaskRow], now: Instant) -> dict[int, float]:
    """Only tasks for which somebody may have waited need a look at their history."""
    waited = [row for row in rows if may_have_waited(row)]
    return {row.task_no: (await read_times(store, row.task_no)).of_task(row, now).took or 0.0 for row in waited}


async def _rows(store: StateStore, meant: TaskFilter, page: Page) -> list[TaskRow]:
    rows: list[TaskRow] = []
    while not page.limit or len(rows) < page.limit:
        limit = min(PAGE, page.limit - len(rows)) if page.limit else PAGE
        after, before = _rest(rows, page)
        found = await store.list_tasks(meant, after=after, before=before, newest_first=page.newest_first, limit=limit)
        rows += found
        if len(found) < limit:
            break
    return rows


def _rest(rows: list[TaskRow], page: Page) -> tuple[int, int | None]:
    """Between which numbers the tasks lie that come behind those."""
    if not rows:
        return page.after or 0, page.before
    last = rows[-1].task_no
    return (page.after or 0, last) if page.newest_first else (last, page.before)


def _more(found: Listed, page: Page) -> str:
    count = f"{'at least ' if found.more >= COUNTED_MAX else ''}{found.more:,}"
    after, before = _rest(found.rows, page)
    return f"and {count} more; --limit 0 shows all, {f'--before {before}' if page.newest_first else f'--after {after}'} the next"


def _cells(task: ListedTask, found: Listed) -> tuple[str, ...]:
    return (
        str(task.no),
        task.id,
        task.workflow,
        f"{task.state}, paused" if task.paused else task.state,
        str(task.failure_count),
        shown_time(task.submitted_at),
        span(found.took[task.no]) if task.no in found.took else shown_span(task.submitted_at, task.ended_at),
        _reason(task, found),
    )


def _reason(task: ListedTask, found: Listed) -> str:
    """Why it ended as it did; of a task that is under way what is tried again, when, and why."""
    step = found.retrying.get(task.no)
    if step is None:
        return cut(task.reason)
    return f"{step.step}, {next_attempt(step, found.now)}: {shown_reason(step.failure)}"
