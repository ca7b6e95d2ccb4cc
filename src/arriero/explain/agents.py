"""Sentences for people about breakers of Agents: findings of the doctor, reasons of tasks, lines of their history."""

from collections.abc import Iterable, Sequence

from ..breakers import BreakerRow, BreakerState
from ..core.breaker_book import find_breaker, find_whole
from ..escaping import shell_word
from ..inspection.attempts import Requests
from ..model import Instant, StepRow
from ..text.format import format_count, format_instant_and_age, format_relative
from .doctor import NAMES_SHOWN_MAX, Finding


def describe_wait_behind_breaker(step: StepRow, breakers: Sequence[BreakerRow], now: Instant) -> str:
    """Describe why a due request is not taken although Agents have capacity. Empty: no breaker keeps it from that."""
    of_agent = [row for row in breakers if row.agent == step.agent]
    row = find_whole(of_agent, step) or find_breaker(of_agent, step)
    see = f"; see: arriero agent show {shell_word(step.agent)}"
    if row is not None and row.paused_at is not None:
        since = format_instant_and_age(row.paused_at, now)
        return f'Agent {row.label} is paused since {since} by {row.paused_by}: "{row.pause_reason}"{see}'
    if row is None or not row.is_outage:
        return ""
    behind = (
        "; its last attempt failed in the outage, so requests that have not failed go first" * step.failed_in_outage
    )
    return f"Agent {row.label} gets no calls {_format_outage(row, now)}; waiting spends no attempt{behind}{see}"


def _format_outage(row: BreakerRow, now: Instant) -> str:
    since = row.opened_at or row.changed_at
    by = f" by {row.opened_by}" if row.opened_by else ""
    return f"since {format_instant_and_age(since, now)}{by}: {row.reason}; {_format_next_call(row, now)}"


def _format_next_call(row: BreakerRow, now: Instant) -> str:
    if row.state is BreakerState.HALF_OPEN:
        return f"canaries find out if it is well again ({row.succeeded} answered, {row.granted} sent of a wave of {row.wave})"
    if row.probe_at is None:
        return "no call is made until a person closes it"
    if row.probe_at <= now:
        return "the next request that is taken is its canary"
    return f"the next canary goes {format_relative(row.probe_at, now)}"


def diagnose_breakers(
    breakers: Iterable[BreakerRow], requests: Iterable[Requests], now: Instant
) -> tuple[list[Finding], frozenset[str]]:
    """Diagnose the breakers that are not closed, and the Agents that are paused.

    Args:
        requests: open requests of each Agent.
    Returns: findings, and the Agents whose outage they tell of.
    """
    waiting = {one.agent: one.due + one.later for one in requests}
    found: list[Finding] = []
    down: set[str] = set()
    for row in breakers:
        wait = (
            f"{format_count(waiting.get(row.agent, 0), 'request')} of {'all its targets' if row.target else 'it'} wait"
        )
        if row.paused_at is not None:
            since = format_instant_and_age(row.paused_at, now)
            says = f'Agent {row.label} is paused since {since} by {row.paused_by}: "{row.pause_reason}"; {wait}'
            target = f" --target {shell_word(row.target)}" if row.target else ""
            remedy = f"arriero agent resume {shell_word(row.agent)}{target} --reason TEXT"
            found.append(Finding("care" if waiting.get(row.agent) else "information", "agents", says, remedy))
        if row.is_outage:
            says = f"Agent {row.label} gets no calls {_format_outage(row, now)}; {wait} and spend no attempt"
            is_recovering = row.state is BreakerState.HALF_OPEN and row.ramp_from is not None
            remedy = f"see what is wrong with the service; arriero agent show {shell_word(row.agent)}"
            found.append(Finding("information" if is_recovering else "care", "breaker", says, remedy))
            down.add(row.agent)
    if len(found) > NAMES_SHOWN_MAX:
        more = Finding(
            "care",
            "breaker",
            f"{len(found) - NAMES_SHOWN_MAX:,} more Agents or targets get no calls",
            "arriero agent list",
        )
        found = [*found[:NAMES_SHOWN_MAX], more]
    return found, frozenset(down)
