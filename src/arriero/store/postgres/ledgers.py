"""Ledgers on PostgreSQL: what a batch needs is read at its start, and everything written goes out at its end, one statement a kind."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ...commands import Submit
from ...core.ledgers import ASIDE_MAX, LedgerBatch, LedgerOpened, LedgerWritten
from ...model import ConvoyRow, Instant, LedgerRow, LedgerState, TailRow, TaskRow
from .. import ledgers
from ..apart import SetApart
from . import columns
from .places import may_be_new
from .processes import now_of
from .rows import convoy_of, ledger_of, tail_of, task_as_is
from .session import Transaction
from .submitting import INSERT_BODIES, INSERT_TASKS, TASK_WIDTH, Again
from .tables import Tables

T = TypeVar("T")
INSERT_ASIDE = columns.insert_rows("ledger_aside", ("ledger_no", "line", "reason"), from_dicts=True)
AGAIN_MAX = 100  # in a row


class LedgerTables(Tables):
    """The LedgerTable of ``store.ledgers``."""

    def __init__(self, transaction: Transaction, apart: SetApart) -> None:
        super().__init__(transaction, apart)
        self._ledgers: dict[int, LedgerRow | None] = {}
        self._changed_ledger: LedgerRow | None = None
        self._known: dict[str, TaskRow] = {}  # by business id
        self._numbered: dict[tuple[int, int], TaskRow] = {}
        self._submitted: dict[int, str] = {}  # with what these were, by their numbers
        self._numbers: list[int] = []  # for new tasks, the last one first
        self._given: Instant | None = None
        self._tails: dict[str, TailRow] = {}
        self._added: dict[str, tuple[TaskRow, str]] = {}
        self._aside: list[dict[str, Any]] = []
        self._next_tasks: list[TaskRow] | None = None  # to be let go

    # --- what is read before
    def lock(self, ledger_no: int, *, waits: bool = True) -> LedgerRow | None:
        """The ledger, ours until the transaction ends. None: it is gone, or another transaction has it."""
        asked = {"ledger_no": ledger_no}
        row = self._transaction.ask("lock_ledger" if waits else "lock_free_ledger", asked).fetchone()
        self._ledgers[ledger_no] = None if row is None else ledger_of(row)
        return self._ledgers[ledger_no]

    def look_up(self, commands: Sequence[Submit], given: Instant | None) -> None:
        """What stands already under the ids and in the convoys of some submissions."""
        ask = self._transaction.ask
        self._given = given
        keys = list(dict.fromkeys(command.convoy for command in commands if command.convoy is not None))
        numbered = [command for command in commands if command.sequence is not None]
        if keys:
            ask("add_convoys", {**may_be_new(commands), "given": given})
            tails = ask("select_tails_by_key", {"keys": keys})
        if numbered:  # nobody else gives these numbers away until the end
            tails_locked = ask("lock_tails", {"keys": [command.convoy for command in numbered]})
            pairs = {"keys": [c.convoy for c in numbered], "sequences": [c.sequence for c in numbered]}
            found = ask("select_of_sequences", pairs)
        known = ask("select_known", {"task_ids": [command.task_id for command in commands]})
        numbers = ask("take_numbers", {"count": len(commands), "given": given})
        self._transaction.arrive()
        if keys:
            self._tails = {tail.key: tail for tail in map(tail_of, tails.fetchall())}
        if numbered:
            self._tails |= {tail.key: tail for tail in map(tail_of, tails_locked.fetchall())}
            for row in found.fetchall():
                task = self._found(row)
                self._numbered[task.convoy_no or 0, task.sequence or 0] = task
        self._known = {row[1]: self._found(row) for row in known.fetchall()}
        self._numbers = sorted((number for number, _ in numbers.fetchall()), reverse=True)

    def _found(self, row: tuple[Any, ...]) -> TaskRow:
        task = task_as_is(row[:TASK_WIDTH])
        self._submitted[task.task_no] = row[TASK_WIDTH]
        return task

    def lock_places(self, tasks: Sequence[TaskRow]) -> int:
        """The ends of the tasks' convoys, and after them what those keys are doing where that may change.

        Answers how many of the tasks, from the first on, have the end of their convoy locked: nobody's open transaction is
        waited for, and the order of the lines is kept.
        """
        convoy_nos = sorted({task.convoy_no for task in tasks if task.convoy_no is not None})
        if not convoy_nos:
            return len(tasks)
        tails = self._transaction.ask("lock_tails_by_number", {"convoy_nos": convoy_nos}).fetchall()
        self._sealed = {tail.convoy_no: tail for tail in map(tail_of, tails)}
        numbered = sorted({task.convoy_no for task in tasks if task.convoy_no in self._sealed and task.sequence})
        asked = {"convoy_nos": sorted(self._sealed), "numbered": numbered}
        self.keep_convoys(self._transaction.ask("lock_touched", asked).fetchall(), at_the_start=True)
        ours = (task.convoy_no is None or task.convoy_no in self._sealed for task in tasks)
        return next((number for number, is_ours in enumerate(ours) if not is_ours), len(tasks))

    # --- rows as they stand
    def ledger(self, ledger_no: int) -> LedgerRow | None:
        if ledger_no not in self._ledgers:
            row = self._transaction.ask("select_ledger", {"ledger_no": ledger_no}).fetchone()
            self._ledgers[ledger_no] = None if row is None else ledger_of(row)
        return self._ledgers[ledger_no]

    def known(self, command: Submit) -> TaskRow | None:
        added = self._added.get(command.task_id)
        return self._known.get(command.task_id) if added is None else added[0]

    def numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        return self._numbered.get((convoy_no, command.sequence or 0))

    def submitted(self, task_no: int) -> str | None:
        return self._submitted[task_no]

    def of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        if self._next_tasks is None:
            asked = {"ledger_no": ledger.ledger_no, "after": ledger.reached, "limit": limit}
            rows = self._transaction.ask("select_of_ledger", asked).fetchall()
            self.keep_tasks(rows)
            self._next_tasks = list(map(task_as_is, rows))
        return self._next_tasks[:limit]

    def keeps_some_in(self, convoy_no: int) -> bool:
        if any(task.convoy_no == convoy_no for task, _ in self._added.values()):
            return True
        return self._transaction.ask("select_kept_in_convoy", {"convoy_no": convoy_no}).fetchone() is not None

    def next_task_no(self) -> int:
        return self._numbers.pop()

    def tail_of(self, key: str) -> TailRow | None:
        return self._tails.get(key)

    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        """The look before made no row for it: the id was known then, or came before in the batch."""
        ask, keys = self._transaction.ask, [command.convoy]
        ask("add_convoys", {**may_be_new([command]), "task_ids": [None], "given": self._given})
        (row,) = ask("select_tails_by_key" if command.sequence is None else "lock_tails", {"keys": keys}).fetchall()
        tail = tail_of(row)
        self._tails[tail.key] = tail
        return tail

    def tail(self, convoy_no: int) -> TailRow:
        return self._sealed[convoy_no]

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no not in self._convoys:
            row = self._transaction.ask("lock_convoy", {"convoy_no": convoy_no}).fetchone()
            assert row is not None
            self._convoys[convoy_no] = convoy_of(row)
        return self._convoys[convoy_no]

    # --- what is written at the end
    def put_ledger(self, ledger: LedgerRow) -> None:
        self._ledgers[ledger.ledger_no] = self._changed_ledger = ledger

    def add_aside(self, ledger_no: int, line: int, reason: str) -> None:
        self._aside.append({"ledger_no": ledger_no, "line": line, "reason": reason})

    def add_task(self, task: TaskRow, arguments: str) -> None:
        self._added[task.task_id] = (task, arguments)
        self._submitted[task.task_no] = arguments
        if task.sequence is not None:
            self._numbered[task.convoy_no or 0, task.sequence] = task

    def order(self, tail: TailRow) -> None:
        """The ordering of a key in which no task was placed yet."""
        self._tails[tail.key] = tail
        self._transaction.ask("order_convoy", {"convoy_no": tail.convoy_no, "ordering": tail.ordering})

    def remove_kept(self, tasks: Sequence[TaskRow]) -> None:
        for name in ("purge_body", "purge_task"):
            self._transaction.ask(name, {"task_nos": [task.task_no for task in tasks]})

    def remove_ledger(self, ledger_no: int) -> None:
        for name in ("delete_ledger_aside", "delete_ledger"):
            self._transaction.ask(name, {"ledger_no": ledger_no})

    def flush(self) -> None:
        """As in Tables. Raises Again: somebody else submitted one of the ids meanwhile."""
        write = self._transaction.write
        if self._added:
            added = list(self._added.values())
            inserted = write(INSERT_TASKS, [task for task, _ in added]).fetchall()
            if len(inserted) < len(added):
                raise Again("somebody else submitted a task of the same id just now")
            bodies = [{"task_no": task.task_no, "arguments": arguments} for task, arguments in added]
            write(INSERT_BODIES, bodies)
        if self._aside:
            write(INSERT_ASIDE, self._aside)
        if self._changed_ledger is not None:
            self._transaction.ask("update_ledger", msgspec.structs.asdict(self._changed_ledger))
        super().flush()


def begin(transaction: Transaction, now: Instant, ledger_id: str) -> LedgerRow:
    """See ``LedgerStore.begin_ledger``."""
    transaction.ask("begin_ledger", {"ledger_id": ledger_id, "now": now})
    row = transaction.ask("select_ledger_by_id", {"ledger_id": ledger_id}).fetchone()
    assert row is not None
    return ledger_of(row)


class PostgresLedgers:
    """PostgreSQL's part of ``store.ledger_contract.LedgerStore``."""

    _apart: SetApart

    def _given(self) -> Instant | None:
        raise NotImplementedError

    def _measured(self, now: Instant) -> None:
        raise NotImplementedError

    async def _write(self, lane: str, work: Callable[[Transaction], T]) -> T:
        raise NotImplementedError

    async def _read(self, work: Callable[[Transaction], T], *, lane: str = "reads") -> T:
        raise NotImplementedError

    async def _write_at(self, work: Callable[[Transaction, Instant], T], *, lane: str = "others") -> T:
        raise NotImplementedError

    def _tell_soon(self) -> None:
        raise NotImplementedError

    async def _with(
        self, ledger_no: int, work: Callable[[LedgerTables, Instant], T], *, before: Sequence[Submit] = ()
    ) -> T:
        """In one transaction that has the ledger."""

        def run(transaction: Transaction) -> T:
            tables = LedgerTables(transaction, self._apart)
            tables.lock(ledger_no)
            if before:
                tables.look_up(before, self._given())
            result = work(tables, self._clock_of(transaction))
            tables.flush()
            return result

        for _ in range(AGAIN_MAX):
            try:
                return await self._write("upkeep", run)
            except Again:
                continue
        return await self._write("upkeep", run)

    def _clock_of(self, transaction: Transaction) -> Instant:
        """The store's clock, read once everything is locked: what is written never lies before what it follows."""
        now = now_of(transaction, self._given())
        self._measured(now)
        return now

    async def begin_ledger(self, ledger_id: str) -> LedgerRow:
        return await self._write_at(lambda t, now: begin(t, now, ledger_id))

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        commands = [entry.submit for entry in batch.entries if entry.submit is not None]
        return await self._with(batch.ledger_no, lambda tables, now: ledgers.write(batch, tables, now), before=commands)

    async def open_ledger(self, ledger_no: int, written: int, digest: str, actor: str) -> LedgerOpened:
        return await self._with(
            ledger_no, lambda tables, now: ledgers.open_it(ledger_no, written, digest, actor, tables, now)
        )

    async def let_go(self, ledger_no: int, limit: int, actor: str) -> LedgerRow | None:
        def run(transaction: Transaction) -> LedgerRow | None:
            tables = LedgerTables(transaction, self._apart)
            if (ledger := tables.lock(ledger_no, waits=False)) is None:
                return None
            tasks = tables.of_ledger(ledger, limit)
            ours = tables.lock_places(tasks)
            if ours < len(tasks) and not ours:
                return None
            may_end = limit if ours == len(tasks) else ours
            result = ledgers.let_go(ledger_no, may_end, actor, tables, self._clock_of(transaction))
            tables.flush()
            return result

        ledger = await self._write("upkeep", run)
        self._tell_soon()
        return ledger

    async def discard_ledger(self, ledger_no: int, limit: int, actor: str, reason: str) -> LedgerRow | None:
        return await self._with(
            ledger_no, lambda tables, now: ledgers.discard(ledger_no, limit, actor, reason, tables, now)
        )

    # --- reading
    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        row = await self._read(lambda t: t.ask("select_ledger_by_id", {"ledger_id": ledger_id}).fetchone())
        return None if row is None else ledger_of(row)

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        name = "select_ledgers" if LedgerState.DONE in states else "select_unfinished_ledgers"
        asked = {"states": [str(state) for state in states], "after": after, "limit": limit}
        return await self._read(lambda t: [ledger_of(row) for row in t.ask(name, asked).fetchall()])

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        asked = {"ledger_no": ledger_no, "after": after, "limit": limit}
        rows = await self._read(lambda t: t.ask("select_ledger_aside", asked).fetchall())
        return [(line, reason) for line, reason in rows]
