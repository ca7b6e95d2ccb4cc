"""Events of the store's own history: processes, leases, ledgers, Apps, and what was removed."""

from msgspec import Raw

from ..model import Instant
from .base import HistoryEvent, HistoryNames


class ProcessStarted(HistoryEvent, frozen=True, tag="process.started"):
    """A process has begun. ``app``: empty if it names none."""

    process: int
    app: str = ""


class ProcessRetired(HistoryEvent, frozen=True, tag="process.retired"):
    """A process holds nothing any more. ``known_dead``: it was found dead, or ended; else it was silent for too long."""

    process: int
    known_dead: bool


class LimitsDeclared(HistoryEvent, frozen=True, tag="limits.declared"):
    """A process that starts declares the limits of an Agent. They hold from now on. ``limits``: LimitPolicies."""

    agent: str
    app: str
    process: int
    limits: Raw


class LeaseGranted(HistoryEvent, frozen=True, tag="lease.granted"):
    """A process leads, under a new term. ``owner``: the holder of a mutex, then ``process`` is 0."""

    lease: str
    term: int
    process: int
    owner: str = ""

    def describe(self, names: HistoryNames) -> str:
        return f"{name_holder(self)} leads, in term {self.term}"


class LeaseLost(HistoryEvent, frozen=True, tag="lease.lost"):
    """A process gave its lease back, or let it run out. ``owner``: the holder of a mutex, then ``process`` is 0."""

    lease: str
    term: int
    process: int
    owner: str = ""

    def describe(self, names: HistoryNames) -> str:
        return f"{name_holder(self)} gave it back, in term {self.term}"


class LeaseBroken(HistoryEvent, frozen=True, tag="lease.broken"):
    """A person took a lease from its holder. ``at_once``: another one may have it from now on."""

    lease: str
    term: int
    process: int
    owner: str
    at_once: bool
    reason: str

    def describe(self, names: HistoryNames) -> str:
        now = ", at once" if self.at_once else ""
        return f'{names.actor} took it from {name_holder(self)}, term {self.term}{now}: "{self.reason}"'


EventOfLease = LeaseGranted | LeaseLost | LeaseBroken


def name_holder(event: EventOfLease) -> str:
    """Name who holds, or held, the lease of an event: the holder of a mutex by its name, a process by its number."""
    return event.owner or f"process {event.process}"


class LeaderRefused(HistoryEvent, frozen=True, tag="leader.refused"):
    """A Supervisor wrote under a term that was past: nothing was changed. ``current``: the term that holds."""

    term: int
    current: int
    task: int


class EpochOpened(HistoryEvent, frozen=True, tag="epoch.opened"):
    """The store was brought back from a copy: whoever worked on it before may not write any more."""

    epoch: int
    reason: str


class AppRenamed(HistoryEvent, frozen=True, tag="app.renamed", rename={"from_app": "from"}):
    """Tasks of one App are another's from now on. ``tasks``: how many."""

    from_app: str
    app: str
    tasks: int
    reason: str


class LedgerOpenedEvent(HistoryEvent, frozen=True, tag="ledger.opened"):
    """All tasks of a ledger are there from now on. ``accepted``: how many."""

    ledger: str
    digest: str
    written: int
    accepted: int
    duplicates: int
    aside: int


class LedgerDiscarded(HistoryEvent, frozen=True, tag="ledger.discarded"):
    """A ledger was removed before it was opened."""

    ledger: str
    written: int
    reason: str


class LedgerPurged(HistoryEvent, frozen=True, tag="ledger.purged"):
    """A ledger was removed. ``erased``: link and hash of each row of this history whose events were erased for it."""

    erased: tuple[tuple[int, str], ...]


class TasksPurged(HistoryEvent, frozen=True, tag="tasks.purged"):
    """Tasks were removed with their histories. ``heads``: one hash over the last link of each."""

    count: int
    heads: str


class ConvoysPurged(HistoryEvent, frozen=True, tag="convoys.purged"):
    """A convoy was removed with its history. ``heads``: hash of its last link."""

    count: int
    heads: str


class StatusesDropped(HistoryEvent, frozen=True, tag="statuses.dropped"):
    """Messages in reply queues were removed that nobody had read."""

    count: int


class TokenCreated(HistoryEvent, frozen=True, tag="token.created"):
    """There is a new token of the HTTP API. ``expires_at``: None: never."""

    token: str
    name: str
    scopes: tuple[str, ...]
    expires_at: Instant | None
    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    open_tasks_max: int | None = None


class TokenRevoked(HistoryEvent, frozen=True, tag="token.revoked"):
    """A token is refused from now on."""

    token: str
    name: str
    reason: str


class Erased(HistoryEvent, frozen=True, tag="erased"):
    """Stands in place of the events of a row that were removed; a ``LedgerPurged`` names the row."""


EventOfStore = (
    ProcessStarted
    | ProcessRetired
    | LimitsDeclared
    | EventOfLease
    | LeaderRefused
    | EpochOpened
    | AppRenamed
    | LedgerOpenedEvent
    | LedgerDiscarded
    | LedgerPurged
    | TasksPurged
    | ConvoysPurged
    | StatusesDropped
    | TokenCreated
    | TokenRevoked
    | Erased
)
