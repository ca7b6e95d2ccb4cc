"""Reply queues, alerts and purging: functions on one transaction."""

from collections.abc import Sequence

import msgspec

from ...core.purging import tasks_purged
from ...model import AlertRow, Instant, StatusRow, later
from ..base import Purge
from ..batch import STORE_STREAM, UPKEEP, Batch, gap_mark
from . import columns
from .processes import note
from .rows import alert_of
from .session import Transaction
from .tables import Tables


def statuses(transaction: Transaction, queue: str, limit: int) -> list[StatusRow]:
    """The oldest statuses of a queue, its gap mark first."""
    return [StatusRow(*row) for row in transaction.ask("select_statuses", {"queue": queue, "limit": limit}).fetchall()]


def acknowledge(transaction: Transaction, acknowledged: Sequence[tuple[str, int]]) -> None:
    """Remove statuses that their reader is done with."""
    rows = [{"queue": queue, "no": number} for queue, number in acknowledged]
    transaction.ask("delete_statuses", {"rows": columns.as_json(rows)})
    transaction.arrive()  # a connection that had ended before is noticed here, where nothing is in doubt yet


def drop(transaction: Transaction, now: Instant, before: Instant, limit: int) -> int:
    """Drop old statuses, leaving one gap mark a queue."""
    transaction.ask("lock_epoch")  # one at a time: of two, neither would see the other's mark
    rows = transaction.ask("select_old_statuses", {"before": before, "limit": limit}).fetchall()
    old = [StatusRow(*row) for row in rows]
    if not old:
        return 0
    queues = sorted({status.queue for status in old})
    found = [StatusRow(*row) for row in transaction.ask("select_gap_marks", {"queues": queues}).fetchall()]
    marks = {mark.queue: mark for mark in found}
    tables = Tables(transaction)
    for queue in queues:
        mark = marks.get(queue)
        of_queue = [status for status in old if status.queue == queue]
        tables.add_status(gap_mark(queue, mark, of_queue, now))
    acknowledge(transaction, [(status.queue, status.no) for status in (*old, *found)])
    Batch(tables, now).note(STORE_STREAM, UPKEEP, [{"type": "statuses.dropped", "count": len(old)}])
    tables.flush()
    return len(old)


def take_alerts(transaction: Transaction, now: Instant, limit: int, hold_seconds: float) -> list[AlertRow]:
    """Alerts due to be told; nobody else takes them before ``hold_seconds`` have passed."""
    asked = {"now": now, "next_at": later(now, hold_seconds), "limit": limit}
    return [alert_of(row) for row in transaction.ask("take_alerts", asked).fetchall()]


def settle_alert(
    transaction: Transaction,
    now: Instant,
    no: int,
    attempts: int,
    told: Sequence[str],
    again_in: float | None,
    error: str,
) -> bool:
    """Keep who was told. False: taken or closed by others meanwhile."""
    asked = {
        "no": no,
        "attempts": attempts,
        "told": msgspec.json.encode(list(told)).decode(),
        "next_at": None if again_in is None else later(now, again_in),
        "error": error,
    }
    settled = transaction.ask("settle_alert", asked)
    transaction.arrive()
    return settled.rowcount == 1


def alerts(transaction: Transaction, open_only: bool, after: int, limit: int) -> list[AlertRow]:
    """Alerts in the order of their opening."""
    asked = {"open_only": open_only, "after": after, "limit": limit}
    return [alert_of(row) for row in transaction.ask("select_alerts", asked).fetchall()]


def purge(transaction: Transaction, now: Instant, which: Purge, actor: str, limit: int, after: int) -> list[int]:
    """Remove some ended tasks with all that is kept of them; answers which."""
    asked = {"states": [str(state) for state in which.states], "ended_before": which.ended_before}
    heads = transaction.ask("purge_chosen", {**asked, "limit": limit, "after": after}).fetchall()
    if not heads:
        return []
    task_nos = [task_no for task_no, _, _ in heads]
    for name in ("purge_history", "purge_alerts", "purge_body", "purge_steps", "purge_task"):
        transaction.ask(name, {"task_nos": task_nos})
    # Last: others wait for the store's own history while this transaction has it.
    note(transaction, now, actor, tasks_purged([(task_no, link, head) for task_no, link, head in heads]))
    return task_nos
