"""What schedules mean for people: when they are due next and why, what is wrong with one, sentences of their history."""

from datetime import UTC, datetime
from typing import assert_never

import msgspec

from ..core.schedule_instants import as_local, compute_jitter, iterate_instants, load_zone
from ..declare.attempt import as_datetime
from ..errors import InvalidInput
from ..escaping import shell_word
from ..events.schedule import (
    EventOfSchedule,
    ScheduleAsked,
    ScheduleDecided,
    ScheduleDeclared,
    ScheduleMended,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleTroubled,
)
from ..model import MICROSECONDS, Instant
from ..schedules import Overlap, ProblemCause, ScheduleDeclaration, ScheduleRow, Timing, read_declaration
from .format import format_count, format_instant

OVERLAPS = {
    Overlap.SKIP: "skip: an instant is passed over while the last run is open",
    Overlap.QUEUE: "queue: runs wait for their turn, one after the other",
    Overlap.ALL: "all: runs begin at once, beside those that are open",
    Overlap.CANCEL_RUNNING: "cancel_running: a run that is open is cancelled, and the new one begins",
}


class NextRun(msgspec.Struct, frozen=True):
    """An instant at which a schedule is due next.

    Args:
        at: in the schedule's time zone. ``runs_at``: with its jitter, in UTC.
        why: what is unusual about it; empty: nothing.
    """

    at: datetime
    runs_at: datetime
    why: str = ""


def list_next_runs(row: ScheduleRow, count: int) -> list[NextRun]:
    """List when a schedule is due next. An empty list: never."""
    declared = read_declaration(row)
    timing = declared.timing
    zone = load_zone(timing.timezone)
    found: list[NextRun] = []
    for instant in iterate_instants(timing, row.anchor, row.decided_until):
        if len(found) == count:
            break
        jitter = compute_jitter(row.app, row.name, instant, declared.jitter)
        why = [explain_change_of_time(timing, instant)] if timing.cron else []
        why += [f"jitter +{jitter / MICROSECONDS:.3g} s"] if jitter else []
        local = as_local(instant, zone)
        found.append(NextRun(local, as_datetime(Instant(instant + jitter)), "; ".join(filter(None, why))))
    return found


def explain_change_of_time(timing: Timing, instant: Instant) -> str:
    """Explain what a change of time does to an instant of a cron line; empty: nothing."""
    zone = load_zone(timing.timezone)
    if zone is UTC:
        return ""
    local = as_local(instant, zone)
    before = as_local(Instant(instant - MICROSECONDS), zone)
    jumped = (local.utcoffset() or before.utcoffset()) != before.utcoffset() and local.replace(
        tzinfo=None
    ) - before.replace(tzinfo=None)
    if jumped and jumped.total_seconds() > 1 and not _follows_elapsed_time(timing.cron):
        start = before.replace(tzinfo=None, microsecond=0)
        missing = f"{start.hour:02}:{start.minute:02}:{start.second:02}"
        return f"a time after {missing} does not exist on {local:%Y-%m-%d}: it runs at {local:%H:%M %Z}"
    first, second = local.replace(fold=0), local.replace(fold=1)
    if first.utcoffset() == second.utcoffset() or _is_in_gap(local):
        return ""
    which = "second" if local.fold else "first"
    if _follows_elapsed_time(timing.cron):
        return f"{local:%H:%M} comes twice on {local:%Y-%m-%d}: this is the {which}, {local:%Z}; it runs in both"
    return f"{local:%H:%M} comes twice on {local:%Y-%m-%d}: it runs the first time, {local:%Z}"


def _is_in_gap(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) != local.replace(tzinfo=None)


def _follows_elapsed_time(line: str) -> bool:
    """As ``cronsim`` decides it: the minute or the hour begins with ``*``, or the line has seconds."""
    fields = line.split()
    return len(fields) != 5 or fields[0].startswith("*") or fields[1].startswith("*")


def format_timing(timing: Timing) -> str:
    """Format when a schedule is due, in one phrase."""
    if timing.cron:
        return f"cron {timing.cron} in {timing.timezone or 'UTC'}"
    if timing.every:
        return f"every {format_seconds(timing.every)}"
    assert timing.at is not None
    return f"once at {format_instant(timing.at)}"


def format_seconds(microseconds: int) -> str:
    """Format a period in the largest units that fit."""
    seconds, fraction = divmod(microseconds, MICROSECONDS)
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    if seconds or fraction or not parts:
        parts.append(f"{seconds + fraction / MICROSECONDS:g} s")
    return " ".join(parts)


def format_catch_up(declared: ScheduleDeclaration) -> str:
    """Format which missed runs are made up."""
    if declared.catch_up is None:
        return "of missed runs only the last one is made up"
    if declared.overlap in (Overlap.SKIP, Overlap.CANCEL_RUNNING):
        return f"of missed runs the last one is made up, if it is not older than {format_seconds(declared.catch_up)}"
    if not declared.catch_up:
        return "missed runs are not made up"
    return f"missed runs are made up for {format_seconds(declared.catch_up)}"


def find_remedy(row: ScheduleRow) -> str:
    """Find what mends a schedule that submits nothing."""
    if row.problem_cause == ProblemCause.CODE:
        return "run its App (arriero run MODULE:APP), or remove the schedule"
    return "remove the schedule and add it again with arguments that fit"


def name_in_command(row: ScheduleRow) -> str:
    """The words that name a schedule in a command."""
    return f"{shell_word(row.name)} --app {shell_word(row.app)}"


def describe_schedule_event(event: EventOfSchedule) -> str:
    """Describe an event of a schedule in one sentence."""
    match event:
        case ScheduleDeclared(by=by, reason=reason):
            timing = Timing(cron=event.cron, timezone=event.timezone, every=event.every, at=event.at)
            who = f"{by} added it" if by else "code declared it"
            return f"{who}: {event.workflow}, {_format_event_timing(timing)}, overlap {event.overlap}" + (
                f' ("{reason}")' if reason else ""
            )
        case ScheduleDecided():
            return _describe_decision(event)
        case ScheduleAsked(by=by, reason=reason, tasks=tasks, backfill=backfill):
            what = "a backfill" if backfill else "a run now"
            return f'{by} asked for {what}: "{reason}"; {format_count(len(tasks), "new run")}'
        case SchedulePaused(by=by, reason=reason):
            return f'{by} paused it: "{reason}"'
        case ScheduleResumed(by=by, reason=reason):
            return f'{by} resumed it: "{reason}"'
        case ScheduleRemoved(by=by, reason=reason):
            return f'{by} removed it: "{reason}"'
        case ScheduleTroubled(problem=problem):
            return f"it submits nothing: {problem}"
        case ScheduleMended():
            return "it submits again"
        case _:
            assert_never(event)


def _format_event_timing(timing: Timing) -> str:
    try:
        return format_timing(timing)
    except (InvalidInput, AssertionError):
        return "at no time"


def _describe_decision(event: ScheduleDecided) -> str:
    said = f"{format_count(len(event.runs), 'run')} submitted"
    if len(event.tasks) == 1:
        said = f"it submitted {event.tasks[0]}"
    elif not event.runs:
        said = "nothing was submitted"
    why = {"overlap": "the last run was open", "catch_up": "missed"}.get(event.why, event.why)
    over = f"; {format_count(event.passed_over, 'instant')} passed over: {why}" if event.passed_over else ""
    cancelled = f"; {event.cancelled} was cancelled for it" if event.cancelled else ""
    refused = f"; another task has the id {event.refused[0]}" if event.refused else ""
    return said + over + cancelled + refused
