"""Reply queues and alerts in the file: statements on one connection, inside the caller's transaction."""

from collections.abc import Sequence

import msgspec

from ...model import AlertRow, Instant, StatusRow, later
from ..batch import STORE_STREAM, UPKEEP, Batch, gap_mark
from .rows import alert_of, status_of
from .tables import Executes, Tables, query


def statuses(connection: Executes, queue: str, limit: int) -> list[StatusRow]:
    """The oldest statuses of a queue, its gap mark first."""
    return [status_of(row) for row in connection.execute(query("select_statuses"), {"queue": queue, "limit": limit})]


def acknowledge(connection: Executes, acknowledged: Sequence[tuple[str, int]]) -> None:
    """Remove statuses that their reader is done with."""
    for queue, number in acknowledged:
        connection.execute(query("delete_status"), {"queue": queue, "no": number})


def drop(tables: Tables, now: Instant, before: Instant, limit: int) -> int:
    """Drop old statuses, leaving one gap mark a queue."""
    connection = tables.connection
    rows = connection.execute(query("select_old_statuses"), {"before": before, "limit": limit}).fetchall()
    old = list(map(status_of, rows))
    for queue in sorted({status.queue for status in old}):
        row = connection.execute(query("select_gap_mark"), {"queue": queue}).fetchone()
        mark = None if row is None else status_of(row)
        of_queue = [status for status in old if status.queue == queue]
        gone = of_queue if mark is None else [*of_queue, mark]
        acknowledge(connection, [(queue, status.no) for status in gone])
        tables.add_status(gap_mark(queue, mark, of_queue, now))
    if old:
        Batch(tables, now).note(STORE_STREAM, UPKEEP, [{"type": "statuses.dropped", "count": len(old)}])
    return len(old)


def take_alerts(connection: Executes, now: Instant, limit: int, hold_seconds: float) -> list[AlertRow]:
    """Alerts due to be told; nobody else takes them before ``hold_seconds`` have passed."""
    found = connection.execute(query("select_due_alerts"), {"now": now, "limit": limit}).fetchall()
    next_at = later(now, hold_seconds)
    taken = []
    for alert in map(alert_of, found):
        connection.execute(query("hold_alert"), {"no": alert.no, "next_at": next_at})
        taken.append(msgspec.structs.replace(alert, attempts=alert.attempts + 1, next_at=next_at))
    return taken


def settle_alert(
    connection: Executes,
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
    return connection.execute(query("settle_alert"), asked).rowcount == 1


def alerts(connection: Executes, open_only: bool, after: int, limit: int) -> list[AlertRow]:
    """Alerts in the order of their opening."""
    asked = {"open_only": open_only, "after": after, "limit": limit}
    return [alert_of(row) for row in connection.execute(query("select_alerts"), asked)]
