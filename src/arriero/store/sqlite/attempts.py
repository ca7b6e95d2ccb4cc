"""What attempts did lately."""

import sqlite3
from collections.abc import Sequence

import msgspec

from ...core.attempts import AttemptSurvey, Retrying
from ...model import Instant
from ..attempts import ends_in, requests_of, retrying_of
from .tables import query

_json = msgspec.json.encode


def survey(connection: sqlite3.Connection, now: Instant, steps: int, commits: int) -> AttemptSurvey:
    """See ``AttemptStore.survey_attempts``."""
    execute = connection.execute

    def agents_of(step_nos: list[int]) -> dict[int, str]:
        return dict(execute(query("select_agents"), {"step_nos": _json(step_nos).decode()}).fetchall())

    last = execute(query("select_history_last"), {"limit": commits}).fetchall()
    ends, ends_from = ends_in(last, commits, agents_of)
    due = execute(query("survey_requests"), {"now": now}).fetchall()
    return AttemptSurvey(
        now=now,
        retrying=tuple(map(retrying_of, execute(query("select_retrying"), {"limit": steps}))),
        requests=requests_of(due, execute(query("survey_running")).fetchall()),
        ends=ends,
        ends_from=ends_from,
    )


def retrying_steps(connection: sqlite3.Connection, task_nos: Sequence[int]) -> list[Retrying]:
    """See ``AttemptStore.retrying_steps``."""
    asked = {"task_nos": _json(sorted(set(task_nos))).decode()}
    return [retrying_of(row) for row in connection.execute(query("select_retrying_of"), asked)]
