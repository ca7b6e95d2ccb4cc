"""The state store in one file. One writer thread with group commit, one reader thread; see ARCHITECTURE.md."""

import contextlib
import logging
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...commands import Answer, AnyCommand, Claim, Claimed, Dispatch, Refusal, Submit, Submitted, Take, Taken
from ...core import transitions
from ...core.apps import apps_run_by
from ...core.attempts import AttemptSurvey, Retrying
from ...core.compensation import open_compensations
from ...core.epoch import refusal
from ...core.known import same_submission
from ...core.lease import PROBATION_FROM
from ...errors import ArrieroError, InvalidInput, StoreError
from ...model import (
    MICROSECONDS,
    AlertRow,
    EditRow,
    HistoryRow,
    Instant,
    LateAnswerRow,
    LeaseRow,
    Loaded,
    ProcessRow,
    StatusRow,
    TaskRow,
    TaskState,
    later,
)
from .. import apart, listing
from ..apart import SetApart
from ..apps import app_renamed, process_started, refuse_collision
from ..attempts import COMMITS_MAX, LOOKED_AT_MAX
from ..base import (
    ANY_TASK,
    ConvoyLoaded,
    Due,
    Ended,
    Overdue,
    Purge,
    Purged,
    PurgedNamed,
    PurgeNamed,
    Renewal,
    Survey,
    TaskFilter,
    folded,
)
from ..batch import STORE_STREAM, Batch, complete_within
from ..convoys import LOOKS_MAX, passed_on, spot_for
from ..ledgers import reserved
from ..life import Lives, boot_id, folder_of_file
from ..migrate import applied_number, is_current, migrate_sqlite, migrations
from ..starting import new_rows, submitted
from ..threads import ConnectionThread
from . import attempts, convoys, mail, purging, unreadable, upkeep
from .clock import fresh_offset, since_boot, wall_clock
from .connection import absolute, checkpoint, connect, empty_log, translating
from .identity import OpenFile
from .joined import in_callers_transaction
from .ledgers import SqliteLedgers
from .remembered import Remembered
from .rows import edit_of, history_of, late_answer_of, process_of, step_as_is, task_as_is
from .tables import Executes, Tables, query
from .write_lock import RenewalFlag, begin_writing

T = TypeVar("T")
logger = logging.getLogger("arriero")
PRIORITIES = range(9, -1, -1)
HISTORY_PAGE = 500
CHECKPOINT_COMMITS = 400  # between checkpoints, and
CHECKPOINT_ROWS = (
    20_000  # whatever comes first: a log of some ten megabytes stays to be read through, with large batches too
)
_json = msgspec.json.encode


