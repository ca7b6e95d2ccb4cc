"""Connections to PostgreSQL: each kind of transactions has one of its own, so that none waits for another."""

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from ...errors import SchemaOutdated, StoreError
from ...model import HistoryRow, Instant
from ..contract import Renewal, Unanswered
from ..engine.transactions import Lane
from ..process_locks import ProcessLocks
from ..rows import history_of
from ..state_store import StateStore
from ..threads import ConnectionThread
from .connect_pauses import ConnectPauses, NotConnected
from .context import StoreContext
from .ledger_rows import PostgresLedgerRows
from .listening import Listener
from .migrating import migrate, read_applied_number, refuse_unfit
from .session import PostgresSession, Statements, Transaction, TransactionLimits, Undecided
from .store_rows import PostgresRows
from .target import target_of
from .translating import translate_error

logger = logging.getLogger("arriero")
T = TypeVar("T")
L = TypeVar("L", bound=PostgresLedgerRows)

TELL_SECONDS = 0.02  # within which wake-ups for others are merged into one

ENGINE = TransactionLimits(lock=2.0, statement=10.0, idle=5.0, by_index=True, planned_once=True)
SUBMISSIONS = TransactionLimits(lock=0.15, statement=10.0, idle=5.0, by_index=True, planned_once=True)
RENEWALS = TransactionLimits(lock=2.0, statement=2.5, idle=5.0, by_index=True)
# Shorter than the lease of the Supervisors: one that freezes during a renewal must not keep the row for longer.
OTHERS = TransactionLimits(lock=5.0, statement=10.0, idle=5.0, by_index=True)
LONG = TransactionLimits(lock=5.0, statement=300.0, idle=10.0)  # of what looks at many rows
READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

PAGE = 500


class Pages:
    """Pages of the history behind ``after``, all of one snapshot. ``session`` is used by nobody else until ``end``."""

    def __init__(self, session: PostgresSession, statements: Statements, task_no: int | None, after: int) -> None:
        self._session = session
        self._sql = statements("select_history" if task_no is None else "select_task_history")
        self._task_no = task_no
        self._after = after
        self._begun_on: psycopg.Connection[Any] | None = None

    def next(self) -> list[HistoryRow]:
        """The next page; empty after the last. Raises StoreError."""
        try:
            with self._session.watch():
                if self._begun_on is None:
                    self._session.begin_snapshot()
                    self._begun_on = self._session.get_connection()
                connection = self._session.get_connection()
                if self._begun_on is not connection:
                    raise StoreError("the connection was lost, and its snapshot with it; read the history again")
                asked = {"after": self._after, "task_no": self._task_no, "limit": PAGE}
                rows = [history_of(row) for row in connection.execute(self._sql, asked).fetchall()]
        except psycopg.Error as error:
            raise self._session.translate_error(error) from error
        if rows:
            self._after = rows[-1].no if self._task_no is None else rows[-1].link
        return rows

    def end(self) -> None:
        """Let the snapshot go; the session may be used again."""
        if self._begun_on is not None:
            try:
                self._session.get_connection().execute("ROLLBACK")
            except (psycopg.Error, StoreError):
                self._session.close()


class BatchWriter:
    """A process start as its batches name it: its row, the epoch it speaks in, and the number of its last batch."""

    def __init__(self, process_no: int, epoch: int) -> None:
        self.process_no = process_no
        self.epoch = epoch
        self.batch_no = 0


