"""Leader of the Supervisors, for people and programs that watch."""

from datetime import datetime

import msgspec

from ..declare.attempt import as_datetime
from ..store.contract import StateStore


class LeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """The Supervisor that leads, as of when it was asked.

    Attributes:
        process: the name of its process; empty if its row is gone.
        term: grows with each new leader.
        since: when its term began; None: the history does not tell.
        until: when its lease lapses, unless it renews.
    """

    process: str
    term: int
    since: datetime | None
    until: datetime


async def load_leader(store: StateStore) -> LeaderView | None:
    """Load the view; None: nobody leads now."""
    found = await store.survey_leader()
    if found is None:
        return None
    since = None if found.since is None else as_datetime(found.since)
    return LeaderView(process=found.process, term=found.term, since=since, until=as_datetime(found.until))
