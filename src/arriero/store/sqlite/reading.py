"""Reading for people on SQLite."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ...model import HistoryRow, TaskRow
from .. import task_filter
from ..engine.transactions import Lane
from ..rows import history_of
from ..state_store import StateStore
from ..task_filter import ANY_TASK, TaskFilter, fold_text
from .columns import task_as_is
from .task_rows import query

HISTORY_PAGE = 500
OF_LEDGER = "from_ledger = (SELECT ledger_no FROM arriero_ledger WHERE ledger_id = :ledger)"


class SqliteReading(StateStore):
    """Reads for people on SQLite."""

    async def list_tasks(
        self,
        which: TaskFilter = ANY_TASK,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[TaskRow]:
        filtered = _build_statement(which)
        sql = task_filter.order_newest_first(filtered) if newest_first else filtered
        asked = _build_parameters(which, after, before, limit)
        return await self._read(lambda rows: [task_as_is(row) for row in rows.ask_plain(sql, asked).fetchall()])

    async def count_listed(
        self, which: TaskFilter = ANY_TASK, *, after: int = 0, before: int | None = None, limit: int
    ) -> int:
        sql, asked = task_filter.build_count(_build_statement(which)), _build_parameters(which, after, before, limit)
        (count,) = await self._read(lambda rows: rows.ask_plain(sql, asked).fetchone()) or (0,)
        return int(count)

    async def look_at_forgotten(self) -> int:
        if not await self._read(lambda rows: rows.ask("select_forgotten").fetchone()):
            return 0
        return await self._write(
            lambda rows: rows.ask("look_at_forgotten", {"now": rows.read_clock()}).rowcount, Lane.UPKEEP
        )

    async def history(self, task_no: int | None = None) -> AsyncIterator[HistoryRow]:
        (until,) = await self._read(lambda rows: rows.ask("select_history_end").fetchone()) or (0,)
        after = 0
        while True:
            name = "select_history" if task_no is None else "select_task_history"
            asked = {"after": after, "until": until, "task_no": task_no, "limit": HISTORY_PAGE}
            page = await self._read(lambda rows, n=name, a=asked: rows.ask(n, a).fetchall())  # type: ignore[misc]  # bound now
            for row in map(history_of, page):
                yield row
                after = row.no if task_no is None else row.link
            if len(page) < HISTORY_PAGE:
                return


def _build_statement(which: TaskFilter) -> str:
    if which.ledger is None:
        return query("select_filtered")
    return task_filter.narrow_to_ledger(query("select_filtered"), OF_LEDGER)


def _build_parameters(which: TaskFilter, after: int, before: int | None, limit: int) -> dict[str, Any]:
    text = None if which.text is None else fold_text(which.text)
    apps, workflows = (msgspec.json.encode(one).decode() if one else None for one in (which.apps, which.workflows))
    named = {"apps": apps, "workflows": workflows}
    return {**msgspec.structs.asdict(which), **named, "text": text, "after": after, "before": before, "limit": limit}
