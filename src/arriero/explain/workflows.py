"""Findings about workflows that operators have paused for new tasks."""

from collections.abc import Sequence
from typing import Literal

from ..core.workflow_pauses import describe_pause, format_resume
from ..model import Instant, later
from ..model.workflow_pauses import WorkflowPauseRow
from .doctor import Finding

LONG_SECONDS = 86_400.0  # a pause that is older was probably forgotten


def diagnose_workflows(rows: Sequence[WorkflowPauseRow], now: Instant) -> list[Finding]:
    """Judge the paused workflows of a store: information; one that is paused for longer than a day needs care."""
    found = []
    for row in rows:
        if row.is_paused:
            level: Literal["care", "information"] = (
                "care" if row.paused_at < later(now, -LONG_SECONDS) else "information"
            )
            found.append(Finding(level, "workflows", describe_pause(row), format_resume(row).strip("`")))
    return found
