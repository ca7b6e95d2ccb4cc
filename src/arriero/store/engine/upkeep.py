"""Statuses, alerts and purging: what is kept for people and other programs, and removed when nobody needs it any more."""

from collections.abc import Callable, Sequence

import msgspec

from ...core.purging import build_tasks_purged
from ...events.store import StatusesDropped
from ...model import AlertRow, Instant, later
from ..contract import PurgedNamed, PurgeNamed
from ..sql.store_rows import StoreRows
from .batch import STORE_STREAM, UPKEEP, Batch, build_gap_mark
from .purging import NamedRows, purge_named
from .transactions import Lane, Transactions, writes


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
    """Rows under the name of what a person has removed. It may read all tasks, or the whole history."""
    match which.what:
        case "task":
            number = rows.select_number(which.name)
            return NamedRows(number is not None, () if number is None else (number,))
        case "convoy":
            tail = rows.select_tail(which.name)
            if tail is None:
                return NamedRows(False)
            return NamedRows(True, tuple(rows.select_of_convoy(tail.convoy_no)), tail.placed)
        case "ledger":
            ledger = rows.select_ledger(which.name)
            said = '"ledger":' + msgspec.json.encode(which.name).decode()
            named = rows.select_naming_ledger(said)
            kept = [] if ledger is None else rows.select_kept(ledger.ledger_no)
            of_tasks = [task_no for _, task_no, _, _ in named if task_no > 0]
            of_store = tuple((no, link, digest) for no, task_no, link, digest in named if task_no == STORE_STREAM)
            return NamedRows(bool(named) or ledger is not None, (*of_tasks, *kept), 0, of_store)


class UpkeepOperations(Transactions):
    """Statuses and alerts, kept until people and other programs have them, and purging."""

    drop_statuses = writes(drop_statuses, Lane.UPKEEP)

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        """Remove statuses, each by its queue and ``no``; one that is gone already is no error."""
        await self._write(lambda rows: rows.remove_statuses(acknowledged), Lane.OUTBOX)

    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        """Alerts due to be told, each with its ``attempts`` grown and not due again for ``hold_seconds``."""

        def work(rows: StoreRows) -> list[AlertRow]:
            now = rows.read_clock()
            return rows.hold_alerts(now, later(now, hold_seconds), limit)

        return await self._write(work, Lane.OUTBOX)

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        """Keep who was told, and when to go on (None: everybody knows). False: taken or closed by others meanwhile."""

        def work(rows: StoreRows) -> bool:
            next_at = None if again_in is None else later(rows.read_clock(), again_in)
            return rows.keep_told(no, attempts, told, next_at, error)

        return await self._write(work, Lane.OUTBOX)

    async def purge_named(self, which: PurgeNamed, *, actor: str, limit: int | None) -> PurgedNamed:
        """Remove what a person names, at most so many tasks at a time, in one transaction; to be called until it is done.

        Nothing is removed while a task of it has not ended, or stays for a reason of ``core.purging``. What was removed is
        told in the store's own history. ``limit`` None: nothing is removed, only judged.
        """
        # Found by reading; then its rows are locked, and looked at again.
        found = await self._read(lambda rows: find_named(rows, which), Lane.SURVEYS)

        def work(rows: StoreRows) -> PurgedNamed:
            return purge_named(which, found, rows, rows.read_clock(), actor, limit)

        return await (self._judge(work) if limit is None else self._write(work, Lane.UPKEEP))

    async def _judge(self, work: Callable[[StoreRows], PurgedNamed]) -> PurgedNamed:
        """Run ``work``, which changes nothing, like ``_write``."""
        return await self._write(work, Lane.UPKEEP)
