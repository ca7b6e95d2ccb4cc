"""Rows of signals inside one transaction."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ...model import Loaded, SignalRow
from ...model.signals import Inbox
from ..readable import refuse_unreadable
from ..rows import Row, signal_as_is
from .rows import SqlRows


def signal_of(row: Row) -> SignalRow:
    """A signal. Raises UnreadableRow."""
    return refuse_unreadable(signal_as_is(row))


class SignalTable(SqlRows):
    """Signals. What this transaction has still to write says nothing of them, since each is written immediately."""

    def look_at_inbox(self, task_no: int, signal_id: str, name: str) -> Inbox:
        known = self.ask_of_agents("select_signal_by_id", {"task_no": task_no, "signal_id": signal_id})
        found = self.ask_of_agents("look_at_inbox", {"task_no": task_no, "name": name}).fetchone()
        assert found is not None
        row = known.fetchone()
        last_number, count, size, named = found
        return Inbox(last_number, count, size, named, None if row is None else signal_of(row))

    def signal(self, task_no: int, number: int) -> SignalRow | None:
        row = self.ask_of_agents("select_signal", {"task_no": task_no, "number": number}).fetchone()
        return None if row is None else signal_of(row)

    def find_signal_of_runs(self, first_no: int, signal_id: str) -> SignalRow | None:
        asked = {"first_no": first_no, "signal_id": signal_id}
        row = self.ask_of_agents("select_signal_of_runs", asked).fetchone()
        return None if row is None else signal_of(row)

    def put_signal(self, signal: SignalRow) -> None:
        self.ask_of_agents("put_signal", msgspec.structs.asdict(signal))

    def inbox(self, task_no: int) -> tuple[SignalRow, ...]:
        return tuple(map(refuse_unreadable, self.select_inboxes((task_no,))))

    def select_signals(self, task_no: int, after: int, limit: int) -> list[SignalRow]:
        """Signals of a task as they stand, also those that cannot be read, in the order of their commits."""
        asked = {"task_no": task_no, "after": after, "limit": limit}
        return [signal_as_is(row) for row in self.ask_of_agents("select_signals", asked).fetchall()]

    def select_inboxes(self, task_nos: Sequence[int]) -> list[SignalRow]:
        """Signals of tasks that no wait has taken, as they stand, by task, in the order of their commits."""
        found = self.ask_of_agents("select_inboxes", {"task_nos": list(task_nos)}).fetchall()
        return [signal_as_is(row) for row in found]

    def add_inboxes(self, tasks: Sequence[Loaded]) -> list[Loaded]:
        """The tasks with what waits in their inboxes. Nothing is read for a task whose row says that there is nothing."""
        numbers = [loaded.task.task_no for loaded in tasks if loaded.task.inbox]
        if not numbers:
            return list(tasks)
        of_task: dict[int, list[SignalRow]] = {number: [] for number in numbers}
        for signal in self.select_inboxes(numbers):
            of_task[signal.task_no].append(signal)
        return [replace(one, signals=tuple(of_task.get(one.task.task_no, ()))) for one in tasks]
