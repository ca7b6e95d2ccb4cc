"""Tasks that the code of others has started, their parents, and forks, read in one transaction. Shared by all stores."""

from collections.abc import Sequence

from ...core.parents import ParentStep
from ...model import Instant, TaskRow
from ..readable import refuse_unreadable
from ..sql.store_rows import StoreRows
from .transactions import Lane, Transactions


class ChildOperations(Transactions):
    """Reads of children: for the process that drives their parent, and for operators."""

    async def load_children(self, step_nos: Sequence[int]) -> dict[int, TaskRow]:
        """Tasks that are steps of others, by the numbers of those steps. One that is not there was not submitted, or was purged."""

        def read(rows: StoreRows) -> dict[int, TaskRow]:
            return {number: refuse_unreadable(task) for number, task in rows.select_children(step_nos).items()}

        return await self._reporting(self._read(read))

    async def list_children(self, step_nos: Sequence[int]) -> dict[int, TaskRow]:
        """Tasks that are steps of others, as they stand, by the numbers of those steps."""
        return await self._read(lambda rows: rows.select_children(step_nos), Lane.SURVEYS)

    async def find_parent(self, step_no: int) -> ParentStep | None:
        """The step that a child is, with its task, to judge a verb on the child. None: the task was purged."""
        return (await self._read(lambda rows: rows.select_parents((step_no,)))).get(step_no)

    async def load_parents(self, step_nos: Sequence[int]) -> dict[int, ParentStep]:
        """Steps that are tasks, by number, with the task that each belongs to. One whose task was purged is left out."""
        return await self._read(lambda rows: rows.select_parents(step_nos), Lane.SURVEYS)

    async def list_forks(self, task_no: int, limit: int) -> list[TaskRow]:
        """The first forks of a task, as they stand, in the order of submission."""
        return await self._read(lambda rows: rows.select_forks(task_no, limit), Lane.SURVEYS)

    async def find_unnoticed_children(self, since: Instant, until: Instant, limit: int) -> list[tuple[int, Instant]]:
        """Children that have ended between two instants, the earliest first, whose parents wait and may not know of it.

        Returns: the number of the step that each is, and when it ended.
        """
        asked = {"since": since, "until": until, "limit": limit}
        found = await self._read(lambda rows: rows.ask("select_unnoticed_children", asked).fetchall())
        return [(number, ended_at) for number, ended_at in found]
