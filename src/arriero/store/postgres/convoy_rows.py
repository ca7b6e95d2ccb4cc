"""Convoys on PostgreSQL inside one transaction: the one who changes one has locked its row."""

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.convoys import Gone, Held, NextUnreadable
from ...errors import UnreadableRow
from ...model import ConvoyRow, Loaded, TailRow, TaskRow, TaskState, Turn
from ..contract import Busy
from ..engine.commands import ReadLate
from ..readable import refuse_unreadable
from ..rows import convoy_as_is, shared_as_is, tail_of
from .columns import task_as_is
from .task_rows import PostgresTaskRows


class PostgresConvoyRows(PostgresTaskRows):
    """Rows of convoys on PostgreSQL."""

    # --- what was read
    def keep_convoys(self, rows: Iterable[tuple[Any, ...]], *, at_the_start: bool = False) -> list[ConvoyRow]:
        """Keep convoys that this transaction has locked. Of one that was not locked at the start of the batch, what
        was read of its next task then is not to be trusted: the one who had it locked may have changed that."""
        convoys = [convoy for row in rows if (convoy := self._readable_convoy(convoy_as_is(row))) is not None]
        late = set() if at_the_start else {convoy.convoy_no for convoy in convoys} - self._convoys.keys()
        self._touched |= late
        self._drained -= late
        self._convoys.update({convoy.convoy_no: convoy for convoy in convoys})
        return convoys

    def _readable_convoy(self, row: ConvoyRow) -> ConvoyRow | None:
        try:
            return refuse_unreadable(row)
        except UnreadableRow as error:
            self._unreadable_convoys[row.convoy_no] = error
            self._quarantine.add(error)
            return None

    def keep_next(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Tasks with their arguments that stand first in their convoys; this transaction has locked them."""
        for row in rows:
            task = self._readable(task_as_is(row[:-1]))
            if task is None or row[-1] is None:
                continue  # who needs it asks for it, and is notified
            assert task.convoy_no is not None
            self._tasks.setdefault(task.task_no, task)
            self._next[task.convoy_no] = task
            self._bodies[task.task_no] = row[-1]
            if not task.opened_count:
                self._all_read.add(task.task_no)

    def keep_behind(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Tasks with their arguments that stand second; nobody has locked them for us."""
        for row in rows:
            task = self._readable(task_as_is(row[:-1]))
            if task is None or row[-1] is None:
                continue
            assert task.convoy_no is not None
            self._behind[task.convoy_no] = Loaded(task, row[-1], ())

    def keep_sealed(self, rows: Iterable[tuple[Any, ...]], drained: Iterable[int]) -> None:
        """Ends of convoys that this transaction has locked; and in which convoys nothing waited after that."""
        tails = (shared_as_is(TailRow, row) for row in rows)
        self._sealed = {tail.convoy_no: tail for tail in tails if self._is_readable_tail(tail)}
        self._drained = self._sealed.keys() & set(drained)

    def _is_readable_tail(self, tail: TailRow) -> bool:
        """Returns False if this release cannot read it: an alert reports its convoy."""
        try:
            refuse_unreadable(tail)
        except UnreadableRow as error:
            self._unreadable_convoys[tail.convoy_no] = error
            self._quarantine.add(error)
            return False
        return True

    # --- rows as they stand
    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no in self._unreadable_convoys:
            raise self._unreadable_convoys[convoy_no]
        if convoy_no not in self._convoys:
            asked = {"convoy_nos": [convoy_no], "task_nos": []}
            if not self.keep_convoys(self.ask("lock_convoys", asked).fetchall()):
                if convoy_no in self._unreadable_convoys:
                    raise self._unreadable_convoys[convoy_no]
                if self.ask("select_counts_on", {"convoy_no": convoy_no}).fetchone() is None:
                    raise Gone
                raise Busy("another transaction has its convoy open")
            self._now = None
            raise ReadLate
        return self._convoys[convoy_no]

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        first = self._next.pop(convoy_no, None)
        if first is not None and self._is_fresh(first, after):
            return first
        if convoy_no in self._drained:
            return None
        self.flush()  # what this batch has changed in the convoy counts
        asked = {"convoy_no": convoy_no, "rank": after[0], "place": after[1]}
        found = self.ask("select_next_waiting", asked).fetchone()
        return None if found is None else self._lock_waiting(found[0])

    def find_following(self, task: TaskRow) -> Loaded | None:
        assert task.convoy_no is not None
        behind = self._behind.get(task.convoy_no)
        return None if behind is None or behind.task.task_no == task.task_no else behind

    def _is_fresh(self, task: TaskRow, after: tuple[int, int]) -> bool:
        is_untouched = self._tasks[task.task_no] is task and task.convoy_no not in self._touched
        return is_untouched and task.turn is Turn.WAITING and (task.rank or 0, task.place or 0) > after

    def member(self, task_no: int) -> TaskRow | None:
        if task_no not in self._tasks:
            asked = {"task_nos": [task_no]}
            self.keep_tasks(self.ask("lock_tasks", asked).fetchall())
            if task_no in self._tasks:
                self._now = None
                raise ReadLate
            self._refuse_unreadable(task_no)
            if self.ask("select_existing", asked).fetchone() is not None:
                raise Held
        return self._tasks.get(task_no)

    def _lock_waiting(self, task_no: int) -> TaskRow:
        try:
            task = self.member(task_no)
            self.arguments(task_no)
        except UnreadableRow as error:
            self._quarantine.add(error)
            raise NextUnreadable(error) from error
        if task is None or task.turn is not Turn.WAITING:
            raise Held
        return task

    def waiting_line(self, convoy_no: int, after: tuple[int, int], limit: int) -> tuple[int, list[Loaded]]:
        """Raises ReadLate when it has locked some: then it answers with those, so that tasks that come meanwhile end no line."""
        if convoy_no not in self._lines:
            self.flush()
            tails = self.ask("select_tails", {"convoy_nos": [convoy_no]}).fetchall()
            asked = {"convoy_no": convoy_no, "rank": after[0], "place": after[1], "limit": limit}
            numbers = [task_no for (task_no,) in self.ask("select_waiting_line", asked).fetchall()]
            self._lines[convoy_no] = tail_of(tails[0]).placed, numbers
        placed, numbers = self._lines[convoy_no]
        self._lock_members(numbers)
        found: list[Loaded] = []
        for task_no in numbers:
            task = self._tasks.get(task_no)
            arguments = self._bodies.get(task_no)
            if task is None or arguments is None or task.turn is not Turn.WAITING:
                break
            found.append(Loaded(task, arguments, ()))
        return placed, found

    def _lock_members(self, numbers: Sequence[int]) -> None:
        """Lock tasks, and read their arguments then. Others that another transaction has are left out."""
        new = [task_no for task_no in numbers if task_no not in self._tasks]
        asked = self._asked_members | set(new)
        if asked == self._asked_members:
            return
        new, self._asked_members = sorted(asked - self._asked_members), asked
        self.keep_tasks(self.ask("lock_tasks", {"task_nos": new}).fetchall())
        self._bodies.update(self.ask("select_bodies", {"task_nos": new}).fetchall())
        self._now = None
        raise ReadLate

    def unended_messages(self, batch_no: int, state: TaskState) -> list[TaskRow]:
        self.flush()
        asked = {"batch_no": batch_no, "state": state.stored}
        numbers = [task_no for (task_no,) in self.ask("select_unended_messages", asked).fetchall()]
        self._lock_members(numbers)
        for task_no in numbers:
            self._refuse_unreadable(task_no)
        if any(task_no not in self._tasks for task_no in numbers):
            raise Held
        return [self._tasks[task_no] for task_no in numbers]

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        """Returns 0 unless the tail is locked; lock it and read again."""
        if convoy_no not in self._sealed:
            return 0
        asked = {"convoy_no": convoy_no, "start": start, "stop": end}
        row = self.ask("count_sequences", asked).fetchone()
        assert row is not None
        return int(row[0])

    def seal(self, convoy_no: int) -> TailRow | None:
        if convoy_no not in self._sealed:
            row = self.ask("seal", {"convoy_no": convoy_no}).fetchone()
            if row is None:
                return None
            self._sealed[convoy_no] = tail_of(row)
        return self._sealed[convoy_no]

    # --- what is written at the end
    def put_convoy(self, convoy: ConvoyRow) -> None:
        self._convoys[convoy.convoy_no] = self._changed_convoys[convoy.convoy_no] = convoy
        self._touched.add(convoy.convoy_no)
        self._drained.discard(convoy.convoy_no)

    def put_tail(self, tail: TailRow) -> None:
        self._sealed[tail.convoy_no] = self._changed_tails[tail.convoy_no] = tail
