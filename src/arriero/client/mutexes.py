"""Mutexes and leases in an App's store."""

from ..errors import DefinitionError
from ..leases.contract import LeaseView
from ..leases.mutex import DistributedMutex, OnElected, OnLost
from ..leases.store import StoreLease, build_lease_view
from ..policies import Duration
from .session import Session


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
