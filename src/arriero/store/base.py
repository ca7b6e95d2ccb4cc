"""StateStore: the contract, method by method. Every store passes the same conformance suite (tests/store).

A store finds, locks and keeps rows; what a command does to them is ``core.transitions``. All methods may raise
StoreError; after one the outcome of a write is unknown, and repeating it is safe: every command is guarded.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from ..commands import Answer, AnyCommand, Refusal, Submit, Submitted
from ..model import HistoryRow, Instant, LeaseRow, Loaded, ProcessRow, StepRow, TaskRow, TaskState

SUPERVISOR_LEASE = "supervisor"


class Due(msgspec.Struct, frozen=True):
    """What waits: whether a task or a request may be taken now, and when the next one may (None: nothing waits)."""

    now: Instant
    tasks: bool
    steps: bool
    next_at: Instant | None


class Renewal(msgspec.Struct, frozen=True):
    """Answer to a renewal. ``renewed`` False: the process was retired and holds nothing any more."""

    now: Instant
    renewed: bool
    nobody_frees_until: Instant
    others: tuple[ProcessRow, ...]  # every other process that is not retired, or retired and still named by a row


class Overdue(msgspec.Struct, frozen=True):
    """What the Supervisor must decide about, each list in the order of its deadlines."""

    now: Instant
    expired: tuple[StepRow, ...]
    starved: tuple[StepRow, ...]
    past_limit: tuple[Loaded, ...]
    stuck: tuple[Loaded, ...]


class Ended(msgspec.Struct, frozen=True):
    """How a task ended."""

    task: TaskRow
    open_compensations: tuple[str, ...]


class StateStore(Protocol):
    """A state store."""

    url: str
    store_id: str  # random, made with the store; part of every idempotency key

    def now(self) -> Instant:
        """The store's clock. Never goes back, also over restarts; setting the wall clock moves nothing."""
        ...

    async def open(self) -> None:
        """Make it ready; creates what is missing. Raises SchemaOutdated, StoreError naming file and remedy."""
        ...

    async def close(self) -> None:
        """Release everything; what was acknowledged is kept."""
        ...

    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal]:
        """Keep new tasks, durably, in one transaction; answers in order.

        The same task_id again answers ``created=False``; with another workflow or body: Refusal("conflict").
        """
        ...

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer]:
        """Apply commands in order, in one transaction, each whole or not at all; answers in order.

        A process that is retired claims and takes nothing: it would only be lost again.
        A command whose guard fails is answered with a Refusal and changes nothing, except that a refused report is
        kept in the task's history with its verdict.
        """
        ...

    # --- processes
    def announce(self, instance: str) -> None:
        """Make this process start's death visible to others at once, where the operating system can."""
        ...

    def is_known_dead(self, instance: str) -> bool:
        """Whether that process start is surely gone. False when nobody can tell."""
        ...

    async def register(self, instance: str, lease_seconds: float) -> int:
        """A new process start; answers its number. ``instance`` was never used before."""
        ...

    async def renew(self, process_no: int, lease_seconds: float) -> Renewal:
        """Prolong a process's lease, unless it is retired; see who else there is.

        When no process renewed for longer than a lease, nobody may free for one lease (``nobody_frees_until``).
        """
        ...

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        """Declare a process lost, if its lease has (still) lapsed or it is known to be dead, or by its own wish.

        From then on its renewals fail and what it holds may be freed.
        """
        ...

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        """Tasks held by a process, or with a step running there."""
        ...

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        """(task_no, revision) of tasks held by the process with news it has not seen, longest waiting first.

        News: the claim itself, and what others recorded since.
        """
        ...

    # --- leases
    async def acquire_lease(self, name: str, process_no: int, actor: str, seconds: float) -> LeaseRow:
        """Take a lease that is free, lapsed or held by this process (same term then); answers how it stands now."""
        ...

    async def renew_lease(self, name: str, process_no: int, term: int, seconds: float) -> bool:
        """Prolong it, only for (holder, term). False: it is another's."""
        ...

    async def release_lease(self, name: str, process_no: int, term: int, actor: str) -> None:
        """Give it back."""
        ...

    # --- reading
    async def due(self, workflows: Sequence[str], agents: Sequence[str]) -> Due:
        """What waits to be claimed (of these workflows, or an undo of any) or taken (by these Agents)."""
        ...

    async def load_overdue(self, limit: int, progress_seconds: float) -> Overdue:
        """What expired. ``progress_seconds``: how long a holder may leave news unseen before it counts as stuck."""
        ...

    async def load(self, task_no: int) -> Loaded | None:
        """One task with its steps."""
        ...

    async def find(self, task_id: str) -> Loaded | None:
        """One task by its business id."""
        ...

    async def ended(self, task_nos: Sequence[int]) -> list[Ended]:
        """Those of the tasks that have ended (processed, compensated, error), each once, ordered by their numbers."""
        ...

    async def list_tasks(
        self, *, state: TaskState | None = None, workflow: str | None = None, after: int = 0, limit: int = 100
    ) -> list[TaskRow]:
        """Tasks in the order of submission, after a task_no."""
        ...

    async def counts(self) -> dict[TaskState, int]:
        """Tasks by state."""
        ...

    def history(self, task_no: int | None = None) -> AsyncIterator[HistoryRow]:
        """The history in commit order, of one task or of all; a stable prefix as of the first row read."""
        ...
