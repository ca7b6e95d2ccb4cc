"""Removing by name, in dicts."""

from collections.abc import Sequence

import msgspec

from ..model import LedgerRow, TailRow, TaskRow
from .base import PurgedNamed, PurgeNamed
from .memory_ledgers import MemoryLedgers
from .purging import Found, purge_named


class MemoryPurging(MemoryLedgers):
    """The PurgeTable of ``store.purging``, and the calls of the contract."""

    def purge_tail(self, key: str) -> TailRow | None:
        return self.tail_of(key)

    def purge_ledger(self, ledger_id: str) -> LedgerRow | None:
        return next((ledger for ledger in self.ledgers.values() if ledger.ledger_id == ledger_id), None)

    def purge_tasks(self, task_nos: Sequence[int]) -> list[TaskRow]:
        return [self.tasks[number] for number in sorted(task_nos) if number in self.tasks]

    def counts_on(self, convoy_no: int) -> int:
        return self.convoys[convoy_no].expected

    def unread(self, task_nos: Sequence[int]) -> dict[int, str]:
        return {status.task_no: status.queue for status in self.statuses.values() if status.task_no in task_nos}

    def untold(self, task_nos: Sequence[int]) -> set[int]:
        return {a.task_no for a in self.alert_rows.values() if a.next_at is not None and a.task_no in task_nos}

    def remove_tasks(self, tasks: Sequence[TaskRow]) -> None:
        numbers = {task.task_no for task in tasks}
        for task in tasks:
            self._remove(self.tasks, task.task_no)
            self._remove(self.bodies, task.task_no)
            self._remove(self.asked, task.task_no)
            self._remove(self.numbers, task.task_id)
            self._remove(self.steps, task.task_no)
            self._remove(self.edit_rows, task.task_no)
            self._remove(self.late_answer_rows, task.task_no)
        for alert in [a for a in self.alert_rows.values() if a.task_no in numbers]:
            self._remove(self.alert_rows, alert.no)
        self.log[:] = [row for row in self.log if row.task_no not in numbers]

    def remove_convoy(self, convoy_no: int) -> None:
        self._remove(self.convoys, convoy_no)
        self._remove(self.tails, convoy_no)
        self.log[:] = [row for row in self.log if row.task_no != -convoy_no]

    def erase(self, rows: Sequence[int], events: str) -> None:
        raw, numbers = msgspec.Raw(events.encode()), set(rows)
        self.log[:] = [
            msgspec.structs.replace(row, actor="", events=raw) if row.no in numbers else row for row in self.log
        ]

    def _found(self, which: PurgeNamed) -> Found:
        match which.what:
            case "task":
                number = self.numbers.get(which.name)
                if number is None or self.is_hidden(self.tasks[number]):
                    return Found(False)
                return Found(True, (number,))
            case "convoy":
                tail = self.tail_of(which.name)
                of_key = [task for task in self.tasks.values() if tail and task.convoy_no == tail.convoy_no]
                return Found(tail is not None, tuple(t.task_no for t in of_key), tail.placed if tail else 0)
            case "ledger":
                said = b'"ledger":' + msgspec.json.encode(which.name)
                named = [row for row in self.log if said in bytes(row.events)]
                is_there = bool(named) or self.purge_ledger(which.name) is not None
                kept = [task.task_no for task in self.tasks.values() if self._is_kept_by(task, which.name)]
                numbers = [row.task_no for row in named if row.task_no > 0 and row.link == 1]
                rows = tuple((row.no, row.link, row.hash) for row in named if row.task_no == 0)
                return Found(is_there, (*numbers, *kept), 0, rows)

    def _is_kept_by(self, task: TaskRow, ledger_id: str) -> bool:
        return task.ledger_no is not None and self.ledgers[task.ledger_no].ledger_id == ledger_id

    async def purge_named(self, which: PurgeNamed, *, actor: str, limit: int | None) -> PurgedNamed:
        return self._transact(lambda: purge_named(which, self._found(which), self, self.now(), actor, limit))

    async def empty_log(self) -> bool:
        return True
