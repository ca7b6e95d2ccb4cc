"""Ledgers on PostgreSQL: what a batch needs is read at its start, and everything written goes out at its end, one statement a kind."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import ConvoyRow, Instant, LedgerRow, TailRow, TaskRow
from ...model.commands import Submit
from .. import columns
from ..rows import convoy_of, ledger_of, tail_of
from ..sql.rows import LedgerRows
from .columns import insert_rows, task_as_is
from .context import StoreContext
from .convoy_rows import PostgresConvoyRows
from .session import Transaction
from .submitting import INSERT_BODIES, INSERT_TASKS, Again, OpenTaskCounts, may_be_new

INSERT_ASIDE = insert_rows("ledger_aside", ("ledger_no", "line", "reason"), from_dicts=True)


class PostgresLedgerRows(PostgresConvoyRows, LedgerRows):
    """Ledgers, and the tasks that they keep."""

    def __init__(self, transaction: Transaction, context: StoreContext) -> None:
        super().__init__(transaction, context)
        self._ledgers: dict[int, LedgerRow | None] = {}
        self._changed_ledger: LedgerRow | None = None
        self._known: dict[str, TaskRow] = {}  # by business id
        self._numbered: dict[tuple[int, int], TaskRow] = {}
        self._submitted: dict[int, str] = {}  # with what these were, by their numbers
        self._numbers: list[int] = []  # for new tasks, the last one first
        self._tails: dict[str, TailRow] = {}
        self._added: dict[str, tuple[TaskRow, str]] = {}
        self._aside: list[dict[str, Any]] = []
        self._next_tasks: list[TaskRow] | None = None  # to be let go
        self._open_tasks = OpenTaskCounts(transaction, ())

    # --- what is read before
    def add_ledger(self, ledger_id: str) -> LedgerRow:
        self.ask("begin_ledger", {"ledger_id": ledger_id, "now": self.read_clock()})
        ledger = self.select_ledger(ledger_id)
        assert ledger is not None
        return ledger

    def lock(self, ledger_no: int, *, waits: bool = True) -> LedgerRow | None:
        """The ledger, ours until the transaction ends. None: it no longer exists, or another transaction has it."""
        asked = {"ledger_no": ledger_no}
        row = self.ask("lock_ledger" if waits else "lock_free_ledger", asked).fetchone()
        self._ledgers[ledger_no] = None if row is None else ledger_of(row)
        return self._ledgers[ledger_no]

    def look_up(self, commands: Sequence[Submit]) -> None:
        """Read the tasks and tails that the ids and convoys of some submissions name."""
        ask, given = self.ask, self._context.get_test_instant()
        self._open_tasks = counts = OpenTaskCounts(self.transaction, commands)
        keys = list(dict.fromkeys(command.convoy for command in commands if command.convoy is not None))
        numbered = [command for command in commands if command.sequence is not None]
        if keys:
            ask("add_convoys", {**may_be_new(counts.list_within(commands)), "given": given})
            tails = ask("select_tails_by_key", {"keys": keys})
        if numbered:  # nobody else gives these numbers away until the end
            tails_locked = ask("lock_tails", {"keys": [command.convoy for command in numbered]})
            pairs = {"keys": [c.convoy for c in numbered], "sequences": [c.sequence for c in numbered]}
            found = ask("select_of_sequences", pairs)
        known = ask("select_known", {"task_ids": [command.task_id for command in commands]})
        numbers = ask("take_numbers", {"count": len(commands), "given": given})
        self.pauses = self.read_pauses()
        self.arrive()
        if keys:
            self._tails = {tail.key: tail for tail in map(tail_of, tails.fetchall())}
        if numbered:
            self._tails |= {tail.key: tail for tail in map(tail_of, tails_locked.fetchall())}
            for row in found.fetchall():
                task = self._keep_submitted(row)
                self._numbered[task.convoy_no or 0, task.sequence or 0] = task
        self._known = {row[1]: self._keep_submitted(row) for row in known.fetchall()}
        self._numbers = sorted((number for number, _ in numbers.fetchall()), reverse=True)

    def _keep_submitted(self, row: tuple[Any, ...]) -> TaskRow:
        task = task_as_is(row[: columns.TASK_WIDTH])
        self._submitted[task.task_no] = row[columns.TASK_WIDTH]
        return task

    def lock_places(self, tasks: Sequence[TaskRow]) -> int:
        """The ends of the tasks' convoys, and after them what those keys are doing where that may change.

        Answers how many of the tasks, from the first on, have the end of their convoy locked: nobody's open transaction is
        waited for, and the order of the lines is kept.
        """
        convoy_nos = sorted({task.convoy_no for task in tasks if task.convoy_no is not None})
        if not convoy_nos:
            return len(tasks)
        tails = self.ask("lock_tails_by_number", {"convoy_nos": convoy_nos}).fetchall()
        self._sealed = {tail.convoy_no: tail for tail in map(tail_of, tails)}
        numbered = sorted({task.convoy_no for task in tasks if task.convoy_no in self._sealed and task.sequence})
        asked = {"convoy_nos": sorted(self._sealed), "numbered": numbered}
        self.keep_convoys(self.ask("lock_touched", asked).fetchall(), at_the_start=True)
        ours = (task.convoy_no is None or task.convoy_no in self._sealed for task in tasks)
        return next((number for number, is_ours in enumerate(ours) if not is_ours), len(tasks))

    # --- rows as they stand
    def ledger(self, ledger_no: int) -> LedgerRow | None:
        if ledger_no not in self._ledgers:
            row = self.ask("select_ledger", {"ledger_no": ledger_no}).fetchone()
            self._ledgers[ledger_no] = None if row is None else ledger_of(row)
        return self._ledgers[ledger_no]

    def find_known(self, command: Submit) -> TaskRow | None:
        added = self._added.get(command.task_id)
        return self._known.get(command.task_id) if added is None else added[0]

    def find_numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        return self._numbered.get((convoy_no, command.sequence or 0))

    def load_submitted(self, task_no: int) -> str | None:
        return self._submitted[task_no]

    def select_of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        if self._next_tasks is None:
            asked = {"ledger_no": ledger.ledger_no, "after": ledger.reached, "limit": limit}
            rows = self.ask("select_of_ledger", asked).fetchall()
            self.keep_tasks(rows)
            self._next_tasks = list(map(task_as_is, rows))
        return self._next_tasks[:limit]

    def keeps_some_in(self, convoy_no: int) -> bool:
        if any(task.convoy_no == convoy_no for task, _ in self._added.values()):
            return True
        return super().keeps_some_in(convoy_no)

    def count_open_tasks(self, submitter: str, limit: int) -> int:
        return self._open_tasks.count_open_tasks(submitter, limit)

    def next_task_no(self) -> int:
        return self._numbers.pop()

    def find_tail(self, key: str) -> TailRow | None:
        return self._tails.get(key)

    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        """The look before made no row for it: the id was known then, or came before in the batch."""
        ask, keys = self.ask, [command.convoy]
        ask("add_convoys", {**may_be_new([command]), "task_ids": [None], "given": self._context.get_test_instant()})
        (row,) = ask("select_tails_by_key" if command.sequence is None else "lock_tails", {"keys": keys}).fetchall()
        tail = tail_of(row)
        self._tails[tail.key] = tail
        return tail

    def tail(self, convoy_no: int) -> TailRow:
        return self._sealed[convoy_no]

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no not in self._convoys:
            row = self.ask("lock_convoy", {"convoy_no": convoy_no}).fetchone()
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
        self._open_tasks.add(task.submitter)
        self._submitted[task.task_no] = arguments
        if task.sequence is not None:
            self._numbered[task.convoy_no or 0, task.sequence] = task

    def order(self, tail: TailRow) -> None:
        """The ordering of a key in which no task was placed yet."""
        self._tails[tail.key] = tail
        self.ask("order_convoy", {"convoy_no": tail.convoy_no, "ordering": tail.ordering})

    def flush(self) -> None:
        """See Tables. Raises Again: another process submitted one of the ids meanwhile."""
        write = self.transaction.write
        if self._added:
            added = list(self._added.values())
            inserted = write(INSERT_TASKS, [task for task, _ in added]).fetchall()
            if len(inserted) < len(added):
                raise Again("another process submitted a task of the same id just now")
            bodies = [{"task_no": task.task_no, "arguments": arguments} for task, arguments in added]
            write(INSERT_BODIES, bodies)
        if self._aside:
            write(INSERT_ASIDE, self._aside)
        if self._changed_ledger is not None:
            self.ask("update_ledger", msgspec.structs.asdict(self._changed_ledger))
        super().flush()
