"""Leases and the mutex on them: work that one process at a time does. See docs/how-to/leaders.md.

``contract`` is the seam, with one file for each provider beside it; ``keeper`` keeps a lease, ``mutex`` runs the work.
"""

from .contract import DurationRange, Lease, LeaseConnection, LeaseGrant, LeaseSignal, LeaseView
from .mutex import DistributedMutex, Leadership
from .urls import open_lease

__all__ = [
    "DistributedMutex",
    "DurationRange",
    "Leadership",
    "Lease",
    "LeaseConnection",
    "LeaseGrant",
    "LeaseSignal",
    "LeaseView",
    "open_lease",
]
