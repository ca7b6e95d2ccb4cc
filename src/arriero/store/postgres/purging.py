"""Removing by name on PostgreSQL. Rows are locked as submitters lock them: a convoy's end, the convoy, then tasks."""

from collections.abc import Sequence

import msgspec

from ...model import ConvoyRow, Instant, LedgerRow, TailRow, TaskRow
from ..apart import SetApart
from ..base import Busy, PurgedNamed, PurgeNamed
from ..purging import Found, purge_named
from .ledgers import LedgerTables
from .rows import convoy_of, ledger_of, tail_of, task_of
from .session import Transaction

_OF_TASKS = ("purge_history", "purge_alerts", "purge_body", "purge_steps", "purge_task")


class PurgeTables(LedgerTables):
    """The PurgeTable of ``store.purging``."""

    def purge_tail(self, key: str) -> TailRow | None:
        row = self._transaction.ask("purge_lock_tail", {"key": key}).fetchone()
        return None if row is None else tail_of(row)

    def purge_ledger(self, ledger_id: str) -> LedgerRow | None:
        row = self._transaction.ask("select_ledger_by_id", {"ledger_id": ledger_id}).fetchone()
        return None if row is None else self.lock(ledger_of(row).ledger_no)

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no not in self._convoys:
            row = self._transaction.ask("purge_lock_convoy", {"convoy_no": convoy_no}).fetchone()
            assert row is not None  # its end is ours
            self._convoys[convoy_no] = convoy_of(row)
        return self._convoys[convoy_no]

    def purge_tasks(self, task_nos: Sequence[int]) -> list[TaskRow]:
        asked = {"task_nos": list(task_nos)}
        tasks = [task_of(row) for row in self._transaction.ask("purge_lock_tasks", asked).fetchall()]
        missing = set(task_nos) - {task.task_no for task in tasks}
        if missing and self._transaction.ask("select_existing", {"task_nos": sorted(missing)}).fetchall():
            raise Busy("another transaction has a task of it open; ask again")
        return tasks

    def counts_on(self, convoy_no: int) -> int:
        row = self._transaction.ask("select_counts_on", {"convoy_no": convoy_no}).fetchone()
        assert row is not None
        number: int = row[0]
        return number

    def unread(self, task_nos: Sequence[int]) -> dict[int, str]:
        return dict(self._transaction.ask("select_unread", {"task_nos": list(task_nos)}).fetchall())

    def untold(self, task_nos: Sequence[int]) -> set[int]:
        return {number for (number,) in self._transaction.ask("select_untold", {"task_nos": list(task_nos)}).fetchall()}

    def remove_tasks(self, tasks: Sequence[TaskRow]) -> None:
        for name in _OF_TASKS:
            self._transaction.ask(name, {"task_nos": [task.task_no for task in tasks]})

    def remove_convoy(self, convoy_no: int) -> None:
        for name in ("delete_convoy", "delete_convoy_tail"):
            self._transaction.ask(name, {"convoy_no": convoy_no})
        self._transaction.ask("purge_history", {"task_nos": [-convoy_no]})

    def erase(self, rows: Sequence[int], events: str) -> None:
        self._transaction.ask("erase_history", {"rows": list(rows), "events": events})


def find(transaction: Transaction, which: PurgeNamed) -> Found:
    """What stands under a name. It may read all tasks, or the whole history."""
    ask = transaction.ask
    match which.what:
        case "task":
            row = ask("select_number", {"task_id": which.name}).fetchone()
            return Found(row is not None, () if row is None else (row[0],))
        case "convoy":
            row = ask("select_tails_by_key", {"keys": [which.name]}).fetchone()
            if row is None:
                return Found(False)
            tail = tail_of(row)
            numbers = ask("select_of_convoy", {"convoy_no": tail.convoy_no}).fetchall()
            return Found(True, tuple(number for (number,) in numbers), tail.placed)
        case "ledger":
            row = ask("select_ledger_by_id", {"ledger_id": which.name}).fetchone()
            ledger_no = None if row is None else ledger_of(row).ledger_no
            said = '"ledger":' + msgspec.json.encode(which.name).decode()
            named = ask("select_naming_ledger", {"said": said}).fetchall()
            kept = ask("select_kept_by_ledger", {"ledger_no": ledger_no}).fetchall()
            numbers = [(task_no,) for _, task_no, _, _ in named if task_no > 0]
            rows = tuple((no, link, digest) for no, task_no, link, digest in named if task_no == 0)
            return Found(bool(named) or row is not None, tuple(number for (number,) in numbers + kept), 0, rows)


def purge(
    transaction: Transaction,
    now: Instant,
    which: PurgeNamed,
    found: Found,
    actor: str,
    limit: int | None,
    apart: SetApart,
) -> PurgedNamed:
    """In one transaction."""
    tables = PurgeTables(transaction, apart)
    done = purge_named(which, found, tables, now, actor, limit)
    tables.flush()
    return done
