"""``arriero acts``: what operators did in the whole store."""

import asyncio

import click

from ..client.operator_acts import ActPage, load_act_page
from .options import NUMBER, json_option, print_empty, store_option
from .output import format_time, print_json, print_table, truncate
from .stores import open_store_to_read

COLUMNS = ("at", "by", "verb", "on", "name", "reason")


@click.command(short_help="List what operators did, the newest first.")
@click.option("--by", metavar="NAME", help="Only acts of this operator.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of commits with such an act.",
)
@click.option(
    "--before", metavar="NO", type=NUMBER, default=None, help="Only commits before this number of the history."
)
@store_option
@json_option
def acts(by: str | None, limit: int, before: int | None, store: str | None, as_json: bool) -> None:
    """List what operators did in the whole store, the newest first: who, on which thing, why and when.

    `arriero history TASK` has the acts on one task among its other events. With --by, one call looks through 2,000 commits at
    most; what it prints on standard error says where to continue.
    """
    page = asyncio.run(_load(store, by, before, limit))
    if as_json:
        for act in page.acts:
            print_json(act)
    elif page.acts:
        print_table(
            COLUMNS,
            [(format_time(act.at), act.by, act.verb, act.kind, act.subject, truncate(act.reason)) for act in page.acts],
        )
    elif page.before is None:
        print_empty("acts of operators", "" if by is None else f"--by {by}")
    if page.before is not None:
        click.echo(f"arriero: there may be more: --before {page.before}", err=True)


async def _load(store: str | None, by: str | None, before: int | None, limit: int) -> ActPage:
    async with open_store_to_read(store) as opened:
        return await load_act_page(opened, by=by, before=before, limit=limit)
