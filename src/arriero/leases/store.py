"""Leases in the state store: a row for each, a term that never falls, expiry by the store's clock."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from ..core.lease import is_led_by_another
from ..errors import InvalidInput, LeaseRefused, LeaseUnavailable, NotAllowed, SchemaOutdated, StoreError
from ..model import MICROSECONDS, Instant
from ..model.leases import LeaseRow
from ..payloads.codec import check_id
from ..store.connection_kinds import list_kinds
from ..store.contract import SUPERVISOR_LEASE
from ..store.state_store import StateStore
from .contract import DurationRange, Lease, LeaseConnection, LeaseGrant, LeaseView

logger = logging.getLogger("arriero")
SHORTEST_SECONDS = 1.0  # a commit of a busy store may take a good part of a shorter one
LONGEST_SECONDS = 86_400.0
CONNECTION_LOST = (
    "08",
    "57P",
)  # states of a server that ends a connection, stops, or starts; without one it did not answer


class StoreLease(Lease):
    """A lease in a state store. All Apps of the store share its names.

    Args:
        get_store: gives the store that is meant. Raises InvalidInput.
        name: of the lease, 1 to 255 characters.
        is_shared: the store is open as long as the lease is used, and others use it as well; else each connection
            opens the store that it is given, and closes it.
    Raises InvalidInput - the name is not a fit one, or is the Supervisors'.
    """

    provider = "store"
    durations = DurationRange(SHORTEST_SECONDS, LONGEST_SECONDS)

    def __init__(
        self,
        get_store: Callable[[], StateStore],
        name: str,
        *,
        is_shared: bool,
    ) -> None:
        self.name = check_name(name)
        self.get_store = get_store
        self._is_shared = is_shared

    async def connect(self) -> "StoreLeaseConnection":
        store = self.get_store()
        if self._is_shared:
            return StoreLeaseConnection(store, self.name, None)
        async with translating(store.url):
            await store.open()
        return StoreLeaseConnection(store, self.name, store.close)

    def bind(self) -> "StoreLease":
        if not self._is_shared:
            return self
        store = self.get_store()
        return StoreLease(lambda: store, self.name, is_shared=True)

    def is_outage(self, error: BaseException) -> bool:
        return any(map(_is_lost_connection, list_causes(error)))


def list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from. SQLAlchemy keeps the driver's error as ``orig``."""
    cause: object = error
    while isinstance(cause, BaseException):
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__


def _is_lost_connection(error: BaseException) -> bool:
    """Returns True if psycopg could not connect, or its server ended the connection. Work may use it without arriero."""
    if "psycopg.OperationalError" not in list_kinds(error):
        return False
    state: str | None = getattr(error, "sqlstate", None)
    return state is None or state.startswith(CONNECTION_LOST)


class StoreLeaseConnection(LeaseConnection):
    """See ``StoreLease``. A store may be asked on any event loop."""

    def __init__(self, store: StateStore, name: str, close: Callable[[], Awaitable[None]] | None) -> None:
        self._store = store
        self._url = store.url
        self._name = name
        self._close = close
        self._warned_of = 0  # the term whose holder asked for another duration

    async def acquire(self, holder: str, duration: float | None) -> LeaseGrant | None:
        assert duration is not None  # see ``durations``
        async with translating(self._url):
            now, seen = await self._store.find_lease(self._name)
            if seen is not None and is_led_by_another(seen, holder, now):
                self._warn_of_duration(seen, duration)
                return None  # a look costs no commit
            row = await self._store.acquire_lease(self._name, holder, holder, duration)
        return LeaseGrant(self._name, holder, row.term) if row.holder == holder and not row.broken_by else None

    def _warn_of_duration(self, held: LeaseRow, duration: float) -> None:
        """Warn once a term. It is not an error: while a new release rolls out, both durations are there, and both are kept."""
        if held.duration in (0, round(duration * MICROSECONDS)) or self._warned_of == held.term:
            return
        self._warned_of = held.term
        logger.warning(
            "lease %s is held for %g s by %r, this contender asks for %g s: give all contenders of a name the same duration",
            self._name,
            held.duration / MICROSECONDS,
            held.holder,
            duration,
        )

    async def renew(self, grant: LeaseGrant, duration: float | None) -> bool:
        assert duration is not None
        async with translating(self._url):
            return await self._store.renew_lease(self._name, grant.holder, grant.term, duration)

    async def release(self, grant: LeaseGrant) -> None:
        async with translating(self._url):
            await self._store.release_lease(self._name, grant.holder, grant.term, grant.holder)

    async def inspect(self) -> LeaseView:
        async with translating(self._url):
            now, row = await self._store.find_lease(self._name)
        return LeaseView(name=self._name, provider="store") if row is None else build_lease_view(row, now)

    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        async with translating(self._url):
            broken = await self._store.break_lease(self._name, actor, reason, at_once=at_once)
            now, row = await self._store.find_lease(self._name)
        if broken is None or row is None:
            raise NotAllowed(f"lease {self._name!r}: nobody holds it; there is nothing to break")
        return build_lease_view(row, now)

    async def close(self) -> None:
        if self._close is not None:
            await self._close()


def check_name(name: str) -> str:
    """Check the name of a lease in the store. Raises LeaseRefused."""
    try:
        check_id(name, "name of a lease")
    except InvalidInput as error:
        raise LeaseRefused(str(error)) from error
    if name == SUPERVISOR_LEASE:
        raise LeaseRefused(f"the lease {name!r} is that of the Supervisors; choose another name")
    return name


def build_lease_view(row: LeaseRow, now: Instant) -> LeaseView:
    """Build the view of a row. A lease that has lapsed has no holder. ``now``: the store's clock."""
    is_held = row.holder is not None and row.until > now
    holder = f"process {row.holder}" if isinstance(row.holder, int) else row.holder or ""
    return LeaseView(
        name=row.name,
        provider="store",
        holder=holder if is_held else "",
        term=row.term,
        duration=row.duration / MICROSECONDS or None,
        seconds_left=(row.until - now) / MICROSECONDS if is_held else None,
        since=datetime.fromtimestamp(row.since / MICROSECONDS, UTC) if is_held and row.since else None,
        broken_by=row.broken_by,
        broken_reason=row.broken_reason,
    )


@asynccontextmanager
async def translating(url: str) -> AsyncIterator[None]:
    """A store that does not answer is a provider that does not answer."""
    try:
        yield
    except SchemaOutdated:
        raise
    except StoreError as error:
        raise LeaseUnavailable(f"store {url}: {error}") from error
