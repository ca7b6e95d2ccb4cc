"""``arriero schedule``: what is due and when, and what a person may do to a schedule."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Literal

import click
import msgspec

from ..client.named_calls import build_call
from ..client.schedules import (
    AskedRun,
    Schedules,
    ScheduleView,
    build_schedule_view,
    choose_app_of_schedule,
    read_shown_declaration,
)
from ..client.verb_commands import check_signature
from ..declare.attempt import as_datetime
from ..errors import InvalidInput, VerbRefused
from ..events import Event, UnreadableEvent
from ..events.schedule import EventOfSchedule
from ..explain.format import format_count
from ..explain.schedules import (
    OVERLAPS,
    describe_schedule_event,
    find_remedy,
    format_catch_up,
    format_timing,
    name_in_command,
)
from ..model import HistoryRow
from ..schedules import Overlap, ScheduleRow
from .loading import load_app
from .near_misses import NearMissGroup
from .options import format_refusal, json_option, parse_duration, read_option, signature_options, store_option
from .output import format_time, print_json, print_table, print_text, truncate
from .prompts import print_nobody_runs
from .store_events import format_last_events, load_store_stream
from .stores import open_client, open_operator, open_store_to_read

REFUSED = 1
Act = Callable[[Schedules], Awaitable[Any]]


class ScheduleOutcome(msgspec.Struct, frozen=True):
    """The output of a verb with ``--json``; ``schedule``: as it stands now, of one that was removed as it was."""

    verb: str
    outcome: Literal["done"]
    schedule: ScheduleView


class ShownSchedule(msgspec.Struct, frozen=True):
    """The output of ``schedule show --json``, a line for each App that has one of the name."""

    schedule: ScheduleView
    history: tuple[str, ...]


@click.group(cls=NearMissGroup, invoke_without_command=True)
@click.pass_context
def schedule(context: click.Context) -> None:
    """Look at schedules: what is submitted when, and why something was not; and act on one."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def app_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--app NAME``."""
    text = "Its App; needed only if several Apps have a schedule of the name."
    return click.option("--app", metavar="NAME", help=text)(function)


