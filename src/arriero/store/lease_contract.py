"""Leases, a part of the contract in ``store.contract``: who may do something alone, under which term."""

from collections.abc import Sequence
from typing import Protocol

from ..model import Instant, LeaseHolder, LeaseRow


class LeaseStore(Protocol):
    """Leases that one holder at a time may have: a process, for the Supervisors' lease, or a mutex.

    Time is the store's clock. Each write touches exactly one row, and only if holder and term are still as the caller says.
    """

    async def acquire_lease(self, name: str, holder: LeaseHolder, actor: str, seconds: float) -> LeaseRow:
        """Take a lease that is free, lapsed or held by this holder (same term then); answers how it stands now."""
        ...

    async def renew_lease(self, name: str, holder: LeaseHolder, term: int, seconds: float) -> bool:
        """Prolong it, only for (holder, term). False: it is another's, was broken, or has lapsed."""
        ...

    async def release_lease(self, name: str, holder: LeaseHolder, term: int, actor: str) -> None:
        """Give it back. Nothing happens if it is another's."""
        ...

    async def break_lease(self, name: str, actor: str, reason: str, *, at_once: bool) -> LeaseRow | None:
        """Take it from its holder; answers how it stands then. None: nobody holds it. See ``core.lease.break_lease``."""
        ...

    async def list_leases(self) -> tuple[Instant, Sequence[LeaseRow]]:
        """The store's clock, and all leases by name."""
        ...

    async def find_lease(self, name: str) -> tuple[Instant, LeaseRow | None]:
        """The store's clock, and one lease; None: nobody ever held it."""
        ...
