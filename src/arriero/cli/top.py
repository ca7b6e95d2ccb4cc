"""``arriero top``: a live overview of a store."""

import asyncio

import click

from .options import find_login_name, json_option, parse_duration, store_option

EVERY_MIN = 0.2  # seconds: a terminal shows no more, and the store has other work


@click.command(short_help="Show a live overview of the store, with keys.")
@click.option(
    "--every",
    metavar="DURATION",
    type=parse_duration,
    default="2",
    show_default=True,
    help="Time between two readings of the store. Write 2, 0.5, 10s or 1m.",
)
@click.option("--by", metavar="NAME", help="Your name, which signs what keys do. By default your login name.")
@store_option
@json_option
def top(every: float, by: str | None, store: str | None, as_json: bool) -> None:
    """Show how a store is: tasks, calls of the last hour, Agents, processes, and what needs an operator.

    Keys select a task and open its timeline, and pause or resume an Agent; ? lists them, q quits. Where standard output or input is
    not a terminal, and with --json, it prints the overview once. The exit code does not say whether something needs an operator: see
    `arriero doctor`.
    """
    from .top_screen import show_top  # no other command pays for loading it

    asyncio.run(show_top(store, max(every, EVERY_MIN), lambda: by or find_login_name(), as_json=as_json))
