"""The state store in PostgreSQL: any number of processes on any hosts; see ARCHITECTURE.md."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from ...core.purging import build_tasks_purged
from ...errors import ArrieroError, InvalidInput, StoreError, UnreadableRow
from ...model import LedgerRow, TaskRow
from ...model.answers import Answer, Refusal, SignalPlaced, Submitted
from ...model.commands import AnyCommand, SendSignal, Submit
from ...model.leases import LeaseHolder, LeaseTerm
from ...model.schedules import ScheduleApplied, ScheduleCommand
from ...model.workflow_pauses import OperateWorkflow, WorkflowPauseRow
from ..contract import SUPERVISOR_LEASE, Busy, Purge, Purged, Unanswered, Unwritten
from ..engine import ledgers
from ..engine.batch import STORE_STREAM, Batch
from ..engine.schedules import change_schedules
from ..engine.transactions import Lane
from ..process_locks import ProcessLocks, folder_of_machine
from ..task_filter import ANY_TASK, TaskFilter
from . import submitting
from .batch_transaction import BatchTransaction, is_news_for_others
from .context import StoreContext
from .lanes import BatchWriter, PostgresLanes
from .ledger_rows import PostgresLedgerRows
from .session import PostgresSession, Transaction, Undecided
from .store_rows import PostgresRows, count_filtered, select_filtered
from .translating import LOCK_NOT_AVAILABLE

logger = logging.getLogger("arriero")

T = TypeVar("T")
DECIDED_SECONDS = (
    20.0  # how long a lost answer is looked for before the caller that waits is informed that it is unknown
)
AGAIN_SECONDS = 0.2
BUSY_SHOWN_MAX = 5  # processes that are named
TOOK_TOO_LONG = "57014"
# Errors that one command of a batch may be to blame for: its rows are locked or too many, or cannot be kept as they are.
PAUSE_SECONDS = (
    8.0  # to wait for open batches: the server ends the transaction of a process that froze after 5 s (ENGINE.idle)
)
CULPRITS = (LOCK_NOT_AVAILABLE, TOOK_TOO_LONG, "23", "54", "XX")
AGAIN_MAX = 100  # ledger batches in a row that another user's submission came before


def change_batch(
    batch: Sequence[ScheduleCommand], context: StoreContext, rows: PostgresRows
) -> list[ScheduleApplied | Refusal]:
    """See ``StateStore.change_schedules``. Raises submitting.Again."""

    def submit_all(commands: Sequence[Submit]) -> list[Submitted | Refusal | UnreadableRow]:
        answers_of, _ = submitting.submit(rows.transaction, commands, context.get_test_instant(), context.quarantine)
        answers = [answer for answer in answers_of() if answer is not None]
        if len(answers) < len(commands):
            raise submitting.Again("another process submitted a task of the same id just now")
        return answers

    return change_schedules(batch, rows, submit_all)


C = TypeVar("C")
A = TypeVar("A")


def in_halves(
    batch: Sequence[C], write: Callable[[Sequence[C]], list[A]], as_answer: Callable[[ArrieroError], A]
) -> list[A]:
    """Each half in a separate transaction; answers in order. What becomes of one half is not news of the other.

    So nothing is raised once a half may be committed: the one who sent the batch again would be notified of its own commit as
    of another user's.

    Args:
        batch: at least two.
        write: one transaction, or several. Any error but a StoreError: nothing of it was written, and one alone is to blame.
        as_answer: of an error, what each command that it is about is notified.
    """
    middle = len(batch) // 2
    answers: list[A] = []
    for half in (batch[:middle], batch[middle:]):
        try:
            answers += write(half)
        except StoreError as error:
            answers += [as_answer(error) for _ in half]
        except Exception as error:
            if len(half) > 1:
                answers += in_halves(half, write, as_answer)
                continue
            known = error if isinstance(error, ArrieroError) else InvalidInput(f"it could not be written: {error!r}")
            answers.append(as_answer(known))
    return answers


class PostgresStore(PostgresLanes):
    """A store at a URL. ``clock``: microseconds, for tests; else the server's."""

    async def change_workflow_pause(self, command: OperateWorkflow) -> WorkflowPauseRow | Refusal:
        """See WorkflowPauseOperations. It waits for the open batches of all processes, in short turns: others commit between them.

        Raises: StoreError - also if a batch is open for longer than ``PAUSE_SECONDS``; it names the process.
        """
        give_up_at = time.monotonic() + PAUSE_SECONDS
        while True:
            try:
                return await super().change_workflow_pause(command)
            except StoreError as error:
                if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                    raise
                if time.monotonic() >= give_up_at:
                    raise await self._name_busy_processes() from error
            await asyncio.sleep(AGAIN_SECONDS)

    async def _name_busy_processes(self) -> StoreError:
        """The error of who has waited too long for open batches."""
        found = await self._write(lambda rows: rows.ask("list_busy_processes").fetchall())
        names = ", ".join(f"process {number} ({instance})" for number, instance in found[:BUSY_SHOWN_MAX])
        more = f" and {len(found) - BUSY_SHOWN_MAX} more" if len(found) > BUSY_SHOWN_MAX else ""
        return StoreError(
            f"store {self.url}: a transaction of {names or 'another program'}{more} is still open after {PAUSE_SECONDS:g} s, so it cannot"
            " be promised that no new task begins; nothing was changed. Ask again, and end that process if it is frozen"
        )

    # --- writing
    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal | ArrieroError]:
        answers = await self._reporting(self._run(Lane.SUBMISSIONS, lambda session: self._submit_all(session, batch)))
        if any(isinstance(answer, Submitted) and answer.created for answer in answers):
            self._tell_soon()
        return answers

    def _submit_all(
        self, session: PostgresSession, batch: Sequence[Submit]
    ) -> list[Submitted | Refusal | ArrieroError]:
        """Submit in one transaction, unless a foreign open transaction on one id blocks the others."""
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

    def _submit_once(
        self, session: PostgresSession, batch: Sequence[Submit]
    ) -> list[Submitted | Refusal | ArrieroError]:
        given_up_at = time.monotonic() + DECIDED_SECONDS
        mine: frozenset[int] = frozenset()  # submissions that may be kept already: their answer was lost
        writer = self._writer
        beginner = (
            None if writer is None else submitting.SubmittingProcess(writer.process_no, writer.epoch, self.store_id)
        )
        while True:
            undecided = self._undecided
            try:
                work = partial(
                    submitting.submit,
                    batch=batch,
                    given=self._context.get_test_instant(),
                    quarantine=self._quarantine,
                    mine=mine,
                    beginner=beginner,
                )
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
                    self._note_confirmed(undecided)
                self._context.note_server_time(now)
                answers = answers_of()
                if all(answer is not None for answer in answers):
                    return [answer for answer in answers if answer is not None]
                continue  # another process brought one of the ids meanwhile: now it is there to be looked at
            time.sleep(AGAIN_SECONDS)

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer | ArrieroError]:
        writer = self._writer  # as of now: what a process asked before it was declared lost stays its own
        answers = await self._reporting(self._run(Lane.ENGINE, lambda session: self._apply(session, batch, writer)))
        if is_news_for_others(answers, None if writer is None else writer.process_no):
            self._tell_soon()
        return answers

    def _apply(
        self, session: PostgresSession, batch: Sequence[AnyCommand], writer: BatchWriter | None
    ) -> list[Answer | ArrieroError]:
        """Apply in one transaction, unless the rows of one command block the others."""
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
        self, session: PostgresSession, batch: Sequence[AnyCommand], writer: BatchWriter | None
    ) -> list[Answer | ArrieroError]:
        if writer is not None:
            writer.batch_no += 1

        def work(transaction: Transaction) -> list[Answer | ArrieroError] | None:
            number = None
            if writer is not None:
                number = {"process_no": writer.process_no, "epoch": writer.epoch, "batch_no": writer.batch_no}
            return BatchTransaction(transaction, self._context).run(batch, number)

        try:
            answers = session.transact(work)
        except Undecided as error:
            if not self._was_committed(session, writer, error):
                raise error.error from error  # definitely not: the one who asked may ask again
            answers = error.result
        if answers is None:
            assert writer is not None
            refused = f"this process is of epoch {writer.epoch}, which is over since the store was restored"
            return [Refusal("old_epoch", refused) for _ in batch]
        return list(answers)

    def _was_committed(self, session: PostgresSession, writer: BatchWriter | None, lost: Undecided) -> bool:
        """Find out if a batch was committed whose answer was lost: its number under lock, then a confirmed write."""
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
            self._note_confirmed(undecided)
            return found is not None and found[0] == writer.batch_no

    def submit_joined(
        self, command: Submit, connection: object
    ) -> Awaitable[Submitted | Refusal] | Submitted | Refusal:
        """Keep a new task in the transaction that the caller has open; see ``joined``."""
        from .external_transaction import submit_joined

        return submit_joined(
            command,
            connection,
            self._statements("keep_task"),
            self._context.get_test_instant(),
            self.url,
            self.store_id,
        )

    def send_joined(
        self, task_id: str, command: SendSignal, connection: object
    ) -> Awaitable[SignalPlaced | Refusal] | SignalPlaced | Refusal:
        """Keep a signal in the transaction that the caller has open. ``command`` without the number of the task."""
        from .external_transaction import send_joined

        statement, given = self._statements("keep_signal"), self._context.get_test_instant()
        return send_joined(task_id, command, connection, statement, given, self.url, self.store_id)

    def check_term(self, lease: LeaseTerm, connection: object) -> Awaitable[LeaseTerm | None] | LeaseTerm | None:
        """Guard the transaction that the caller has open by the term of a lease; None: the term is past."""
        from .external_transaction import check_term

        return check_term(lease, connection, self._statements("check_term"), self.url)

    # --- processes
    def announce(self, instance: str) -> None:
        """Announce the process to those of this user on this machine; others look at its lease."""
        try:
            if self._process_locks is None:
                self._process_locks = ProcessLocks(folder_of_machine(self.store_id))
            self._process_locks.announce(instance)
        except OSError as error:
            logger.info("the death of this process will be seen by its lease only: %s", error)

    def is_known_dead(self, instance: str) -> bool:
        return self._process_locks is not None and self._process_locks.is_known_dead(instance)

    def _on_registered(self, process_no: int, epoch: int) -> None:
        self._writer = BatchWriter(process_no, epoch)
        self._context.epoch = epoch

    def _on_retired(self, instance: str) -> None:
        if self._process_locks is not None:
            self._process_locks.forget(instance)
        self._tell_soon()  # it may have led: who waits for that asks immediately

    async def release_lease(self, name: str, holder: LeaseHolder, term: int, actor: str) -> None:
        await super().release_lease(name, holder, term, actor)
        if name == SUPERVISOR_LEASE:  # a mutex is released on an event loop of its own, which ends with it
            self._tell_soon()  # who waits for it asks immediately

    async def change_schedules(
        self, batch: Sequence[ScheduleCommand]
    ) -> list[ScheduleApplied | Refusal | ArrieroError]:
        work = partial(change_batch, batch, self._context)
        for _ in range(AGAIN_MAX):
            try:
                answers = await self._reporting(self._write(work, Lane.SUBMISSIONS))
            except submitting.Again:
                continue
            except StoreError as error:
                if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                    raise
                if len(batch) == 1:
                    return [Busy(str(error))]
                half = len(batch) // 2
                return [*await self.change_schedules(batch[:half]), *await self.change_schedules(batch[half:])]
            self._tell_soon()
            return [*answers]
        return [Busy(f"store {self.url}: another process submits the runs of these schedules") for _ in batch]

    # --- ledgers
    async def _with_ledger(
        self, ledger_no: int, work: Callable[[PostgresLedgerRows], T], before: Sequence[Submit] = ()
    ) -> T:
        def lock_and_work(rows: PostgresLedgerRows) -> T:
            rows.lock(ledger_no)
            if before:
                rows.look_up(before)
            return work(rows)

        for _ in range(AGAIN_MAX):
            try:
                return await self._write_to(PostgresLedgerRows, lock_and_work, Lane.UPKEEP)
            except submitting.Again:
                continue
        return await self._write_to(PostgresLedgerRows, lock_and_work, Lane.UPKEEP)

    async def let_go(self, ledger_no: int, limit: int, actor: str) -> LedgerRow | None:
        def work(rows: PostgresLedgerRows) -> LedgerRow | None:
            if (ledger := rows.lock(ledger_no, waits=False)) is None:
                return None
            tasks = rows.select_of_ledger(ledger, limit)
            ours = rows.lock_places(tasks)
            if ours < len(tasks) and not ours:
                return None
            return ledgers.let_go(ledger_no, limit if ours == len(tasks) else ours, actor, rows, rows.read_clock())

        ledger = await self._write_to(PostgresLedgerRows, work, Lane.UPKEEP)
        self._tell_soon()
        return ledger

    # --- reading
    async def list_tasks(
        self,
        which: TaskFilter = ANY_TASK,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[TaskRow]:
        return await self._read(
            lambda rows: select_filtered(rows, which, after, before, newest_first, limit), Lane.SURVEYS
        )

    async def count_listed(
        self, which: TaskFilter = ANY_TASK, *, after: int = 0, before: int | None = None, limit: int
    ) -> int:
        return await self._read(lambda rows: count_filtered(rows, which, after, before, limit), Lane.SURVEYS)

    # --- upkeep
    async def look_at_forgotten(self) -> int:
        return await self._write(
            lambda rows: len(rows.ask("look_at_forgotten", {"now": rows.read_clock()}).fetchall()), Lane.UPKEEP
        )

    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        def work(rows: PostgresRows) -> list[int]:
            heads = rows.choose_purgeable(which, limit, after)
            task_nos = [task_no for task_no, _, _ in heads]
            if heads:
                rows.remove_tasks(task_nos)
                # Last: others wait for the store's own history while this transaction has it.
                Batch(rows, rows.read_clock()).note(STORE_STREAM, actor, [build_tasks_purged(heads)])
            return task_nos

        removed = await self._write(work, Lane.UPKEEP)
        return Purged(len(removed), removed[-1] if len(removed) == limit else None)

    async def empty_log(self) -> bool:
        """The server's log and its backups are the server's own."""
        return True


def _again_if_unwritten(error: ArrieroError) -> ArrieroError:
    return error if isinstance(error, InvalidInput | Unanswered) else Busy(str(error))
