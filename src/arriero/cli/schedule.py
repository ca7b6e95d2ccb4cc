"""``arriero schedule``: what is due and when, and what an operator may do to a schedule."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from ..client.json_payloads import build_call
from ..client.schedule_declarations import check_instant
from ..client.schedules import ScheduleView, build_schedule_view, choose_app_of_schedule, read_shown_declaration
from ..client.task_verbs import check_signature
from ..config import load_configuration
from ..events import Event, UnreadableEvent
from ..events.store import EventOfSchedule
from ..explain.schedules import find_remedy, format_catch_up, name_in_command
from ..model import HistoryRow
from ..model.instants import as_datetime
from ..model.schedules import OVERLAPS, Overlap, ScheduleRow
from ..model.tags import format_tags
from ..operations import schedules
from ..operations.declaration import Done
from ..text.format import format_count, format_timing
from .operation_commands import add_act, add_listing, add_options, build_group, print_done, read_arguments
from .options import json_option, print_nobody_runs, read_option, signature_options, store_option
from .output import format_time, print_commands, print_fields, print_history, print_json, truncate
from .stores import (
    app_argument,
    format_last_events,
    load_chosen_app,
    load_store_stream,
    open_client,
    open_store_to_read,
)


class ShownSchedule(msgspec.Struct, frozen=True):
    """The output of ``schedule show --json``, a line for each App that has one of the name."""

    schedule: ScheduleView
    history: tuple[str, ...]


schedule = build_group("schedule", "Show schedules and their runs, and act on one.")


# --- looking
def _format_cells(view: ScheduleView) -> tuple[str, ...]:
    next_run = format_time(view.next_runs[0].runs_at) if view.next_runs else ""
    every = 0 if view.every is None else view.every // timedelta(microseconds=1)
    at = None if view.at is None else check_instant(view.at, "at")
    timing = format_timing(view.cron, view.timezone, every, at)
    counts = (f"{view.runs:,}", f"{view.passed_over:,}")
    return (view.name, view.app, view.state, timing, next_run, format_time(view.last_run), *counts, _find_trouble(view))


COLUMNS = ("schedule", "app", "state", "due", "next run", "last run", "runs", "passed over", "problem")
add_listing(schedule, schedules.LIST, COLUMNS, _format_cells)
for _verb in schedules.VERBS:
    add_act(schedule, _verb)


def _find_trouble(view: ScheduleView) -> str:
    if view.problem:
        return truncate(view.problem)
    return "its code no longer declares it" if view.undeclared_since is not None else ""


@schedule.command("show", short_help="Show one schedule: its next run and why, its last run, and what is wrong.")
@click.argument("name", metavar="SCHEDULE")
@click.option("--app-name", "app", metavar="NAME", help="Only the schedule of this App. By default of all Apps.")
@store_option
@json_option
def show_schedule(name: str, app: str | None, store: str | None, as_json: bool) -> None:
    """Show a schedule of each App that has one of the name: what it submits, its next five instants with what is unusual
    about each, its last run, what becomes of runs that overlap or were missed, and what was decided lately."""
    found, now = asyncio.run(_load_shown(name, app, store))
    for row, shown in found:
        if as_json:
            print_json(shown)
        else:
            _print_schedule(row, shown, now)


async def _load_shown(
    name: str, app: str | None, store: str | None
) -> tuple[list[tuple[ScheduleRow, ShownSchedule]], datetime]:
    async with open_store_to_read(store) as opened:
        rows = [row for row in await opened.list_schedules(app) if row.name == name]
        if not rows:
            choose_app_of_schedule(rows, name, app)
        told = await load_store_stream(opened)
        found = [(row, ShownSchedule(build_schedule_view(row), _list_events(told, row))) for row in rows]
        return found, as_datetime(opened.now())


def _list_events(rows: list[HistoryRow], of: ScheduleRow) -> tuple[str, ...]:
    def is_meant(event: Event | UnreadableEvent) -> bool:
        return isinstance(event, EventOfSchedule) and (event.schedule, event.app) == (of.name, of.app)

    return format_last_events(rows, is_meant)


def _print_schedule(row: ScheduleRow, shown: ShownSchedule, now: datetime) -> None:
    view, declared = shown.schedule, read_shown_declaration(row)
    timing = declared.timing
    fields = {
        "schedule": f"{view.name} of App {view.app}",
        "submits": f"{view.workflow} {truncate(declared.arguments)}",
        "due": format_timing(timing.cron, timing.timezone, timing.every, timing.at),
        "declared": "in code" if view.declared_in_code else f"by {view.declared_by}",
        "tags": format_tags(view.tags),
        "state": view.state if view.paused_at is None else f"{view.state} {_format_pause(view)}",
        "problem": view.problem,
        "undeclared": "" if view.undeclared_since is None else _format_undeclared(view),
        "last run": f"{format_time(view.last_run)} {view.last_task}" if view.last_run else "none yet",
        "overlap": f"{view.overlap}: {OVERLAPS[Overlap(view.overlap)]}",
        "missed runs": format_catch_up(declared),
        "so far": f"{format_count(view.runs, 'run')}, {format_count(view.passed_over, 'instant')} passed over",
    }
    print_fields(fields, 14)
    click.echo("next runs:" if view.next_runs else "next runs:    none")
    for one in view.next_runs:
        reasons = [one.why, "due, and not submitted yet" if one.runs_at <= now else ""]
        why = "; ".join(filter(None, reasons))
        click.echo(f"  {one.at:%a %Y-%m-%d %H:%M:%S %Z}  {format_time(one.runs_at)}{f'  ({why})' if why else ''}")
    print_history(shown.history)
    print_commands(_list_commands(row, view))
    click.echo()


def _format_pause(view: ScheduleView) -> str:
    return f'since {format_time(view.paused_at)} by {view.paused_by}: "{view.pause_reason}"'


def _format_undeclared(view: ScheduleView) -> str:
    since = format_time(view.undeclared_since)
    return f"since {since} the newest process of its App does not declare it; it continues until an operator removes it"


def _list_commands(row: ScheduleRow, view: ScheduleView) -> list[tuple[str, str]]:
    """List the commands that would change something, as they are typed, each with what it does."""
    named = name_in_command(row)
    found: list[tuple[str, str]] = []
    if view.problem:
        found.append(("arriero doctor", f"mend it: {find_remedy(row)}; what else is wrong"))
    if view.state == "paused":
        found.append((f"arriero schedule resume {named} --reason TEXT", "run again what becomes due from now on"))
    if view.last_task and not view.problem:
        found.append((f"arriero task explain {view.last_task}", "see what became of the last run"))
    if view.state == "active":
        found.append((f"arriero schedule pause {named} --reason TEXT", "run nothing for a while"))
    if view.problem or view.undeclared_since is not None or view.state == "ended":
        found.append((f"arriero schedule remove {named} --reason TEXT", "remove it; its runs stay"))
    return found


# --- adding
@schedule.command("add", short_help="Add a schedule that no code declares.")
@app_argument
@click.argument("name", metavar="SCHEDULE")
@click.argument("called", metavar="WORKFLOW_OR_STEP")
@click.option(
    "--arguments",
    metavar="JSON",
    default="{}",
    help="A JSON object with a member for each parameter. - reads it from standard input.",
)
@add_options(schedules.ScheduleRequest, without=("name", "workflow", "arguments"))
@signature_options("the store's history")
@store_option
@json_option
def add_schedule(
    app: str | None,
    name: str,
    called: str,
    arguments: str,
    by: str,
    reason: str,
    store: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Add a schedule: a workflow or step of an App is submitted by a cron line, at a period, or once."""
    check_signature(by, reason)
    loaded = load_chosen_app(app, load_configuration(flags={"store": store}))
    command = ("arriero", "schedule", "add", *([app] if app else []), name)
    call = build_call(loaded.session, called, read_option(arguments, "--arguments"), "--arguments", command)
    asked = read_arguments(schedules.ScheduleRequest, {"name": name, "workflow": called, "reason": reason, **options})

    async def add() -> Done:
        async with open_client(loaded, store):
            added = await schedules.add_schedule(loaded.session, call, by, asked)
            print_nobody_runs(await loaded.session.describe_missing_scheduler(of=loaded.name))
            return added

    print_done(asyncio.run(add()), as_json=as_json)
