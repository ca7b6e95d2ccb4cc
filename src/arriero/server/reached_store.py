"""The part of a store that a restricted token reaches: other tasks, schedules and messages are as if they were not there.

The gate lets a restricted token pass only to operations that look at the store through this. What an operation asks beside the
methods below is about tasks that it has found here before.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ..client.schedules import read_shown_declaration
from ..core.deduplication import hide_task_of_sequence
from ..core.ledger_batches import LedgerBatch, LedgerWritten
from ..model import Loaded, StatusRow, TaskRow
from ..schedules import ScheduleRow
from ..store.contract import ConvoyLoaded
from ..store.state_store import StateStore
from ..store.task_filter import ANY_TASK, TaskFilter
from ..tokens import Reach

ACKNOWLEDGED_MAX = 1_000  # the oldest messages, among which a reader acknowledges


class ReachedStore:
    """Asks a store on behalf of a token that is restricted."""

    def __init__(self, store: StateStore, reach: Reach) -> None:
        self._store = store
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _see(self, loaded: Loaded | None) -> Loaded | None:
        if loaded is None or not self._reach.includes(loaded.task.app, loaded.task.workflow):
            return None
        return loaded

    async def find(self, task_id: str) -> Loaded | None:
        return self._see(await self._store.find(task_id))

    async def load(self, task_no: int) -> Loaded | None:
        return self._see(await self._store.load(task_no))

    async def list_tasks(self, which: TaskFilter = ANY_TASK, **options: Any) -> list[TaskRow]:
        return await self._store.list_tasks(narrow_filter(which, self._reach), **options)

    async def find_convoy(self, key: str, limit: int) -> ConvoyLoaded | None:
        """A convoy may have tasks of anybody, so none is there."""
        return None

    async def list_schedules(self, app: str | None = None) -> list[ScheduleRow]:
        rows = await self._store.list_schedules(app)
        return [row for row in rows if self._reach.includes(row.app, read_shown_declaration(row).workflow)]

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        answer = await self._store.write_ledger(batch)
        if answer.refused is None:
            return answer
        line, reason = answer.refused
        return msgspec.structs.replace(answer, refused=(line, hide_task_of_sequence(reason)))

    async def ledger_aside(self, ledger_no: int, **options: Any) -> list[tuple[int, str]]:
        lines = await self._store.ledger_aside(ledger_no, **options)
        return [(line, hide_task_of_sequence(reason)) for line, reason in lines]

    async def load_statuses(self, queue: str, limit: int) -> list[StatusRow]:
        return await self._store.load_statuses(queue, limit, self._reach)

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        seen = {
            (queue, row.no)
            for queue in {queue for queue, _ in acknowledged}
            for row in await self.load_statuses(queue, ACKNOWLEDGED_MAX)
        }
        await self._store.acknowledge([one for one in acknowledged if one in seen])


def narrow_filter(which: TaskFilter, reach: Reach) -> TaskFilter:
    """Narrow a filter to what a token reaches."""
    return msgspec.structs.replace(which, apps=reach.apps, workflows=reach.workflows)


def narrow_store(store: StateStore, reach: Reach) -> StateStore:
    """Narrow a store to what a token reaches; the store itself, if that is all of it."""
    return store if reach.is_whole else cast(StateStore, ReachedStore(store, reach))
