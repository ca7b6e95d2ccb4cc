"""The first page: what needs an operator, and how tasks, Agents and processes stand."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...client.overview import MinuteOfCalls, Overview
from ...explain.doctor import Finding
from ..calls import Call
from ..scopes import ANY_TOKEN
from .asking import ask, may_ask
from .page import Page, page

CHART_HEIGHT = 60  # units of the drawing; a minute is ten units wide
MINUTE_WIDTH = 10
# The page where an operator sees and mends what a finding is about.
WHERE: Mapping[str, str] = {
    "held": "/failures",
    "failing": "/tasks?state=held",
    "repeating": "/tasks?state=held",
    "convoys": "/convoys",
    "outage": "/agents",
    "breaker": "/agents",
    "agents": "/agents",
    "starved": "/agents",
    "limits": "/agents",
    "attempts": "/agents",
    "alerts": "/alerts",
    "questions": "/inbox",
    "schedules": "/schedules",
    "leader": "/leases",
    "processes": "/processes",
    "roles": "/processes",
    "waiting": "/processes",
    "workflows": "/workflows",
    "versions": "/versions",
    "code": "/processes",
    "tokens": "/tokens",
}


class LinkedFinding(NamedTuple):
    """A finding. ``path``: of the page where it is seen; empty: there is none."""

    finding: Finding
    path: str


class MinuteBar(NamedTuple):
    """A minute of the drawing: two bars, one on the other, from the ground up."""

    x: int
    good: float
    failed: float
    says: str


@page("/", ANY_TOKEN, "What needs an operator, and how work stands.", is_live=True)
async def show_overview(call: Call) -> Page:
    overview: Overview | None = await ask(call, "show_overview") if may_ask(call, "show_overview") else None
    context: dict[str, Any] = {"overview": overview}
    if overview is not None:
        context |= {
            "findings": link_findings(overview.findings),
            "bars": draw_minutes(overview.calls),
            "most": max((minute.calls for minute in overview.calls), default=0),
            "chart": (MINUTE_WIDTH * len(overview.calls), CHART_HEIGHT),
        }
    return Page("overview.html", "Overview", context)


def link_findings(findings: Sequence[Finding]) -> tuple[LinkedFinding, ...]:
    """Add to each finding the page where it is seen."""
    return tuple(LinkedFinding(one, WHERE.get(one.about, "")) for one in findings)


def draw_minutes(minutes: Sequence[MinuteOfCalls], height: int = CHART_HEIGHT) -> tuple[MinuteBar, ...]:
    """Draw the calls of each minute as bars; the one with most calls has the full height, and a call is never invisible."""
    most = max((minute.calls for minute in minutes), default=0)
    return tuple(
        MinuteBar(
            number * MINUTE_WIDTH,
            _scale(minute.calls - minute.failed, most, height),
            _scale(minute.failed, most, height),
            f"{minute.minute:%H:%M}Z: {minute.calls:,} calls, {minute.failed:,} failed",
        )
        for number, minute in enumerate(minutes)
        if minute.calls
    )


def _scale(count: int, most: int, height: int) -> float:
    return round(max(height * count / most, 1.0), 2) if count > 0 else 0.0
