"""Removal of a task, a convoy or a ledger by its name, the same for all stores."""

from collections.abc import Sequence

import msgspec

from ...core import purging
from ...events import ERASED, Event
from ...model import ConvoyRow, Instant, LedgerRow, TailRow, TaskRow
from ..contract import PurgedNamed, PurgeNamed
from ..sql.rows import UpkeepRows
from .batch import STORE_STREAM, Batch


class NamedRows(msgspec.Struct, frozen=True):
    """Rows under a name as they were read; they are read again under locks before anything is removed.

    Args:
        placed: how many tasks the convoy had been given until then.
        rows: of the store's own history that name the ledger: no, link, hash.
    """

    is_there: bool
    task_nos: tuple[int, ...] = ()
    placed: int = 0
    rows: tuple[tuple[int, int, str], ...] = ()


def purge_named(
    which: PurgeNamed, found: NamedRows, table: UpkeepRows, now: Instant, actor: str, limit: int | None
) -> PurgedNamed:
    """See ``StateStore.purge_named``. ``limit``: None: nothing is removed, only judged."""
    return _Purging(which, found, table, now, actor).run(limit)


class _Purging:
    def __init__(self, which: PurgeNamed, found: NamedRows, table: UpkeepRows, now: Instant, actor: str) -> None:
        self._which, self._found, self._table = which, found, table
        self._work, self._actor = Batch(table, now), actor

    def run(self, limit: int | None) -> PurgedNamed:
        table, name = self._table, self._which.name
        tail = table.purge_tail(name) if self._which.what == "convoy" else None
        convoy = None if tail is None else table.convoy(tail.convoy_no)
        ledger = table.purge_ledger(name) if self._which.what == "ledger" else None
        tasks = table.purge_tasks(self._found.task_nos)
        is_there = bool(tasks or convoy or ledger or self._found.rows)
        if not is_there:
            return PurgedNamed(
                kept="" if self._found.is_there else f"there is no {self._which.what} {name!r}", is_done=True
            )
        if tail is not None and tail.placed != self._found.placed:
            return PurgedNamed(kept=f"convoy {name!r}: a task came to it just now; ask again")
        kept = self._stays(tasks, tail, ledger)
        if kept is not None:
            return PurgedNamed(kept=kept)
        if limit is None:
            return PurgedNamed(count=len(tasks), is_done=True)
        # While some tasks of a convoy stay, so do those whose numbers would be missing; the last call takes all.
        batch = [task for task in tasks if not self._is_still_counted(task)][:limit] if len(tasks) > limit else tasks
        batch = batch or tasks
        is_done = len(batch) == len(tasks)
        self._note(batch, convoy if is_done else None, is_done=is_done)
        if batch:
            table.remove_tasks([task.task_no for task in batch])
        if is_done and convoy is not None:
            table.remove_convoy(convoy.convoy_no)
        if is_done and ledger is not None:
            table.remove_ledger(ledger.ledger_no)
        if is_done and self._found.rows:
            table.erase([no for no, _, _ in self._found.rows], ERASED)
        return PurgedNamed(count=len(batch), is_done=is_done)

    def _note(self, batch: Sequence[TaskRow], convoy: ConvoyRow | None, *, is_done: bool) -> None:
        """Before anything is removed: a number of the history is not given a second time."""
        events: list[Event] = []
        if batch:
            events.append(purging.build_tasks_purged([(task.task_no, task.link, task.head) for task in batch]))
        if convoy is not None:
            events.append(purging.build_convoy_purged(convoy))
        if is_done and self._which.what == "ledger":
            events.append(purging.build_ledger_purged((link, digest) for _, link, digest in self._found.rows))
        self._work.note(STORE_STREAM, self._actor, events)

    def _stays(self, tasks: Sequence[TaskRow], tail: TailRow | None, ledger: LedgerRow | None) -> str | None:
        """The first reason to remove nothing."""
        before, numbers = self._which.ended_before, [task.task_no for task in tasks]
        if ledger is not None and (kept := purging.explain_kept_ledger(ledger, before)) is not None:
            return kept
        unread, untold = self._table.unread(numbers), self._table.untold(numbers)
        for task in tasks:
            expected = (
                None
                if tail is not None or task.convoy_no is None
                else self._table.read_expected_unlocked(task.convoy_no)
            )
            queue, is_untold = unread.get(task.task_no), task.task_no in untold
            kept = purging.explain_kept_task(task, before, unread=queue, is_untold=is_untold, expected=expected)
            if kept is not None:
                return kept
        if tail is None:
            return None
        keeps_some = self._table.keeps_some_in(tail.convoy_no)
        return purging.explain_kept_convoy(self._table.convoy(tail.convoy_no), keeps_some=keeps_some)

    def _is_still_counted(self, task: TaskRow) -> bool:
        if self._which.what != "convoy" or task.sequence is None or task.convoy_no is None:
            return False
        return task.sequence >= self._table.convoy(task.convoy_no).expected
