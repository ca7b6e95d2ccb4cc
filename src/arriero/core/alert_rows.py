"""Rows of alerts that are to be opened. What is sent of them to operators is in ``core.alerts``."""

from typing import Any

import msgspec

from ..model import AlertRow, Instant, StepRow, TaskRow
from ..model.agents import BreakerRow
from ..model.failures import TaskFailure

BREAKER_CAUSE = "breaker"
SCHEDULE_CAUSE = "schedule"
QUESTION_CAUSE = "question"


def _build_open(
    now: Instant, *, task_no: int = 0, task_id: str = "", workflow: str = "", incarnation: int = 0, **says: Any
) -> AlertRow:
    """Build the row of an alert that is opened now. By default it names no task. ``says``: its other fields."""
    of_task: dict[str, Any] = {"task_no": task_no, "task_id": task_id, "workflow": workflow, "incarnation": incarnation}
    state: dict[str, Any] = {"closed_at": None, "told": (), "attempts": 0, "next_at": now, "error": ""}
    return AlertRow(no=0, opened_at=now, **of_task, **state, **says)


def build_task_alert(task: TaskRow, failure: TaskFailure, now: Instant) -> AlertRow:
    """Build the alert of a task that needs an operator."""
    return _build_open(
        now,
        task_no=task.task_no,
        task_id=task.task_id,
        workflow=task.workflow,
        incarnation=task.incarnation,
        cause=failure.kind,
        reason=failure.reason,
        step=failure.step,
        code=failure.code,
        trace=msgspec.json.encode(failure.trace).decode() if failure.trace else None,
        tags=task.tags,
    )


def build_question_alert(task: TaskRow, step: StepRow, now: Instant) -> AlertRow:
    """Build the alert of a question. Its ``code`` is who is asked, its ``step`` the name to answer it by."""
    from ..model.questions import show_question  # only who asks pays for loading it

    return _build_open(
        now,
        task_no=task.task_no,
        task_id=task.task_id,
        workflow=task.workflow,
        incarnation=task.incarnation,
        cause=QUESTION_CAUSE,
        reason=show_question(step.arguments).question,
        step=step.label,
        code=step.name.partition(":")[2],
        tags=task.tags,
        step_no=step.step_no,
    )


def build_breaker_alert(row: BreakerRow, now: Instant) -> AlertRow:
    """Build the one alert of an outage. It names no task; ``step`` is the Agent with its target, ``code`` its App."""
    return _build_open(
        now,
        cause=BREAKER_CAUSE,
        reason=row.reason,
        step=row.label,
        code=row.app,
    )


def build_schedule_alert(app: str, name: str, problem: str, now: Instant) -> AlertRow:
    """Build the one alert of a schedule that cannot submit. It names no task; ``step`` is the schedule, ``code`` its App."""
    return _build_open(
        now,
        cause=SCHEDULE_CAUSE,
        reason=problem,
        step=name,
        code=app,
    )
