"""``arriero convoy``: what keys are doing, and what an operator may do to one."""

import asyncio

import click
import msgspec

from ..client.convoy import NAMED, NAMED_MAX, SHOWN, ConvoyView, build_convoy_view, list_convoy_views
from ..errors import UnknownName
from ..explain.convoys import format_policy, format_ranges
from ..operations import convoys
from ..payloads import codec
from .operation_commands import add_act, build_group
from .options import NUMBER, json_option, print_empty, store_option
from .output import format_time, print_fields, print_json, print_table, truncate
from .stores import open_store_to_read

convoy = build_group("convoy", "Show convoys, which order the tasks of a key, and act on one.")
for _verb in convoys.VERBS:
    add_act(convoy, _verb)


# --- looking
@convoy.command("list", short_help="List the keys that are not idle.")
@click.option("--state", type=click.Choice(SHOWN), help="Only convoys in this state. By default all that are not idle.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of convoys.",
)
@click.option("--after", metavar="NO", type=NUMBER, default=0, help="Only convoys after this number.")
@store_option
@json_option
def list_convoys(state: str | None, limit: int, after: int, store: str | None, as_json: bool) -> None:
    """List the keys that are not idle, or those in one state, in the order of their first submission."""
    found = asyncio.run(_load_views(store, state, after, limit + 1))
    views = found[:limit]
    if as_json:
        for view in views:
            print_json(view)
    elif views:
        columns = ("no", "key", "state", "since", "waiting", "set aside", "waits for")
        print_table(columns, list(map(_format_cells, views)))
    elif state is None:
        print_empty("convoys that are not idle", remedy="--state idle lists the others")
    else:
        print_empty("convoys", f"--state {state}")
    if len(found) > limit:
        click.echo(f"arriero: there are more: --after {views[-1].no}", err=True)


async def _load_views(store: str | None, state: str | None, after: int, limit: int) -> list[ConvoyView]:
    found: list[ConvoyView] = []
    async with open_store_to_read(store) as opened:
        async for view in list_convoy_views(opened, state, after=after):
            found.append(view)
            if len(found) == limit:
                break
    return found


def _format_cells(view: ConvoyView) -> tuple[str, ...]:
    counts = (f"{view.waiting:,}", f"{view.set_aside:,}")
    return (str(view.no), view.key, view.state, format_time(view.since), *counts, truncate(view.waiting_for))


@convoy.command("show", short_help="Show one key: its state, what it waits for, and its next tasks.")
@click.argument("key", metavar="KEY")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, NAMED_MAX),
    default=NAMED,
    show_default=True,
    help="Maximum number of waiting tasks, and of tasks set aside, that are named.",
)
@store_option
@json_option
def show_convoy(key: str, limit: int, store: str | None, as_json: bool) -> None:
    """Show one key: what it does, what it waits for, who comes next, what is missing and what was set aside."""
    view = asyncio.run(_load_view(key, limit, store))
    if as_json:
        print_json(view)
    else:
        _print_view(view)


async def _load_view(key: str, limit: int, store: str | None) -> ConvoyView:
    async with open_store_to_read(store) as opened:
        loaded = await opened.find_convoy(codec.check_id(key, "convoy"), limit)
        if loaded is None:
            raise UnknownName(f"there is no convoy {key!r} in the store {opened.url}; see `arriero convoy list`")
        return build_convoy_view(loaded, opened.now())


def _print_view(view: ConvoyView) -> None:
    fields = {
        "convoy": f"{view.key} (number {view.no}), ordered by {view.ordering}",
        "state": view.state,
        "since": format_time(view.since),
        "waits for": view.waiting_for,
        "head": view.open_task or "",
        "next": _format_next_tasks(view),
        "missing": f"sequence {format_ranges(view.missing)}" if view.missing else "",
        "gap until": format_time(view.gap_until),
        "set aside": f"{view.set_aside:,}" if view.set_aside else "",
        "policy": format_policy(view.policy, view.own_policy),
        "value": "" if view.value is None else truncate(msgspec.json.encode(view.value).decode()),
    }
    print_fields(fields, 17)
    if view.set_aside_tasks:
        click.echo()
        print_table(("set aside", "reason"), [(task_id, truncate(reason)) for task_id, reason in view.set_aside_tasks])


def _format_next_tasks(view: ConvoyView) -> str:
    more = view.waiting - len(view.next_tasks)
    return ", ".join(view.next_tasks) + (f" and {more:,} more" if view.next_tasks and more > 0 else "")
