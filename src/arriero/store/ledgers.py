"""What all stores do alike with ledgers inside their transactions; the contract is ``store.ledger_contract``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from ..commands import Refusal, Submit, Submitted
from ..core import ledgers
from ..core.known import same_sequence, same_submission
from ..core.ledgers import ASIDE_MAX, LedgerBatch, LedgerEntry, LedgerOpened, LedgerWritten
from ..core.placing import Spot, needs_convoy, ordering_of, refused_place
from ..core.readable import refuse_unreadable
from ..errors import UnreadableRow
from ..model import ConvoyRow, Instant, LedgerRow, LedgerState, TailRow, TaskRow
from .batch import STORE_STREAM, Batch, Table


class LedgerTable(Table, Protocol):
    """What a store offers inside a transaction in which the ledger's row is locked."""

    def ledger(self, ledger_no: int) -> LedgerRow | None: ...
    def put_ledger(self, ledger: LedgerRow) -> None: ...
    def add_aside(self, ledger_no: int, line: int, reason: str) -> None: ...

    def of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        """Tasks that it has not let go, after the last one that was reached, in the order of their lines."""
        ...

    def remove_kept(self, tasks: Sequence[TaskRow]) -> None:
        """Remove tasks that it keeps; their numbers are not given again."""
        ...

    def remove_ledger(self, ledger_no: int) -> None:
        """Remove the ledger itself, and what is kept of entries set aside."""
        ...

    def order(self, tail: TailRow) -> None:
        """Keep how a key is ordered in which no task was placed yet."""
        ...

    def keeps_some_in(self, convoy_no: int) -> bool:
        """Whether a ledger keeps a task of that convoy."""
        ...

    def known(self, command: Submit) -> TaskRow | None:
        """The task that stands under its id."""
        ...

    def numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        """The task that has its sequence."""
        ...

    def submitted(self, task_no: int) -> str | None:
        """What a task that ``known`` or ``numbered`` has told was submitted with, as JSON text."""
        ...

    def next_task_no(self) -> int: ...
    def add_task(self, task: TaskRow, arguments: str) -> None: ...
    def tail_of(self, key: str) -> TailRow | None: ...
    def tail(self, convoy_no: int) -> TailRow: ...

    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        """The end of a key that nobody used before, whose rows are made now."""
        ...


class Knows(Protocol):
    """Where ledgers can be looked up."""

    def ledger(self, ledger_no: int) -> LedgerRow | None: ...


def reserved(task: TaskRow, known: Knows) -> Refusal | None:
    """That a task which stands under an id or a sequence belongs to a ledger that is not opened: nobody may rely on it."""
    if task.ledger_no is None:
        return None
    ledger = known.ledger(task.ledger_no)
    if ledger is not None and ledger.is_open:
        return None
    name = "" if ledger is None else f" {ledger.ledger_id!r}"
    return Refusal(
        "conflict",
        f"task {task.task_id!r} belongs to ledger{name}, which is not complete: submit that again, or discard it with"
        " `arriero ledger discard`",
    )


def write(batch: LedgerBatch, table: LedgerTable, now: Instant) -> LedgerWritten:
    """See ``LedgerStore.write_ledger``."""
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
            return LedgerWritten(refused, (entry.line, reason))
        if reason:
            writing.set_aside(entry, reason)
    ledger = writing.result(batch)
    table.put_ledger(ledger)
    return LedgerWritten(ledger)


class _Writing:
    """One batch: entries become tasks that nobody sees."""

    def __init__(self, ledger: LedgerRow, table: LedgerTable, now: Instant) -> None:
        self._ledger = ledger
        self._table = table
        self._now = now
        self._accepted = 0
        self._duplicates = 0
        self.aside = ledger.aside

    def result(self, batch: LedgerBatch) -> LedgerRow:
        last = batch.entries[-1]
        return replace(
            self._ledger,
            digest=last.digest,
            written=last.line,
            accepted=self._ledger.accepted + self._accepted,
            duplicates=self._ledger.duplicates + self._duplicates,
            aside=self.aside,
            written_at=self._now,
        )

    def set_aside(self, entry: LedgerEntry, reason: str) -> None:
        self.aside += 1
        self._table.add_aside(self._ledger.ledger_no, entry.line, reason)

    def keep(self, entry: LedgerEntry) -> str:
        """Why the entry can be no task; empty: it is kept, or its task is there."""
        command = entry.submit
        if command is None:
            return entry.bad
        tail = None if command.convoy is None else self._table.tail_of(command.convoy)
        known = self._known(command, tail)
        if isinstance(known, Refusal):
            return known.detail
        if known is not None:
            self._duplicates += 1
            return ""
        if command.convoy is not None:
            if tail is None:
                tail = self._table.new_tail(command, self._now)
            elif (refused := self._refused(command, tail)) is not None:
                return refused.detail
        task = ledgers.kept_task(command, self._table.next_task_no(), self._ledger, tail, self._now)
        self._table.add_task(task, command.arguments)
        self._accepted += 1
        return ""

    def _known(self, command: Submit, tail: TailRow | None) -> Submitted | Refusal | None:
        """The answer of the task that stands under the id or the sequence already."""
        task = self._table.known(command)
        if task is not None:
            return self._reserved(task) or same_submission(task, command, self._submitted(task), tail)
        if tail is None or command.sequence is None:
            return None
        task = self._table.numbered(command, tail.convoy_no)
        return (
            None if task is None else self._reserved(task) or same_sequence(task, command, self._submitted(task), tail)
        )

    def _submitted(self, task: TaskRow) -> Callable[[], str | None]:
        return partial(self._table.submitted, task.task_no)

    def _reserved(self, task: TaskRow) -> Refusal | None:
        return None if task.ledger_no == self._ledger.ledger_no else reserved(task, self._table)

    def _refused(self, command: Submit, tail: TailRow) -> Refusal | None:
        if tail.placed or tail.ordering == ordering_of(command):
            return refused_place(command, tail)
        if self._table.keeps_some_in(tail.convoy_no):
            order = "by its producer's sequence" if tail.ordering == "sequence" else "by place"
            return Refusal(
                "conflict", f"convoy {tail.key!r} is ordered {order} by an entry before, or another ledger's"
            )
        self._table.order(ledgers.ordered_as(command, tail))
        return None


