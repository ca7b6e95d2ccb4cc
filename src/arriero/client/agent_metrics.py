"""Metrics of Agents as numbers: what their calls came to, in all processes, and what waits for them now."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from ..core.agent_metrics import (
    BOUNDS_SECONDS,
    OUTCOMES,
    WINDOWS,
    AgentCounts,
    CountsOfAgent,
    CountsSum,
    estimate_quantile,
    find_window_start,
)
from ..core.lease import read_process_about
from ..errors import UnknownName
from ..inspection.facts import AgentLoad, AgentMeasurements
from ..model import Instant, seconds_between
from ..model.agents import FAILED_ENDS, BreakerRow
from ..model.instants import as_datetime
from ..model.processes import ProcessRow
from ..store.state_store import StateStore

AppAndAgent = tuple[str, str]
_NOTHING = CountsOfAgent(tuple(AgentCounts() for _ in WINDOWS), AgentCounts())


class CallOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of ended calls: with a result, with one of the errors, or not before their attempt's ``complete_by``."""

    succeeded: int = 0
    transient: int = 0
    permanent: int = 0
    unknown: int = 0
    expired: int = 0


class CallTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of an Agent that were ever counted. Each number only grows, unless the store is restored.

    Attributes:
        seconds: how long all took together.
        bounds_seconds: upper bounds of the histogram, without infinity.
        buckets: how many took at most as long as each bound, and longer than the bound before; the last number: longer
            than all bounds. Added up from the left they are a cumulative histogram.
    """

    calls: int
    outcomes: CallOutcomes
    seconds: float
    buckets: tuple[int, ...]
    bounds_seconds: tuple[float, ...] = BOUNDS_SECONDS


class RecentCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of an Agent in the last minutes.

    Attributes:
        minutes: 1, 10 or 60 whole minutes, and the one that has begun.
        since: when they begin.
        failed_share: of the calls, that ended as ``transient``, ``unknown`` or ``expired``; None without a call. A
            ``permanent`` error is an answer of a service that works.
        p50_seconds, p90_seconds, p99_seconds: estimates within how many seconds that many in a hundred calls ended, however
            they did; None without a call. 300 stands for 300 and more.
    """

    minutes: int
    since: datetime
    calls: int
    outcomes: CallOutcomes
    failed_share: float | None = None
    p50_seconds: float | None = None
    p90_seconds: float | None = None
    p99_seconds: float | None = None


