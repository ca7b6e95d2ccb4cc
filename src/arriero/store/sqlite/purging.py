"""Removing by name, in the file."""

import sqlite3
from collections.abc import Sequence

import msgspec

from ...model import Instant, LedgerRow, TailRow, TaskRow
from ..base import PurgedNamed, PurgeNamed
from ..ledgers import reserved
from ..purging import Found, purge_named
from .ledgers import LedgerTables
from .tables import Executes, query, step_range

_json = msgspec.json.encode
_OF_A_TASK = ("purge_history", "purge_alerts", "purge_body", "purge_task")


class PurgeTables(LedgerTables):
    """The PurgeTable of ``store.purging``."""

    def purge_tail(self, key: str) -> TailRow | None:
        return self.tail_of(key)

    def purge_ledger(self, ledger_id: str) -> LedgerRow | None:
        return self.find_ledger(ledger_id)

    def purge_tasks(self, task_nos: Sequence[int]) -> list[TaskRow]:
        return [task for number in sorted(task_nos) if (task := self.task(number)) is not None]

    def counts_on(self, convoy_no: int) -> int:
        return self.convoy(convoy_no).expected

    def unread(self, task_nos: Sequence[int]) -> dict[int, str]:
        return dict(self._run("select_unread", {"task_nos": _json(task_nos).decode()}).fetchall())

    def untold(self, task_nos: Sequence[int]) -> set[int]:
        return {number for (number,) in self._run("select_untold", {"task_nos": _json(task_nos).decode()})}

    def remove_tasks(self, tasks: Sequence[TaskRow]) -> None:
        self.put_meta("last_task_no", self.next_task_no() - 1)
        for task in tasks:
            for name in _OF_A_TASK:
                self._run(name, {"task_no": task.task_no})
            self._run("purge_steps", step_range(task.task_no))

    def remove_convoy(self, convoy_no: int) -> None:
        self.put_meta("last_convoy_no", self.next_convoy_no() - 1)
        for name in ("delete_convoy", "delete_convoy_tail"):
            self._run(name, {"convoy_no": convoy_no})
        self._run("purge_history", {"task_no": -convoy_no})

    def erase(self, rows: Sequence[int], events: str) -> None:
        for no in rows:
            self._run("erase_history", {"no": no, "events": events})


def find(connection: sqlite3.Connection, which: PurgeNamed) -> Found:
    """What stands under a name. It may read all tasks, or the whole history: not under the write lock."""
    tables, execute = PurgeTables(connection), connection.execute
    match which.what:
        case "task":
            task = tables.task_by_id(which.name)
            return Found(False) if task is None or reserved(task, tables) else Found(True, (task.task_no,))
        case "convoy":
            tail = tables.tail_of(which.name)
            if tail is None:
                return Found(False)
            numbers = execute(query("select_of_convoy"), {"convoy_no": tail.convoy_no}).fetchall()
            return Found(True, tuple(number for (number,) in numbers), tail.placed)
        case "ledger":
            ledger = tables.find_ledger(which.name)
            said = '"ledger":' + _json(which.name).decode()
            named = execute(query("select_naming_ledger"), {"said": said}).fetchall()
            asked = {"ledger_no": None if ledger is None else ledger.ledger_no}
            kept = execute(query("select_kept_by_ledger"), asked).fetchall()
            numbers = [(task_no,) for _, task_no, _, _ in named if task_no > 0]
            rows = tuple((no, link, digest) for no, task_no, link, digest in named if task_no == 0)
            return Found(bool(named) or ledger is not None, tuple(number for (number,) in numbers + kept), 0, rows)


def purge(
    connection: Executes, now: Instant, which: PurgeNamed, found: Found, actor: str, limit: int | None
) -> PurgedNamed:
    """Inside a transaction."""
    tables = PurgeTables(connection)
    done = purge_named(which, found, tables, now, actor, limit)
    tables.flush()
    return done
