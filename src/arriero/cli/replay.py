"""``arriero replay``: the code of today over the records of stored tasks, and the tasks that it would hold."""

import asyncio
import sys
from contextlib import nullcontext

import click

from ..client.app import App
from ..client.replaying import HeldOnReplay, Replayer, ReplayReport, open_export
from ..config import load_configuration
from ..core.replay_judgement import OPEN, STATES
from ..errors import InvalidInput
from ..operations.problems import ExitCode
from ..store import existing_store
from ..text.format import format_count
from .options import json_option, store_option
from .output import Progress, print_json, print_text
from .stores import app_argument, load_chosen_app, refuse_memory_store

STATE_HELP = "Only tasks in this state, or all; by default open: pending, processing and compensating."
IDS_SHOWN_MAX = 5  # of the tasks of one cause; --json has each


@click.command(short_help="Find the tasks that today's code would hold.")
@app_argument
@click.option(
    "--export",
    "file",
    metavar="FILE",
    help="Read an export that carries payloads, in place of a store. - is standard input.",
)
@click.option("--state", type=click.Choice(STATES), metavar="STATE", default=OPEN, help=STATE_HELP)
@click.option("--workflow", metavar="NAME", help="Only tasks of this workflow; step:NAME for tasks of one step.")
@store_option
@json_option
def replay(
    app: str | None, file: str | None, state: str, workflow: str | None, store: str | None, as_json: bool
) -> None:
    """Run the workflow code of today over the records of stored tasks, and list the tasks that it would hold.

    No step and no Agent is called, and nothing is written. Of a task that is held, a
    resubmission is foreseen. Exits with 0 when no task would be held, with 1 when some would.
    """
    if file is not None and store is not None:
        raise InvalidInput("--store and --export exclude each other: records are read from a store or from an export")
    loaded = load_chosen_app(app, load_configuration(flags={"store": store}))
    report = asyncio.run(_replay(loaded, file, store, state, workflow))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if report.held:
        sys.exit(ExitCode.NO)


async def _replay(app: App, file: str | None, store: str | None, state: str, workflow: str | None) -> ReplayReport:
    with Progress("replay", "tasks", beside_data=False) as progress:
        replayer = Replayer(app.session, state, workflow, progress.advance)
        if file is not None:
            with nullcontext(sys.stdin.buffer) if file == "-" else open_export(file) as lines:
                return await replayer.replay_lines(lines)
        opened = existing_store(refuse_memory_store(app.session.configure(store=store).store), reads_only=True)
        await opened.open()
        try:
            return await replayer.replay_store(opened)
        finally:
            await opened.close()


def _print_report(report: ReplayReport) -> None:
    for held in report.causes:
        _print_cause(held)
    replayed = f"{format_count(report.replayed, 'task')} replayed, {len(report.held):,} would be held"
    skipped = ", ".join(f"{count:,} {why}" for why, count in sorted(report.skipped.items()))
    total = sum(report.skipped.values())
    print_text(f"{replayed}, {total:,} skipped{f' ({skipped})' if skipped else ''}", hanging=2)


def _print_cause(held: list[HeldOnReplay]) -> None:
    first = held[0]
    where = f" at {first.where}" if first.where else ""
    of_step = f", step {first.step}" if first.step else ""
    print_text(f"{first.workflow}: {format_count(len(held), 'task')} would be held{where}{of_step}", hanging=2)
    if first.at is not None and first.at.source:
        print_text(first.at.source, first="    ", hanging=4)
    print_text(first.reason, first="  ", hanging=2)
    ids = ", ".join(f"{one.id} ({one.state})" for one in held[:IDS_SHOWN_MAX])
    more = len(held) - IDS_SHOWN_MAX
    print_text(ids + (f" and {more:,} more; all with --json" if more > 0 else ""), first="  ", hanging=2)
    click.echo()
