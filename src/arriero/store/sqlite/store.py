"""The state store in one file. One writer thread with group commit, one reader thread; see ARCHITECTURE.md."""

import contextlib
import logging
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import ArrieroError, InvalidInput, StoreError, UnreadableRow
from ...model import HistoryRow, Instant, TaskRow, TaskState
from ...model.answers import Answer, Refusal, SignalKept, SignalPlaced, Submitted
from ...model.commands import AnyCommand, SendSignal, Submit
from ...model.leases import LeaseTerm
from ...model.processes import describe_epoch_refusal
from ...model.schedules import ScheduleApplied, ScheduleCommand
from ...model.workflow_pauses import NO_PAUSES
from ...system.boot_clock import nanoseconds_since_boot
from .. import task_filter
from ..contract import Purge, Purged, PurgedNamed
from ..engine.commands import apply_command, apply_to_task, submit_task
from ..engine.convoys import list_ending_turns
from ..engine.schedules import change_schedules
from ..engine.transactions import Lane
from ..engine.upkeep import purge
from ..migrate import (
    COLUMNS,
    is_current,
    list_columns_of_schema,
    migrate_sqlite,
    migrations,
    read_applied_number,
    refuse_missing_columns,
    refuse_unmigrated,
)
from ..process_locks import ProcessLocks, boot_id, folder_of_file
from ..quarantine import Quarantine
from ..rows import history_of
from ..state_store import StateStore
from ..task_filter import ANY_TASK, TaskFilter, fold_text
from ..threads import ConnectionThread
from .columns import task_as_is
from .connection import OpenFile, absolute, checkpoint, connect, empty_log, fresh_offset, translating, wall_clock
from .external_transaction import GUARDED, SEND, SUBMIT, in_callers_transaction
from .row_cache import RowCache
from .store_rows import SqliteRows
from .task_rows import Executes, query
from .write_lock import RenewalFlag, begin_writing

T = TypeVar("T")
logger = logging.getLogger("arriero")
CHECKPOINT_COMMITS = 400  # between checkpoints, and
CHECKPOINT_ROWS = (
    20_000  # whatever comes first: a log of some ten megabytes stays to be read through, with large batches too
)

HISTORY_PAGE = 500
OF_LEDGER = "from_ledger = (SELECT ledger_no FROM arriero_ledger WHERE ledger_id = :ledger)"
OF_PARENT = """parent_step > (SELECT task_no << 20 FROM arriero_task WHERE task_id = :parent)
   AND parent_step < (SELECT (task_no + 1) << 20 FROM arriero_task WHERE task_id = :parent)"""
OF_TAG = """tagged.name = :tag_name AND tagged.value = :tag_value AND tagged.tagged_no > :after
   AND tagged.tagged_no < coalesce(:before, 9223372036854775807)"""


class SqliteReading(StateStore):
    """Reads for operators on SQLite."""

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

    async def history(self, task_no: int | None = None, *, after: int = 0) -> AsyncIterator[HistoryRow]:
        (until,) = await self._read(lambda rows: rows.ask("select_history_end").fetchone()) or (0,)
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
        filtered = query("select_filtered")
        if which.parent is not None:
            return task_filter.narrow_to_parent(filtered, OF_PARENT)
        if which.tags:
            return task_filter.narrow_to_tag(filtered, OF_TAG)
        return task_filter.narrow_to_held(filtered) if which.state == TaskState.HELD else filtered
    return task_filter.narrow_to_ledger(query("select_filtered"), OF_LEDGER)


def _build_parameters(which: TaskFilter, after: int, before: int | None, limit: int) -> dict[str, Any]:
    text = None if which.text is None else fold_text(which.text)
    apps, workflows = (msgspec.json.encode(one).decode() if one else None for one in (which.apps, which.workflows))
    named = {"apps": apps, "workflows": workflows}
    return {
        **task_filter.list_parameters(which),
        **named,
        "text": text,
        "after": after,
        "before": before,
        "limit": limit,
    }


