"""The convoys that a batch of submissions goes to, in one transaction: read and locked at its start, written at its end."""

from collections.abc import Sequence
from typing import Any

from ...commands import Submit
from ...core.changes import ConvoyChange
from ...core.placement import read_ordering
from ...errors import UnreadableRow
from ...model import ConvoyRow, Instant, LedgerRow, TailRow, TaskRow
from ..readable import refuse_unreadable
from ..rows import shared_as_is
from . import columns
from .pipeline import PendingAnswer
from .row_decoding import convoy_as_is, convoy_of, ledger_of, task_as_is
from .session import Transaction
from .task_rows import UPDATE_CONVOYS, UPDATE_TAILS


def may_be_new(batch: Sequence[Submit]) -> dict[str, Any]:
    """Keys that ``add_convoys`` is to make rows for, each with the first submission of an id; one a submission."""
    first: dict[str, Submit] = {}
    for command in batch:
        first.setdefault(command.task_id, command)
    placed = [command for command in first.values() if command.convoy is not None]
    return {
        "keys": [command.convoy for command in placed],
        "orderings": [read_ordering(command) for command in placed],
        "task_ids": [command.task_id for command in placed],
    }


class BatchPlaces:
    """Convoys of one batch of submissions. ``read_answers`` reads what the constructor asked for.

    ``within``: those of the batch whose keys may be made now.
    """

    def __init__(
        self, transaction: Transaction, batch: Sequence[Submit], within: Sequence[Submit], given: Instant | None
    ) -> None:
        self._transaction = transaction
        self._tails: dict[str, TailRow] = {}
        self._convoys: dict[int, ConvoyRow] = {}  # locked
        self._unreadable: dict[int, UnreadableRow] = {}  # by convoy
        self._unreadable_tails: dict[str | None, UnreadableRow] = {}
        self._expected: dict[int, int] = {}
        self._of_sequence: dict[tuple[int, int], TaskRow] = {}
        self._submitted: dict[int, str] = {}  # with what, by number
        self._changed_tails: set[str] = set()
        self._changed_convoys: set[int] = set()
        self._asked: dict[str, PendingAnswer] = {}
        self._given = given
        placed = [command for command in batch if command.convoy is not None]
        if placed:
            self._ask(placed, may_be_new(within))

    def _ask(self, placed: Sequence[Submit], new: dict[str, Any]) -> None:
        ask, keys = self._transaction.ask, list(dict.fromkeys(command.convoy for command in placed))
        numbered = [command for command in placed if command.sequence is not None]
        ask("add_convoys", {**new, "given": self._given})
        for name in ("lock_tails", "lock_asking"):
            self._asked[name] = ask(name, {"keys": keys})
        if numbered:
            self._asked["select_expected"] = ask("select_expected", {"keys": keys})
            pairs: dict[str, Any] = {
                "keys": [command.convoy for command in numbered],
                "sequences": [command.sequence for command in numbered],
            }
            self._asked["select_of_sequences"] = ask("select_of_sequences", pairs)

    def read_answers(self) -> None:
        """Read what was asked for."""
        if not self._asked:
            return
        for row in self._asked["lock_tails"].fetchall():
            tail = shared_as_is(TailRow, row)
            if self._is_readable(tail):
                self._tails[tail.key] = tail
            else:
                self._unreadable_tails[tail.key] = self._unreadable[tail.convoy_no]
        for row in self._asked["lock_asking"].fetchall():
            convoy = convoy_as_is(row)
            if self._is_readable(convoy):
                self._convoys[convoy.convoy_no] = convoy
        if "select_expected" in self._asked:
            self._expected |= dict(self._asked["select_expected"].fetchall())
            for row in self._asked["select_of_sequences"].fetchall():
                task = task_as_is(row[: columns.TASK_WIDTH])
                self._of_sequence[task.convoy_no or 0, task.sequence or 0] = task
                self._submitted[task.task_no] = row[columns.TASK_WIDTH]

    def _is_readable(self, row: TailRow | ConvoyRow) -> bool:
        """Returns False if this release cannot read it; an alert reports its convoy."""
        try:
            refuse_unreadable(row)
        except UnreadableRow as error:
            self._unreadable[row.convoy_no] = error
            return False
        return True

    # --- the PlacementRows of store.engine.convoys
    def find_tail(self, key: str | None) -> TailRow | None:
        if key in self._unreadable_tails:
            raise self._unreadable_tails[key]
        return None if key is None else self._tails.get(key)

    def add_key(self, command: Submit) -> TailRow:
        """The end of a key for which the start made no row: the id was known then, or came before in the batch."""
        assert command.convoy is not None
        self._asked.clear()
        self._ask([command], {**may_be_new([command]), "task_ids": [None]})
        self._transaction.arrive()
        self.read_answers()
        return self._tails[command.convoy]

    def read_expected(self, convoy_no: int) -> int:
        known = self._convoys.get(convoy_no)
        return self._expected.get(convoy_no, 1) if known is None else known.expected

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no in self._unreadable:
            raise self._unreadable[convoy_no]
        if convoy_no not in self._convoys:
            row = self._transaction.ask("lock_convoy", {"convoy_no": convoy_no}).fetchone()
            assert row is not None
            self._convoys[convoy_no] = convoy_of(row)
        return self._convoys[convoy_no]

    def find_by_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        return self._of_sequence.get((convoy_no, sequence))

    def load_submitted(self, task_no: int) -> str | None:
        return self._submitted[task_no]

    def ledger(self, ledger_no: int) -> LedgerRow | None:
        row = self._transaction.ask("select_ledger", {"ledger_no": ledger_no}).fetchone()
        return None if row is None else ledger_of(row)

    def next_convoy_no(self) -> int:
        raise AssertionError("every key of the batch has its rows")

    # --- what is written at the end
    def keep(self, change: ConvoyChange, task: TaskRow, command: Submit) -> None:
        """A task of the batch has its place."""
        assert change.tail is not None
        self._tails[change.tail.key] = change.tail
        self._changed_tails.add(change.tail.key)
        if change.convoy is not None:
            self._convoys[change.convoy.convoy_no] = change.convoy
            self._changed_convoys.add(change.convoy.convoy_no)
        if task.sequence is not None:
            self._of_sequence[change.tail.convoy_no, task.sequence] = task
            self._submitted[task.task_no] = command.arguments

    def flush(self) -> None:
        """Send what was changed."""
        if self._changed_tails:
            self._transaction.write(UPDATE_TAILS, [self._tails[key] for key in sorted(self._changed_tails)])
        if self._changed_convoys:
            changed = [self._convoys[number] for number in sorted(self._changed_convoys)]
            self._transaction.write(UPDATE_CONVOYS, changed)