class PostgresLanes(StateStore):
    """Connections of one store, each with a separate thread, and what is not known to be durable yet."""

    def __init__(self, url: str, *, clock: Callable[[], Instant] | None = None) -> None:
        self._target = target_of(url)
        self.url = self._target.shown
        self.store_id = ""
        self._clock = clock
        self._context = StoreContext(clock)
        self._quarantine = self._context.quarantine
        self._statements = Statements(self._target.schema)
        self._writer: BatchWriter | None = None
        self._undecided = 0  # commits whose answer was lost or cut short: what they wrote may not be durable yet
        self._confirmed = 0  # how many of those a later write has confirmed
        self._counting = threading.Lock()
        self._wake_ups: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._tell_handle: asyncio.TimerHandle | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._name = secrets.token_hex(8)  # under which it notifies others: it need not hear itself
        self._pauses = ConnectPauses()
        self._spare: list[PostgresSession] = []  # for those who read the history
        self._process_locks: ProcessLocks | None = None
        self._lanes: dict[str, tuple[PostgresSession, ConnectionThread[PostgresSession]]] = {}

    def now(self) -> Instant:
        return self._context.now()

    # --- opening and closing
    async def open(self) -> None:
        if self._lanes:
            return
        for name, limits, begin in (
            (Lane.ENGINE, ENGINE, "BEGIN"),
            (Lane.SUBMISSIONS, SUBMISSIONS, "BEGIN"),
            (Lane.RENEWALS, RENEWALS, "BEGIN"),
            (Lane.OTHERS, OTHERS, "BEGIN"),
            (Lane.OUTBOX, OTHERS, "BEGIN"),
            (Lane.READS, OTHERS, READ_ONLY),
            (Lane.SURVEYS, LONG, READ_ONLY),
            (Lane.UPKEEP, LONG, "BEGIN"),
        ):
            session = self._session(limits, begin)
            thread = ConnectionThread(f"arriero-{name}", lambda made=session: made)  # type: ignore[misc]  # bound now
            self._lanes[name] = (session, thread)
        try:
            await self._run(Lane.OTHERS, self._prepare)
        except BaseException:
            await self.close()
            raise
        if self._target.listen:
            loop = asyncio.get_running_loop()
            self._listener = Listener(self._target, lambda: self._wake(loop), own=self._name)

    def _session(self, limits: TransactionLimits, begin: str = "BEGIN") -> PostgresSession:
        return PostgresSession(
            self._target,
            self._statements,
            limits=limits,
            begin=begin,
            on_undecided=self._note_undecided,
            pauses=self._pauses,
        )

    def _prepare(self, session: PostgresSession) -> None:
        try:
            number = session.transact(lambda transaction: read_applied_number(transaction, self._target.schema))
            if number is None:
                self._create()
            else:
                refuse_unfit(number)
            self.store_id = session.transact(self._read_meta)
        except SchemaOutdated as error:
            told = str(error)
            raise SchemaOutdated(told if told.startswith("store ") else f"store {self.url}: {told}") from error
        except Undecided as error:
            raise error.error from error

    def _create(self) -> None:
        """A database without our tables gets them, if this user may make them."""
        try:
            with psycopg.connect(self._target.conninfo, autocommit=True, prepare_threshold=None) as connection:
                migrate(connection, self._target.schema, self._target.channel)
        except psycopg.Error as error:
            raise translate_error(error, self.url) from error

    def _read_meta(self, transaction: Transaction) -> str:
        (store_id,) = transaction.ask("select_meta", {"name": "store_id"}).fetchone() or ("",)
        self._context.read_clock(self._context.ask_clock(transaction))
        return str(store_id)

    async def close(self) -> None:
        if self._tell_handle is not None:  # a process that ends: a caller may wait for what it gave back
            self._tell_handle.cancel()
            self._tell()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()
        try:
            if self._telling:
                await asyncio.wait(list(self._telling))
        finally:
            lanes, self._lanes = self._lanes, {}
            for _, thread in lanes.values():
                thread.end()  # all of them, also if the waiting for one is cancelled
            try:
                if listener is not None:
                    await asyncio.to_thread(listener.join)
                for _, thread in lanes.values():
                    await thread.close()
            finally:
                if self._process_locks is not None:
                    self._process_locks.close()
                while self._spare:
                    self._spare.pop().close()

    # --- transactions
    async def _run(self, lane: Lane, work: Callable[[PostgresSession], T]) -> T:
        """Run ``work`` in a lane's thread."""
        if lane not in self._lanes:
            raise StoreError(f"store {self.url}: it is not open")
        _, thread = self._lanes[lane]
        return await thread.run(work)

    def _with_rows(self, kind: type[L], work: Callable[[L], T]) -> Callable[[Transaction], T]:
        def in_transaction(transaction: Transaction) -> T:
            rows = kind(transaction, self._context)
            result = work(rows)
            rows.flush()
            return result

        return in_transaction

    async def _read(self, work: Callable[[PostgresRows], T], lane: Lane = Lane.READS) -> T:
        def read(session: PostgresSession) -> T:
            for _ in range(2):
                self._confirm()
                try:
                    return session.transact(self._with_rows(PostgresRows, work))
                except Undecided as error:  # it has written nothing, so it may be asked again
                    lost = error
            raise lost.error from lost

        return await _ask_once_more(lambda: self._run(lane, read))

    async def _write(self, work: Callable[[PostgresRows], T], lane: Lane = Lane.OTHERS) -> T:
        return await self._write_to(PostgresRows, work, lane)

    async def _write_to(self, kind: type[L], work: Callable[[L], T], lane: Lane) -> T:
        """Run repeatable ``work``. Raises Unanswered: the answer was lost, so the outcome is unknown."""

        def write(session: PostgresSession) -> T:
            if (
                lane is not Lane.RENEWALS
            ):  # a renewal writes, and a lane that waits for a confirmation must not cost the lease
                self._confirm()
            undecided = self._undecided
            try:
                result = session.transact(self._with_rows(kind, work))
            except Undecided as error:
                raise Unanswered(str(error.error)) from error
            if isinstance(result, Renewal) and result.renewed:
                self._note_confirmed(undecided)
            return result

        return await self._run(lane, write)

    def _note_undecided(self) -> None:
        with self._counting:
            self._undecided += 1

    def _note_confirmed(self, undecided: int) -> None:
        """A write that began after that many undecided commits was committed, and its answer came."""
        with self._counting:
            self._confirmed = max(self._confirmed, undecided)

    def _confirm(self) -> None:
        """After a commit whose answer was lost: nothing is read before a later write was confirmed.

        What was read may otherwise be lost by a fail-over, although an operator has acted on it.
        """
        if self._confirmed == self._undecided:
            return
        session = self._session(ENGINE)
        try:
            self._confirm_with(session)
        finally:
            session.close()

    def _confirm_with(self, session: PostgresSession) -> None:
        undecided = self._undecided
        try:
            session.transact(self._write_confirmation)
        except Undecided as error:
            raise Unanswered(str(error.error)) from error
        self._note_confirmed(undecided)

    def _write_confirmation(self, transaction: Transaction) -> None:
        if self._writer is None:
            transaction.ask("confirm")
        else:
            transaction.ask("confirm_batch", {"process_no": self._writer.process_no})

    # --- wake-ups
    def on_wake_up(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when another process may have brought something. A hint: it may come late, twice or never."""
        self._wake_ups.append(wake)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        def call() -> None:
            for wake in self._wake_ups:
                wake()

        if not loop.is_closed():
            loop.call_soon_threadsafe(call)

    def _tell_soon(self) -> None:
        """Notify the others, once for everything of the next moment; never inside a transaction that others wait for."""
        if self._target.listen and self._tell_handle is None:
            self._tell_handle = asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        self._tell_handle = None
        telling = asyncio.get_running_loop().create_task(self._notify_others())
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _notify_others(self) -> None:
        try:
            asked = {"channel": self._target.channel, "name": self._name}
            await self._write(lambda rows: rows.ask("tell", asked).fetchall())
        except StoreError as error:
            logger.info("the other processes could not be notified, they poll: %s", error)

    # --- reading
    async def history(self, task_no: int | None = None, *, after: int = 0) -> AsyncIterator[HistoryRow]:
        """Pages of one snapshot, on a separate connection."""
        if not self._lanes:
            raise StoreError(f"store {self.url}: it is not open")
        await _ask_once_more(lambda: asyncio.to_thread(self._confirm))
        session = self._spare.pop() if self._spare else self._session(LONG)
        pages = Pages(session, self._statements, task_no, after)
        try:
            while page := await _ask_once_more(lambda: asyncio.to_thread(pages.next)):
                for row in page:
                    yield row
        finally:
            await asyncio.to_thread(pages.end)
            if self._lanes:
                self._spare.append(session)
            else:
                session.close()


async def _ask_once_more(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask, and if it could not connect, ask again after one more try to connect, of this or another thread.

    A server that was restarted a moment ago is there again by then. All who were refused wait together, outside of the lane.
    """
    refused_tries: int | None = None
    while True:
        try:
            return await ask()
        except NotConnected as error:
            is_last = refused_tries is not None and error.refused_tries > refused_tries
            if is_last or error.next_try_in is None:
                raise
            if refused_tries is None:
                refused_tries = error.refused_tries
            pause = error.next_try_in
        await asyncio.sleep(pause)
