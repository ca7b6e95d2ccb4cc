"""Ledgers in the file."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ...commands import Submit
from ...core.ledgers import ASIDE_MAX, LedgerBatch, LedgerOpened, LedgerWritten
from ...core.placing import first_convoy, first_tail
from ...model import Instant, LedgerRow, LedgerState, TailRow, TaskRow
from .. import ledgers
from .rows import ledger_of, parameters_of, task_as_is
from .tables import Tables, query

T = TypeVar("T")
_json = msgspec.json.encode


class LedgerTables(Tables):
    """The LedgerTable of ``store.ledgers``."""

    def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        row = self._run("select_ledger_by_id", {"ledger_id": ledger_id}).fetchone()
        return None if row is None else ledger_of(row)

    def begin_ledger(self, ledger_id: str, now: Instant) -> LedgerRow:
        if (known := self.find_ledger(ledger_id)) is not None:
            return known
        self._run("insert_ledger", {"ledger_id": ledger_id, "now": now})
        made = self.find_ledger(ledger_id)
        assert made is not None
        return made

    def known(self, command: Submit) -> TaskRow | None:
        return self.task_by_id(command.task_id)

    def numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        return None if command.sequence is None else self.of_sequence(convoy_no, command.sequence)

    def put_ledger(self, ledger: LedgerRow) -> None:
        self._run("update_ledger", parameters_of(ledger))

    def add_aside(self, ledger_no: int, line: int, reason: str) -> None:
        self._run("insert_ledger_aside", {"ledger_no": ledger_no, "line": line, "reason": reason})

    def of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        asked = {"ledger_no": ledger.ledger_no, "after": ledger.reached, "limit": limit}
        rows = self._run("select_of_ledger", asked).fetchall()
        return [task_as_is(row) for row in rows]

    def remove_kept(self, tasks: Sequence[TaskRow]) -> None:
        if tasks:
            self.put_meta("last_task_no", self.next_task_no() - 1)
        for task in tasks:
            self._run("purge_body", {"task_no": task.task_no})
            self._run("purge_task", {"task_no": task.task_no})

    def remove_ledger(self, ledger_no: int) -> None:
        for name in ("delete_ledger_aside", "delete_ledger"):
            self._run(name, {"ledger_no": ledger_no})

    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        tail = first_tail(self.next_convoy_no(), command)
        self.put_convoy(first_convoy(tail, now))
        self.put_tail(tail)
        return tail

    def order(self, tail: TailRow) -> None:
        self.put_tail(tail)

    def keeps_some_in(self, convoy_no: int) -> bool:
        return self._run("select_kept_in_convoy", {"convoy_no": convoy_no}).fetchone() is not None

    def tail(self, convoy_no: int) -> TailRow:
        tail = self.seal(convoy_no)
        assert tail is not None
        return tail


class SqliteLedgers:
    """The file store's part of ``store.ledger_contract.LedgerStore``."""

    def now(self) -> Instant:
        raise NotImplementedError

    async def _write(self, work: Callable[[Tables], T], *, is_renewal: bool = False) -> T:
        raise NotImplementedError

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _written(self, work: Callable[[LedgerTables, Instant], T]) -> T:
        def run(plain: Tables) -> T:
            tables = LedgerTables(plain.connection)
            result = work(tables, self.now())
            tables.flush()
            return result

        return await self._write(run)

    async def begin_ledger(self, ledger_id: str) -> LedgerRow:
        return await self._written(lambda tables, now: tables.begin_ledger(ledger_id, now))

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        return await self._written(lambda tables, now: ledgers.write(batch, tables, now))

    async def open_ledger(self, ledger_no: int, written: int, digest: str, actor: str) -> LedgerOpened:
        return await self._written(lambda tables, now: ledgers.open_it(ledger_no, written, digest, actor, tables, now))

    async def let_go(self, ledger_no: int, limit: int, actor: str) -> LedgerRow | None:
        return await self._written(lambda tables, now: ledgers.let_go(ledger_no, limit, actor, tables, now))

    async def discard_ledger(self, ledger_no: int, limit: int, actor: str, reason: str) -> LedgerRow | None:
        return await self._written(lambda tables, now: ledgers.discard(ledger_no, limit, actor, reason, tables, now))

    # --- reading
    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        return await self._read(lambda connection: LedgerTables(connection).find_ledger(ledger_id))

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        unfinished = LedgerState.DONE not in states
        asked: dict[str, Any] = {"states": _json(states).decode(), "after": after, "limit": limit}
        name = "select_unfinished_ledgers" if unfinished else "select_ledgers"
        return await self._read(lambda connection: [ledger_of(row) for row in connection.execute(query(name), asked)])

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        asked = {"ledger_no": ledger_no, "after": after, "limit": limit}
        return await self._read(lambda connection: connection.execute(query("select_ledger_aside"), asked).fetchall())
