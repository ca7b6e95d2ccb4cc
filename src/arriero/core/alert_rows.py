"""Rows of alerts that are to be opened. What is sent of them to operators is in ``core.alerts``."""

import msgspec

from ..model import AlertRow, Instant, StepRow, TaskRow
from ..model.agents import BreakerRow
from ..model.failures import TaskFailure

BREAKER_CAUSE = "breaker"
SCHEDULE_CAUSE = "schedule"
QUESTION_CAUSE = "question"


def build_task_alert(task: TaskRow, failure: TaskFailure, now: Instant) -> AlertRow:
    """Build the alert of a task that needs an operator."""
    return AlertRow(
        no=0,
        task_no=task.task_no,
        task_id=task.task_id,
        workflow=task.workflow,
        incarnation=task.incarnation,
        cause=failure.kind,
        reason=failure.reason,
        step=failure.step,
        code=failure.code,
        opened_at=now,
        closed_at=None,
        told=(),
        attempts=0,
        next_at=now,
        error="",
        trace=msgspec.json.encode(failure.trace).decode() if failure.trace else None,
        tags=task.tags,
    )


def build_question_alert(task: TaskRow, step: StepRow, now: Instant) -> AlertRow:
    """Build the alert of a question. Its ``code`` is who is asked, its ``step`` the name to answer it by."""
    from ..model.questions import show_question  # only who asks pays for loading it

    return AlertRow(
        no=0,
        task_no=task.task_no,
        task_id=task.task_id,
        workflow=task.workflow,
        incarnation=task.incarnation,
        cause=QUESTION_CAUSE,
        reason=show_question(step.arguments).question,
        step=step.label,
        code=step.name.partition(":")[2],
        opened_at=now,
        closed_at=None,
        told=(),
        attempts=0,
        next_at=now,
        error="",
        tags=task.tags,
        step_no=step.step_no,
    )


def build_breaker_alert(row: BreakerRow, now: Instant) -> AlertRow:
    """Build the one alert of an outage. It names no task; ``step`` is the Agent with its target, ``code`` its App."""
    return AlertRow(
        no=0,
        task_no=0,
        task_id="",
        workflow="",
        incarnation=0,
        cause=BREAKER_CAUSE,
        reason=row.reason,
        step=row.label,
        code=row.app,
        opened_at=now,
        closed_at=None,
        told=(),
        attempts=0,
        next_at=now,
        error="",
    )


def build_schedule_alert(app: str, name: str, problem: str, now: Instant) -> AlertRow:
    """Build the one alert of a schedule that cannot submit. It names no task; ``step`` is the schedule, ``code`` its App."""
    return AlertRow(
        no=0,
        task_no=0,
        task_id="",
        workflow="",
        incarnation=0,
        cause=SCHEDULE_CAUSE,
        reason=problem,
        step=name,
        code=app,
        opened_at=now,
        closed_at=None,
        told=(),
        attempts=0,
        next_at=now,
        error="",
    )
