"""Reading the history of the whole store."""

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
