"""``arriero alert``: what needs an operator, one by one or by cause."""

import asyncio

import click

from ..client.alerts import AlertCause, AlertCauses, ListedAlert, build_listed_alert, load_alert_causes
from ..errors import InvalidInput
from ..text.format import format_count
from .near_misses import NearMissGroup
from .options import NUMBER, json_option, print_empty, store_option
from .output import format_time, print_json, print_table, print_text, truncate
from .stores import open_store_to_read


@click.group(cls=NearMissGroup, short_help="Show alerts, which need an operator.")
def alert() -> None:
    """Look at alerts: what needs an operator, one by one or by cause."""


@alert.command("list", short_help="List open alerts, or their causes.")
@click.option(
    "--by-cause",
    is_flag=True,
    help="Print one entry for all open alerts of one cause, with one command for all their tasks.",
)
@click.option("--all", "all_", is_flag=True, help="Include closed alerts.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Maximum number of alerts.",
)
@click.option(
    "--after",
    metavar="NO",
    type=NUMBER,
    default=0,
    help="Only alerts after this number, which is the next page.",
)
@store_option
@json_option
def list_alerts(by_cause: bool, all_: bool, limit: int, after: int, store: str | None, as_json: bool) -> None:
    """List open alerts in the order of their opening.

    With --by-cause, alerts of one workflow, cause, step and code are one entry: their count, the first, the last, and the
    command that acts on all their tasks.
    """
    if by_cause:
        if all_ or after:
            raise InvalidInput("--by-cause groups all open alerts; leave out --all and --after")
        _print_causes(asyncio.run(_load_causes(store)), as_json=as_json)
        return
    alerts, more = asyncio.run(_load_alerts(store, not all_, after, limit))
    if as_json:
        for one in alerts:
            print_json(one)
    elif alerts:
        columns = ("no", "task", "workflow", "cause", "step", "code", "opened", "state", "reason")
        print_table(columns, [_format_cells(one) for one in alerts])
    else:
        print_empty("alerts") if all_ else print_empty("open alerts", remedy="--all lists the others")
    if more:
        click.echo(
            f"arriero: there are more; --after {alerts[-1].number} shows the next, --by-cause groups them", err=True
        )


async def _load_alerts(url: str | None, open_only: bool, after: int, limit: int) -> tuple[list[ListedAlert], bool]:
    async with open_store_to_read(url) as store:
        rows = await store.alerts(open_only=open_only, after=after, limit=limit + 1)
        return [build_listed_alert(row, store.store_id) for row in rows[:limit]], len(rows) > limit


async def _load_causes(url: str | None) -> AlertCauses:
    async with open_store_to_read(url) as store:
        return await load_alert_causes(store)


def _format_cells(one: ListedAlert) -> tuple[str, ...]:
    opened = format_time(one.opened_at)
    return (
        str(one.number),
        one.task_id,
        one.workflow,
        one.cause,
        one.step,
        one.code,
        opened,
        one.state,
        truncate(one.reason),
    )


def _print_causes(found: AlertCauses, *, as_json: bool) -> None:
    for cause in found.causes:
        if as_json:
            print_json(cause)
        else:
            _print_cause(cause)
    if not found.causes and not as_json:
        print_empty("open alerts")
    if not found.complete:
        click.echo("arriero: only the first 10,000 open alerts were read", err=True)


def _print_cause(cause: AlertCause) -> None:
    print_text(_format_cause(cause), hanging=4)
    print_text(f"{cause.first_task or cause.step}: {cause.reason}", first="  ", hanging=4)
    print_text(f"next: {cause.command}", first="  ", hanging=4)


def _format_cause(cause: AlertCause) -> str:
    """Format what the alerts have in common, how many there are and since when."""
    code = f" [{cause.code}]" if cause.code else ""
    step = f" at step {cause.step}" if cause.step and cause.first_task else ""
    first, last = format_time(cause.first_at), format_time(cause.last_at)
    if cause.count == 1:
        what = f"task of {cause.workflow}" if cause.first_task else "alert"
        return f"1 {what}: {cause.cause}{code}{step}; since {first}"
    return f"{format_count(cause.count, 'task')} of {cause.workflow}: {cause.cause}{code}{step}; first {first}, last {last}"