class SqliteStore(SqliteReading):
    """A store in the file at ``path``.

    Args:
        clock: microseconds, for tests; else the machine's time since boot.
        reads_only: nothing can be written, and the file is not migrated.
    """

    def __init__(self, path: str, *, clock: Callable[[], Instant] | None = None, reads_only: bool = False) -> None:
        self.path = absolute(path)
        self.url = f"sqlite:///{self.path}"
        self.store_id = ""
        self._clock = clock
        self._reads_only = reads_only
        self._offset = 0
        self._speaks_in: int | None = None  # the epoch in which this process was registered
        self._commits = 0
        self._rows_checkpointed = 0
        self._row_cache = RowCache()
        self._file = OpenFile(self.path)
        self._quarantine = Quarantine(self.now)
        folder = folder_of_file(self.path)
        self._process_locks = ProcessLocks(folder)
        self._renewal_flag = RenewalFlag(folder)
        self._writer: ConnectionThread[sqlite3.Connection] | None = None
        self._reader: ConnectionThread[sqlite3.Connection] | None = None
        self._checkpointer: sqlite3.Connection | None = None

    def now(self) -> Instant:
        return Instant(nanoseconds_since_boot() // 1000 + self._offset) if self._clock is None else self._clock()

    # --- opening and closing
    async def open(self) -> None:
        if self._writer is not None:
            return
        self._refuse_what_is_no_file()
        self._row_cache = RowCache()  # a new connection counts again what others wrote
        self._writer = ConnectionThread(
            "arriero-writer", lambda: connect(self.path, query_only=self._reads_only), self._upkeep
        )
        self._reader = ConnectionThread("arriero-reader", self._connect_reader)
        try:
            with translating(self.path):
                await self._writer.run(self._prepare)
            self._file.remember()
        except BaseException:
            await self.close()
            raise

    def _connect_reader(self) -> sqlite3.Connection:
        self._file.refuse_another()  # else it would make a new one where the file no longer exists
        return connect(self.path, query_only=True)

    def _refuse_what_is_no_file(self) -> None:
        path = Path(self.path)
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise StoreError(f"store {self.path}: it is not a file; name a file")
        if not path.parent.is_dir():
            raise StoreError(f"store {self.path}: the folder {path.parent} does not exist; create it")
        if path.exists() and not self._reads_only and not os.access(path, os.W_OK):
            raise StoreError(
                f"store {self.path}: it cannot be written; give this user the right to write the file and its folder"
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        def prepare(tables: SqliteRows) -> None:
            migrate_sqlite(connection, migrations(__package__), wall_clock())
            self.store_id = tables.meta("store_id") or secrets.token_hex(8)
            tables.put_meta("store_id", self.store_id)
            self._set_clock(tables)

        if self._reads_only:
            refuse_unmigrated(read_applied_number(connection), migrations(__package__))
        if not self._is_ready(connection) and not self._reads_only:
            self._transact(connection, prepare)
        if missing := list_columns_of_schema(__package__).difference(connection.execute(COLUMNS)):
            refuse_missing_columns(missing)
        connection.execute("PRAGMA busy_timeout=0")  # who waits for the write lock does so in ``begin_writing``

    def _is_ready(self, connection: sqlite3.Connection) -> bool:
        """Returns True if it can be opened without a write: then nobody's transaction is waited for, not even the caller's."""
        connection.execute("BEGIN")
        try:
            if not is_current(read_applied_number(connection), migrations(__package__)):
                return False
            tables = SqliteRows(connection)
            meta = tables.list_meta()
            self.store_id = meta.get("store_id") or ""
            self._offset = int(meta.get("clock_offset") or 0)
            is_this_boot = meta.get("clock_boot") == boot_id()
            return bool(self.store_id) and is_this_boot and self.now() >= _read_last_seen(tables, meta)
        finally:
            connection.execute("ROLLBACK")

    def _set_clock(self, tables: SqliteRows) -> None:
        meta = tables.list_meta()
        seen = _read_last_seen(tables, meta)
        offset, boot = meta.get("clock_offset"), boot_id()
        self._offset = int(offset or 0)
        if offset is None or meta.get("clock_boot") != boot or self.now() < seen:
            self._offset = fresh_offset(seen)
            tables.put_meta("clock_offset", self._offset)
            tables.put_meta("clock_boot", boot)
        tables.put_meta("clock_seen", self.now())

    async def close(self) -> None:
        writer, reader, self._writer, self._reader = self._writer, self._reader, None, None
        try:
            if reader is not None:
                await reader.close()
        finally:
            try:
                if writer is not None:
                    await writer.close()
            finally:
                if self._checkpointer is not None:
                    self._checkpointer.close()
                    self._checkpointer = None
                self._process_locks.close()

    # --- transactions
    def _begin(self, connection: sqlite3.Connection, *, is_renewal: bool = False) -> None:
        """Have the write lock. A renewal that is asked for here while others have it comes first."""
        wait = time.sleep if is_renewal or self._writer is None else self._writer.wait
        begin_writing(connection, self._renewal_flag, wait, is_renewal=is_renewal)

    def _transact(
        self,
        connection: sqlite3.Connection,
        work: Callable[[SqliteRows], T],
        lane: Lane = Lane.UPKEEP,
    ) -> T:
        is_renewal = lane is Lane.RENEWALS
        try:
            self._begin(connection, is_renewal=is_renewal)
            self._row_cache.compare(connection)
            rows = SqliteRows(connection, self.now, self._row_cache, self._quarantine)
            if self._row_cache.pauses is None and self.store_id:  # else the schema may not be there yet
                found = connection.execute(query("list_workflow_pauses")).fetchall()
                self._row_cache.pauses = rows.index_pauses(found) if found else NO_PAUSES
            rows.pauses = self._row_cache.pauses or NO_PAUSES
            result = work(rows)
            rows.write_rest()
            self._file.refuse_another_when_due()
            connection.execute("COMMIT")
        except BaseException:
            self._row_cache.forget()
            if connection.in_transaction:  # a full disk has rolled back already
                connection.execute("ROLLBACK")
            raise
        finally:
            if is_renewal:
                self._renewal_flag.clear()
        self._commits += 1
        if lane is Lane.UPKEEP:  # it may have changed tasks, steps and convoys otherwise than row by row
            self._row_cache.forget()
        else:
            self._row_cache.tidy()
        return result

    async def _write(self, work: Callable[[SqliteRows], T], lane: Lane = Lane.OTHERS) -> T:
        """Run ``work`` in a write transaction. In any lane but UPKEEP it changes tasks, steps and convoys through its rows alone."""
        if self._writer is None:
            raise StoreError(f"store {self.path}: it is not open")
        if lane is Lane.RENEWALS:
            self._file.refuse_another()  # before a flag is set beside a file that is another's
            self._renewal_flag.set()  # now: what this process is just writing is the last that is written before it
        with translating(self.path):
            return await self._writer.run(partial(self._transact, work=work, lane=lane), urgent=lane is Lane.RENEWALS)

    async def _read(self, work: Callable[[SqliteRows], T], lane: Lane = Lane.READS) -> T:
        if self._reader is None:
            raise StoreError(f"store {self.path}: it is not open")

        def in_one_snapshot(connection: sqlite3.Connection) -> T:
            self._file.refuse_another_when_due()
            connection.execute("BEGIN")
            try:
                return work(SqliteRows(connection, self.now, quarantine=self._quarantine))
            finally:
                connection.execute("ROLLBACK")

        with translating(self.path):
            return await self._reader.run(in_one_snapshot)

    def _upkeep(self, writer: sqlite3.Connection) -> None:
        rows = writer.total_changes
        if self._commits < CHECKPOINT_COMMITS and rows - self._rows_checkpointed < CHECKPOINT_ROWS:
            return
        with contextlib.suppress(sqlite3.Error, StoreError):  # what could not be done now is done after the next call
            self._file.refuse_another()
            if self._checkpointer is None:
                self._checkpointer = connect(self.path)
            checkpoint(writer, self._checkpointer, self._begin)
            self._commits, self._rows_checkpointed = 0, rows

    def check_term(
        self, lease: LeaseTerm, connection: sqlite3.Connection, *, at_once: bool = False
    ) -> LeaseTerm | None:
        """Guard the transaction that the caller has open on this file by the term of a lease; see ``submit_joined``.

        It takes the write lock, so nobody else is granted the lease before the transaction ends. Returns None if the term
        is past.
        """
        owner = (lease.owner, lease.term, "")

        def work(plain: Executes) -> LeaseTerm | None:
            row = SqliteRows(plain, self.now).select_lease(lease.name)
            return lease if row is not None and (row.holder, row.term, row.broken_by) == owner else None

        return in_callers_transaction(connection, self.path, work, at_once=at_once, asked=GUARDED)

    def submit_joined(
        self, command: Submit, connection: sqlite3.Connection, *, at_once: bool = False
    ) -> Submitted | Refusal:
        """Keep a new task in the transaction that the caller has open on this file, in the caller's thread.

        Args:
            at_once: do not wait for the write lock; raise Busy while another process has it.
        Raises: InvalidInput - the connection is not fit; TransactionConflict; Busy; StoreError.
        """
        if self._writer is None:
            raise StoreError(f"store {self.path}: it is not open")
        self._file.refuse_another()

        def work(plain: Executes) -> Submitted | Refusal:
            rows = self._open_callers_rows(plain, SUBMIT)
            rows.pauses = rows.read_pauses()
            answer = submit_task(command, rows, None)
            if isinstance(answer, UnreadableRow):
                raise answer
            rows.write_rest()
            return answer

        return in_callers_transaction(connection, self.path, work, at_once=at_once)

    def send_joined(
        self, task_id: str, command: SendSignal, connection: sqlite3.Connection, *, at_once: bool = False
    ) -> SignalPlaced | Refusal:
        """Keep a signal in the transaction that the caller has open on this file; see ``submit_joined``.

        ``command`` has no number of the task: the task may be new in the same transaction.
        """
        if self._writer is None:
            raise StoreError(f"store {self.path}: it is not open")
        self._file.refuse_another()

        def work(plain: Executes) -> SignalPlaced | Refusal:
            rows = self._open_callers_rows(plain, SEND)
            task = rows.task_by_id(task_id)
            if task is None:
                return Refusal("unknown", f"task {task_id}")
            answer = apply_to_task(msgspec.structs.replace(command, task_no=task.task_no), rows)
            if isinstance(answer, ArrieroError):
                raise answer
            rows.write_rest()
            if isinstance(answer, Refusal):
                return answer
            assert isinstance(answer, SignalKept)
            return SignalPlaced(answer.number, answer.created)

        return in_callers_transaction(connection, self.path, work, at_once=at_once, asked=SEND)

    def _open_callers_rows(self, plain: Executes, asked: str) -> SqliteRows:
        """The rows as the caller's connection sees them. Raises InvalidInput: it does not read texts as they are."""
        rows = SqliteRows(plain, self.now)
        if rows.meta("store_id") != self.store_id:
            raise InvalidInput(
                f"{asked}: a converter changes what is read from it as TEXT;"
                " open it without detect_types, as arriero.connect does"
            )
        return rows

    # --- processes
    def announce(self, instance: str) -> None:
        self._process_locks.announce(instance)

    def is_known_dead(self, instance: str) -> bool:
        return self._process_locks.is_known_dead(instance)

    def _on_registered(self, process_no: int, epoch: int) -> None:
        self._speaks_in = epoch

    def _on_retired(self, instance: str) -> None:
        self._process_locks.forget(instance)  # not before: until then the file is what shows its death immediately

    # --- writing
    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal | UnreadableRow]:
        speaks_in = self._speaks_in  # as for ``apply``

        def work(rows: SqliteRows) -> list[Submitted | Refusal | UnreadableRow]:
            rows.look_up([command.task_id for command in batch])
            store_id = self._id_for_starts(batch, rows, speaks_in)
            return [submit_task(command, rows, store_id) for command in batch]

        return await self._reporting(self._write(work, Lane.SUBMISSIONS))

    def _id_for_starts(self, batch: Sequence[Submit], rows: SqliteRows, speaks_in: int | None) -> str | None:
        """The store's id if tasks may begin in this commit; what that asks of the file is read before all writing."""
        starts = [command.start for command in batch if command.start is not None]
        if not starts or speaks_in != rows.read_epoch():
            return None
        for start in starts:
            rows.process_is_retired(start.process_no)
        return self.store_id

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer | ArrieroError]:
        speaks_in = self._speaks_in  # as of now: what a process asked before it was declared lost stays its own

        def work(rows: SqliteRows) -> list[Answer | ArrieroError]:
            if speaks_in is not None and speaks_in != (epoch := rows.read_epoch()):
                return [Refusal("old_epoch", describe_epoch_refusal(speaks_in, epoch)) for _ in batch]
            if turns := list_ending_turns(batch):
                rows.look_ahead(turns)
            return [apply_command(command, rows) for command in batch]

        return await self._reporting(self._write(work, Lane.ENGINE))

    async def change_schedules(self, batch: Sequence[ScheduleCommand]) -> list[ScheduleApplied | Refusal]:
        def work(rows: SqliteRows) -> list[ScheduleApplied | Refusal]:
            def submit_all(commands: Sequence[Submit]) -> list[Submitted | Refusal | UnreadableRow]:
                rows.look_up([command.task_id for command in commands])
                return [submit_task(command, rows, None) for command in commands]

            return change_schedules(batch, rows, submit_all)

        return await self._reporting(self._write(work, Lane.SUBMISSIONS))

    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        """Found by reading, so that the write lock is held only for what is removed."""
        found = [row[0] for row in await self._read(lambda rows: rows.select_purgeable(which, limit, after))]

        def work(rows: SqliteRows) -> int:
            return purge(rows, rows.select_purgeable(which, len(found), of=found), actor)

        count = await self._write(work, Lane.UPKEEP) if found else 0
        return Purged(count, found[-1] if len(found) == limit else None)

    async def _judge(self, work: Callable[[SqliteRows], PurgedNamed]) -> PurgedNamed:
        return await self._read(work)

    async def empty_log(self) -> bool:
        if self._writer is None:
            raise StoreError(f"store {self.path}: it is not open")
        with translating(self.path):
            return await self._writer.run(empty_log)


def _read_last_seen(tables: SqliteRows, meta: Mapping[str, str]) -> Instant:
    """Read the last known instant of the store before this boot: its last renewal, or a later commit."""
    return max(Instant(int(meta.get("clock_seen") or 0)), tables.latest_instant())
