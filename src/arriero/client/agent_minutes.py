"""The calls of an Agent minute by minute, in the last hour."""

import asyncio
from datetime import datetime

import msgspec

from ..core.agent_metrics import MINUTE, AgentCounts, MinuteCounts, estimate_quantile
from ..model import Instant
from ..model.agents import FAILED_ENDS
from ..model.instants import as_datetime
from ..store.state_store import StateStore


class CallMinute(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that ended within one minute of the store's clock.

    Attributes:
        at: when it begins.
        failed: ended as ``transient``, ``unknown`` or ``expired``.
        p50_seconds, p90_seconds, p99_seconds: as of ``RecentCalls``; None without a call.
    """

    at: datetime
    calls: int
    failed: int
    p50_seconds: float | None = None
    p90_seconds: float | None = None
    p99_seconds: float | None = None


class CallMinutes(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour of the calls of an App, the oldest minute first. The last minute has just begun."""

    app: str
    minutes: tuple[CallMinute, ...]


async def load_minutes(store: StateStore, agent: str | None = None) -> tuple[CallMinutes, ...]:
    """Load the calls of the last hour, by App; an App without a call is left out.

    Args:
        agent: only Agents of this name; None: all together.
    Raises: StoreError.
    """
    measured = await store.measure_agents()
    counts = MinuteCounts(measured.now, agent)
    for row in measured.counts:
        counts.add_row(row)
        await asyncio.sleep(0)
    first = counts.first_minute
    return tuple(
        CallMinutes(app=app, minutes=tuple(_build_minute(first + number, one) for number, one in enumerate(minutes)))
        for app, minutes in sorted(counts.read().items())
    )


def _build_minute(minute: int, counts: AgentCounts) -> CallMinute:
    buckets = counts.list_buckets()
    p50, p90, p99 = (estimate_quantile(buckets, share) for share in (0.5, 0.9, 0.99))
    return CallMinute(
        at=as_datetime(Instant(minute * MINUTE)),
        calls=counts.calls,
        failed=sum(counts.outcomes.get(end, 0) for end in FAILED_ENDS),
        p50_seconds=p50,
        p90_seconds=p90,
        p99_seconds=p99,
    )
