"""Parts of the contract of a store: leases, ledgers, schedules, and all that concerns Agents and the HTTP API.

``store.contract.StateStore`` has them all. Each engine in ``store/engine`` implements one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..answers import Refusal
from ..breakers import BreakerRow
from ..core.ledger_batches import ASIDE_MAX, LedgerBatch, LedgerOpened, LedgerTasks, LedgerWritten
from ..errors import ArrieroError, StoreError
from ..inspection.facts import AgentMeasurements, CountsRow
from ..limits import LimitsInUse
from ..model import Instant, LeaseHolder, LeaseRow, LedgerRow, LedgerState
from ..tokens import NewToken, TokenRow

if TYPE_CHECKING:  # only who runs an App, or looks at schedules or backlogs, pays for loading these
    from ..inspection.facts import Backlog
    from ..schedules import DueSchedules, ScheduleApplied, ScheduleCommand, ScheduleRow

CAPABILITY_SECRET = "capability"
CURSOR_SECRET = "cursor"  # of the lists of the HTTP API
SECRET_BYTES = 32
COUNTED_MAX = 10_000  # of each kind: enough for a trend and an alarm, few enough to count within milliseconds
OBSOLETE_AT_ONCE = 2_000  # rows of processes, leases or breakers that one transaction removes
FOLDED_AT_ONCE = 200  # rows in one transaction; each holds all Agents of a process in one minute


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


class LedgerStore(Protocol):
    """Ledgers; ``core.ledger_batches`` defines their values. Every call is one guarded transaction, so repeating it is safe."""

    async def begin_ledger(self, ledger_id: str) -> LedgerRow:
        """The ledger of that id, as far as it is written; a new one when there is none."""
        ...

    async def write_ledger(self, batch: LedgerBatch) -> LedgerWritten:
        """Keep entries as tasks that nobody sees. Changes nothing when others wrote or opened it meanwhile."""
        ...

    async def open_ledger(self, ledger_no: int, written: int, digest: str, actor: str) -> LedgerOpened:
        """Make all its tasks visible, if it is written so far and no further."""
        ...

    async def let_go(self, ledger_no: int, limit: int, actor: str) -> LedgerRow | None:
        """Let the next tasks of an opened ledger go, in their order; answers how it stands.

        None: somebody else is doing that just now, or it is gone.
        """
        ...

    async def discard_ledger(self, ledger_no: int, limit: int, actor: str, reason: str) -> LedgerRow | None:
        """Remove some of its tasks, unless it is opened; answers what is left of it. None: it is gone."""
        ...

    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        """One ledger by its id."""
        ...

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        """Ledgers in some states, in the order in which they were begun, after a ledger_no."""
        ...

    async def find_open_of_ledgers(self, ledger_nos: Sequence[int]) -> dict[int, int]:
        """Find the first open task of each of some ledgers; a ledger without one is left out. It reads no other task."""
        ...

    async def count_of_ledger(self, ledger_no: int) -> LedgerTasks:
        """Count the tasks of a ledger by state. It reads all of them, and no other task."""
        ...

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        """Entries that were set aside, after a line: its number and the reason."""
        ...


class ScheduleStore(Protocol):
    """Schedules of all Apps."""

    async def load_due_schedules(self, limit: int) -> "DueSchedules":
        """Load schedules that the leader is to look at now, longest due first. It reads no row that is not due, except
        the one that is due next."""
        ...

    async def change_schedules(
        self, batch: "Sequence[ScheduleCommand]"
    ) -> "Sequence[ScheduleApplied | Refusal | ArrieroError]":
        """Apply commands in order, in one transaction, each with its submissions: whole or not at all; answers in order.

        A command whose guard fails is answered with a Refusal, changes nothing and submits nothing. Busy: another
        transaction has a row of it open; ask again soon. After a StoreError it may be written, or not: repeating it is
        safe, because of the row's revision and because a run's id is its instant.
        """
        ...

    async def is_run_open(self, app: str, name: str) -> bool:
        """Returns True if a run of a schedule has not ended."""
        ...

    async def list_schedules(self, app: str | None = None) -> "list[ScheduleRow]":
        """All schedules by App and name. ``app``: only of this one."""
        ...

    async def find_schedule(self, app: str, name: str) -> "ScheduleRow | None":
        """One schedule. None: there is none of the name."""
        ...


class BreakerStore(Protocol):
    """Breakers of Agents. Commands open them and act on them: see ``apply``."""

    async def list_breakers(self) -> list[BreakerRow]:
        """All breakers that were ever opened or paused, by Agent, App and target."""
        ...

    async def close_recovered_breakers(self, actor: str) -> int:
        """Close the breakers whose ramp is over; answers how many.

        An attempt that is to begin does that by itself. This is for breakers behind which no request waits any more.
        """
        ...


class LimitStore(Protocol):
    """Limits of Agents that all processes share. ``register`` declares them; a Take keeps within them."""

    async def list_limits(self) -> list[LimitsInUse]:
        """All limits that hold, by Agent and App, with what is in use of them."""
        ...

    async def remove_old_rates(self) -> None:
        """Remove calls of rate limits that no longer count. It changes no decision."""
        ...

    async def repair_waiting_keys(self) -> int:
        """Keep keys again under which requests wait and at which no Take looks; answers how many.

        Their row was lost or cannot be read, or a process of release 0.4.0 wrote the request.
        """
        ...


class AgentMetricsStore(Protocol):
    """Counts of the calls of Agents, and what waits for them."""

    async def put_agent_counts(self, rows: Sequence[CountsRow]) -> None:
        """Keep what a process counted in some minutes, as it stands: repeating it changes nothing.

        Left out: rows of a process that is retired or unknown; minutes that may not be written any more
        (``core.agent_metrics.may_be_written``); a row with fewer calls than the one that is kept.
        """
        ...

    async def fold_agent_counts(self) -> int:
        """Add minutes that are no longer kept to the sum of their App, and remove them in the same transaction.

        At most ``FOLDED_AT_ONCE`` of each App. Returns how many rows are gone; two that fold at once do not count twice.
        """
        ...

    async def measure_agents(self) -> AgentMeasurements:
        """All counts, and the due requests and running attempts of each Agent, as of one moment."""
        ...

    async def measure_backlog(self) -> "Backlog":
        """Measure the backlog. It reads only unfinished tasks and steps, and at most a fixed number of each kind."""
        ...


class MissingRight(StoreError):
    """The role under which the store was opened may not do this."""


class HeldAttempt(NamedTuple):
    """An attempt that is under way, as its row stands."""

    step_no: int
    fence: int
    complete_by: Instant


class RemoteAgentStore(Protocol):
    """Secrets of the store, and attempts that are under way outside."""

    async def read_secret(self, name: str) -> bytes:
        """``SECRET_BYTES`` random bytes, the same for all processes; made when they are first asked for, and again in each epoch.

        Raises: MissingRight - who may only read the store reads no secret.
        """
        ...

    async def list_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        """The attempts of these steps that are under way, whoever holds them, by step_no."""
        ...


class RemovedRows(NamedTuple):
    """Numbers of rows that one call removed, by kind."""

    processes: int
    leases: int
    breakers: int
    alerts: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


class ObsoleteRowsStore(Protocol):
    """Rows of processes, leases and breakers that nothing refers to any more; ``core.obsolete_rows`` has the rules."""

    async def remove_obsolete_rows(self, before: Instant, breakers_before: Instant, limit: int) -> RemovedRows:
        """Remove obsolete rows, at most ``limit`` of each kind.

        A process that finds its row removed is refused like one that is retired. Terms of leases and fences of breakers
        continue to grow when a row is made again. With them go alerts of no task that are closed and delivered.

        Args:
            before: rows of processes, leases and alerts that were in use later stay.
            breakers_before: the same for breakers.
        """
        ...


class TokenStore(Protocol):
    """Tokens of the HTTP API. None is ever removed: the history names them. No secret comes here, only its digest."""

    async def add_token(self, token: NewToken) -> TokenRow:
        """Keep a new token, and tell it in the store's history. Repeated it changes nothing: the row answers that is there."""
        ...

    async def find_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        """Read the tokens of these ids that exist, in any order."""
        ...

    async def list_tokens(self) -> list[TokenRow]:
        """All tokens by the time of their creation, also those that are revoked or have expired."""
        ...

    async def revoke_token(self, token_id: str, by: str, reason: str) -> TokenRow | None:
        """Revoke a token from now on, and tell it in the history. One that is revoked stays as it is. None: there is none."""
        ...

    async def note_token_used(self, token_id: str, at: Instant) -> None:
        """Write when a token was used, unless a use less than a minute older is written (``core.tokens.is_use_due``)."""
        ...
