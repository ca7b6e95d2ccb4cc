"""Lists of tasks on PostgreSQL."""

import msgspec

from ...failures import TaskFailure, read_task_failure
from ...model import TaskRow
from .. import listing
from ..readable import legible
from ..task_filter import TaskFilter, fold_text
from .row_decoding import task_as_is
from .store_rows import PostgresRows


def select_filtered(
    rows: PostgresRows, which: TaskFilter, after: int, before: int | None, newest_first: bool, limit: int
) -> list[TaskRow]:
    """See ``StateStore.list_tasks``. A text is compared here: only here it is folded as lists show it."""
    sql = rows.transaction.statement("select_filtered")
    sql = listing.order_newest_first(sql) if newest_first else sql
    found: list[TaskRow] = []
    while len(found) < limit:
        found_rows = rows.transaction.plain(sql, _build_parameters(which, after, before, limit)).fetchall()
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
    sql = listing.build_count(rows.transaction.statement("select_filtered"))
    (count,) = rows.transaction.plain(sql, _build_parameters(which, after, before, limit)).fetchone() or (0,)
    return int(count)


def _build_parameters(which: TaskFilter, after: int, before: int | None, limit: int) -> dict[str, object]:
    asked = msgspec.structs.asdict(which)
    text, code = asked.pop("text"), asked.pop("code")
    failed = None if text is None and not code else True
    return {**asked, "after": after, "before": before, "limit": limit, "failed": failed}


def _matches_failure(task: TaskRow, text: str | None, code: str | None) -> bool:
    """Match a failure here and not in SQL: one that cannot be read must not fail the question."""
    failure = None if text is None and code is None else legible(task).failure
    told = TaskFailure("bug", "") if failure is None else read_task_failure(failure)
    return (text is None or fold_text(text) in fold_text(told.reason)) and code in (None, told.code)
