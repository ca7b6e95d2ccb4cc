"""Metrics of the store, from one reading of it. They are the same in all processes, so a query takes one of them: ``max``."""

from collections.abc import Iterator

import msgspec

from ..client.agent_metrics import AgentMetrics
from ..model import Instant, seconds_between
from . import families as names
from .families import Family, Histogram, Values
from .reading import StoreReading

BREAKER_STATES = ("open", "half_open", "paused")


def build_store_metrics(reading: StoreReading, now: float) -> Iterator[tuple[Family, Values]]:
    """Build what a reading says. ``now``: monotonic."""
    backlog, leader = reading.backlog, reading.leader

    def measure_age(since: Instant | None) -> float:
        return 0.0 if since is None else max(seconds_between(since, backlog.now), 0.0)

    yield names.STORE_READ, [((), reading.seconds)]
    yield names.STORE_AGE, [((), max(now - reading.at, 0.0))]
    situations = {
        "held": backlog.held,
        "due": backlog.due,
        "later": backlog.later,
        "in_convoy": backlog.in_convoy,
        "error": backlog.error,
    }
    yield names.TASKS, [((situation,), count) for situation, count in situations.items()]
    yield names.TASKS_DUE_AGE, [((), measure_age(backlog.oldest_due_at))]
    still = {"stopped": backlog.convoys_stopped, "gap": backlog.convoys_in_gap, "parked": backlog.convoys_parked}
    yield names.CONVOYS_STILL, [((state,), count) for state, count in still.items()]
    yield names.ALERTS_OPEN, [((), backlog.alerts)]
    yield names.STATUSES, [((), backlog.statuses)]
    yield names.STATUSES_AGE, [((), measure_age(backlog.oldest_status_at))]
    yield names.SCHEDULES_DUE, [((), backlog.schedules_due)]
    yield names.SCHEDULES_LAG, [((), measure_age(backlog.oldest_schedule_at))]
    yield names.LEASES_HELD, [((), backlog.leases)]
    yield names.LEADER_KNOWN, [((), 0 if leader is None else 1)]
    if leader is not None:
        yield names.LEADER_TERM, [((), leader.term)]
    yield names.PROCESSES, [((role,), count) for role, count in reading.processes.items()]
    yield from _build_agents(reading.agents.agents)


def _build_agents(agents: tuple[AgentMetrics, ...]) -> Iterator[tuple[Family, Values]]:
    of = [((one.app, one.agent), one) for one in agents]
    yield (
        names.CALLS,
        [
            ((*key, outcome), count)
            for key, one in of
            for outcome, count in msgspec.structs.asdict(one.total.outcomes).items()
        ],
    )
    yield (
        names.CALL_SECONDS,
        [(key, Histogram(one.total.bounds_seconds, one.total.buckets, one.total.seconds)) for key, one in of],
    )
    yield names.AGENT_ATTEMPTS, [(key, one.in_flight) for key, one in of]
    yield names.REQUESTS, [(key, one.waiting) for key, one in of]
    yield names.REQUESTS_AGE, [(key, one.oldest_wait_seconds or 0.0) for key, one in of]
    yield names.BREAKERS, [((*key, state), _count_breakers(one, state)) for key, one in of for state in BREAKER_STATES]


def _count_breakers(one: AgentMetrics, state: str) -> int:
    if state == "paused":
        return sum(breaker.paused for breaker in one.breakers)
    return sum(breaker.state == state for breaker in one.breakers)
