"""Statuses, alerts and purging: what is kept for operators and other programs, and removed when nobody needs it any longer."""

from collections.abc import Callable, Sequence

import msgspec

from ...core import purging
from ...core.purging import build_tasks_purged
from ...events import ERASED, Event
from ...events.store import StatusesDropped
from ...model import AlertRow, ConvoyRow, Instant, LedgerRow, TailRow, TaskRow, later
from ...model.questions import QuestionRow
from ...model.tokens import ANY_REACH, Reach
from ..contract import PurgedNamed, PurgeNamed
from ..rows import alert_of
from ..sql.rows import UpkeepRows
from ..sql.store_rows import StoreRows
from .batch import STORE_STREAM, UPKEEP, Batch, build_gap_mark
from .transactions import Lane, Transactions, writes


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
            parent = None if task.parent_step is None else self._table.parent(task.parent_step)
            kept = purging.explain_kept_task(
                task, before, unread=queue, is_untold=is_untold, expected=expected, parent=parent
            )
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


def drop_statuses(rows: StoreRows, before: Instant, limit: int) -> int:
    """Drop statuses older than an instant, leaving one gap mark a queue that counts them; answers how many."""
    old = rows.lock_old_statuses(before, limit)
    if not old:
        return 0
    queues = sorted({status.queue for status in old})
    marks = {mark.queue: mark for mark in rows.lock_gap_marks(queues)}
    rows.remove_statuses([(status.queue, status.no) for status in (*old, *marks.values())])
    work = Batch(rows, rows.read_clock())
    for queue in queues:
        of_queue = [status for status in old if status.queue == queue]
        rows.add_status(build_gap_mark(queue, marks.get(queue), of_queue, work.now))
    work.note(STORE_STREAM, UPKEEP, [StatusesDropped(len(old))])
    return len(old)


def purge(rows: StoreRows, heads: Sequence[tuple[int, int, str]], actor: str) -> int:
    """Remove tasks, each given by number, link and head; answers how many."""
    if heads:
        # Noted first: what is removed must not give its number in the history away for a second time.
        Batch(rows, rows.read_clock()).note(STORE_STREAM, actor, [build_tasks_purged(heads)])
        rows.remove_tasks([task_no for task_no, _, _ in heads])
    return len(heads)


def find_named(rows: StoreRows, which: PurgeNamed) -> NamedRows:
    """Rows under the name of what an operator has removed. It may read all tasks, or the whole history."""
    match which.what:
        case "task":
            number = rows.select_number(which.name)
            if number is None:
                return NamedRows(False)
            return NamedRows(True, (*rows.select_earlier_runs(number), number))
        case "convoy":
            tail = rows.select_tail(which.name)
            if tail is None:
                return NamedRows(False)
            return NamedRows(True, _add_runs(rows.select_of_convoy(tail.convoy_no), rows), tail.placed)
        case "ledger":
            ledger = rows.select_ledger(which.name)
            said = '"ledger":' + msgspec.json.encode(which.name).decode()
            named = rows.select_naming_ledger(said)
            kept = [] if ledger is None else rows.select_kept(ledger.ledger_no)
            of_tasks = [task_no for _, task_no, _, _ in named if task_no > 0]
            of_store = tuple((no, link, digest) for no, task_no, link, digest in named if task_no == STORE_STREAM)
            return NamedRows(bool(named) or ledger is not None, _add_runs([*of_tasks, *kept], rows), 0, of_store)


def _add_runs(task_nos: list[int], rows: StoreRows) -> tuple[int, ...]:
    """Add the other runs of tasks. Only one of the runs has the place in the convoy, or the mark of the ledger."""
    return tuple(sorted({*task_nos, *rows.select_all_runs(task_nos)})) if task_nos else ()


class UpkeepOperations(Transactions):
    """Statuses and alerts, kept until operators and other programs have them, and purging."""

    drop_statuses = writes(drop_statuses, Lane.UPKEEP)

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        """Remove statuses, each by its queue and ``no``; one that was removed before is not an error."""
        await self._write(lambda rows: rows.remove_statuses(acknowledged), Lane.OUTBOX)

    async def questions(
        self, *, of: str = "", after: int = 0, limit: int = 100, within: Reach = ANY_REACH
    ) -> list[QuestionRow]:
        """Open questions in the order in which they were asked, after a ``no``.

        ``of``: only those to these operators; empty: all. ``within``: only of its tasks.
        """
        asked = {"of": of, "after": after, "limit": limit}
        reach = {"apps": list(within.apps) or None, "workflows": list(within.workflows) or None}

        def read(rows: StoreRows) -> list[QuestionRow]:
            return [QuestionRow(*row) for row in rows.ask("select_questions", asked | reach).fetchall()]

        return await self._read(read, Lane.SURVEYS)

    async def alerts(
        self,
        *,
        open_only: bool = True,
        questions: bool = True,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AlertRow]:
        """Alerts in the order of their opening; with ``before`` the newest first. ``questions``: with those to operators."""
        asked = {"open_only": open_only, "questions": questions, "after": after, "before": before, "limit": limit}
        name = "select_newest_alerts" if before else "select_alerts"
        return await self._read(lambda rows: [alert_of(row) for row in rows.ask(name, asked).fetchall()], Lane.SURVEYS)

    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        """Alerts due to be delivered, each with its ``attempts`` grown and not due again for ``hold_seconds``."""

        def work(rows: StoreRows) -> list[AlertRow]:
            now = rows.read_clock()
            return rows.hold_alerts(now, later(now, hold_seconds), limit)

        return await self._write(work, Lane.OUTBOX)

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        """Keep who was notified, and when to continue (None: everybody knows). False: taken or closed by others meanwhile."""

        def work(rows: StoreRows) -> bool:
            next_at = None if again_in is None else later(rows.read_clock(), again_in)
            return rows.keep_told(no, attempts, told, next_at, error)

        return await self._write(work, Lane.OUTBOX)

    async def purge_named(self, which: PurgeNamed, *, actor: str, limit: int | None) -> PurgedNamed:
        """Remove what an operator names, at most that many tasks at a time, in one transaction; to be called until it is done.

        Nothing is removed while a task of it has not ended, or stays for a reason of ``core.purging``. What was removed is
        notified in the store's own history. ``limit`` None: nothing is removed, only judged.
        """
        # Found by reading; then its rows are locked, and looked at again.
        found = await self._read(lambda rows: find_named(rows, which), Lane.SURVEYS)

        def work(rows: StoreRows) -> PurgedNamed:
            return purge_named(which, found, rows, rows.read_clock(), actor, limit)

        return await (self._judge(work) if limit is None else self._write(work, Lane.UPKEEP))

    async def _judge(self, work: Callable[[StoreRows], PurgedNamed]) -> PurgedNamed:
        """Run ``work``, which changes nothing, like ``_write``."""
        return await self._write(work, Lane.UPKEEP)
