"""Pages of a list of tasks: each costs a bounded part of the store, whatever its filter finds."""

from typing import Any, Literal

import msgspec

from ..model import TaskRow
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter

Order = Literal["oldest", "newest"]
SCANNED_MAX = 20_000  # task numbers that one page looks through, where no index finds what the filter names


class TaskRange(msgspec.Struct, frozen=True):
    """Tasks between two numbers, neither included; ``before`` None: up to the newest."""

    after: int = 0
    before: int | None = None


class TaskRows(msgspec.Struct, frozen=True):
    """Rows of one page. ``rest``: what was not looked through yet; None: nothing is left."""

    rows: list[TaskRow]
    rest: TaskRange | None


async def load_page(store: StateStore, which: TaskFilter, within: TaskRange, limit: int, order: Order) -> TaskRows:
    """Load the next tasks that a filter names. A page may be empty although something is left.

    Args:
        within: what is left of the list.
        order: of submission, or the newest first.
    """
    newest_first = order == "newest"
    part = await _bound_range(store, which, within, newest_first)
    if part is None:
        return TaskRows([], None)
    rows = await store.list_tasks(
        which, after=part.after, before=part.before, newest_first=newest_first, limit=limit + 1
    )
    if len(rows) > limit:
        rows = rows[:limit]
        return TaskRows(rows, _cut_range(within, rows[-1].task_no, newest_first))
    if part == within:
        return TaskRows(rows, None)
    if newest_first:
        return TaskRows(rows, TaskRange(within.after, part.after + 1))
    return TaskRows(rows, None if part.before is None else TaskRange(part.before - 1, within.before))


def _cut_range(within: TaskRange, last: int, newest_first: bool) -> TaskRange:
    return TaskRange(within.after, last) if newest_first else TaskRange(last, within.before)


async def _bound_range(store: StateStore, which: TaskFilter, within: TaskRange, newest_first: bool) -> TaskRange | None:
    """Bound what a page looks through; None: there is nothing."""
    if which in (TaskFilter(state=which.state), TaskFilter(ledger=which.ledger)):
        return within  # an index finds them, and nothing else is read
    among = TaskFilter(ledger=which.ledger)
    newest = await store.list_tasks(among, newest_first=True, limit=1, before=within.before)
    if not newest or newest[0].task_no <= within.after:
        return None
    last = newest[0].task_no
    if newest_first:
        return TaskRange(max(within.after, last - SCANNED_MAX), within.before)
    oldest = await store.list_tasks(among, limit=1, after=within.after, before=within.before)
    end = oldest[0].task_no + SCANNED_MAX if oldest else last + 1
    return within if end > last else TaskRange(within.after, end)


def write_position(rest: TaskRange) -> Any:
    """The position of a cursor."""
    return [rest.after, rest.before]
