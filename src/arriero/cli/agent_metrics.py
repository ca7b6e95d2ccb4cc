"""Outcomes of the recent calls of an Agent, as ``arriero agent show`` prints them."""

import click

from ..client.agent_metrics import AgentMetrics, RecentCalls
from ..core.agent_metrics import BOUNDS_SECONDS
from ..text.format import format_count, format_duration

_COLUMNS = ("last", "calls", "failed", "p50", "p90", "p99")


def print_calls(metrics: AgentMetrics) -> None:
    """Print a line for each window, and how many calls were ever counted; one line if there were none."""
    if not metrics.total.calls:
        click.echo("calls:           none were counted so far")
        return
    waits = metrics.oldest_wait_seconds
    if waits is not None:
        click.echo(f"oldest wait:     {format_duration(waits)}")
    click.echo(f"calls:           {format_count(metrics.total.calls, 'call')} since counting began; lately:")
    rows = [_COLUMNS, *map(_format_cells, metrics.recent)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    for row in rows:
        click.echo("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _format_cells(recent: RecentCalls) -> tuple[str, ...]:
    share = "" if recent.failed_share is None else f"{100 * recent.failed_share:.1f} %"
    quantiles = (recent.p50_seconds, recent.p90_seconds, recent.p99_seconds)
    return (f"{recent.minutes} min", f"{recent.calls:,}", share, *map(_format_seconds, quantiles))


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{format_duration(seconds)}{' or more' if seconds >= BOUNDS_SECONDS[-1] else ''}"
