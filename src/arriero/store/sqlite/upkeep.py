"""Looking a file over, and removing from it what nobody needs any more."""

import sqlite3
from collections.abc import Sequence

import msgspec

from ...core.lease import PROBATION_FROM
from ...core.purging import tasks_purged
from ...model import Instant, TaskState
from ..base import Purge, QueueSurvey, Survey
from ..batch import STORE_STREAM, Batch
from .rows import process_of
from .tables import Tables, query, step_range

_json = msgspec.json.encode


def survey(connection: sqlite3.Connection, now: Instant, counts: dict[TaskState, int]) -> Survey:
    """What a person should know of the store."""
    execute, at = connection.execute, {"now": now}
    found = execute(query("survey_tasks"), {**at, "probation_from": PROBATION_FROM}).fetchone()
    paused, probation, waiting, waiting_at, untold, untold_at, *rows = found
    return Survey(
        now,
        counts,
        paused,
        probation,
        (waiting, waiting_at),
        tuple(execute(query("survey_workflows"), at).fetchall()),
        tuple(execute(query("survey_steps"), at).fetchall()),
        tuple(execute(query("survey_not_undoable")).fetchall()),
        tuple(map(process_of, execute(query("survey_processes")))),
        tuple(QueueSurvey(*row) for row in execute(query("survey_queues"))),
        (untold, untold_at),
        dict(zip(("tasks", "history", "statuses"), rows, strict=True)),
    )


def _meant(which: Purge) -> dict[str, object]:
    return {"states": _json(which.states).decode(), "ended_before": which.ended_before}


def purgeable(connection: sqlite3.Connection, which: Purge, limit: int, after: int) -> list[int]:
    """Numbers of tasks that may be removed, after a task_no."""
    asked = {**_meant(which), "task_nos": None, "limit": limit, "after": after}
    return [row[0] for row in connection.execute(query("select_purgeable"), asked)]


def purge(tables: Tables, now: Instant, which: Purge, task_nos: Sequence[int], actor: str) -> int:
    """Remove those of some tasks that may still be removed."""
    execute = tables.connection.execute
    asked = {**_meant(which), "task_nos": _json(task_nos).decode(), "limit": len(task_nos), "after": 0}
    heads = execute(query("select_purgeable"), asked).fetchall()
    if heads:
        # Noted first, and the highest number kept: what is removed gives no number away for a second time.
        Batch(tables, now).note(STORE_STREAM, actor, [tasks_purged(heads)])
        tables.put_meta("last_task_no", tables.next_task_no() - 1)
    for task_no, _, _ in heads:
        one = {"task_no": task_no}
        for name in ("purge_history", "purge_alerts", "purge_body", "purge_task"):
            execute(query(name), one)
        execute(query("purge_steps"), step_range(task_no))
    return len(heads)
