"""Ledgers inside the transactions of all stores: written, opened, let go, discarded. The rules are ``core.ledgers``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from ...core import ledgers, tokens
from ...core.deduplication import answer_known_id, answer_known_sequence
from ...core.ledger_batches import ASIDE_MAX, LedgerBatch, LedgerEntry, LedgerOpened, LedgerWritten
from ...core.placement import Spot, needs_convoy, read_ordering, refuse_place
from ...core.workflow_pauses import refuse_submission
from ...errors import UnreadableRow
from ...events.store import LedgerDiscarded, LedgerOpenedEvent
from ...model import ConvoyRow, Instant, LedgerRow, LedgerState, TailRow, TaskRow
from ...model.answers import Refusal, Submitted
from ...model.commands import Submit
from ..readable import refuse_unreadable
from ..sql.rows import LedgerRows
from .batch import STORE_STREAM, Batch
from .transactions import Lane, Transactions


def refuse_beyond_cap(command: Submit, count_open_tasks: Callable[[str, int], int]) -> Refusal | None:
    """Refuse a new task that goes beyond the cap of its submitter. Of a submission without a cap nothing is asked.

    ``count_open_tasks``: see ``LedgerRows``.
    """
    if command.submitter is None or command.open_tasks_max is None:
        return None
    return tokens.refuse_beyond_cap(command, count_open_tasks(command.submitter, command.open_tasks_max))


def refuse_reserved(task: TaskRow, find_ledger: Callable[[int], LedgerRow | None]) -> Refusal | None:
    """Refuse an id or a sequence whose task belongs to a ledger that is not opened: nobody may rely on it."""
    if task.ledger_no is None:
        return None
    ledger = find_ledger(task.ledger_no)
    if ledger is not None and ledger.is_open:
        return None
    name = "" if ledger is None else f" {ledger.ledger_id!r}"
    return Refusal(
        "conflict",
        f"task {task.task_id!r} belongs to ledger{name}, which is not complete: submit that again, or discard it with"
        " `arriero ledger discard`",
    )


def write_entries(batch: LedgerBatch, table: LedgerRows, now: Instant) -> LedgerWritten:
    """See ``LedgerOperations.write_ledger``."""
    ledger = table.ledger(batch.ledger_no)
    if ledger is None or ledger.state is not LedgerState.WRITING or ledger.written != batch.after:
        return LedgerWritten(ledger)
    writing = _Writing(ledger, table, now)
    for entry in batch.entries:
        reason = writing.keep(entry)
        if reason and (batch.refuses or writing.aside >= ASIDE_MAX):
            if not batch.refuses:
                reason = f"{reason}; with it more than {ASIDE_MAX:,} entries are bad"
            refused = replace(ledger, state=LedgerState.DISCARDING)
            table.put_ledger(refused)
            return LedgerWritten(refused, (entry.line, reason), writing.verdict)
        if reason:
            writing.set_aside(entry, reason)
    ledger = writing.result(batch)
    table.put_ledger(ledger)
    return LedgerWritten(ledger)


class _Writing:
    """One batch: entries become tasks that nobody sees."""

    def __init__(self, ledger: LedgerRow, table: LedgerRows, now: Instant) -> None:
        self._ledger = ledger
        self._table = table
        self._now = now
        self._accepted = 0
        self._duplicates = 0
        self.aside = ledger.aside
        self.verdict = ""  # on the entry before, if it says more than its reason

    def result(self, batch: LedgerBatch) -> LedgerRow:
        last = batch.entries[-1]
        return replace(
            self._ledger,
            digest=last.digest,
            written=last.line,
            accepted=self._ledger.accepted + self._accepted,
            linked=self._ledger.linked + self._accepted,
            duplicates=self._ledger.duplicates + self._duplicates,
            aside=self.aside,
            written_at=self._now,
        )

    def set_aside(self, entry: LedgerEntry, reason: str) -> None:
        self.aside += 1
        self._table.add_aside(self._ledger.ledger_no, entry.line, reason)

    def keep(self, entry: LedgerEntry) -> str:
        """Keep an entry as a task. Returns the reason why it cannot be one; empty: it is kept, or its task is there."""
        self.verdict = ""
        command = entry.submit
        if command is None:
            return entry.bad
        tail = None if command.convoy is None else self._table.find_tail(command.convoy)
        known = self._find_known(command, tail)
        if isinstance(known, Refusal):
            return known.detail
        if known is not None:
            self._duplicates += 1
            return ""
        refused = refuse_beyond_cap(command, self._table.count_open_tasks)
        if refused is None and self._table.pauses:
            refused = refuse_submission(command, self._table.pauses)
        if refused is not None:
            self.verdict = refused.verdict
            return refused.detail
        if command.convoy is not None:
            if tail is None:
                tail = self._table.new_tail(command, self._now)
            elif (refused := self._refuse_place(command, tail)) is not None:
                return refused.detail
        task = ledgers.build_kept_task(command, self._table.next_task_no(), self._ledger, tail, self._now)
        self._table.add_task(task, command.arguments)
        self._accepted += 1
        return ""

    def _find_known(self, command: Submit, tail: TailRow | None) -> Submitted | Refusal | None:
        """Answer for the task that has the id or the sequence already; None: there is none."""
        task = self._table.find_known(command)
        if task is not None:
            return self._refuse_reserved(task) or answer_known_id(task, command, self._submitted_loader(task), tail)
        if tail is None or command.sequence is None:
            return None
        task = self._table.find_numbered(command, tail.convoy_no)
        return (
            None
            if task is None
            else self._refuse_reserved(task) or answer_known_sequence(task, command, self._submitted_loader(task), tail)
        )

    def _submitted_loader(self, task: TaskRow) -> Callable[[], str | None]:
        return partial(self._table.load_submitted, task.task_no)

    def _refuse_reserved(self, task: TaskRow) -> Refusal | None:
        return None if task.ledger_no == self._ledger.ledger_no else refuse_reserved(task, self._table.ledger)

    def _refuse_place(self, command: Submit, tail: TailRow) -> Refusal | None:
        if tail.placed or tail.ordering == read_ordering(command):
            return refuse_place(command, tail)
        if self._table.keeps_some_in(tail.convoy_no):
            order = "by its producer's sequence" if tail.ordering == "sequence" else "by place"
            return Refusal(
                "conflict", f"convoy {tail.key!r} is ordered {order} by an entry before, or another ledger's"
            )
        self._table.order(ledgers.order_tail(command, tail))
        return None


def open_ledger(ledger_no: int, written: int, digest: str, actor: str, table: LedgerRows, now: Instant) -> LedgerOpened:
    """See ``LedgerOperations.open_ledger``."""
    ledger = table.ledger(ledger_no)
    if (
        ledger is None
        or ledger.state is not LedgerState.WRITING
        or (ledger.written, ledger.digest) != (written, digest)
    ):
        return LedgerOpened(ledger)
    ledger = _mark_done(replace(ledger, state=LedgerState.OPENED, opened_at=now))
    table.put_ledger(ledger)
    counts = (ledger.written, ledger.accepted, ledger.duplicates, ledger.aside)
    event = LedgerOpenedEvent(ledger.ledger_id, ledger.digest, *counts)
    Batch(table, now).note(STORE_STREAM, actor, [event])
    return LedgerOpened(ledger, True)


def _mark_done(ledger: LedgerRow) -> LedgerRow:
    return replace(ledger, state=LedgerState.DONE) if ledger.let_go >= ledger.accepted else ledger


def _mark_reached(ledger: LedgerRow, tasks: Sequence[TaskRow]) -> LedgerRow:
    return replace(ledger, reached=tasks[-1].task_no) if tasks else ledger


def let_go(ledger_no: int, limit: int, actor: str, table: LedgerRows, now: Instant) -> LedgerRow | None:
    """See ``LedgerOperations.let_go``."""
    ledger = table.ledger(ledger_no)
    if ledger is None or ledger.state is not LedgerState.OPENED:
        return ledger
    work = Batch(table, now)
    tasks = _up_to_unreadable(table.select_of_ledger(ledger, limit), table)
    for task in tasks:
        _let_go_one(task, ledger, actor, table, work)
    ledger = _mark_done(_mark_reached(replace(ledger, let_go=ledger.let_go + len(tasks)), tasks))
    table.put_ledger(ledger)
    return ledger


def _up_to_unreadable(tasks: Sequence[TaskRow], table: LedgerRows) -> list[TaskRow]:
    """The tasks before the first unreadable one: the order of the lines is kept, so this ledger waits there."""
    found: list[TaskRow] = []
    for task in tasks:
        try:
            found.append(refuse_unreadable(task))
        except UnreadableRow as error:
            table.set_apart(error)
            break
    return found


def _let_go_one(task: TaskRow, ledger: LedgerRow, actor: str, table: LedgerRows, work: Batch) -> None:
    tail = None if task.convoy_no is None else table.tail(task.convoy_no)
    command = ledgers.restore_submission(task, tail, actor)
    if tail is None:
        work.write(ledgers.release_kept_task(command, task, ledger, None, work.now), actor)
        return
    refused = refuse_place(command, tail)
    if refused is not None:
        convoy = table.convoy(tail.convoy_no)
        change = ledgers.set_aside_kept_task(command, task, ledger, convoy, tail, table, work.now, refused.detail)
    else:
        change = ledgers.release_kept_task(
            command, task, ledger, Spot(tail, _find_touched_convoy(command, tail, table)), work.now
        )
    work.write(change, actor)


def _find_touched_convoy(command: Submit, tail: TailRow, table: LedgerRows) -> ConvoyRow | None:
    """The convoy's row, if the task changes it."""
    if not tail.asks and command.sequence is None:
        return None
    convoy = table.convoy(tail.convoy_no)
    return convoy if needs_convoy(command, tail, convoy.expected) else None


