"""Reading the history of the whole store."""

from ...model import HistoryRow
from ..rows import history_of
from ..sql.store_rows import StoreRows
from .transactions import Transactions


class HistoryReading(Transactions):
    """The history of all tasks, convoys and the store itself."""

    async def find_history_end(self) -> int:
        """The number of the last commit that can be read; 0: there is none. Who reads it often sees whether anything has changed."""

        def read(rows: StoreRows) -> int:
            (number,) = rows.ask("select_history_end").fetchone() or (0,)
            return int(number)

        return await self._read(read)

    async def load_acts(self, before: int | None = None, *, limit: int) -> list[HistoryRow]:
        """Load commits by which operators acted, the newest first. Other events may stand beside theirs.

        Args:
            before: only commits before this number; None: from the last one on.
        """
        asked = {"before": before, "limit": limit}
        return await self._read(lambda rows: list(map(history_of, rows.ask("select_acts", asked).fetchall())))

    async def load_store_stream_back(self, before: int | None = None, *, limit: int) -> list[HistoryRow]:
        """Load the history of the store itself, the newest commit first. ``before``: only links before this one."""
        asked = {"before": before, "limit": limit}
        return await self._read(
            lambda rows: list(map(history_of, rows.ask("select_store_stream_back", asked).fetchall()))
        )
