"""What attempts did lately."""

from collections.abc import Sequence

from ...core.attempts import AttemptSurvey, Retrying
from ...model import Instant
from ..attempts import ends_in, requests_of, retrying_of
from .session import Transaction


def survey(transaction: Transaction, now: Instant, steps: int, commits: int) -> AttemptSurvey:
    """See ``AttemptStore.survey_attempts``."""
    ask = transaction.ask

    def agents_of(step_nos: list[int]) -> dict[int, str]:
        return dict(ask("select_agents", {"step_nos": step_nos}).fetchall()) if step_nos else {}

    last, retrying = ask("select_history_last", {"limit": commits}), ask("select_retrying", {"limit": steps})
    due, running = ask("survey_requests", {"now": now}), ask("survey_running")
    transaction.arrive()
    ends, ends_from = ends_in([(task_no, at, events) for task_no, at, events in last.fetchall()], commits, agents_of)
    return AttemptSurvey(
        now=now,
        retrying=tuple(map(retrying_of, retrying.fetchall())),
        requests=requests_of(due.fetchall(), running.fetchall()),
        ends=ends,
        ends_from=ends_from,
    )


def retrying_steps(transaction: Transaction, task_nos: Sequence[int]) -> list[Retrying]:
    """See ``AttemptStore.retrying_steps``."""
    rows = transaction.ask("select_retrying_of", {"task_nos": sorted(set(task_nos))}).fetchall()
    return [retrying_of(row) for row in rows]
