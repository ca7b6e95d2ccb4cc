"""Reading what others have sent to tasks: replies to requests, and signals as operators look at them."""

from ...model import SignalRow, TaskRow
from ..rows import signal_as_is
from ..sql.store_rows import StoreRows
from .transactions import Lane, Transactions

ASIDE_LOOKED_AT_MAX = 1_000  # signals that were set aside, the latest: others are history


class SignalReading(Transactions):
    """Signals of tasks."""

    async def load_reply(self, task_no: int, number: int) -> tuple[SignalRow | None, TaskRow | None]:
        """A request, and its task if that has ended. Without a request: the task was purged."""

        def read(rows: StoreRows) -> tuple[SignalRow | None, TaskRow | None]:
            return rows.signal(task_no, number), next(iter(rows.select_ended((task_no,))), None)

        return await self._read(read)

    async def list_signals(self, task_no: int, *, after: int = 0, limit: int = 1_000) -> list[SignalRow]:
        """Signals of a task with a number above ``after``, taken or not, in the order of their commits."""
        return await self._read(lambda rows: rows.select_signals(task_no, after, limit))

    async def list_set_aside(self, limit: int) -> list[tuple[str, SignalRow]]:
        """Signals that were set aside, of tasks that receive others, with the id of the task, the latest first.

        One is left out once another of its name was sent later and not set aside. The latest ``ASIDE_LOOKED_AT_MAX`` are looked at.
        """
        asked = {"looked_at": ASIDE_LOOKED_AT_MAX, "limit": limit}

        def read(rows: StoreRows) -> list[tuple[str, SignalRow]]:
            return [(row[0], signal_as_is(row[1:])) for row in rows.ask("select_signals_aside", asked).fetchall()]

        return await self._read(read, Lane.SURVEYS)
