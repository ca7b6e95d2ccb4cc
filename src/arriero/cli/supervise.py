"""``arriero supervise``: the Supervisor alone, without an App; permanently, or one pass for cron and cloud schedulers."""

import asyncio
import sys
from collections.abc import Iterator
from datetime import datetime

import click
import msgspec

from ..client.app import App
from ..client.row_shapes import to_datetime
from ..config import Configuration, load_configuration
from ..errors import StoreError
from ..operations.problems import ExitCode
from ..runtime.leader import PASS_SECONDS_MAX
from ..runtime.single_pass import PassReport
from ..text.escaping import one_line
from .options import json_option, log_format_option, store_option
from .output import format_time, print_json
from .run import StopSignal, log_to_standard_error, run_until_signal
from .stores import load_store_configuration, open_operator, refuse_memory_store

NAME = "supervisor"  # of the App without code that this process runs


class SupervisionView(msgspec.Struct, frozen=True, kw_only=True):
    """The output of ``supervise --once --json``; see ``runtime.single_pass.PassReport``."""

    store: str
    led: bool
    led_by: str | None
    term: int | None
    processes_lost: int
    tasks_freed: int
    attempts_retried: int
    last_retry_at: datetime | None
    steps_failed: int
    tasks_undone: int
    tasks_held: int
    ledgers: int
    statuses_dropped: int
    convoys_mended: int
    tasks_readable: int
    runs_submitted: int
    alerts_told: int
    alerts_failed: int
    upkeep_failed: bool


@click.command(short_help="Run the Supervisor alone, or one pass of it.")
@click.option("--once", is_flag=True, help="Make one pass, print what it did, and exit. Use this from cron.")
@store_option
@log_format_option
@json_option
def supervise(once: bool, store: str | None, log_format: str | None, as_json: bool) -> None:
    """Supervise a state store without any App's code, until SIGTERM or Ctrl-C; or with --once for one pass.

    A pass frees what lost processes held, recovers what is overdue, enforces the limits of tasks, does the upkeep of the
    store and delivers the alerts that are due. If another process leads, it does nothing: that process does the same.

    With --once it exits with 0 also when another process leads; with 1 when an alert could not be delivered or a part of the upkeep
    failed; with 5 when the store cannot be used, or the pass does not end within a minute. What was written stays written.
    """
    if as_json and not once:
        raise click.UsageError("--json prints what one pass did; give --once too")
    configuration = load_store_configuration(store)
    chosen = load_configuration(flags={"log_format": log_format}).log_format
    url = refuse_memory_store(configuration.store)
    if not once:
        stop = StopSignal()
        stop.listen()
        log_to_standard_error(chosen)
        asyncio.run(_supervise_until_signal(url, stop))
        return
    log_to_standard_error(chosen)
    view = asyncio.run(_supervise_once(url, configuration))
    if as_json:
        print_json(view)
    else:
        for line in _format_lines(view):
            click.echo(f"arriero: {one_line(line)}")
    if view.upkeep_failed or view.alerts_failed:
        sys.exit(ExitCode.NO)


async def _supervise_until_signal(url: str, stop: StopSignal) -> None:
    async with open_operator(None, url):
        pass  # a store that is not there is refused here; running an App would make it
    app = App(NAME)
    await run_until_signal(app, app.session.configure(store=url, roles=["supervisor"]), None, stop)


async def _supervise_once(url: str, configuration: Configuration) -> SupervisionView:
    from ..client.assembly import supervise_once  # only who runs something pays for loading the runtime

    async with open_operator(None, url) as app:
        try:
            async with asyncio.timeout(PASS_SECONDS_MAX):
                report = await supervise_once(app.session, configuration)
        except TimeoutError as error:
            raise StoreError(
                f"the pass did not end within {PASS_SECONDS_MAX:g} s; what it wrote stays written: run it again, or see "
                "arriero doctor"
            ) from error
        return _build_view(app.store, report)


def _build_view(store: str, report: PassReport) -> SupervisionView:
    fields = msgspec.structs.asdict(report)
    fields["last_retry_at"] = to_datetime(report.last_retry_at)
    return SupervisionView(store=store, led=report.led_by is None, **fields)


def _format_lines(view: SupervisionView) -> Iterator[str]:
    if not view.led:
        yield f"nothing done on {view.store}: process {view.led_by} leads"
        return
    yield f"supervised {view.store} under term {view.term}"
    done = [says for says in _list_done(view) if says]
    yield from done or ["nothing was due"]


def _list_done(view: SupervisionView) -> Iterator[str]:
    if view.tasks_freed:
        lost = f" of {_count(view.processes_lost, 'lost process', 'lost processes')}" if view.processes_lost else ""
        yield f"{_count(view.tasks_freed, 'task')} freed{lost}"
    if view.attempts_retried:
        yield f"{_count(view.attempts_retried, 'attempt')} expired and will be repeated, the last at {format_time(view.last_retry_at)}"
    if view.steps_failed:
        yield f"{_count(view.steps_failed, 'step')} failed: no attempt is left, or no Agent took them in time"
    if view.tasks_undone:
        yield f"{_count(view.tasks_undone, 'task')} reached a limit: the undo has begun"
    if view.tasks_held:
        yield f"{_count(view.tasks_held, 'task')} reached a limit and wait for an operator"
    if view.ledgers:
        yield f"{_count(view.ledgers, 'part')} of ledgers opened or removed"
    if view.statuses_dropped:
        yield f"{_count(view.statuses_dropped, 'status', 'statuses')} dropped that nobody acknowledged"
    if view.convoys_mended:
        yield f"{_count(view.convoys_mended, 'convoy')} repaired that were blocked"
    if view.runs_submitted:
        yield f"{_count(view.runs_submitted, 'run')} of schedules submitted"
    if view.tasks_readable:
        yield f"{_count(view.tasks_readable, 'task')} can be read again"
    if view.alerts_told:
        yield f"{_count(view.alerts_told, 'alert')} delivered"
    if view.alerts_failed:
        yield f"{_count(view.alerts_failed, 'alert')} could not be delivered and will be repeated; the log above says why"
    if view.upkeep_failed:
        yield "a part of the upkeep failed; the log above says why"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