def parse_instant(text: str) -> datetime:
    """Parse an instant in ISO 8601 with a time zone; the type of an argument. Raises BadParameter."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is no instant; write it like 2026-11-24T03:00+01:00") from None
    if when.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} names no time zone; write it like 2026-11-24T03:00+01:00, or with a Z for UTC"
        )
    return when


# --- looking
@schedule.command("list", short_help="List the schedules, and when each is due next.")
@click.option("--app", metavar="NAME", help="Only of this App; else of all.")
@store_option
@json_option
def list_schedules(app: str | None, store: str | None, as_json: bool) -> None:
    """List the schedules of all Apps with their next instants, their last runs and what is wrong with one."""
    rows = asyncio.run(_load_rows(store, app))
    if as_json:
        for row in rows:
            print_json(build_schedule_view(row))
        return
    columns = ("schedule", "app", "state", "due", "next run", "last run", "runs", "passed over", "problem")
    print_table(columns, list(map(_format_cells, rows)))


async def _load_rows(store: str | None, app: str | None = None) -> list[ScheduleRow]:
    async with open_store_to_read(store) as opened:
        return await opened.list_schedules(app)


def _format_cells(row: ScheduleRow) -> tuple[str, ...]:
    view = build_schedule_view(row, 1)
    next_run = format_time(view.next_runs[0].runs_at) if view.next_runs else ""
    timing = format_timing(read_shown_declaration(row).timing)
    counts = (f"{view.runs:,}", f"{view.passed_over:,}")
    return (view.name, view.app, view.state, timing, next_run, format_time(view.last_run), *counts, _find_trouble(view))


def _find_trouble(view: ScheduleView) -> str:
    if view.problem:
        return truncate(view.problem)
    return "its code does not declare it any more" if view.undeclared_since is not None else ""


@schedule.command("show", short_help="Show one schedule: when it is due next and why, its last run, what is wrong.")
@click.argument("name", metavar="SCHEDULE")
@click.option("--app", metavar="NAME", help="Only of this App; else of all that have a schedule of the name.")
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
    def describe(event: Event | UnreadableEvent, actor: str) -> str | None:
        if not isinstance(event, EventOfSchedule) or (event.schedule, event.app) != (of.name, of.app):
            return None
        return describe_schedule_event(event)

    return format_last_events(rows, describe)


def _print_schedule(row: ScheduleRow, shown: ShownSchedule, now: datetime) -> None:
    view, declared = shown.schedule, read_shown_declaration(row)
    lines = {
        "schedule": f"{view.name} of App {view.app}",
        "submits": f"{view.workflow} {truncate(declared.arguments)}",
        "due": format_timing(declared.timing),
        "declared": "in code" if view.declared_in_code else f"by {view.declared_by}",
        "state": view.state if view.paused_at is None else f"{view.state} {_format_pause(view)}",
        "problem": view.problem,
        "undeclared": "" if view.undeclared_since is None else _format_undeclared(view),
        "last run": f"{format_time(view.last_run)} {view.last_task}" if view.last_run else "none yet",
        "overlap": OVERLAPS[Overlap(view.overlap)],
        "missed runs": format_catch_up(declared),
        "so far": f"{format_count(view.runs, 'run')}, {format_count(view.passed_over, 'instant')} passed over",
    }
    for name, value in lines.items():
        if value:
            print_text(value, first=f"{name + ':':14}", hanging=14)
    click.echo("next runs:" if view.next_runs else "next runs:    none")
    for one in view.next_runs:
        reasons = [one.why, "due, and not submitted yet" if one.runs_at <= now else ""]
        why = "; ".join(filter(None, reasons))
        click.echo(f"  {one.at:%a %Y-%m-%d %H:%M:%S %Z}  {format_time(one.runs_at)}{f'  ({why})' if why else ''}")
    if shown.history:
        click.echo("\nwhat happened:")
        for line in shown.history:
            print_text(line, first="- ", hanging=2)
    click.echo("\nwhat you can do:")
    for command, does in _list_commands(row, view):
        print_text(f"{does}:", first="- ", hanging=2)
        click.echo(f"    {command}")
    click.echo()


def _format_pause(view: ScheduleView) -> str:
    return f'since {format_time(view.paused_at)} by {view.paused_by}: "{view.pause_reason}"'


def _format_undeclared(view: ScheduleView) -> str:
    since = format_time(view.undeclared_since)
    return f"since {since} the newest process of its App does not declare it; it goes on until somebody removes it"


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
@click.argument("app", metavar="MODULE:APP")
@click.argument("name", metavar="SCHEDULE")
@click.argument("called", metavar="WORKFLOW_OR_STEP")
@click.option(
    "--arguments",
    metavar="JSON",
    default="{}",
    help="A JSON object, by parameter name; - reads it from standard input.",
)
@click.option("--cron", metavar="LINE", help="Minute, hour, day of month, month, day of week, like '0 3 * * *'.")
@click.option(
    "--timezone", metavar="ZONE", help="Where the line's times of day are meant, like Europe/Madrid; else UTC."
)
@click.option("--every", metavar="DURATION", type=parse_duration, help="A period, like 90, 15m, 2h or 1d.")
@click.option("--at", metavar="INSTANT", type=parse_instant, help="Once, like 2026-11-24T03:00+01:00.")
@click.option(
    "--overlap",
    metavar="WORD",
    default="skip",
    show_default=True,
    help="While the last run is open: skip, queue, all or cancel_running.",
)
@click.option(
    "--catch-up",
    metavar="DURATION",
    type=parse_duration,
    help="Make missed runs up so far back; else the last one only.",
)
@click.option("--jitter", metavar="DURATION", type=parse_duration, default="0", help="Runs may be so late on purpose.")
@click.option("--priority", metavar="N", type=int, default=5, show_default=True, help="Of its tasks, 0 to 9; 9 first.")
@signature_options("the store's history")
@store_option
@json_option
def add_schedule(
    app: str,
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
    loaded = load_app(app)
    call = build_call(loaded.session, called, read_option(arguments, "--arguments"), "--arguments")

    async def add() -> ScheduleView:
        async with open_client(loaded, store):
            added = await loaded.schedules.add(name, call, by=by, reason=reason, **options)
            print_nobody_runs(await loaded.session.describe_missing_scheduler(of=loaded.name))
            return added

    view = asyncio.run(add())
    if as_json:
        print_json(ScheduleOutcome("add", "done", view))
        return
    due = f"runs next at {format_time(view.next_runs[0].runs_at)}" if view.next_runs else "is never due"
    print_text(f"schedule {view.name} of App {view.app} {due}", hanging=2)


# --- acting
def _verb_command(verb: str, short_help: str) -> Callable[[Callable[..., str]], click.Command]:
    def declare(says: Callable[..., str]) -> click.Command:
        @schedule.command(verb, short_help=short_help, help=says.__doc__)
        @click.argument("name", metavar="SCHEDULE")
        @app_option
        @signature_options("the store's history")
        @store_option
        @json_option
        def run(name: str, app: str | None, by: str, reason: str, store: str | None, as_json: bool) -> None:
            check_signature(by, reason)
            view = asyncio.run(_act(name, app, store, lambda found: getattr(found, verb)(name, by=by, reason=reason)))
            if as_json:
                print_json(ScheduleOutcome(verb, "done", view))
            else:
                print_text(says(view), hanging=2)

        return run

    return declare


@_verb_command("pause", "Run nothing until it is resumed.")
def pause_schedule(view: ScheduleView) -> str:
    """Pause a schedule: what is due until it is resumed is never run. Runs that are open go on to their end."""
    return f"schedule {view.name} of App {view.app} runs nothing until it is resumed"


@_verb_command("resume", "Run again what becomes due.")
def resume_schedule(view: ScheduleView) -> str:
    """Resume a schedule that was paused. What was due meanwhile is not made up; see `arriero schedule backfill`."""
    due = f"runs next at {format_time(view.next_runs[0].runs_at)}" if view.next_runs else "has ended"
    return f"schedule {view.name} of App {view.app} {due}"


@_verb_command("remove", "Remove it; its runs stay.")
def remove_schedule(view: ScheduleView) -> str:
    """Remove a schedule. Its runs stay. One that code declares is back when a process of its App starts: pause it instead."""
    back = ""
    if view.declared_in_code and view.undeclared_since is None:
        back = "; its code declares it, so it is back when a process of the App starts: take it out there, or pause it instead"
    return f"schedule {view.name} of App {view.app} is removed; its runs stay{back}"


@schedule.command("run-now", short_help="Submit a run of now.")
@click.argument("name", metavar="SCHEDULE")
@app_option
@signature_options("the store's history")
@store_option
@json_option
def run_schedule_now(name: str, app: str | None, by: str, reason: str, store: str | None, as_json: bool) -> None:
    """Submit a run of now, whatever overlap says, also while the schedule is paused. Its next instants stay as they are."""
    check_signature(by, reason)
    asked: AskedRun = asyncio.run(_act(name, app, store, lambda found: found.run_now(name, by=by, reason=reason)))
    _print_asked((asked,), as_json=as_json)


@schedule.command("backfill", short_help="Submit the runs of a time that has passed.")
@click.argument("name", metavar="SCHEDULE")
@click.argument("start", metavar="FROM", type=parse_instant)
@click.argument("end", metavar="TO", type=parse_instant)
@click.option("--dry-run", is_flag=True, help="Only tell what would be submitted.")
@app_option
@signature_options("the store's history")
@store_option
@json_option
def backfill_schedule(
    name: str,
    start: datetime,
    end: datetime,
    dry_run: bool,
    app: str | None,
    by: str,
    reason: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Submit the runs of all instants from FROM to TO, both included, whose tasks are not there; at most 1,000.

    FROM and TO are instants with a time zone, like 2026-11-24T03:00+01:00. Exits with 1 if one was refused.
    """
    check_signature(by, reason)
    found = asyncio.run(
        _act(
            name,
            app,
            store,
            lambda schedules: schedules.backfill(name, start, end, by=by, reason=reason, dry_run=dry_run),
        )
    )
    _print_asked(found, as_json=as_json)


def _print_asked(asked: tuple[AskedRun, ...], *, as_json: bool) -> None:
    for one in asked:
        if as_json:
            print_json(one)
        else:
            detail = f": {one.detail}" if one.detail else ""
            print_text(f"{_OUTCOMES[one.outcome]} {one.task_id}{detail}", hanging=2)
    if not as_json and not asked:
        click.echo("no instant of the schedule lies there")
    if any(one.outcome == "refused" for one in asked):
        click.get_current_context().exit(REFUSED)


_OUTCOMES = {
    "planned": "would submit",
    "submitted": "submitted",
    "there": "was there already:",
    "refused": "could not submit",
}


async def _act(name: str, app: str | None, store: str | None, act: Act) -> Any:
    async with open_operator(None, store) as operator:
        rows = await operator.session.store.list_schedules(app)
        schedules = Schedules(operator.session, choose_app_of_schedule(rows, name, app))
        try:
            return await act(schedules)
        except VerbRefused as refused:
            raise InvalidInput(format_refusal(refused)) from refused
