"""The state store in PostgreSQL: any number of processes on any hosts; see ARCHITECTURE.md."""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import psycopg

from ...commands import Answer, AnyCommand, Refusal, Submit, Submitted
from ...core.attempts import AttemptSurvey, Retrying
from ...core.epoch import FIRST
from ...errors import ArrieroError, InvalidInput, SchemaOutdated, StoreError
from ...model import (
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
)
from .. import apart
from ..apart import SetApart
from ..apps import app_renamed
from ..attempts import COMMITS_MAX, LOOKED_AT_MAX
from ..base import (
    ANY_TASK,
    Busy,
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
    Unanswered,
    Unwritten,
)
from ..life import Lives, folder_of_machine
from ..threads import ConnectionThread
from . import attempts, convoys, mail, processes, purging, reading, submitting, unreadable
from .applying import Applying, is_news_for_others
from .clock import ServerClock
from .frontier import Frontiers
from .halving import in_halves
from .ledgers import PostgresLedgers
from .listening import Listener
from .migrating import applied, migrate, refuse_unfit
from .pages import Pages
from .rows import process_of
from .session import Limits, Session, Statements, Transaction, Undecided
from .target import target_of
from .translating import LOCK_NOT_AVAILABLE, translated

logger = logging.getLogger("arriero")

T = TypeVar("T")
DECIDED_SECONDS = 20.0  # how long a lost answer is looked for before whoever waits is told that it is unknown
AGAIN_SECONDS = 0.2
TOOK_TOO_LONG = "57014"
# Errors that one command of a batch may be to blame for: its rows are locked or too many, or cannot be kept as they are.
CULPRITS = (LOCK_NOT_AVAILABLE, TOOK_TOO_LONG, "23", "54", "XX")
TELL_SECONDS = 0.02  # within which wake-ups for others are merged into one

ENGINE = Limits(lock=2.0, statement=10.0, idle=5.0, by_index=True, planned_once=True)
SUBMISSIONS = Limits(lock=0.15, statement=10.0, idle=5.0, by_index=True, planned_once=True)
RENEWALS = Limits(lock=2.0, statement=2.5, idle=5.0, by_index=True)
OTHERS = Limits(lock=5.0, statement=10.0, idle=10.0, by_index=True)
LONG = Limits(lock=5.0, statement=300.0, idle=10.0)  # of what looks at many rows
READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Writer:
    """A process start as its batches name it: its row, the epoch it speaks in, and the number of its last batch."""

    def __init__(self, process_no: int, epoch: int) -> None:
        self.process_no = process_no
        self.epoch = epoch
        self.batch_no = 0


