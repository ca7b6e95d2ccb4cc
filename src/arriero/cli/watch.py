"""``arriero task watch``: the timeline of one task, live until it ends."""

import asyncio
import sys

import click

from ..operations.problems import ExitCode
from .options import json_option, store_option


@click.command("watch", short_help="Follow one task live until it ends.")
@click.argument("task_id", metavar="ID")
@store_option
@json_option
def watch_task(task_id: str, store: str | None, as_json: bool) -> None:
    """Follow a task: what it waits for, a bar for each attempt and wait on one axis of time, and the last events.

    It ends with the task: with exit code 0 if that is processed, else with 1. Ctrl-C ends it sooner. Times are those of the store's
    clock. Where standard output is not a terminal, each event is a line. With --json each change is one line, with the whole timeline.
    """
    from .watching import watch  # no other command pays for loading it

    if not asyncio.run(watch(task_id, store, as_json=as_json)):
        sys.exit(ExitCode.NO)
