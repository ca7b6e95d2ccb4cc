"""Statuses, alerts and purging: what is kept for people and other programs, and removed when nobody needs it any more."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from ...core.purging import build_tasks_purged
from ...events.store import StatusesDropped
from ...model import AlertRow, Instant, LedgerRow, StatusRow, TailRow, later
from ..contract import PurgedNamed, PurgeNamed
from .batch import STORE_STREAM, UPKEEP, Batch, build_gap_mark
from .purging import NamedRows, PurgeTable, purge_named
from .transactions import Lane, Transactions, UnreadableRows


class UpkeepRows(PurgeTable, UnreadableRows, Protocol):
    """Rows of statuses and alerts, and what may be purged."""

    def lock_old_statuses(self, before: Instant, limit: int) -> list[StatusRow]:
        """Statuses older than an instant, gap marks apart, in their order; nobody else drops any meanwhile."""
        ...

    def lock_gap_marks(self, queues: Sequence[str]) -> list[StatusRow]:
        """The gap marks of some queues, each of which has one at most."""
        ...

    def remove_statuses(self, statuses: Sequence[tuple[str, int]]) -> None:
        """Remove statuses, each by its queue and ``no``, that are still there."""
        ...

    def hold_alerts(self, now: Instant, next_at: Instant, limit: int) -> list[AlertRow]:
        """Alerts due to be told, the longest waiting first: each is given ``next_at``, and one attempt more."""
        ...

    def keep_told(self, no: int, attempts: int, told: Sequence[str], next_at: Instant | None, error: str) -> bool:
        """Keep who was told; False: taken or closed by others meanwhile."""
        ...

    def select_number(self, task_id: str) -> int | None:
        """See ``ReadingRows``."""
        ...

    def select_tail(self, key: str) -> TailRow | None: ...
    def select_ledger(self, ledger_id: str) -> LedgerRow | None: ...
    def select_of_convoy(self, convoy_no: int) -> list[int]:
        """Numbers of all tasks of a convoy, also of those that a ledger keeps."""
        ...

    def select_kept(self, ledger_no: int) -> list[int]:
        """Numbers of the tasks that a ledger has not let go."""
        ...

    def select_naming_ledger(self, said: str) -> list[tuple[int, int, int, str]]:
        """Number, task_no, link and hash of rows of the history in whose events ``said`` stands: of the store's own history,
        and the first ones of tasks."""
        ...


def drop_statuses(rows: UpkeepRows, before: Instant, limit: int) -> int:
    """See ``StateStore.drop_statuses``."""
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


def purge(rows: UpkeepRows, heads: Sequence[tuple[int, int, str]], actor: str) -> int:
    """Remove tasks, each given by number, link and head; answers how many."""
    if heads:
        # Noted first: what is removed must not give its number in the history away for a second time.
        Batch(rows, rows.read_clock()).note(STORE_STREAM, actor, [build_tasks_purged(heads)])
        rows.remove_tasks([task_no for task_no, _, _ in heads])
    return len(heads)


def find_named(rows: UpkeepRows, which: PurgeNamed) -> NamedRows:
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


R = TypeVar("R", bound=UpkeepRows)


class UpkeepEngine(Transactions[R]):
    """The part of ``store.contract.UpkeepStore`` that all stores have in common."""

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        await self._write(lambda rows: rows.remove_statuses(acknowledged), Lane.OUTBOX)

    async def drop_statuses(self, before: Instant, limit: int) -> int:
        return await self._write(lambda rows: drop_statuses(rows, before, limit), Lane.UPKEEP)

    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        def work(rows: R) -> list[AlertRow]:
            now = rows.read_clock()
            return rows.hold_alerts(now, later(now, hold_seconds), limit)

        return await self._write(work, Lane.OUTBOX)

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        def work(rows: R) -> bool:
            next_at = None if again_in is None else later(rows.read_clock(), again_in)
            return rows.keep_told(no, attempts, told, next_at, error)

        return await self._write(work, Lane.OUTBOX)

    async def purge_named(self, which: PurgeNamed, *, actor: str, limit: int | None) -> PurgedNamed:
        """Found by reading; then its rows are locked, and looked at again."""
        found = await self._read(lambda rows: find_named(rows, which), Lane.SURVEYS)

        def work(rows: R) -> PurgedNamed:
            return purge_named(which, found, rows, rows.read_clock(), actor, limit)

        return await (self._judge(work) if limit is None else self._write(work, Lane.UPKEEP))

    async def _judge(self, work: Callable[[R], PurgedNamed]) -> PurgedNamed:
        """Run ``work``, which changes nothing, like ``_write``."""
        return await self._write(work, Lane.UPKEEP)
