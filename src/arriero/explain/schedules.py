"""Sentences for operators about schedules: their next instant and its reason, their problems, lines of their history."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ..core.schedule_instants import (
    as_local,
    compute_jitter,
    find_next,
    follows_elapsed_time,
    iterate_instants,
    load_zone,
)
from ..core.schedules import ACTOR, LAST_RUN_ONLY, LATE_SECONDS
from ..model import MICROSECONDS, Instant, TaskRow, later, seconds_between
from ..model.instants import as_datetime, as_instant
from ..model.schedules import ProblemCause, ScheduleDeclaration, ScheduleRow, Timing, read_declaration
from ..text.escaping import shell_word
from ..text.format import format_count, format_count_with_verb, format_duration, format_instant, format_period
from .doctor import NAMES_SHOWN_MAX, Finding

CLOCK_SECONDS_MAX = 60.0  # that the store's clock and this machine's may differ by, before an operator is notified


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
        jitter = compute_jitter(timing, row.anchor, row.app, row.name, instant, declared.jitter)
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
    if follows_elapsed_time(timing.cron):
        if local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset():
            return ""
        which = "second" if local.fold else "first"
        return f"{local:%H:%M} comes twice on {local:%Y-%m-%d}: this is the {which}, {local:%Z}; it runs in both"
    # What the line names if no clock ever jumped: from the last moment before this one on, read as if in UTC.
    before = as_local(Instant(instant - 1), zone).replace(tzinfo=UTC)
    named = find_next(Timing(cron=timing.cron), Instant(0), as_instant(before))
    if named is not None and (wanted := as_datetime(named)).replace(tzinfo=None) != local.replace(tzinfo=None):
        return f"{wanted:%H:%M} does not exist on {wanted:%Y-%m-%d}: it runs at {local:%H:%M %Z}"
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        return f"{local:%H:%M} comes twice on {local:%Y-%m-%d}: it runs the first time, {local:%Z}"
    return ""


def format_catch_up(declared: ScheduleDeclaration) -> str:
    """Format which missed runs are run late."""
    if declared.catch_up is None:
        return "of missed runs only the last one is run late"
    if declared.overlap in LAST_RUN_ONLY:
        return f"of missed runs the last one is run late, if it is not older than {format_period(declared.catch_up)}"
    if not declared.catch_up:
        return "missed runs are not run late"
    return f"missed runs are run late for {format_period(declared.catch_up)}"


def find_remedy(row: ScheduleRow) -> str:
    """Find what mends a schedule that submits nothing."""
    if row.problem_cause == ProblemCause.CODE:
        return "run its App (arriero run MODULE:APP), or remove the schedule"
    if row.problem_cause == ProblemCause.APPROVALS:
        return "the next run begins once that one has ended or each person has cancelled it; or declare another overlap"
    if row.problem_cause == ProblemCause.REFUSED:
        return "the schedule tries again every 10 s; free the id or the convoy, or declare it under another name"
    return "remove the schedule and add it again with arguments that fit"


def name_in_command(row: ScheduleRow) -> str:
    """The words that name a schedule in a command."""
    return f"{shell_word(row.name)} --app-name {shell_word(row.app)}"


def describe_run(task: TaskRow, submitted_by: str) -> str:
    """Describe which schedule submitted a task, and for which instant; empty: none did."""
    named, _, instant = task.task_id.rpartition("@")
    name = named.removeprefix(f"{task.app}/")
    if submitted_by != ACTOR or name == named:
        return ""
    command = f"arriero schedule show {shell_word(name)} --app-name {shell_word(task.app)}"
    return f"schedule {name} of App {task.app} submitted it, as its run of {instant}; see: {command}"


# --- the doctor
def diagnose_schedules(rows: Sequence[ScheduleRow], now: Instant, wall_clock: Instant) -> list[Finding]:
    """Judge the schedules of a store.

    Args:
        now: the store's clock. ``wall_clock``: of this machine.
    """
    if not rows:
        return []
    troubled = [row for row in rows if row.problem]
    late = [
        row for row in rows if not row.problem and row.look_at is not None and row.look_at < later(now, -LATE_SECONDS)
    ]
    found = [_find_problems(troubled)] if troubled else []
    if late:
        first = min(late, key=lambda row: row.look_at or now)
        says = f"{_count(late)} due and not submitted, {first.name} of App {first.app} since {format_instant(first.next_at or now)}"
        found.append(
            Finding("care", "schedules", says, "no Supervisor leads, or its store is slow: see the processes above")
        )
    if undeclared := [row for row in rows if row.undeclared_at is not None]:
        go_on = "it continues" if len(undeclared) == 1 else "they continue"
        says = f"{_count(undeclared)} no longer declared by code; {go_on}: {_list_names(undeclared)}"
        remedy = f"arriero schedule remove {name_in_command(undeclared[0])} --reason TEXT, or declare it again"
        found.append(Finding("information", "schedules", says, remedy))
    if abs(off := seconds_between(now, wall_clock)) > CLOCK_SECONDS_MAX:
        which = "behind" if off > 0 else "ahead of"
        says = f"the store's clock is {format_duration(abs(off))} {which} the clock of this machine, and schedules follow the store's"
        remedy = (
            "one of the two was set: on SQLite the store's is set again when the machine starts; a server has its own"
        )
        found.append(Finding("care", "schedules", says, remedy))
    if not found:
        found.append(Finding("fine", "schedules", f"{format_count(len(rows), 'schedule')}, none of them late"))
    return found


def _find_problems(troubled: Sequence[ScheduleRow]) -> Finding:
    first = troubled[0]
    others = f"; so it is with {len(troubled) - 1:,} more" if len(troubled) > 1 else ""
    since = f" since {format_instant(first.problem_since)}" if first.problem_since is not None else ""
    says = f"schedule {first.name} of App {first.app} submits nothing{since}: {first.problem}{others}"
    return Finding("care", "schedules", says, f"{find_remedy(first)}; arriero schedule show {name_in_command(first)}")


def _count(rows: Sequence[ScheduleRow]) -> str:
    return format_count_with_verb(len(rows), "schedule")


def _list_names(rows: Sequence[ScheduleRow]) -> str:
    more = f" and {len(rows) - NAMES_SHOWN_MAX:,} more" if len(rows) > NAMES_SHOWN_MAX else ""
    return ", ".join(row.name for row in rows[:NAMES_SHOWN_MAX]) + more
