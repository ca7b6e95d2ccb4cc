"""What the store's history tells of an outage: when the breaker opened and closed, its canaries, the attempts charged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from arriero.audit.export import read_export
from arriero.events import decode_event_fields
from arriero.model import HistoryRow, Instant, seconds_between
from arriero.text.format import format_count, format_duration, format_instant

from .operations import DOWN_CODE
from .outage import OutageCourse

FAILED = frozenset(("recover.applied", "step.failed", "compensation.failed"))
OPENED = frozenset(("step.opened", "step.reopened"))


@dataclass
class Opening:
    """One time that the breaker was not closed, by the store's clock.

    ``answered``, ``failed``, ``lost``: how its canaries ended, as far as the breaker took that in. ``closed_at`` None: the
    history ends before.
    """

    opened_at: int
    reason: str
    closed_at: int | None = None
    canaries: int = 0
    answered: int = 0
    failed: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Attempts:
    """Attempts that failed because the service was down.

    ``charged``: of them, counted against their step when they failed. ``returned``: of these, given back later.
    """

    failed: int
    charged: int
    returned: int


@dataclass(frozen=True)
class OutageReport:
    """An outage as it went. ``began_at``: by this machine's clock, None: it never began. ``calls``: that reached the
    service while it was down, as it counted them; None: it could not be asked."""

    agent: str
    seconds: float
    began_at: datetime | None
    calls: int | None
    openings: tuple[Opening, ...]
    attempts: Attempts
    waiting_max: int


def read_outage_report(course: OutageCourse, calls: int | None, history: Path) -> OutageReport:
    """Read the report from an exported history. Raises: OSError, MutilatedExport - it cannot be read."""
    with history.open("rb") as lines:
        rows = read_export(lines)
    agent = course.outage.agent
    return OutageReport(
        agent=agent,
        seconds=course.outage.seconds,
        began_at=course.began_at,
        calls=calls,
        openings=find_openings(rows, agent),
        attempts=count_attempts(rows, agent),
        waiting_max=course.waiting_max,
    )


def find_openings(rows: Iterable[HistoryRow], agent: str) -> tuple[Opening, ...]:
    """Find each time that the breaker of an Agent opened, until it closed. A canary that fails opens it no second time."""
    found: list[Opening] = []
    for row in rows:
        for event in decode_event_fields(row):
            if event.get("agent") != agent or not event["type"].startswith("breaker."):
                continue
            if event["type"] == "breaker.opened" and (not found or found[-1].closed_at is not None):
                found.append(Opening(row.at, event["reason"]))
            elif found:
                _note(found[-1], row.at, event)
    return tuple(found)


def _note(opening: Opening, at: int, event: Mapping[str, Any]) -> None:
    match event["type"], event.get("outcome"):
        case "breaker.probed", _:
            opening.canaries += 1
        case "breaker.answered", "answered":
            opening.answered += 1
        case "breaker.answered", "failed":
            opening.failed += 1
        case "breaker.answered", "lost":
            opening.lost += 1
        case "breaker.closed", _:
            opening.closed_at = at


def count_attempts(rows: Iterable[HistoryRow], agent: str) -> Attempts:
    """Count the attempts of an Agent that failed because its service was down. Other failures are left out."""
    agents: dict[tuple[int, int], str] = {}
    charges: defaultdict[tuple[int, int], list[bool]] = defaultdict(list)  # of each step: was the service down?
    counts: Counter[str] = Counter()
    for row in rows:
        for event in decode_event_fields(row):
            step = (row.task_no, event.get("step", 0))
            if event["type"] in OPENED:
                agents[step] = event.get("agent", "")
            elif agents.get(step) != agent:
                continue
            elif event["type"] in FAILED:
                is_down = event["failure"].get("code") == DOWN_CODE
                counts["failed"] += is_down
                if event.get("is_charged", True):
                    counts["charged"] += is_down
                    charges[step].append(is_down)
            elif event["type"] == "step.attempts_returned":
                # Those of the outage are the last ones that the step was charged.
                for _ in range(min(event["count"], len(charges[step]))):
                    counts["returned"] += charges[step].pop()
    return Attempts(counts["failed"], counts["charged"], counts["returned"])


def as_outage_figures(report: OutageReport) -> dict[str, object]:
    """The report as JSON figures by name; instants of the store as it keeps them, in microseconds since 1970."""
    return {
        "agent": report.agent,
        "seconds": report.seconds,
        "began_at": None if report.began_at is None else report.began_at.isoformat(),
        "calls_while_down": report.calls,
        "openings": [asdict(opening) for opening in report.openings],
        "attempts_failed": report.attempts.failed,
        "attempts_charged": report.attempts.charged - report.attempts.returned,
        "attempts_returned": report.attempts.returned,
        "orders_waiting_max": report.waiting_max,
    }


def describe_outage(report: OutageReport) -> Iterator[str]:
    """Lines for people."""
    if report.began_at is None:
        yield f"outage: {report.agent} was never down"
        return
    reached = "" if report.calls is None else f"; {format_count(report.calls, 'call')} reached it in that time"
    began = f"{report.began_at:%Y-%m-%d %H:%M:%S}Z"
    yield f"outage: {report.agent} was down from {began} for {format_duration(report.seconds)}{reached}"
    if not report.openings:
        yield f"the breaker of {report.agent} did not open"
    for opening in report.openings:
        yield from _describe_opening(report.agent, opening)
    yield _describe_attempts(report.attempts)
    if report.openings:
        waited = format_count(report.waiting_max, "order")
        yield f"seen to wait for {report.agent} at once while its breaker was not closed: {waited} at most"


def _describe_opening(agent: str, opening: Opening) -> Iterator[str]:
    yield f"the breaker of {agent} opened at {format_instant(Instant(opening.opened_at))}: {opening.reason}"
    # The history does not say how a canary ended that was still under way when the breaker opened again or closed.
    rest = opening.canaries - opening.answered - opening.failed - opening.lost
    yield (
        f"{format_count(opening.canaries, 'request')} went as canaries: {opening.answered:,} answered,"
        f" {opening.failed:,} failed, {opening.lost:,} lost with their process{f', {rest:,} not judged' if rest else ''}"
    )
    if opening.closed_at is None:
        yield f"the breaker of {agent} has not closed again"
        return
    opened_at, closed_at = Instant(opening.opened_at), Instant(opening.closed_at)
    after = format_duration(seconds_between(opened_at, closed_at))
    yield f"the breaker of {agent} closed at {format_instant(closed_at)}, {after} after it opened"


def _describe_attempts(attempts: Attempts) -> str:
    return (
        f"{format_count(attempts.failed, 'attempt')} failed because it was down: {attempts.charged:,} charged at first,"
        f" {attempts.returned:,} of them given back, so {attempts.charged - attempts.returned:,} count"
    )
