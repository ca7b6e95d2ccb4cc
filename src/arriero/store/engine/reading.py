"""Reading what a process is to act on: rows that it cannot read are set apart, whatever the store."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import get_args

from ...core.undo import list_open_compensations
from ...errors import UnreadableRow
from ...model import Instant, Loaded, TaskState, later
from ..contract import Due, Ended, Overdue
from ..quarantine import Quarantine
from ..readable import refuse_unreadable
from ..shared_rows import SharedRow, parse_row_name
from ..sql.store_rows import StoreRows
from .transactions import TASKS_MAX, Lane, Transactions

LOOKED_THROUGH_MAX = 100_000  # rows of each kind, for one that cannot be read: more would take a person seconds


def load_readable(rows: StoreRows, task_nos: Sequence[int], quarantine: Quarantine) -> list[Loaded]:
    """The given tasks that exist and can be read."""
    return [loaded for loaded in rows.select_tasks(task_nos) if quarantine.can_read_task(loaded)]


def load_overdue(
    rows: StoreRows, limit: int, progress_seconds: float, ahead_seconds: float, quarantine: Quarantine
) -> Overdue:
    """See ``ReadingOperations.load_overdue``."""
    now = rows.read_clock()
    found = rows.select_past_deadline(now, later(now, -progress_seconds), later(now, ahead_seconds), limit)
    return Overdue(
        now,
        tuple(quarantine.readable(found.expired)),
        tuple(quarantine.readable(found.starved)),
        tuple(load_readable(rows, found.past_limit, quarantine)),
        tuple(load_readable(rows, found.stuck, quarantine)),
        found.next_at,
    )


def load_ended(rows: StoreRows, task_nos: Sequence[int], quarantine: Quarantine) -> list[Ended]:
    """See ``ReadingOperations.load_ended``. What is still to be undone is in the steps of those that did not end well.

    Nobody runs an ended task again, so its arguments and its convoy need not be readable.
    """
    tasks = quarantine.readable(rows.select_ended(task_nos))
    undone = [task.task_no for task in tasks if task.state is not TaskState.PROCESSED]
    steps = {loaded.task.task_no: loaded.steps for loaded in rows.select_tasks(undone)}
    found = ((task, steps.get(task.task_no, ())) for task in tasks)
    return [
        Ended(task, list_open_compensations(of_task))
        for task, of_task in found
        if all(quarantine.can_read(partial(refuse_unreadable, step)) for step in of_task)
    ]


def due_at(
    now: Instant,
    tasks: Iterable[Instant | None],
    steps: Iterable[Instant | None],
    times: Iterable[Instant | None],
    *,
    is_leaderless: bool,
) -> Due:
    """See ``StateStore.due``. ``times``: when something is or will be due, the earliest of each kind after now among them."""
    next_at = min((at for at in times if at is not None and at > now), default=None)
    return Due(now, _is_past(tasks, now), _is_past(steps, now), next_at, is_leaderless)


def _is_past(times: Iterable[Instant | None], now: Instant) -> bool:
    return any(at is not None and at <= now for at in times)


class ReadingOperations(Transactions):
    """Reads what a process is to act on, and looks for what it cannot read."""

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        """Tasks held by a process, or with a step running there."""
        return await self._reporting(
            self._read(lambda rows: load_readable(rows, rows.select_held(process_no, limit), self._quarantine))
        )

    async def load_overdue(self, limit: int, progress_seconds: float, ahead_seconds: float = 0.0) -> Overdue:
        """Expired rows.

        Args:
            limit: rows of each kind.
            progress_seconds: how long a holder may leave news unseen before it counts as stuck.
            ahead_seconds: how far ahead the next deadline is looked for; 0: it is not.
        """
        return await self._reporting(
            self._read(lambda rows: load_overdue(rows, limit, progress_seconds, ahead_seconds, self._quarantine))
        )

    async def load_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        """The given tasks with their steps, as of one moment; absent and unreadable ones are left out. They are no news any more."""

        def read(rows: StoreRows) -> list[Loaded]:
            self._quarantine.forget_untried(task_nos)  # whoever holds one asks until it has an answer
            return load_readable(rows, task_nos, self._quarantine)

        return await self._reporting(self._read(read))

    async def load_ended(self, task_nos: Sequence[int]) -> list[Ended]:
        """The ended ones (processed, compensated, error) of the given tasks, each once, ordered by their numbers."""
        return await self._reporting(self._read(lambda rows: load_ended(rows, task_nos, self._quarantine)))

    async def load(self, task_no: int) -> Loaded | None:
        """One task with its steps, as they stand: for people, also where it cannot be read (``store.readable``)."""
        return await self._read(lambda rows: next(iter(rows.select_tasks([task_no])), None))

    async def find(self, task_id: str) -> Loaded | None:
        """One task by its business id, as it stands; see ``load``."""

        def work(rows: StoreRows) -> Loaded | None:
            task_no = rows.select_number(task_id)
            return None if task_no is None else next(iter(rows.select_tasks([task_no])), None)

        return await self._read(work)

    async def look_at_unreadable(self) -> int:
        """Read again what alerts say cannot be read, and close those of tasks and rows that can be; answers how many."""

        def look(rows: StoreRows) -> tuple[list[int], list[str]]:
            found = rows.select_unreadable(TASKS_MAX)
            task_nos, names = [no for no, _ in found if no], [name for no, name in found if not no]
            loaded = {one.task.task_no: one for one in rows.select_tasks(task_nos)}
            tasks = [no for no in task_nos if no not in loaded or self._quarantine.can_read_task(loaded[no])]
            return tasks, [name for name in names if _is_readable_or_gone(rows, name)]

        readable, names = await self._read(look)
        for task_no in readable:
            self._quarantine.forget(task_no)
        for name in names:
            self._quarantine.forget_row(name)
        if readable:
            await self._write(lambda rows: rows.close_unreadable(readable))
        if names:
            await self._write(lambda rows: rows.close_unreadable_rows(names))
        if self._quarantine.unreported:
            await self._report_unreadable()
        return len(readable) + len(names)

    async def list_unreadable(self, limit: int) -> list[UnreadableRow]:
        """Look through the rows that belong to no task alone, for those that this release cannot read."""
        return await self._read(lambda rows: _list_unreadable(rows, limit), Lane.SURVEYS)


def _is_readable_or_gone(rows: StoreRows, name: str) -> bool:
    """Returns True if no alert about a shared row is needed any more."""
    parsed = parse_row_name(name)
    return parsed is not None and not list(_find_unreadable(rows.select_shared(*parsed, 1)))


def _list_unreadable(rows: StoreRows, limit: int) -> list[UnreadableRow]:
    kinds: tuple[type[SharedRow], ...] = get_args(SharedRow)
    found = (error for kind in kinds for error in _find_unreadable(rows.select_shared(kind, None, LOOKED_THROUGH_MAX)))
    return list(islice(found, limit))


def _find_unreadable(rows: Iterable[SharedRow]) -> Iterator[UnreadableRow]:
    for row in rows:
        try:
            refuse_unreadable(row)
        except UnreadableRow as error:
            yield error
