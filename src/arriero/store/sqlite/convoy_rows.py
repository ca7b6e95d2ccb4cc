"""Convoys on SQLite inside one transaction, and who waits in them."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...core.convoys import Gone, NextUnreadable
from ...errors import UnreadableRow
from ...model import ConvoyRow, LedgerRow, Loaded, TailRow, TaskRow
from ..readable import refuse_unreadable_task
from .row_cache import READ_AT_ONCE, WaitingCache
from .row_decoding import convoy_of, ledger_of, tail_of, task_as_is
from .task_rows import SqliteTaskRows, query


class SqliteConvoyRows(SqliteTaskRows):
    """Convoys, and who waits in them."""

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no not in self._known.convoys:
            row = self.connection.execute(query("select_convoy"), {"convoy_no": convoy_no}).fetchone()
            if row is None:
                raise Gone
            self._known.convoys[convoy_no] = convoy_of(row)
        return self._known.convoys[convoy_no]

    def put_convoy(self, convoy: ConvoyRow) -> None:
        self._is_written = False
        self._known.convoys[convoy.convoy_no] = self._changed_convoys[convoy.convoy_no] = convoy

    def find_tail(self, key: str) -> TailRow | None:
        if key not in self._known.tails:
            row = self.connection.execute(query("select_tail_by_key"), {"key": key}).fetchone()
            if row is None:
                return None
            self._known.tails[key] = tail_of(row)
        return self._known.tails[key]

    def put_tail(self, tail: TailRow) -> None:
        self._is_written = False
        self._known.tails[tail.key] = self._changed_tails[tail.key] = tail

    def seal(self, convoy_no: int) -> TailRow | None:
        """Find the tail. It needs no lock of its own: nobody else can add while the write lock is ours."""
        return self.find_tail(self.convoy(convoy_no).key)

    def next_convoy_no(self) -> int:
        if self._last_convoy_no is None:
            self._last_convoy_no = self._run("select_next_convoy_no").fetchone()[0] - 1
        self._last_convoy_no += 1
        return self._last_convoy_no

    def read_expected(self, convoy_no: int) -> int:
        return self.convoy(convoy_no).expected

    def convoy_of(self, task: TaskRow) -> ConvoyRow | None:
        """The convoy of a task; None: it is in no convoy."""
        return None if task.convoy_no is None else self.convoy(task.convoy_no)

    def member(self, task_no: int) -> TaskRow | None:
        return self.task(task_no)

    def look_ahead(self, convoy_nos: Iterable[int]) -> None:
        """Read who waits in these convoys while nothing is to be written yet."""
        for convoy_no in convoy_nos:
            if convoy_no not in self._known.waiting:
                # Purged: a late command still names it. Unreadable: told of the command that needs it.
                with suppress(Gone, UnreadableRow, NextUnreadable):
                    self._read_waiting(convoy_no, (self.convoy(convoy_no).from_rank, 0))

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        line = self._known.waiting.get(convoy_no)
        if line is None or not line.tells(after):
            if not self._is_written:
                self.flush()
            line = self._read_waiting(convoy_no, after)
        first = line.first
        if first is None:
            return None
        self._bodies[first.task.task_no] = first.arguments
        if line.second is not None:
            self._behind[first.task.task_no] = line.second
        return self._keep(first.task)

    def _read_waiting(self, convoy_no: int, after: tuple[int, int]) -> WaitingCache:
        asked = {"convoy_no": convoy_no, "rank": after[0], "place": after[1], "limit": READ_AT_ONCE}
        found = self.connection.execute(query("select_waiting_line"), asked).fetchall()
        read = self._read_in_order(found)
        line = WaitingCache(read, is_cut=len(read) < len(found))
        if after == (
            self.convoy(convoy_no).from_rank,
            0,
        ):  # from its very beginning: true until something changes in it
            self._known.waiting[convoy_no] = line
        return line

    def _read_in_order(self, rows: Sequence[tuple[Any, ...]]) -> list[Loaded]:
        """Up to the first that cannot be read: nobody goes before it. Raises NextUnreadable - that is the first of all."""
        read: list[Loaded] = []
        for row in rows:
            try:
                read.append(refuse_unreadable_task(Loaded(task_as_is(row[:-1]), row[-1], ())))
            except UnreadableRow as error:
                if not read:
                    self._quarantine.add(error)
                    raise NextUnreadable(error) from error
                break
        return read

    def find_following(self, task: TaskRow) -> Loaded | None:
        return self._behind.get(task.task_no)

    def find_by_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        asked = {"convoy_no": convoy_no, "sequence": sequence}
        row = self._run("select_of_sequence", asked).fetchone()
        return None if row is None else task_as_is(row)

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        asked = {"convoy_no": convoy_no, "start": start, "end": end}
        number: int = self._run("count_sequences", asked).fetchone()[0]
        return number

    def ledger(self, ledger_no: int) -> LedgerRow | None:
        row = self._run("select_ledger", {"ledger_no": ledger_no}).fetchone()
        return None if row is None else ledger_of(row)