def discard_ledger(
    ledger_no: int, limit: int, actor: str, reason: str, table: LedgerRows, now: Instant
) -> LedgerRow | None:
    """See ``LedgerOperations.discard_ledger``."""
    ledger = table.ledger(ledger_no)
    if ledger is None or ledger.is_open:
        return ledger
    tasks = table.select_of_ledger(ledger, limit)
    table.remove_kept(tasks)
    if len(tasks) == limit:
        ledger = _mark_reached(replace(ledger, state=LedgerState.DISCARDING), tasks)
        table.put_ledger(ledger)
        return ledger
    table.remove_ledger(ledger_no)
    event = LedgerDiscarded(ledger.ledger_id, ledger.written, reason)
    Batch(table, now).note(STORE_STREAM, actor, [event])
    return None


T = TypeVar("T")


class LedgerOperations(Transactions):
    """Ledgers; ``core.ledger_batches`` defines their values. Every call is one guarded transaction, so repeating it is safe."""

    async def begin_ledger(self, ledger_id: str) -> LedgerRow:
        """The ledger of that id, as far as it is written; a new one when there is none."""
        return await self._write(lambda rows: rows.add_ledger(ledger_id))

    async def _with_ledger(self, ledger_no: int, work: Callable[[LedgerRows], T], before: Sequence[Submit] = ()) -> T:
        """Run ``work`` in one transaction that has the ledger. ``before``: submissions whose rows it needs."""
        return await self._write(work, Lane.UPKEEP)

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        """Keep entries as tasks that nobody sees. Changes nothing when others wrote or opened it meanwhile."""
        before = [entry.submit for entry in batch.entries if entry.submit is not None]
        return await self._with_ledger(
            batch.ledger_no, lambda rows: write_entries(batch, rows, rows.read_clock()), before
        )

    async def open_ledger(self, ledger_no: int, written: int, digest: str, actor: str) -> LedgerOpened:
        """Make all its tasks visible, if it is written so far and no further."""
        return await self._with_ledger(
            ledger_no, lambda rows: open_ledger(ledger_no, written, digest, actor, rows, rows.read_clock())
        )

    async def let_go(self, ledger_no: int, limit: int, actor: str) -> LedgerRow | None:
        """Let the next tasks of an opened ledger go, in their order; answers how it stands.

        None: another process is doing that just now, or it no longer exists.
        """
        return await self._with_ledger(ledger_no, lambda rows: let_go(ledger_no, limit, actor, rows, rows.read_clock()))

    async def discard_ledger(self, ledger_no: int, limit: int, actor: str, reason: str) -> LedgerRow | None:
        """Remove some of its tasks, unless it is opened; answers what is left of it. None: it no longer exists."""
        return await self._with_ledger(
            ledger_no, lambda rows: discard_ledger(ledger_no, limit, actor, reason, rows, rows.read_clock())
        )
