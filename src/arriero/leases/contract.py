"""The seam between the mutex and the providers of leases.

A ``Lease`` says which lease is meant: a provider, a place and a name. It opens no connection. A ``LeaseConnection`` is open
and belongs to one event loop: the mutex renews on a separate loop. One suite of tests (``tests/leases``) runs against
every provider.

Each grant has a **term**, a whole number that grows with each new holder and never falls. It is the fencing token of
guarded writes: the one who keeps the largest term that it has seen can refuse the writes of an earlier leader.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum

import msgspec

from ..errors import InvalidInput

WATCH_SECONDS = 1.0  # between two looks at a lease whose provider reports no change


class DurationRange(msgspec.Struct, frozen=True):
    """Durations that a provider takes, in seconds. ``may_be_infinite``: also leases without an end."""

    shortest: float
    longest: float
    may_be_infinite: bool = False


class LeaseGrant(msgspec.Struct, frozen=True):
    """A lease that was granted.

    Args:
        holder: who holds it: one contender at one start, never used again.
        term: grows with each new holder.
        token: what the provider needs to renew and release it; empty: the holder and the term are enough.
    """

    name: str
    holder: str
    term: int
    token: str = ""


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it stands.

    Attributes:
        provider: store, azure, zookeeper, etcd or nats.
        holder: empty: nobody holds it.
        term: of the holder, or of the last one; 0: nobody ever held it.
        duration: seconds; None: it has no end, or the provider does not say.
        seconds_left: until it lapses unless it is renewed; None: the provider does not say.
        since: when the holder got it; None: the provider does not say.
        broken_by, broken_reason: an operator has broken the lease, and it waits for its next holder.
    """

    name: str
    provider: str
    holder: str = ""
    term: int = 0
    duration: float | None = None
    seconds_left: float | None = None
    since: datetime | None = None
    broken_by: str = ""
    broken_reason: str = ""


class LeaseSignal(StrEnum):
    """Message of a provider to the holder of a lease."""

    SUSPENDED = "suspended"  # the connection is interrupted: no trust, until a renewal succeeds
    LOST = "lost"  # the lease no longer exists


class LeaseConnection(ABC):
    """An open connection to one lease. Each method but ``close`` raises LeaseUnavailable if the provider does not answer."""

    @abstractmethod
    async def acquire(self, holder: str, duration: float | None) -> LeaseGrant | None:
        """Take the lease if it is free; None: another one holds it.

        A provider with a queue keeps the place of ``holder`` until ``withdraw``. Raises LeaseRefused - it does not take
        the name, the duration or the credentials.
        """

    @abstractmethod
    async def renew(self, grant: LeaseGrant, duration: float | None) -> bool:
        """Prolong the lease for its holder in its term. False: it is another's, was broken, or has lapsed."""

    @abstractmethod
    async def release(self, grant: LeaseGrant) -> None:
        """Give the lease back. Nothing happens if it is another's by now."""

    @abstractmethod
    async def inspect(self) -> LeaseView:
        """Look at the lease, without changing it."""

    @abstractmethod
    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        """Take the lease away from its holder, whose next renewal is refused. Returns the lease as it stands then.

        Args:
            actor, reason: who does it and why; kept where the provider can keep it.
            at_once: another one may have the lease now, though its holder may believe in it until its trust ends. Else
                the lease stays taken until it would have lapsed, if the provider can do that.
        Raises: InvalidInput - nobody holds it.
        """

    async def wait_for_change(self, seconds: float) -> None:
        """Wait until the lease may have changed, at most that many seconds."""
        await asyncio.sleep(seconds)

    async def wait_for_signal(self, grant: LeaseGrant) -> LeaseSignal:
        """Wait until the provider says something about a lease that is held. Many say nothing, and this never returns."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    async def withdraw(self, holder: str) -> None:
        """Leave the queue of those who wait."""
        return

    async def close(self) -> None:
        """Close the connection. The lease stays as it is. It raises nothing."""
        return


class Lease(ABC):
    """A lease by name at a provider. It opens nothing by itself.

    Attributes:
        name: of the lease.
        provider: as in ``LeaseView``.
        durations: that the provider takes.
    """

    name: str
    provider: str
    durations: DurationRange

    @abstractmethod
    async def connect(self) -> LeaseConnection:
        """Open a connection for the running event loop. Raises LeaseUnavailable, LeaseRefused."""

    def bind(self) -> "Lease":
        """Return the lease for use on other event loops as well. Called on the one that does the work. Raises InvalidInput."""
        return self

    def is_outage(self, error: BaseException) -> bool:
        """Returns True if work failed because the server of this lease was away, which is not a fault of the work."""
        return False

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[LeaseConnection]:
        """A connection for one block."""
        connection = await self.connect()
        try:
            yield connection
        finally:
            await connection.close()

    def check_duration(self, duration: float | None) -> None:
        """Check that the provider takes a duration. Raises InvalidInput naming the range."""
        allowed = self.durations
        if duration is None:
            if not allowed.may_be_infinite:
                raise InvalidInput(
                    f"lease {self.name!r}: {self.provider} knows no lease without an end; give a duration between"
                    f" {allowed.shortest:g} and {allowed.longest:g} s"
                )
        elif not allowed.shortest <= duration <= allowed.longest:  # NaN fails it too
            forever = ", or None for a lease without an end" if allowed.may_be_infinite else ""
            raise InvalidInput(
                f"lease {self.name!r}: the duration is {duration:g} s; {self.provider} takes {allowed.shortest:g} to"
                f" {allowed.longest:g} s{forever}"
            )

    async def inspect(self) -> LeaseView:
        """Look at the lease. Raises LeaseUnavailable, LeaseRefused."""
        async with self.connected() as connection:
            return await connection.inspect()

    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        """Take the lease away from its holder; see ``LeaseConnection.break_lease``."""
        async with self.connected() as connection:
            return await connection.break_lease(actor, reason, at_once=at_once)

    async def watch(self) -> AsyncIterator[LeaseView]:
        """Yield the holder of the lease: now, and after each change of holder or term. It never ends by itself.

        Raises: LeaseUnavailable, LeaseRefused.
        """
        async with self.connected() as connection:
            last: tuple[str, int] | None = None
            while True:
                view = await connection.inspect()
                if (view.holder, view.term) != last:
                    last = (view.holder, view.term)
                    yield view
                await connection.wait_for_change(WATCH_SECONDS)
