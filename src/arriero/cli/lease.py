"""``arriero lease``: who leads, since when, and an operator's break."""

import asyncio

import click
import msgspec

from ..client.leases import BreakLeaseAnswer, load_lease_views
from ..client.task_verbs import check_signature
from ..errors import UnknownName
from ..events import Event, UnreadableEvent
from ..events.store import EventOfLease
from ..leases import Lease, LeaseView, open_lease
from ..leases.store import build_lease_view, check_name
from ..store.contract import SUPERVISOR_LEASE
from ..store.state_store import StateStore
from ..text.escaping import shell_word
from ..text.format import format_duration
from .operation_commands import build_group
from .options import F, json_option, print_empty, signature_options, store_option
from .output import format_time, print_commands, print_fields, print_history, print_json, print_table, print_text
from .stores import (
    format_last_events,
    load_store_configuration,
    load_store_stream,
    open_operator,
    open_store_to_read,
    refuse_memory_store,
)


class ShownLease(msgspec.Struct, frozen=True):
    """The output of ``lease show --json``. ``history``: what happened to it, as far as the store's history says."""

    lease: LeaseView
    history: tuple[str, ...]


def lease_option(function: F) -> F:
    """Add ``--lease URL``."""
    text = "URL of the store or provider that keeps the lease. By default the state store."
    return click.option("--lease", metavar="URL", help=text)(function)


def open_named_lease(name: str, url: str | None) -> Lease:
    """Make the lease of that name, at the URL or else in the configured store. Raises InvalidInput, LeaseRefused."""
    chosen = refuse_memory_store(load_store_configuration(None).store) if url is None else url
    return open_lease(chosen, name)


lease = build_group("lease", "Show leases, and take one away from its holder.")


@lease.command("list", short_help="List the leases of the store, and who holds them.")
@store_option
@json_option
def list_leases(store: str | None, as_json: bool) -> None:
    """List the leases that anybody ever held in the store, with that of the Supervisors."""
    views = asyncio.run(_load_views(store))
    if as_json:
        for view in views:
            print_json(view)
        return
    if not views:
        print_empty("leases")
        return
    print_table(
        ("lease", "holder", "term", "since", "lapses in", "duration", "broken by"), list(map(_format_cells, views))
    )


async def _load_views(store: str | None) -> list[LeaseView]:
    async with open_operator(None, store) as operator:
        return await load_lease_views(operator.session)


def _format_cells(view: LeaseView) -> tuple[str, ...]:
    left = "" if view.seconds_left is None else format_duration(view.seconds_left)
    duration = "" if view.duration is None else format_duration(view.duration)
    return (view.name, view.holder, str(view.term), format_time(view.since), left, duration, view.broken_by)


@lease.command("show", short_help="Show one lease: its holder, its term, and what happened to it.")
@click.argument("name", metavar="NAME")
@lease_option
@store_option
@json_option
def show_lease(name: str, lease: str | None, store: str | None, as_json: bool) -> None:
    """Show one lease: who holds it, under which term, since when, and when it lapses unless it is renewed."""
    shown = asyncio.run(_load_shown(name, lease, store))
    if as_json:
        print_json(shown)
        return
    view = shown.lease
    fields = {
        "lease": view.name,
        "provider": view.provider,
        "holder": view.holder or "nobody",
        "term": str(view.term),
        "since": format_time(view.since),
        "duration": "" if view.duration is None else format_duration(view.duration),
        "lapses in": "" if view.seconds_left is None else f"{format_duration(view.seconds_left)}, unless it is renewed",
        "broken": f'by {view.broken_by}: "{view.broken_reason}"' if view.broken_by else "",
    }
    print_fields(fields, 11)
    print_history(shown.history)
    if view.holder and name != SUPERVISOR_LEASE:
        print_commands([_choose_command(view, lease)])


def _choose_command(view: LeaseView, url: str | None) -> tuple[str, str]:
    """Choose the command that an operator may need next."""
    where = "" if url is None or "@" in url else f" --lease {shell_word(url)}"
    if view.broken_by:
        why, option = "let another one lead now, if its holder is known to be dead", " --at-once"
    else:
        why, option = "take it away, if its holder hangs", ""
    return f"arriero lease break {shell_word(view.name)}{option} --reason TEXT{where}", why


async def _load_shown(name: str, url: str | None, store: str | None) -> ShownLease:
    if url is not None:
        view = await open_lease(url, name).inspect()
        return ShownLease(_refuse_unknown(view, url), ())
    async with open_store_to_read(store) as opened:
        now, row = await opened.find_lease(name)
        if row is None:
            raise UnknownName(f"nobody ever held a lease {name!r} in the store {opened.url}; see `arriero lease list`")
        return ShownLease(build_lease_view(row, now), await _list_events(opened, name))


def _refuse_unknown(view: LeaseView, url: str) -> LeaseView:
    if not view.term and not view.holder:
        raise UnknownName(f"nobody holds a lease {view.name!r} at {view.provider}; contenders name it in `--lease`")
    return view


async def _list_events(store: StateStore, name: str) -> tuple[str, ...]:
    def is_meant(event: Event | UnreadableEvent) -> bool:
        return isinstance(event, EventOfLease) and event.lease == name

    return format_last_events(await load_store_stream(store), is_meant)


@lease.command("break", short_help="Take a lease away from its holder.")
@click.argument("name", metavar="NAME")
@click.option(
    "--at-once", is_flag=True, help="Let another process lead now, even if the holder still believes that it leads."
)
@signature_options("the store's history, and with the lease")
@lease_option
@store_option
@json_option
def break_named_lease(
    name: str, at_once: bool, by: str, reason: str, lease: str | None, store: str | None, as_json: bool
) -> None:
    """Take a lease away from its holder, because it hangs. Its next renewal is refused, and its work is cancelled.

    Another one leads when the lease would have lapsed. With --at-once it leads now: until the holder's next renewal, or
    until its trust ends, there may be two.
    """
    check_signature(by, reason)
    view = asyncio.run(_break(name, by, reason, at_once, lease, store))
    if as_json:
        print_json(BreakLeaseAnswer("break", "done", view))
        return
    when = (
        "immediately" if at_once or not view.seconds_left else f"in {format_duration(view.seconds_left)} at the latest"
    )
    print_text(
        f"lease {name} is taken from {view.holder or 'its holder'}, term {view.term}; another one may lead {when}"
    )


async def _break(name: str, by: str, reason: str, at_once: bool, url: str | None, store: str | None) -> LeaseView:
    if url is not None:
        return await open_lease(url, name).break_lease(by, reason, at_once=at_once)
    check_name(name)
    async with open_operator(None, store) as operator:
        return await operator.lease(name).break_lease(by, reason, at_once=at_once)