def open_it(ledger_no: int, written: int, digest: str, actor: str, table: LedgerTable, now: Instant) -> LedgerOpened:
    """See ``LedgerStore.open_ledger``."""
    ledger = table.ledger(ledger_no)
    if (
        ledger is None
        or ledger.state is not LedgerState.WRITING
        or (ledger.written, ledger.digest) != (written, digest)
    ):
        return LedgerOpened(ledger)
    ledger = _done_or(replace(ledger, state=LedgerState.OPENED, opened_at=now))
    table.put_ledger(ledger)
    counts = {name: getattr(ledger, name) for name in ("written", "accepted", "duplicates", "aside")}
    event = {"type": "ledger.opened", "ledger": ledger.ledger_id, "digest": ledger.digest, **counts}
    Batch(table, now).note(STORE_STREAM, actor, [event])
    return LedgerOpened(ledger, True)


def _done_or(ledger: LedgerRow) -> LedgerRow:
    return replace(ledger, state=LedgerState.DONE) if ledger.let_go >= ledger.accepted else ledger


def _reached(ledger: LedgerRow, tasks: Sequence[TaskRow]) -> LedgerRow:
    return replace(ledger, reached=tasks[-1].task_no) if tasks else ledger


def let_go(ledger_no: int, limit: int, actor: str, table: LedgerTable, now: Instant) -> LedgerRow | None:
    """See ``LedgerStore.let_go``."""
    ledger = table.ledger(ledger_no)
    if ledger is None or ledger.state is not LedgerState.OPENED:
        return ledger
    work = Batch(table, now)
    tasks = _up_to_unreadable(table.of_ledger(ledger, limit), table)
    for task in tasks:
        _let_go_one(task, ledger, actor, table, work)
    ledger = _done_or(_reached(replace(ledger, let_go=ledger.let_go + len(tasks)), tasks))
    table.put_ledger(ledger)
    return ledger


def _up_to_unreadable(tasks: Sequence[TaskRow], table: LedgerTable) -> list[TaskRow]:
    """Those before the first that cannot be read: the order of the lines is kept, so this ledger waits there."""
    found: list[TaskRow] = []
    for task in tasks:
        try:
            found.append(refuse_unreadable(task))
        except UnreadableRow as error:
            table.set_apart(error)
            break
    return found


def _let_go_one(task: TaskRow, ledger: LedgerRow, actor: str, table: LedgerTable, work: Batch) -> None:
    tail = None if task.convoy_no is None else table.tail(task.convoy_no)
    command = ledgers.command_of(task, tail, actor)
    if tail is None:
        work.write(ledgers.let_go(command, task, ledger, None, work.now), actor)
        return
    refused = refused_place(command, tail)
    if refused is not None:
        convoy = table.convoy(tail.convoy_no)
        change = ledgers.passed_over(command, task, ledger, convoy, tail, table, work.now, refused.detail)
    else:
        change = ledgers.let_go(command, task, ledger, Spot(tail, _touched(command, tail, table)), work.now)
    work.write(change, actor)


def _touched(command: Submit, tail: TailRow, table: LedgerTable) -> ConvoyRow | None:
    """What the key is doing, if the task changes that."""
    if not tail.asks and command.sequence is None:
        return None
    convoy = table.convoy(tail.convoy_no)
    return convoy if needs_convoy(command, tail, convoy.expected) else None


def discard(ledger_no: int, limit: int, actor: str, reason: str, table: LedgerTable, now: Instant) -> LedgerRow | None:
    """See ``LedgerStore.discard_ledger``."""
    ledger = table.ledger(ledger_no)
    if ledger is None or ledger.is_open:
        return ledger
    tasks = table.of_ledger(ledger, limit)
    table.remove_kept(tasks)
    if len(tasks) == limit:
        ledger = _reached(replace(ledger, state=LedgerState.DISCARDING), tasks)
        table.put_ledger(ledger)
        return ledger
    table.remove_ledger(ledger_no)
    event = {"type": "ledger.discarded", "ledger": ledger.ledger_id, "written": ledger.written, "reason": reason}
    Batch(table, now).note(STORE_STREAM, actor, [event])
    return None