class PostgresStore(PostgresLedgers):
    """A store at a URL. ``clock``: microseconds, for tests; else the server's."""

    def __init__(self, url: str, *, clock: Callable[[], Instant] | None = None) -> None:
        self._target = target_of(url)
        self.url = self._target.shown
        self.store_id = ""
        self._clock = clock
        self._server_clock = ServerClock()
        self._frontiers = Frontiers()
        self._apart = SetApart(self.now)
        self._statements = Statements(self._target.schema)
        self._writer: Writer | None = None
        self._undecided = 0  # commits whose answer was lost or cut short: what they wrote may not be durable yet
        self._confirmed = 0  # how many of those a later write has confirmed
        self._counting = threading.Lock()
        self._wake_ups: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._tell_handle: asyncio.TimerHandle | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._name = secrets.token_hex(8)  # under which it tells others: it need not hear itself
        self._spare: list[Session] = []  # for those who read the history
        self._lives: Lives | None = None
        self._lanes: dict[str, tuple[Session, ConnectionThread[Session]]] = {}

    def now(self) -> Instant:
        return self._server_clock.now() if self._clock is None else self._clock()

    # --- opening and closing
    async def open(self) -> None:
        if self._lanes:
            return
        for name, limits, begin in (
            ("engine", ENGINE, "BEGIN"),
            ("submissions", SUBMISSIONS, "BEGIN"),
            ("renewals", RENEWALS, "BEGIN"),
            ("others", OTHERS, "BEGIN"),
            ("mail", OTHERS, "BEGIN"),  # a lock on statuses or alerts must cost nobody the Supervisors' lease
            ("reads", OTHERS, READ_ONLY),
            ("surveys", LONG, READ_ONLY),  # what looks at many rows keeps nobody else waiting
            ("upkeep", LONG, "BEGIN"),
        ):
            session = self._session(limits, begin)
            thread = ConnectionThread(f"arriero-{name}", lambda made=session: made)  # type: ignore[misc]  # bound now
            self._lanes[name] = (session, thread)
        try:
            await self._run("others", self._prepare)
        except BaseException:
            await self.close()
            raise
        if self._target.listen:
            loop = asyncio.get_running_loop()
            self._listener = Listener(self._target, lambda: self._woken(loop), own=self._name)

    def _session(self, limits: Limits, begin: str = "BEGIN") -> Session:
        return Session(self._target, self._statements, limits=limits, begin=begin, on_undecided=self._was_undecided)

    def _prepare(self, session: Session) -> None:
        try:
            number = session.transact(lambda transaction: applied(transaction, self._target.schema))
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
            raise translated(error, self.url) from error

    def _read_meta(self, transaction: Transaction) -> str:
        (store_id,) = transaction.ask("select_meta", {"name": "store_id"}).fetchone() or ("",)
        self._measured(processes.now_of(transaction, self._clock and self._clock()))
        return str(store_id)

    async def close(self) -> None:
        if self._tell_handle is not None:
            self._tell_handle.cancel()
            self._tell_handle = None
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
                if self._lives is not None:
                    self._lives.close()
                while self._spare:
                    self._spare.pop().close()

    # --- transactions
    async def _run(self, lane: str, work: Callable[[Session], T]) -> T:
        """Run ``work`` in a lane's thread."""
        if lane not in self._lanes:
            raise StoreError(f"store {self.url}: it is not open")
        _, thread = self._lanes[lane]
        return await thread.run(work)

    async def _survey(self, work: Callable[[Transaction], T]) -> T:
        return await self._read(work, lane="surveys")

    async def _read(self, work: Callable[[Transaction], T], *, lane: str = "reads") -> T:
        def read(session: Session) -> T:
            self._confirm()
            try:
                return session.transact(work)
            except Undecided as error:  # it has written nothing
                raise error.error from error

        return await self._run(lane, read)

    async def _read_of_ours(self, work: Callable[[Transaction], T]) -> T:
        """Read what this process is to act on: of a row that it cannot read a person is told."""
        found = await self._read(work)
        await self._tell_unreadable()
        return found

    async def _tell_unreadable(self) -> None:
        """Open an alert for each task that was set apart, unless it has one. Whoever finds it next does, if we die."""
        if not (errors := self._apart.untold()):
            return
        try:
            named = await self._write_at(lambda t, now: unreadable.tell(t, errors, now))
        except StoreError as error:
            self._apart.give_back(errors)
            logger.warning("an alert could not be opened yet: %s", error)
            return
        for told, task_id in named:
            apart.log(told, task_id)

    async def _write(self, lane: str, work: Callable[[Transaction], T]) -> T:
        """What may be repeated by whoever asked; after a lost answer it is unknown."""

        def write(session: Session) -> T:
            self._confirm()
            try:
                return session.transact(work)
            except Undecided as error:
                raise Unanswered(str(error.error)) from error

        return await self._run(lane, write)

    def _was_undecided(self) -> None:
        with self._counting:
            self._undecided += 1

    def _is_confirmed(self, undecided: int) -> None:
        """A write that began after so many undecided commits was committed, and its answer came."""
        with self._counting:
            self._confirmed = max(self._confirmed, undecided)

    def _confirm(self) -> None:
        """After a commit whose answer was lost: nothing is read before a later write was confirmed.

        What was read may otherwise be lost by a fail-over, although somebody has acted on it.
        """
        if self._confirmed == self._undecided:
            return
        session = self._session(ENGINE)
        try:
            self._confirm_with(session)
        finally:
            session.close()

    def _confirm_with(self, session: Session) -> None:
        undecided = self._undecided
        try:
            session.transact(self._confirming)
        except Undecided as error:
            raise Unanswered(str(error.error)) from error
        self._is_confirmed(undecided)

    def _confirming(self, transaction: Transaction) -> None:
        if self._writer is None:
            transaction.ask("confirm")
        else:
            transaction.ask("confirm_batch", {"process_no": self._writer.process_no})

    def _given(self) -> Instant | None:
        return None if self._clock is None else self._clock()

    def _measured(self, now: Instant) -> None:
        self._server_clock.measured(now)

    # --- writing
    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal | ArrieroError]:
        answers = await self._run("submissions", lambda session: self._submit_all(session, batch))
        if any(isinstance(answer, Submitted) and answer.created for answer in answers):
            self._tell_soon()
        return answers

    def _submit_all(self, session: Session, batch: Sequence[Submit]) -> list[Submitted | Refusal | ArrieroError]:
        """In one transaction, unless a stranger's open transaction on one id stands in the way of the others."""
        if not batch:
            return []
        try:
            self._confirm()
        except StoreError as error:
            raise Unwritten(str(error)) from error
        try:
            return self._submit_once(session, batch)
        except Unanswered:
            raise
        except StoreError as error:
            if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise Unwritten(str(error)) from error
        if len(batch) == 1:
            what = "" if batch[0].convoy is None else f" or its convoy {batch[0].convoy!r}"
            return [Busy(f"store {self.url}: another transaction has the task {batch[0].task_id!r}{what} open; end it")]
        return in_halves(batch, lambda half: self._submit_all(session, half), lambda error: error)

    def _submit_once(self, session: Session, batch: Sequence[Submit]) -> list[Submitted | Refusal | ArrieroError]:
        given_up_at = time.monotonic() + DECIDED_SECONDS
        mine: frozenset[int] = frozenset()  # submissions that may be kept already: their answer was lost
        writer = self._writer
        beginner = None if writer is None else submitting.Beginner(writer.process_no, writer.epoch, self.store_id)
        while True:
            undecided = self._undecided
            try:
                work = partial(submitting.submit, batch=batch, given=self._given(), mine=mine, beginner=beginner)
                answers_of, now = session.transact(work)
            except submitting.Again as error:  # as below, but what came in between had a place in a convoy
                if time.monotonic() > given_up_at:
                    raise Unwritten(str(error)) from error
                continue
            except Undecided as error:
                mine = frozenset(command.seed for command in batch)
                if time.monotonic() > given_up_at:
                    raise Unanswered(str(error.error)) from error
            except StoreError as error:
                if not mine:
                    raise
                if time.monotonic() > given_up_at:
                    raise Unanswered(str(error)) from error
            else:
                if mine:  # what was lost is there after all, or written now: either way this commit confirms it
                    self._is_confirmed(undecided)
                self._measured(now)
                answers = answers_of()
                if all(answer is not None for answer in answers):
                    return [answer for answer in answers if answer is not None]
                continue  # somebody else brought one of the ids meanwhile: now it is there to be looked at
            time.sleep(AGAIN_SECONDS)

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer | ArrieroError]:
        writer = self._writer  # as of now: what a process asked before it was declared lost stays its own
        answers = await self._run("engine", lambda session: self._apply(session, batch, writer))
        await self._tell_unreadable()
        if is_news_for_others(answers, None if writer is None else writer.process_no):
            self._tell_soon()
        return answers

    def _apply(
        self, session: Session, batch: Sequence[AnyCommand], writer: Writer | None
    ) -> list[Answer | ArrieroError]:
        """In one transaction, unless one command's rows stand in the way of the others."""
        self._confirm()
        try:
            return self._apply_once(session, batch, writer)
        except StoreError as error:
            state = getattr(error.__cause__, "sqlstate", None) or ""
            if isinstance(error, Unanswered) or not state.startswith(CULPRITS):
                raise
            if len(batch) > 1:
                return in_halves(batch, lambda half: self._apply(session, half, writer), _again_if_unwritten)
            if state == LOCK_NOT_AVAILABLE:
                return [Busy(str(error))]
            if state == TOOK_TOO_LONG:
                raise
            return [InvalidInput(str(error))]

    def _apply_once(
        self, session: Session, batch: Sequence[AnyCommand], writer: Writer | None
    ) -> list[Answer | ArrieroError]:
        if writer is not None:
            writer.batch_no += 1

        def work(transaction: Transaction) -> list[Answer | ArrieroError] | None:
            number = None
            if writer is not None:
                number = {"process_no": writer.process_no, "epoch": writer.epoch, "batch_no": writer.batch_no}
            run = Applying(transaction, self._given(), self._frontiers, self._apart)
            answers = run.run(batch, number)
            if answers is not None:
                self._measured(run.now)
            return answers

        try:
            answers = session.transact(work)
        except Undecided as error:
            if not self._was_committed(session, writer, error):
                raise error.error from error  # surely not: whoever asked may ask again
            answers = error.result
        if answers is None:
            assert writer is not None
            refused = f"this process is of epoch {writer.epoch}, which is over since the store was restored"
            return [Refusal("old_epoch", refused) for _ in batch]
        return list(answers)

    def _was_committed(self, session: Session, writer: Writer | None, lost: Undecided) -> bool:
        """What became of a batch whose answer was lost: its number under lock, and a confirmed write after it."""
        if writer is None:
            raise Unanswered(str(lost.error)) from lost
        given_up_at = time.monotonic() + DECIDED_SECONDS
        while True:
            undecided = self._undecided
            try:
                found = session.transact(lambda t: t.ask("select_batch", {"process_no": writer.process_no}).fetchone())
            except (Undecided, StoreError) as error:
                if time.monotonic() > given_up_at:
                    raise Unanswered(str(lost.error)) from error
                time.sleep(AGAIN_SECONDS)
                continue
            self._is_confirmed(undecided)
            return found is not None and found[0] == writer.batch_no

    def submit_joined(
        self, command: Submit, connection: object
    ) -> Awaitable[Submitted | Refusal] | Submitted | Refusal:
        """Keep a new task in the transaction that the caller has open; see ``joined``."""
        from .joined import submit_joined

        return submit_joined(command, connection, self._statements("keep_task"), self._given(), self.url, self.store_id)

    # --- processes
    def announce(self, instance: str) -> None:
        """To those of this user on this machine; the others look at the lease."""
        try:
            if self._lives is None:
                self._lives = Lives(folder_of_machine(self.store_id))
            self._lives.announce(instance)
        except OSError as error:
            logger.info("the death of this process will be seen by its lease only: %s", error)

    def is_known_dead(self, instance: str) -> bool:
        return self._lives is not None and self._lives.is_known_dead(instance)

    async def register(self, instance: str, lease_seconds: float, about: str = "{}") -> int:
        number, epoch = await self._write(
            "others", lambda t: processes.register(t, instance, lease_seconds, about, self._given())
        )
        self._writer = Writer(number, epoch)
        return number

    async def renew(self, process_no: int, lease_seconds: float) -> Renewal:
        epoch = FIRST if self._writer is None else self._writer.epoch

        def work(session: Session) -> Renewal:
            # It writes, so it needs no confirmation before: a lane that waits for one must not cost the lease.
            undecided = self._undecided
            try:
                found = session.transact(lambda t: processes.renew(t, process_no, epoch, lease_seconds, self._given()))
            except Undecided as error:
                raise Unanswered(str(error.error)) from error
            if found.renewed:
                self._is_confirmed(undecided)
            return found

        renewal = await self._run("renewals", work)
        self._measured(renewal.now)
        return renewal

    async def describe(self, process_no: int, about: str) -> None:
        def work(session: Session) -> None:
            try:
                session.transact(lambda t: t.ask("describe_process", {"process_no": process_no, "about": about}))
            except Undecided as error:
                raise Unanswered(str(error.error)) from error

        await self._run("renewals", work)

    async def known_processes(self) -> tuple[Instant, list[ProcessRow]]:
        def work(transaction: Transaction) -> tuple[Instant, list[ProcessRow]]:
            rows = transaction.ask("survey_processes").fetchall()
            return processes.now_of(transaction, self._given()), [process_of(row) for row in rows]

        return await self._read(work)

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        is_retired, instance = await self._write(
            "others", lambda t: processes.retire(t, process_no, by, known_dead, self._given())
        )
        if is_retired and instance and self._lives is not None:
            self._lives.forget(instance)
        return is_retired

    async def rename_app(self, old: str, new: str, count: int, actor: str, reason: str) -> None:
        event = app_renamed(old, new, count, reason)
        await self._write("upkeep", lambda t: processes.rename_app(t, old, new, event, actor, self._given()))

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        return await self._read_of_ours(lambda t: reading.held(t, process_no, limit, self._apart))

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        return await self._read(lambda t: reading.news(t, self.now(), process_no, self._frontiers, self._apart))

    async def new_epoch(self, actor: str, reason: str = "") -> int:
        """Open a new epoch after a restore from a backup; answers its number."""
        return await self._write("upkeep", lambda t: processes.new_epoch(t, actor, reason, self._given()))

    # --- leases
    async def acquire_lease(self, name: str, process_no: int, actor: str, seconds: float) -> LeaseRow:
        return await self._write(
            "others", lambda t: processes.acquire(t, name, process_no, actor, seconds, self._given())
        )

    async def renew_lease(self, name: str, process_no: int, term: int, seconds: float) -> bool:
        return await self._write(
            "others", lambda t: processes.renew_lease(t, name, process_no, term, seconds, self._given())
        )

    async def release_lease(self, name: str, process_no: int, term: int, actor: str) -> None:
        await self._write("others", lambda t: processes.release(t, name, process_no, term, actor, self._given()))

    # --- reading
    def _at(self, work: Callable[[Transaction, Instant], T]) -> Callable[[Transaction], T]:
        """With the store's clock."""

        def timed(transaction: Transaction) -> T:
            now = processes.now_of(transaction, self._given())
            self._measured(now)
            return work(transaction, now)

        return timed

    async def _read_at(self, work: Callable[[Transaction, Instant], T]) -> T:
        return await self._read(self._at(work))

    async def due(self, workflows: Sequence[str], agents: Sequence[str], app: str = "") -> Due:
        return await self._read_at(
            lambda t, now: reading.due(t, now, workflows, agents, app, self._frontiers, self._apart)
        )

    async def load_overdue(self, limit: int, progress_seconds: float) -> Overdue:
        return await self._read_of_ours(
            self._at(lambda t, now: reading.overdue(t, now, limit, progress_seconds, self._apart))
        )

    async def load(self, task_no: int) -> Loaded | None:
        return next(iter(await self._read(lambda t: reading.load(t, [task_no]))), None)

    async def load_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        return await self._read_of_ours(lambda t: reading.load_readable(t, task_nos, self._apart))

    async def find(self, task_id: str) -> Loaded | None:
        return await self._read(lambda t: reading.find(t, task_id))

    async def edits(self, task_no: int) -> list[EditRow]:
        return await self._read(lambda t: reading.edits(t, task_no))

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        return await self._read(lambda t: reading.late_answers(t, task_no))

    async def ended(self, task_nos: Sequence[int]) -> list[Ended]:
        return await self._read_of_ours(lambda t: reading.ended(t, task_nos, self._apart))

    async def list_tasks(
        self,
        which: TaskFilter = ANY_TASK,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[TaskRow]:
        return await self._survey(lambda t: reading.filtered(t, which, after, before, newest_first, limit))

    async def count_listed(
        self, which: TaskFilter = ANY_TASK, *, after: int = 0, before: int | None = None, limit: int
    ) -> int:
        return await self._survey(lambda t: reading.count_filtered(t, which, after, before, limit))

    async def counts(self) -> dict[TaskState, int]:
        return await self._survey(reading.counts)

    async def find_convoy(self, key: str, limit: int = 10) -> ConvoyLoaded | None:
        return await self._read(lambda t: convoys.find(t, key, limit))

    async def look_at_unreadable(self) -> int:
        found = await self._read(lambda t: unreadable.look_again(t, self._apart))
        for task_no in found:
            self._apart.forget(task_no)
        if found:
            await self._write_at(lambda t, now: unreadable.close(t, found, now))
        await self._tell_unreadable()
        return len(found)

    async def look_at_forgotten(self) -> int:
        def work(transaction: Transaction, now: Instant) -> int:
            return len(transaction.ask("look_at_forgotten", {"now": now}).fetchall())

        return await self._write_at(work, lane="upkeep")

    async def list_convoys(self, shown: str | None = None, *, after: int = 0, limit: int = 100) -> list[ConvoyLoaded]:
        return await self._survey(lambda t: convoys.listed(t, shown, after, limit))

    async def survey(self) -> Survey:
        return await self._survey(self._at(reading.survey))

    # --- attempts
    async def survey_attempts(self, *, steps: int = LOOKED_AT_MAX, commits: int = COMMITS_MAX) -> AttemptSurvey:
        return await self._survey(self._at(lambda t, now: attempts.survey(t, now, steps, commits)))

    async def retrying_steps(self, task_nos: Sequence[int]) -> list[Retrying]:
        return await self._survey(lambda t: attempts.retrying_steps(t, task_nos))

    # --- reply queues and alerts
    async def load_statuses(self, queue: str, limit: int) -> list[StatusRow]:
        return await self._read(lambda t: mail.statuses(t, queue, limit))

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        await self._write("mail", lambda t: mail.acknowledge(t, acknowledged))

    async def drop_statuses(self, before: Instant, limit: int) -> int:
        return await self._write_at(lambda t, now: mail.drop(t, now, before, limit), lane="upkeep")

    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        return await self._write_at(lambda t, now: mail.take_alerts(t, now, limit, hold_seconds), lane="mail")

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        return await self._write_at(
            lambda t, now: mail.settle_alert(t, now, no, attempts, told, again_in, error), lane="mail"
        )

    async def alerts(self, *, open_only: bool = True, after: int = 0, limit: int = 100) -> list[AlertRow]:
        return await self._survey(lambda t: mail.alerts(t, open_only, after, limit))

    async def _write_at(self, work: Callable[[Transaction, Instant], T], *, lane: str = "others") -> T:
        return await self._write(lane, self._at(work))

    # --- purging
    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        removed = await self._write_at(lambda t, now: mail.purge(t, now, which, actor, limit, after), lane="upkeep")
        return Purged(len(removed), removed[-1] if len(removed) == limit else None)

    async def purge_named(self, which: PurgeNamed, *, actor: str, limit: int | None) -> PurgedNamed:
        """Found by reading first; then its rows are locked, and looked at again."""
        found = await self._survey(lambda t: purging.find(t, which))
        return await self._write_at(
            lambda t, now: purging.purge(t, now, which, found, actor, limit, self._apart), lane="upkeep"
        )

    async def empty_log(self) -> bool:
        """The server's log and its backups are the server's own."""
        return True

    async def history(self, task_no: int | None = None) -> AsyncIterator[HistoryRow]:
        """Pages of one snapshot, on a connection of their own."""
        if not self._lanes:
            raise StoreError(f"store {self.url}: it is not open")
        await asyncio.to_thread(self._confirm)
        session = self._spare.pop() if self._spare else self._session(LONG)
        pages = Pages(session, self._statements, task_no)
        try:
            while page := await asyncio.to_thread(pages.next):
                for row in page:
                    yield row
        finally:
            await asyncio.to_thread(pages.end)
            if self._lanes:
                self._spare.append(session)
            else:
                session.close()

    # --- wake-ups
    def on_wake_up(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when another process may have brought something. A hint: it may come late, twice or never."""
        self._wake_ups.append(wake)

    def _woken(self, loop: asyncio.AbstractEventLoop) -> None:
        def call() -> None:
            for wake in self._wake_ups:
                wake()

        if not loop.is_closed():
            loop.call_soon_threadsafe(call)

    def _tell_soon(self) -> None:
        """Tell the others, once for everything of the next moment; never inside a transaction that others wait for."""
        if self._target.listen and self._tell_handle is None:
            self._tell_handle = asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        self._tell_handle = None
        telling = asyncio.get_running_loop().create_task(self._told())
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _told(self) -> None:
        try:
            asked = {"channel": self._target.channel, "name": self._name}
            await self._write("others", lambda t: t.ask("tell", asked).fetchall())
        except StoreError as error:
            logger.info("the other processes could not be told, they poll: %s", error)


def _again_if_unwritten(error: ArrieroError) -> ArrieroError:
    return error if isinstance(error, InvalidInput | Unanswered) else Busy(str(error))
