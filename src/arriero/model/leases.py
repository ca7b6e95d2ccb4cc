"""Plain data: leases by name, their terms and their holders."""

import msgspec

from . import Instant

LeaseHolder = int | str  # a process by its number, for the Supervisors' lease; or the holder of a mutex by its name


class LeaseRow(msgspec.Struct, frozen=True, gc=False):
    """A lease by name, its growing term and its holder.

    Args:
        duration: microseconds, as the holder asked for it; 0: nobody said.
        since: when the holder got it.
        broken_by, broken_reason: an operator took it away from its holder, who cannot renew it; empty: nobody did.
    """

    name: str
    term: int
    holder: LeaseHolder | None
    until: Instant
    duration: int = 0
    since: Instant = Instant(0)
    broken_by: str = ""
    broken_reason: str = ""


class LeaseTerm(msgspec.Struct, frozen=True):
    """A term of a mutex, as a write is guarded by it.

    Args:
        owner: the holder.
        milliseconds: that a transaction which it guards may be blocked before the database ends it.
    """

    name: str
    owner: str
    term: int
    milliseconds: int
