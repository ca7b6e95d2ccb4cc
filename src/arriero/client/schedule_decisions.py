"""The decisions about one schedule lately: runs, instants that were passed over, and acts of operators."""

from datetime import datetime

import msgspec

from ..events import read_events_to_show
from ..events.base import HistoryNames, describe_event
from ..events.store import EventOfSchedule, ScheduleAsked, ScheduleDecided
from ..model import HistoryRow
from ..model.instants import as_datetime
from ..store.state_store import StateStore

OF_SCHEDULE = b'"type":"schedule.'
CHUNK = 500  # commits that are read at a time
SCANNED_MAX = 2_000  # commits of the store's history, among which the decisions are looked for


class ScheduleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision. ``tasks``: ids of the runs that it submitted. ``says``: in a sentence."""

    at: datetime
    app: str
    says: str
    tasks: tuple[str, ...] = ()


async def load_decisions(
    store: StateStore, name: str, apps: frozenset[str], *, limit: int
) -> tuple[ScheduleDecision, ...]:
    """Load the last decisions about the schedules of a name, the newest first, out of the last 2,000 commits about no task.

    Args:
        apps: whose schedules.
    Raises: StoreError.
    """
    found: list[ScheduleDecision] = []
    before: int | None = None
    for _ in range(SCANNED_MAX // CHUNK):
        rows = await store.load_store_stream_back(before, limit=CHUNK)
        for row in rows:
            if OF_SCHEDULE in bytes(row.events):  # most commits are of something else
                found += _list_decisions(row, name, apps)
            before = row.link
        if len(rows) < CHUNK or len(found) >= limit:
            break
    return tuple(found[:limit])


def _list_decisions(row: HistoryRow, name: str, apps: frozenset[str]) -> list[ScheduleDecision]:
    return [
        ScheduleDecision(
            at=as_datetime(row.at),
            app=event.app,
            says=describe_event(event, HistoryNames(row.actor)),
            tasks=event.tasks if isinstance(event, ScheduleDecided | ScheduleAsked) else (),
        )
        for event in reversed(read_events_to_show(row))
        if isinstance(event, EventOfSchedule) and event.schedule == name and event.app in apps
    ]
