"""Leases in an App's store: mutexes, views of leases, and the leader of the Supervisors."""

from datetime import datetime
from typing import Literal

import msgspec

from ..errors import DefinitionError
from ..leases.contract import LeaseView
from ..leases.mutex import DistributedMutex, OnElected, OnLost
from ..leases.store import StoreLease, build_lease_view
from ..model.instants import as_datetime
from ..model.policies import Duration
from ..store.state_store import StateStore
from .session import Session


class BreakLeaseAnswer(msgspec.Struct, frozen=True):
    """Outcome of breaking a lease. ``lease``: as it stands now."""

    verb: Literal["break"]
    outcome: Literal["done"]
    lease: LeaseView


class LeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """The Supervisor that leads, as of when it was asked.

    Attributes:
        process: the name of its process; empty if its row no longer exists.
        term: grows with each new leader.
        since: when its term began; None: the history does not say.
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


def build_lease(session: Session, name: str) -> StoreLease:
    """Make a lease in the store that the session is open on; nothing is asked of it yet. Raises LeaseRefused."""
    return StoreLease(lambda: session.store, name, is_shared=True)


def build_mutex(
    session: Session,
    name: str,
    duration: Duration,
    progress_within: Duration | None,
    on_elected: OnElected | None,
    on_lost: OnLost | None,
) -> DistributedMutex:
    """Make a mutex in the session's store. Raises DefinitionError, LeaseRefused, InvalidInput."""
    mutex = DistributedMutex(
        build_lease(session, name),
        duration=duration,
        progress_within=progress_within,
        on_elected=on_elected,
        on_lost=on_lost,
        ports=session.ports,
    )
    length = mutex.settings.duration
    before = session.mutex_durations.setdefault(name, length)
    if before != length:
        raise DefinitionError(
            f"mutex {name!r} has two durations in App {session.app}: {before:g} s and {length:g} s; give it one"
        )
    return mutex


async def load_lease_views(session: Session) -> list[LeaseView]:
    """All leases of the session's store by name, with that of the Supervisors. Raises InvalidInput, StoreError."""
    now, rows = await session.store.list_leases()
    return [build_lease_view(row, now) for row in rows]