class BreakerGauge(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker of an Agent (empty ``target``) or of one target. ``state``: ``closed``, ``open`` or ``half_open``."""

    target: str
    state: str
    paused: bool


class AgentMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one Agent of an App, with all its targets, in all processes.

    Attributes:
        total: counters. ``recent``: of the last 1, 10 and 60 minutes.
        in_flight: running attempts. ``waiting``: requests that are due; ``oldest_wait_seconds``: how long the oldest
            has been; None: none is.
        breakers: the Agent's own one, and those of targets that are open or paused, or were so within the last hour.
    """

    app: str
    agent: str
    total: CallTotals
    recent: tuple[RecentCalls, ...]
    in_flight: int = 0
    waiting: int = 0
    oldest_wait_seconds: float | None = None
    breakers: tuple[BreakerGauge, ...] = ()


class AppMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of Agents, by Agent and App. ``at``: by the store's clock."""

    at: datetime
    agents: tuple[AgentMetrics, ...]


async def load_metrics(store: StateStore, known: Iterable[AppAndAgent] = (), agent: str | None = None) -> AppMetrics:
    """Load the metrics of all Agents that were ever called, that processes host, or that have requests or a breaker.

    Args:
        known: others that have metrics, too, by App and name.
        agent: only Agents of this name; None: all.
    Raises: UnknownName - there is no Agent of the name; StoreError.
    """
    now, processes = await store.known_processes()
    breakers = await store.list_breakers()
    measured = await store.measure_agents()
    keys = {*known, *((app, name) for name, app in find_hosts(processes, now))}
    keys |= {(row.app, row.agent) for row in breakers} | {(load.app, load.agent) for load in measured.loads}
    counts = await sum_up_counts(measured, agent)
    chosen = [key for key in keys | counts.keys() if agent in (None, key[1])]
    if agent is not None and not chosen:
        raise UnknownName(f"there is no Agent {agent!r}; see `arriero agent list`")
    build = MetricsBuilder(measured, counts, breakers).build
    ordered = sorted(chosen, key=lambda key: (key[1], key[0]))
    return AppMetrics(at=as_datetime(measured.now), agents=tuple(build(*key) for key in ordered))


async def sum_up_counts(measured: AgentMeasurements, agent: str | None = None) -> dict[AppAndAgent, CountsOfAgent]:
    """Sum up all counts, by App and Agent. Others on the event loop work in between. ``agent``: only this one."""
    total = CountsSum(measured.now, agent)
    for row in measured.counts:
        total.add_row(row)
        await asyncio.sleep(0)
    return total.read()


def find_hosts(processes: Iterable[ProcessRow], now: Instant) -> dict[tuple[str, str], list[ProcessRow]]:
    """Find the processes alive that host each Agent, by Agent and App."""
    hosts: dict[tuple[str, str], list[ProcessRow]] = {}
    for process in processes:
        if process.lease_until > now:
            about = read_process_about(process)
            for agent in {agent for agent, _ in about.steps}:
                hosts.setdefault((agent, about.app), []).append(process)
    return hosts


class MetricsBuilder:
    """Builds the metrics of Agents from what the store knows as of one moment."""

    def __init__(
        self,
        measured: AgentMeasurements,
        counts: Mapping[AppAndAgent, CountsOfAgent],
        breakers: Sequence[BreakerRow],
    ) -> None:
        self._now = measured.now
        self._counts = counts
        self._loads = {(load.app, load.agent): load for load in measured.loads}
        self._breakers: dict[AppAndAgent, list[BreakerRow]] = {}
        for row in breakers:
            self._breakers.setdefault((row.app, row.agent), []).append(row)

    def build(self, app: str, agent: str) -> AgentMetrics:
        """Build the metrics of one Agent; all numbers are 0 if nothing is known of it."""
        counts = self._counts.get((app, agent), _NOTHING)
        load = self._loads.get((app, agent)) or AgentLoad(app=app, agent=agent)
        oldest_at = load.oldest_at
        rows = self._breakers.get((app, agent), [])
        if all(row.target for row in rows):
            rows = [BreakerRow(app=app, agent=agent), *rows]
        return AgentMetrics(
            app=app,
            agent=agent,
            total=_build_totals(counts.total),
            recent=tuple(
                _build_recent(of_window, self._now, minutes)
                for of_window, minutes in zip(counts.recent, WINDOWS, strict=True)
            ),
            in_flight=load.running,
            waiting=load.due,
            oldest_wait_seconds=None if oldest_at is None else max(seconds_between(oldest_at, self._now), 0.0),
            breakers=tuple(
                BreakerGauge(target=row.target, state=str(row.state), paused=row.paused_at is not None) for row in rows
            ),
        )


def _build_outcomes(counts: AgentCounts) -> CallOutcomes:
    return CallOutcomes(**{outcome: counts.outcomes.get(outcome, 0) for outcome in OUTCOMES})


def _build_totals(counts: AgentCounts) -> CallTotals:
    return CallTotals(
        calls=counts.calls,
        outcomes=_build_outcomes(counts),
        seconds=round(counts.seconds, 6),
        buckets=counts.list_buckets(),
    )


def _build_recent(counts: AgentCounts, now: Instant, minutes: int) -> RecentCalls:
    calls, buckets = counts.calls, counts.list_buckets()
    failed = sum(counts.outcomes.get(end, 0) for end in FAILED_ENDS)
    return RecentCalls(
        minutes=minutes,
        since=as_datetime(find_window_start(now, minutes)),
        calls=calls,
        outcomes=_build_outcomes(counts),
        failed_share=round(failed / calls, 6) if calls else None,
        p50_seconds=_estimate(buckets, 0.5),
        p90_seconds=_estimate(buckets, 0.9),
        p99_seconds=_estimate(buckets, 0.99),
    )


def _estimate(buckets: Sequence[int], share: float) -> float | None:
    seconds = estimate_quantile(buckets, share)
    return None if seconds is None else round(seconds, 6)