class SqliteStore(SqliteLedgers):
    """A store in the file at ``path``. ``clock``: microseconds, for tests; else the machine's time since boot."""

    def __init__(self, path: str, *, clock: Callable[[], Instant] | None = None) -> None:
        self.path = absolute(path)
        self.url = f"sqlite:///{self.path}"
        self.store_id = ""
        self._clock = clock
        self._offset = 0
        self._speaks_in: int | None = None  # the epoch in which this process was registered
        self._commits = 0
        self._rows_checkpointed = 0
        self._remembered = Remembered()
        self._file = OpenFile(self.path)
        self._apart = SetApart(self.now)
        self._lives = Lives(folder_of_file(self.path))
        self._renewal_flag = RenewalFlag(folder_of_file(self.path))
        self._writer: ConnectionThread[sqlite3.Connection] | None = None
        self._reader: ConnectionThread[sqlite3.Connection] | None = None
        self._checkpointer: sqlite3.Connection | None = None

    def now(self) -> Instant:
        return Instant(since_boot() + self._offset) if self._clock is None else self._clock()

    # --- opening and closing
    async def open(self) -> None:
        if self._writer is not None:
            return
        self._refuse_what_is_no_file()
        self._remembered = Remembered()  # a new connection counts anew what others wrote
        self._writer = ConnectionThread("arriero-writer", lambda: connect(self.path), self._upkeep)
        self._reader = ConnectionThread("arriero-reader", self._connect_reader)
        try:
            with translating(self.path):
                await self._writer.run(self._prepare)
            self._file.remember()
        except BaseException:
            await self.close()
            raise

    def _connect_reader(self) -> sqlite3.Connection:
        self._file.refuse_another()  # else it would make a new one where the file is gone
        return connect(self.path, query_only=True)

    def _refuse_what_is_no_file(self) -> None:
        path = Path(self.path)
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise StoreError(f"store {self.path}: it is not a file; name a file")
        if not path.parent.is_dir():
            raise StoreError(f"store {self.path}: the folder {path.parent} does not exist; create it")
        if path.exists() and not os.access(path, os.W_OK):
            raise StoreError(
                f"store {self.path}: it cannot be written; give this user the right to write the file and its folder"
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        def prepare(tables: Tables) -> None:
            migrate_sqlite(connection, migrations(__package__), wall_clock())
            self.store_id = tables.meta("store_id") or secrets.token_hex(8)
            tables.put_meta("store_id", self.store_id)
            self._set_clock(tables)

        if not self._is_ready(connection):
            self._transact(connection, prepare)
        connection.execute("PRAGMA busy_timeout=0")  # who waits for the write lock does so in ``begin_writing``

    def _is_ready(self, connection: sqlite3.Connection) -> bool:
        """Whether nothing must be written to open it: then nobody's transaction is waited for, not even the caller's."""
        connection.execute("BEGIN")
        try:
            if not is_current(applied_number(connection), migrations(__package__)):
                return False
            tables = Tables(connection)
            self.store_id = tables.meta("store_id") or ""
            self._offset = int(tables.meta("clock_offset") or 0)
            return bool(self.store_id) and tables.meta("clock_boot") == boot_id() and self.now() >= _last_seen(tables)
        finally:
            connection.execute("ROLLBACK")

    def _set_clock(self, tables: Tables) -> None:
        seen = _last_seen(tables)
        offset, boot = tables.meta("clock_offset"), boot_id()
        self._offset = int(offset or 0)
        if offset is None or tables.meta("clock_boot") != boot or self.now() < seen:
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
                self._lives.close()

    # --- transactions
    def _begin(self, connection: sqlite3.Connection, *, is_renewal: bool = False) -> None:
        """Have the write lock. A renewal that is asked for here while others have it comes first."""
        wait = time.sleep if is_renewal or self._writer is None else self._writer.wait
        begin_writing(connection, self._renewal_flag, wait, is_renewal=is_renewal)

    def _transact(
        self,
        connection: sqlite3.Connection,
        work: Callable[[Tables], T],
        *,
        by_rows: bool = False,
        is_renewal: bool = False,
    ) -> T:
        """``by_rows``: ``work`` changes tasks, steps and convoys only through ``tables``, or not at all."""
        try:
            self._begin(connection, is_renewal=is_renewal)
            self._remembered.compare(connection)
            tables = Tables(connection, self._remembered, self._apart)
            result = work(tables)
            tables.flush()
            self._file.refuse_another_when_due()
            connection.execute("COMMIT")
        except BaseException:
            self._remembered.forget()
            if connection.in_transaction:  # a full disk has rolled back already
                connection.execute("ROLLBACK")
            raise
        finally:
            if is_renewal:
                self._renewal_flag.clear()
        self._commits += 1
        if by_rows:
            self._remembered.tidy()
        else:
            self._remembered.forget()
        return result

    async def _write(self, work: Callable[[Tables], T], *, is_renewal: bool = False, by_rows: bool = False) -> T:
        if self._writer is None:
            raise StoreError(f"store {self.path}: it is not open")
        if is_renewal:
            self._file.refuse_another()  # before a flag is set beside a file that is another's
            self._renewal_flag.set()  # now: what this process is just writing is the last that is written before it
        with translating(self.path):
            return await self._writer.run(
                lambda connection: self._transact(connection, work, by_rows=by_rows, is_renewal=is_renewal),
                urgent=is_renewal,
            )

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._reader is None:
            raise StoreError(f"store {self.path}: it is not open")

        def in_one_snapshot(connection: sqlite3.Connection) -> T:
            self._file.refuse_another_when_due()
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")

        with translating(self.path):
            return await self._reader.run(in_one_snapshot)

    async def _read_of_ours(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read what this process is to act on: of a row that it cannot read a person is told."""
        found = await self._read(work)
        await self._tell_unreadable()
        return found

    async def _tell_unreadable(self) -> None:
        """Open an alert for each task that was set apart, unless it has one. Whoever finds it next does, if we die."""
        if not (errors := self._apart.untold()):
            return
        try:
            named = await self._write(
                lambda tables: unreadable.tell(tables.connection, errors, self.now()), by_rows=True
            )
        except StoreError as error:
            self._apart.give_back(errors)
            logger.warning("an alert could not be opened yet: %s", error)
            return
        for told, task_id in named:
            apart.log(told, task_id)

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

    # --- writing
    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal]:
        speaks_in = self._speaks_in  # as for ``apply``

        def work(tables: Tables) -> list[Submitted | Refusal]:
            now = self.now()
            tables.look_up([command.task_id for command in batch])
            beginner = self._beginner(batch, tables, speaks_in)
            return [self._submit(command, tables, now, beginner) for command in batch]

        return await self._write(work, by_rows=True)

    def _beginner(self, batch: Sequence[Submit], tables: Tables, speaks_in: int | None) -> str | None:
        """The store's id if tasks may begin in this commit; what that asks of the file is read before all writing."""
        starts = [command.start for command in batch if command.start is not None]
        if not starts or speaks_in is None or refusal(speaks_in, tables.epoch()):
            return None
        for start in starts:
            tables.process_is_retired(start.process_no)
        return self.store_id

    def _submit(
        self, command: Submit, tables: Tables, now: Instant, beginner: str | None = None
    ) -> Submitted | Refusal:
        known = tables.task_by_id(command.task_id)
        tail = None if command.convoy is None else tables.tail_of(command.convoy)
        if known is not None:
            submitted_with = partial(tables.submitted, known.task_no)
            return reserved(known, tables) or same_submission(known, command, submitted_with, tail)
        spot = spot_for(command, tail, tables, now)
        if isinstance(spot, Submitted | Refusal):
            return spot
        task_no = tables.next_task_no()
        change = new_rows(command, task_no, now, spot, tables, beginner)
        Batch(tables, now).write(change, command.actor, lambda task: tables.add_task(task, command.arguments))
        return submitted(change, command)

    def submit_joined(
        self, command: Submit, connection: sqlite3.Connection, *, at_once: bool = False
    ) -> Submitted | Refusal:
        """Keep a new task in the transaction that the caller has open on this file, in the caller's thread.

        Args:
            at_once: do not wait for the write lock; raise Busy while somebody else has it.
        Raises: InvalidInput - the connection is not fit; TransactionConflict; Busy; StoreError.
        """
        if self._writer is None:
            raise StoreError(f"store {self.path}: it is not open")
        self._file.refuse_another()

        def work(plain: Executes) -> Submitted | Refusal:
            tables = Tables(plain)
            if tables.meta("store_id") != self.store_id:
                raise InvalidInput(
                    "submit(connection=): a converter changes what is read from it as TEXT;"
                    " open it without detect_types, as arriero.connect does"
                )
            answer = self._submit(command, tables, self.now())
            tables.flush()
            return answer

        return in_callers_transaction(connection, self.path, work, at_once=at_once)

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer | ArrieroError]:
        speaks_in = self._speaks_in  # as of now: what a process asked before it was declared lost stays its own

        def work(tables: Tables) -> list[Answer | ArrieroError]:
            now = self.now()
            if speaks_in is not None and (refused := refusal(speaks_in, tables.epoch())):
                return [Refusal("old_epoch", refused) for _ in batch]
            tables.look_ahead(passed_on(batch))
            return [self._apply(command, tables, now) for command in batch]

        answers = await self._write(work, by_rows=True)
        await self._tell_unreadable()
        return answers

    def _apply(self, command: AnyCommand, tables: Tables, now: Instant) -> Answer | ArrieroError:
        work = Batch(tables, now)
        match command:
            case Claim() | Take() if tables.process_was_retired(command.process_no):
                return Claimed(()) if isinstance(command, Claim) else Taken(())
            case Claim():
                return self._claim(command, tables, work)
            case Take():
                return self._take(command, tables, work)
            case _:
                return work.apply(command)

    def _claim(self, command: Claim, tables: Tables, work: Batch) -> Claimed:
        workflows, apps = _json(command.workflows).decode(), _json(apps_run_by(command.app)).decode()
        for convoy in tables.due_convoys(work.now, LOOKS_MAX):
            work.look(convoy, command.actor)
        claimed: list[Loaded] = []
        probation = command.probation
        for priority in PRIORITIES:
            while len(claimed) < command.limit:
                found = tables.claimable(priority, work.now, workflows, apps, probation, command.limit - len(claimed))
                for loaded in found:
                    task = loaded.task
                    change = transitions.claim(task, command.process_no, work.now)
                    work.write(change, command.actor)
                    claimed.append(msgspec.structs.replace(loaded, task=change.task))
                    if task.lost_count >= PROBATION_FROM:
                        probation = False
                        break  # asked again, for tasks that are not on probation
                else:
                    break
        return Claimed(tuple(claimed))

    def _take(self, command: Take, tables: Tables, work: Batch) -> Taken:
        names = _json(command.names).decode()
        dispatches: list[Dispatch] = []
        probation = command.probation
        for agent, room in command.room:
            left = room
            for priority, app in product(PRIORITIES, apps_run_by(command.app)):
                while left > 0:
                    found = tables.takeable(agent, app, command.app, priority, work.now, names, probation, left)
                    asked_with = probation
                    for step in found:
                        task = tables.task(step.task_no)
                        assert task is not None
                        change = transitions.take(task, step, command.process_no, work.now, complete_within(step))
                        work.write(change, command.actor)
                        dispatches += change.dispatches
                        left -= 1
                        if task.lost_count >= PROBATION_FROM and probation is None:
                            probation = task.task_no
                            break  # asked again, for this task and for those that are not on probation
                    if probation == asked_with:
                        break
        return Taken(tuple(dispatches))

    # --- processes
    def announce(self, instance: str) -> None:
        self._lives.announce(instance)

    def is_known_dead(self, instance: str) -> bool:
        return self._lives.is_known_dead(instance)

    async def register(self, instance: str, lease_seconds: float, about: str = "{}") -> int:
        def work(tables: Tables) -> tuple[int, int]:
            now = self.now()
            refuse_collision(about, tables.known_code(), tables.count_unsaid)
            process_no = tables.add_process(instance, later(now, lease_seconds), about)
            Batch(tables, now).note(STORE_STREAM, instance, [process_started(process_no, about)])
            return process_no, tables.epoch()

        process_no, self._speaks_in = await self._write(work)
        return process_no

    async def new_epoch(self, actor: str, reason: str = "") -> int:
        def work(tables: Tables) -> int:
            epoch = tables.epoch() + 1
            tables.open_epoch(epoch)
            Batch(tables, self.now()).note(
                STORE_STREAM, actor, [{"type": "epoch.opened", "epoch": epoch, "reason": reason}]
            )
            return epoch

        return await self._write(work)

    def on_wake_up(self, wake: Callable[[], None]) -> None:
        """Other processes' news are found by polling the file."""

    async def renew(self, process_no: int, lease_seconds: float) -> Renewal:
        def work(tables: Tables) -> Renewal:
            now = self.now()
            last = Instant(int(tables.meta("renewed_at") or now))
            nobody_frees_until = Instant(int(tables.meta("nobody_frees_until") or 0))
            if now > later(last, lease_seconds):
                nobody_frees_until = later(now, lease_seconds)
                tables.put_meta("nobody_frees_until", nobody_frees_until)
            tables.put_meta("renewed_at", now)
            tables.put_meta("clock_seen", now)
            renewed = tables.renew_process(process_no, later(now, lease_seconds))
            return Renewal(now, renewed, nobody_frees_until, tuple(tables.other_processes(process_no)))

        return await self._write(work, is_renewal=True, by_rows=True)

    async def describe(self, process_no: int, about: str) -> None:
        await self._write(lambda tables: tables.describe_process(process_no, about), is_renewal=True, by_rows=True)

    async def known_processes(self) -> tuple[Instant, list[ProcessRow]]:
        return await self._read(
            lambda c: (self.now(), [process_of(row) for row in c.execute(query("survey_processes"))])
        )

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        def work(tables: Tables) -> tuple[bool, str]:
            row, now = tables.process(process_no), self.now()
            if row.retired or (not known_dead and row.lease_until > now):
                return row.retired, row.instance
            tables.retire_process(process_no)
            event = {"type": "process.retired", "process": process_no, "known_dead": known_dead}
            Batch(tables, now).note(STORE_STREAM, by, [event])
            return True, row.instance

        is_retired, instance = await self._write(work, by_rows=True)
        if is_retired:  # not before the commit: until then the file is what shows its death at once
            self._lives.forget(instance)
        return is_retired

    async def rename_app(self, old: str, new: str, count: int, actor: str, reason: str) -> None:
        event = app_renamed(old, new, count, reason)
        await self._write(lambda tables: Batch(tables, self.now()).note(STORE_STREAM, actor, [event]))

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        asked: dict[str, Any] = {"process_no": process_no, "limit": limit}
        return await self._read_of_ours(lambda c: self._loaded(c, "select_held", asked))

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        again = self._apart.to_be_tried()

        def work(connection: sqlite3.Connection) -> list[tuple[int, int]]:
            asked = {"process_no": process_no, "apart": self._left_alone()}
            found = connection.execute(query("select_news"), asked).fetchall()
            if again:
                asked = {"process_no": process_no, "task_nos": _json(again).decode()}
                found += connection.execute(query("select_news_again"), asked).fetchall()
            return found

        news = await self._read(work)
        self._apart.tried(again)
        return news

    def _left_alone(self) -> str:
        return _json(self._apart.tasks()).decode()

    def _loaded(self, connection: sqlite3.Connection, name: str, asked: dict[str, Any]) -> list[Loaded]:
        found = connection.execute(query(name), asked | {"apart": self._left_alone()}).fetchall()
        return self._load_each(connection, [row[0] for row in found])

    def _load_each(self, connection: sqlite3.Connection, task_nos: Sequence[int]) -> list[Loaded]:
        """Those of the tasks that are there and can be read."""
        loaded = (unreadable.as_it_stands(connection, {"task_no": task_no}) for task_no in task_nos)
        return [one for one in loaded if one is not None and self._apart.can_read_task(one)]

    # --- leases
    async def acquire_lease(self, name: str, process_no: int, actor: str, seconds: float) -> LeaseRow:
        def work(tables: Tables) -> LeaseRow:
            now = self.now()
            row = tables.lease(name)
            if row.holder not in (None, process_no) and row.until > now:
                return row
            if row.holder != process_no or row.until <= now:
                row = LeaseRow(name, row.term + 1, process_no, row.until)
                event = {"type": "lease.granted", "lease": name, "term": row.term, "process": process_no}
                Batch(tables, now).note(STORE_STREAM, actor, [event])
            row = msgspec.structs.replace(row, until=later(now, seconds))
            tables.put_lease(row)
            return row

        return await self._write(work, by_rows=True)

    async def renew_lease(self, name: str, process_no: int, term: int, seconds: float) -> bool:
        def work(tables: Tables) -> bool:
            row = tables.lease(name)
            if (row.holder, row.term) != (process_no, term) or row.until <= self.now():
                return False
            tables.put_lease(msgspec.structs.replace(row, until=later(self.now(), seconds)))
            return True

        return await self._write(work, by_rows=True)

    async def release_lease(self, name: str, process_no: int, term: int, actor: str) -> None:
        def work(tables: Tables) -> None:
            row = tables.lease(name)
            if (row.holder, row.term) == (process_no, term):
                tables.put_lease(msgspec.structs.replace(row, holder=None))
                event = {"type": "lease.lost", "lease": name, "term": term, "process": process_no}
                Batch(tables, self.now()).note(STORE_STREAM, actor, [event])

        await self._write(work, by_rows=True)

    # --- reading
    async def due(self, workflows: Sequence[str], agents: Sequence[str], app: str = "") -> Due:
        def work(connection: sqlite3.Connection) -> Due:
            now = self.now()
            asked = {"now": now, "workflows": _json(workflows).decode(), "agents": _json(agents).decode()}
            asked |= {"apps": _json(apps_run_by(app)).decode()}
            asked |= {"apart": self._left_alone(), "apart_convoys": _json(self._apart.convoys()).decode()}
            row = connection.execute(query("select_due"), asked).fetchone()
            tasks, undos, steps, *nexts, look_at = (Instant(at) if isinstance(at, int) else None for at in row)
            next_at = min((at for at in (*nexts, look_at) if at is not None and at > now), default=None)
            is_due = any(at is not None and at <= now for at in (tasks, undos, look_at))
            return Due(now, is_due, steps is not None and steps <= now, next_at)

        return await self._read(work)

    async def load_overdue(self, limit: int, progress_seconds: float) -> Overdue:
        def work(connection: sqlite3.Connection) -> Overdue:
            now = self.now()
            asked: dict[str, Any] = {"now": now, "limit": limit, "since": now - round(progress_seconds * MICROSECONDS)}
            asked["apart"] = self._left_alone()
            return Overdue(
                now,
                tuple(self._apart.readable(map(step_as_is, connection.execute(query("select_expired"), asked)))),
                tuple(self._apart.readable(map(step_as_is, connection.execute(query("select_starved"), asked)))),
                tuple(self._loaded(connection, "select_past_limit", asked)),
                tuple(self._loaded(connection, "select_stuck", asked)),
            )

        return await self._read_of_ours(work)

    async def load(self, task_no: int) -> Loaded | None:
        return await self._read(lambda connection: unreadable.as_it_stands(connection, {"task_no": task_no}))

    async def load_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        return await self._read_of_ours(lambda connection: self._load_each(connection, task_nos))

    async def find(self, task_id: str) -> Loaded | None:
        def work(connection: sqlite3.Connection) -> Loaded | None:
            tables = Tables(connection)
            task = tables.task_by_id(task_id)
            if task is None or reserved(task, tables):
                return None
            return unreadable.as_it_stands(connection, {"task_no": task.task_no})

        return await self._read(work)

    async def edits(self, task_no: int) -> list[EditRow]:
        asked = {"task_no": task_no}
        return await self._read(lambda c: [edit_of(row) for row in c.execute(query("select_edits"), asked)])

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        asked = {"task_no": task_no}
        return await self._read(
            lambda c: [late_answer_of(row) for row in c.execute(query("select_late_answers"), asked)]
        )

    async def ended(self, task_nos: Sequence[int]) -> list[Ended]:
        def work(connection: sqlite3.Connection) -> list[Ended]:
            tables = Tables(connection)
            rows = connection.execute(query("select_ended"), {"task_nos": _json(list(task_nos)).decode()}).fetchall()
            ended = self._apart.readable(map(task_as_is, rows))
            return [
                Ended(task, open_ones)
                for task in ended
                if (open_ones := self._apart.unless_unreadable(partial(_still_open, tables, task))) is not None
            ]

        return await self._read_of_ours(work)

    async def list_tasks(
        self,
        which: TaskFilter = ANY_TASK,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[TaskRow]:
        sql = listing.newest_first(query("select_filtered")) if newest_first else query("select_filtered")
        asked = _asked(which, after, before, limit)
        return await self._read(lambda c: [task_as_is(row) for row in c.execute(sql, asked)])

    async def count_listed(
        self, which: TaskFilter = ANY_TASK, *, after: int = 0, before: int | None = None, limit: int
    ) -> int:
        sql, asked = listing.counted(query("select_filtered")), _asked(which, after, before, limit)
        found: tuple[int] = await self._read(lambda c: c.execute(sql, asked).fetchone())
        return found[0]

    async def counts(self) -> dict[TaskState, int]:
        found: dict[str, int] = await self._read(lambda c: dict(c.execute(query("count_tasks")).fetchall()))
        return {state: found.get(state, 0) for state in TaskState}

    # --- convoys
    async def find_convoy(self, key: str, limit: int = 10) -> ConvoyLoaded | None:
        return await self._read(lambda connection: convoys.find(connection, key, limit))

    async def look_at_unreadable(self) -> int:
        found = await self._read(lambda connection: unreadable.look_again(connection, self._apart))
        for task_no in found:
            self._apart.forget(task_no)
        if found:
            await self._write(lambda tables: unreadable.close(tables.connection, found, self.now()), by_rows=True)
        await self._tell_unreadable()
        return len(found)

    async def look_at_forgotten(self) -> int:
        if not await self._read(lambda c: c.execute(query("select_forgotten")).fetchone()):
            return 0
        asked = {"now": self.now()}
        return await self._write(lambda tables: tables.connection.execute(query("look_at_forgotten"), asked).rowcount)

    async def list_convoys(self, shown: str | None = None, *, after: int = 0, limit: int = 100) -> list[ConvoyLoaded]:
        return await self._read(lambda connection: convoys.listed(connection, shown, after, limit))

    async def survey(self) -> Survey:
        counts = await self.counts()
        return await self._read(lambda connection: upkeep.survey(connection, self.now(), counts))

    # --- attempts
    async def survey_attempts(self, *, steps: int = LOOKED_AT_MAX, commits: int = COMMITS_MAX) -> AttemptSurvey:
        return await self._read(lambda connection: attempts.survey(connection, self.now(), steps, commits))

    async def retrying_steps(self, task_nos: Sequence[int]) -> list[Retrying]:
        return await self._read(lambda connection: attempts.retrying_steps(connection, task_nos))

    # --- reply queues and alerts
    async def load_statuses(self, queue: str, limit: int) -> list[StatusRow]:
        return await self._read(lambda connection: mail.statuses(connection, queue, limit))

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        await self._mail(lambda connection: mail.acknowledge(connection, acknowledged))

    async def drop_statuses(self, before: Instant, limit: int) -> int:
        return await self._write(lambda tables: mail.drop(tables, self.now(), before, limit), by_rows=True)

    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        return await self._mail(lambda connection: mail.take_alerts(connection, self.now(), limit, hold_seconds))

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        return await self._mail(
            lambda connection: mail.settle_alert(connection, self.now(), no, attempts, told, again_in, error)
        )

    async def alerts(self, *, open_only: bool = True, after: int = 0, limit: int = 100) -> list[AlertRow]:
        return await self._read(lambda connection: mail.alerts(connection, open_only, after, limit))

    async def _mail(self, work: Callable[[Executes], T]) -> T:
        return await self._write(lambda tables: work(tables.connection), by_rows=True)

    # --- purging
    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        """Found by reading, so that the write lock is held only for what is removed."""
        found = await self._read(lambda connection: upkeep.purgeable(connection, which, limit, after))
        count = await self._write(lambda tables: upkeep.purge(tables, self.now(), which, found, actor)) if found else 0
        return Purged(count, found[-1] if len(found) == limit else None)

    async def purge_named(self, which: PurgeNamed, *, actor: str, limit: int | None) -> PurgedNamed:
        """Found by reading, as by ``purge``."""
        found = await self._read(lambda connection: purging.find(connection, which))
        if limit is None:
            return await self._read(lambda c: purging.purge(c, self.now(), which, found, actor, None))
        return await self._write(
            lambda tables: purging.purge(tables.connection, self.now(), which, found, actor, limit)
        )

    async def empty_log(self) -> bool:
        if self._writer is None:
            raise StoreError(f"store {self.path}: it is not open")
        with translating(self.path):
            return await self._writer.run(empty_log)

    async def history(self, task_no: int | None = None) -> AsyncIterator[HistoryRow]:
        (until,) = await self._read(lambda c: c.execute(query("select_history_end")).fetchone())
        after = 0
        while True:
            name = "select_history" if task_no is None else "select_task_history"
            asked = {"after": after, "until": until, "task_no": task_no, "limit": HISTORY_PAGE}
            page = await self._read(lambda c, n=name, a=asked: c.execute(query(n), a).fetchall())  # type: ignore[misc]  # bound now
            for row in map(history_of, page):
                yield row
                after = row.no if task_no is None else row.link
            if len(page) < HISTORY_PAGE:
                return


def _last_seen(tables: Tables) -> Instant:
    """Of the last life of the file: its last renewal, or what was written after that."""
    return max(Instant(int(tables.meta("clock_seen") or 0)), tables.latest_instant())


def _asked(which: TaskFilter, after: int, before: int | None, limit: int) -> dict[str, Any]:
    text = None if which.text is None else folded(which.text)
    return {**msgspec.structs.asdict(which), "text": text, "after": after, "before": before, "limit": limit}


def _still_open(tables: Tables, task: TaskRow) -> tuple[str, ...]:
    return () if task.state is TaskState.PROCESSED else open_compensations(tables.steps_of(task.task_no))
