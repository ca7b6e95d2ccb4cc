"""``arriero agent``: how the services of Agents are, and what an operator may do to one."""

import asyncio

import click
import msgspec

from ..client.agent_metrics import AgentMetrics, RecentCalls
from ..client.agents import AgentView, ProviderView, check_agent_name, load_agent_views
from ..core.agent_metrics import BOUNDS_SECONDS
from ..errors import UnknownName
from ..events import Event, UnreadableEvent
from ..events.store import EventOfBreaker
from ..explain.agents import format_use
from ..model import HistoryRow
from ..model.agents import AgentVerb
from ..operations import agents
from ..text.escaping import shell_word
from ..text.format import format_count, format_duration
from .operation_commands import add_act, add_listing, build_group
from .options import json_option, store_option
from .output import format_time, print_commands, print_fields, print_history, print_json, print_text, truncate
from .stores import format_last_events, load_store_stream, open_store_to_read

_CALL_COLUMNS = ("last", "calls", "failed", "p50", "p90", "p99")


def print_calls(metrics: AgentMetrics) -> None:
    """Print a line for each window, and how many calls were ever counted; one line if there were none."""
    if not metrics.total.calls:
        click.echo("calls:           none were counted so far")
        return
    waits = metrics.oldest_wait_seconds
    if waits is not None:
        click.echo(f"oldest wait:     {format_duration(waits)}")
    click.echo(f"calls:           {format_count(metrics.total.calls, 'call')} since counting began; lately:")
    rows = [_CALL_COLUMNS, *map(_format_call_cells, metrics.recent)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_CALL_COLUMNS))]
    for row in rows:
        click.echo("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _format_call_cells(recent: RecentCalls) -> tuple[str, ...]:
    share = "" if recent.failed_share is None else f"{100 * recent.failed_share:.1f} %"
    quantiles = (recent.p50_seconds, recent.p90_seconds, recent.p99_seconds)
    return (f"{recent.minutes} min", f"{recent.calls:,}", share, *map(_format_seconds, quantiles))


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{format_duration(seconds)}{' or more' if seconds >= BOUNDS_SECONDS[-1] else ''}"


class ShownAgent(msgspec.Struct, frozen=True):
    """The output of ``agent show --json``, a line for each App and target."""

    agent: AgentView
    history: tuple[str, ...]


agent = build_group("agent", "Show Agents and the health of their services, and act on one.")


def _format_cells(view: AgentView) -> tuple[str, ...]:
    since = view.paused_at if view.paused_at is not None else view.since
    counts = (f"{view.waiting:,}", f"{view.running:,}", str(len(view.processes)))
    reason = view.pause_reason if view.paused_at is not None else view.reason
    return (view.agent, view.target, view.app, view.shown, format_time(since), *counts, truncate(reason))


COLUMNS = ("agent", "target", "app", "state", "since", "waiting", "running", "processes", "reason")
add_listing(agent, agents.LIST, COLUMNS, _format_cells)
for _verb in agents.VERBS:
    add_act(agent, _verb)


@agent.command("show", short_help="Show one Agent: its state and why, what waits, and its next call.")
@click.argument("name", metavar="AGENT")
@click.option("--app-name", "app", metavar="NAME", help="Only the Agent of this App. By default of all Apps.")
@store_option
@json_option
def show_agent(name: str, app: str | None, store: str | None, as_json: bool) -> None:
    """Show one Agent of each App that has it, with each of its targets: state, why, when a call goes next, and how the
    calls of the last minutes ended. All processes write what they counted every ten seconds."""
    check_agent_name(name, "")
    shown = asyncio.run(_load_shown(name, app, store))
    for one in shown:
        if as_json:
            print_json(one)
        else:
            _print_agent(one, store)


async def _load_shown(name: str, app: str | None, store: str | None) -> list[ShownAgent]:
    async with open_store_to_read(store) as opened:
        views = [view for view in await load_agent_views(opened) if view.agent == name and app in (None, view.app)]
        if not views:
            where = "" if app is None else f" of App {app!r}"
            raise UnknownName(f"there is no Agent {name!r}{where} in the store {opened.url}; see `arriero agent list`")
        rows = await load_store_stream(opened)
        return [ShownAgent(view, _list_events(rows, view)) for view in views]


def _list_events(rows: list[HistoryRow], view: AgentView) -> tuple[str, ...]:
    def is_meant(event: Event | UnreadableEvent) -> bool:
        named = (view.agent, view.app, view.target)
        return isinstance(event, EventOfBreaker) and (event.agent, event.app, event.target) == named

    return format_last_events(rows, is_meant)


def _print_agent(shown: ShownAgent, store: str | None) -> None:
    view = shown.agent
    fields = {
        "agent": view.agent,
        "target": view.target,
        "app": view.app,
        "state": view.shown if view.paused_at is None else f"paused (its breaker is {view.state})",
        "since": format_time(view.since),
        "failing since": format_time(view.failing_since),
        "why": truncate(view.reason) + (f" (opened by {view.opened_by})" if view.opened_by else ""),
        "next call": _format_next_call(view),
        "paused": ""
        if view.paused_at is None
        else f'since {format_time(view.paused_at)} by {view.paused_by}: "{view.pause_reason}"',
        "waiting": f"{format_count(view.waiting, 'request')} of all Apps and targets; {view.running:,} running",
        "limits": _format_limits(view),
        "processes": ", ".join(map(str, view.processes)) or "none alive hosts it",
    }
    print_fields(fields, 17)
    if not view.target and view.metrics is not None:
        print_calls(view.metrics)
    if view.providers:
        click.echo("\nAgents that do its steps, and what each gets of new requests now:")
        for one in view.providers:
            print_text(_format_provider(one), first="- ", hanging=2)
    print_history(shown.history)
    print_commands(list_commands(view, store))
    click.echo()


def _format_limits(view: AgentView) -> str:
    """Format what is in use of each limit; of one with keys, those that use most."""
    found: dict[str, list[str]] = {}
    for limit in view.limits:
        found.setdefault(limit.name, []).append(format_use(limit, limit.key, limit.in_use))
    return "; ".join(f"{name}: {', '.join(uses)}" for name, uses in found.items())


def _format_provider(one: ProviderView) -> str:
    rank = f"weight {one.weight:g}, preference {one.preference}"
    if not one.is_hosted:
        return f"{one.agent}: nothing; no process alive hosts it ({rank})"
    room = (
        "its room is not reported yet"
        if one.free is None
        else f"{one.free:,} of {format_count(one.places or 0, 'place')} free"
    )
    return f"{one.agent}: {one.share:.0%}; {one.state}, health {one.health:.0%}, {room} ({rank})"


def _format_next_call(view: AgentView) -> str:
    if view.paused_at is not None:
        return "none until it is resumed"
    if view.state == "closed":
        return ""
    if view.canaries is not None:
        ended, under_way, wave = view.canaries
        return f"a wave of {wave}: {ended} ended, {under_way} running"
    if view.next_call_at is None:
        return "none until an operator closes it"
    return f"one canary from {format_time(view.next_call_at)} on"


def list_commands(view: AgentView, store: str | None) -> list[tuple[str, str]]:
    """List the commands that would change something, as they are typed, each with what it does."""
    found: list[tuple[AgentVerb, str]] = []
    if view.state != "closed":
        found.append((AgentVerb.CLOSE, "resume calls now, because the service is healthy"))
    if view.paused_at is not None:
        found.append((AgentVerb.RESUME, "take requests again"))
    if view.state == "closed" and view.paused_at is None:
        found.append((AgentVerb.PAUSE, "take no requests for a while"))
    words = [shell_word(view.agent)]
    words += ["--target", shell_word(view.target)] if view.target else []
    words += ["--app-name", shell_word(view.app)] if view.app else []
    words += ["--reason", "TEXT"]
    words += ["--store", shell_word(store)] if store is not None and "@" not in store else []
    return [(f"arriero agent {verb} {' '.join(words)}", does) for verb, does in found]
