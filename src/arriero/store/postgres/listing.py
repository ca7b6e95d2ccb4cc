"""Lists of tasks on PostgreSQL."""

import msgspec

from ...failures import TaskFailure, read_task_failure
from ...model import TaskRow
from .. import listing
from ..readable import legible
from ..task_filter import TaskFilter, fold_text
from .row_decoding import task_as_is
from .store_rows import PostgresRows

# Bounds of the index of ledgers. By equality the planner could take the primary key for the order, and read all tasks.
OF_LEDGER = """from_ledger >= %(from_ledger)s
   AND (from_ledger, task_no) > (%(from_ledger)s, %(after)s)
   AND (from_ledger, task_no) < (%(from_ledger)s, coalesce(%(before)s::bigint, 9223372036854775807))"""


def select_filtered(
    rows: PostgresRows, which: TaskFilter, after: int, before: int | None, newest_first: bool, limit: int
) -> list[TaskRow]:
    """See ``StateStore.list_tasks``. A text is compared here: only here it is folded as lists show it."""
    number, sql = _build_statement(rows, which)
    if number is None and which.ledger is not None:
        return []
    sql = listing.order_newest_first(sql) if newest_first else sql
    found: list[TaskRow] = []
    while len(found) < limit:
        found_rows = rows.transaction.plain(sql, _build_parameters(which, number, after, before, limit)).fetchall()
        page = [task_as_is(row) for row in found_rows]
        found += [task for task in page if _matches_failure(task, which.text, which.code)]
        if len(page) < limit:
            break
        after, before = (after, page[-1].task_no) if newest_first else (page[-1].task_no, before)
    return found[:limit]


def count_filtered(rows: PostgresRows, which: TaskFilter, after: int, before: int | None, limit: int) -> int:
    """See ``StateStore.count_listed``."""
    if which.text is not None or which.code is not None:
        return len(select_filtered(rows, which, after, before, False, limit))
    number, sql = _build_statement(rows, which)
    if number is None and which.ledger is not None:
        return 0
    asked = _build_parameters(which, number, after, before, limit)
    (count,) = rows.transaction.plain(listing.build_count(sql), asked).fetchone() or (0,)
    return int(count)


def _build_statement(rows: PostgresRows, which: TaskFilter) -> tuple[int | None, str]:
    """Build the statement for a filter. Returns it behind the number of the ledger, if the filter names one that exists."""
    filtered = rows.transaction.statement("select_filtered")
    if which.ledger is None:
        return None, filtered
    ledger = rows.select_ledger(which.ledger)
    return None if ledger is None else ledger.ledger_no, listing.narrow_to_ledger(filtered, OF_LEDGER)


def _build_parameters(
    which: TaskFilter, ledger_no: int | None, after: int, before: int | None, limit: int
) -> dict[str, object]:
    asked = msgspec.structs.asdict(which)
    text, code, _ = asked.pop("text"), asked.pop("code"), asked.pop("ledger")
    if ledger_no is not None:
        asked["from_ledger"] = ledger_no
    failed = None if text is None and not code else True
    asked |= {"apps": list(which.apps) or None, "workflows": list(which.workflows) or None}
    return {**asked, "after": after, "before": before, "limit": limit, "failed": failed}


def _matches_failure(task: TaskRow, text: str | None, code: str | None) -> bool:
    """Match a failure here and not in SQL: one that cannot be read must not fail the question."""
    failure = None if text is None and code is None else legible(task).failure
    told = TaskFailure("bug", "") if failure is None else read_task_failure(failure)
    return (text is None or fold_text(text) in fold_text(told.reason)) and code in (None, told.code)
