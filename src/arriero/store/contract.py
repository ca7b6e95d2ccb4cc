"""StateStore: the contract, method by method. Every store passes the same conformance suite (tests/store).

A store finds, locks and keeps rows; what a command does to them is ``core.transitions``. All methods may raise
StoreError; after one the outcome of a write is unknown, and repeating it is safe: every command is guarded.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from ..answers import Answer, Refusal, Submitted
from ..commands import AnyCommand, Submit
from ..core.purging import Named
from ..errors import ArrieroError, StoreError, UnreadableRow
from ..model import (
    AlertRow,
    ConvoyRow,
    EditRow,
    HistoryRow,
    Instant,
    LateAnswerRow,
    Loaded,
    StatusRow,
    StepRow,
    TailRow,
    TaskRow,
    TaskState,
)
from ..processes import LeaderSurvey, ProcessRow
from ..tokens import ANY_REACH, Reach
from .attempts import AttemptStore
from .contract_parts import (
    AgentMetricsStore,
    BreakerStore,
    LeaseStore,
    LedgerStore,
    LimitStore,
    ObsoleteRowsStore,
    RemoteAgentStore,
    ScheduleStore,
    TokenStore,
)
from .task_filter import ANY_TASK, TaskFilter

SUPERVISOR_LEASE = "supervisor"


class Unanswered(StoreError):
    """The answer was lost, and nobody could be asked in time: it may have been written, or not."""


class Unwritten(StoreError):
    """Surely nothing of it was written."""

    @classmethod
    def as_it_closes(cls) -> "Unwritten":
        """Answer to a command that came while the store was being closed."""
        return cls("the store is being closed: open the App again")


class Busy(StoreError):
    """The answer to a command whose task another transaction has open just now: nothing changed, ask again soon."""


class Due(msgspec.Struct, frozen=True):
    """Waiting work: if a task or a request may be taken now, and when the next one may (None: nothing waits).

    ``is_leaderless``: a Supervisor has led, and none does now.
    """

    now: Instant
    tasks: bool
    steps: bool
    next_at: Instant | None
    is_leaderless: bool = False


class Renewal(msgspec.Struct, frozen=True):
    """Answer to a renewal. ``renewed`` False: the process was retired and holds nothing any more."""

    now: Instant
    renewed: bool
    nobody_frees_until: Instant
    others: tuple[ProcessRow, ...]  # every other process that is not retired, or retired and still named by a row


class Overdue(msgspec.Struct, frozen=True):
    """Rows for the Supervisor to decide about, each list in the order of its deadlines.

    ``next_at``: the earliest deadline of an attempt, a request or a task after now, as far ahead as was asked for; None: none.
    """

    now: Instant
    expired: tuple[StepRow, ...]
    starved: tuple[StepRow, ...]
    past_limit: tuple[Loaded, ...]
    stuck: tuple[Loaded, ...]
    next_at: Instant | None = None


class Ended(msgspec.Struct, frozen=True):
    """An ended task, and the compensations that are still open."""

    task: TaskRow
    open_compensations: tuple[str, ...]


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """A selection of ended tasks to remove.

    Args:
        states: some of processed, compensated, error.
        ended_before: ended at or before this instant; never later than the window in which their ids must answer.
    """

    states: tuple[TaskState, ...]
    ended_before: Instant


class Purged(msgspec.Struct, frozen=True):
    """Answer to one purge: how many tasks it removed, and after which task_no to go on; None: nothing is left."""

    count: int
    after: int | None


class PurgeNamed(msgspec.Struct, frozen=True, kw_only=True):
    """The thing to remove by its name: a task, a convoy with all its tasks, or a ledger with all its tasks.

    Args:
        what, name: the id of a task or ledger, the key of a convoy.
        ended_before: as in Purge. A task that ended later is a reason to remove nothing.
    """

    what: Named
    name: str
    ended_before: Instant


class PurgedNamed(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to one call of ``purge_named``.

    Args:
        count: tasks removed; of what was only judged, those that would be.
        is_done: nothing of it is left.
        kept: why nothing was removed; empty: nothing stood in the way.
    """

    count: int = 0
    is_done: bool = False
    kept: str = ""


class QueueSurvey(msgspec.Struct, frozen=True):
    """A reply queue with statuses that nobody has acknowledged yet."""

    queue: str
    count: int
    oldest_at: Instant


class Survey(msgspec.Struct, frozen=True):
    """Counts over a store for a person, some with the instant since when.

    Args:
        waiting: tasks free and due, and since when the oldest is.
        workflows, steps: of tasks free and due (app, workflow), and of due requests (app, agent, step): what must have code
            somewhere.
        not_undoable: (agent, step) without compensation, neither effect_free nor a pivot, of tasks not ended well.
        processes: those not retired.
        untold: alerts that some sink does not know of, and since when the oldest.
        sizes: of things by name, in bytes or rows.
    """

    now: Instant
    states: dict[TaskState, int]
    paused: int
    probation: int
    waiting: tuple[int, Instant | None]
    workflows: tuple[tuple[str, str], ...]
    steps: tuple[tuple[str, str, str], ...]
    not_undoable: tuple[tuple[str, str], ...]
    processes: tuple[ProcessRow, ...]
    queues: tuple[QueueSurvey, ...]
    untold: tuple[int, Instant | None]
    rows: dict[str, int]


class ConvoyLoaded(msgspec.Struct, frozen=True):
    """A convoy as a person looks at it.

    Args:
        waiting, set_aside: how many tasks wait for their turn, and were passed over.
        members: the task whose turn it is, if there is one, then those that wait, in their order; at most so many.
        passed_over: tasks that were set aside and are still in error, the oldest first; at most so many.
        missing: ranges of sequence numbers (first, last) that have not come, up to the last one known; at most so many.
    """

    convoy: ConvoyRow
    tail: TailRow
    waiting: int
    set_aside: int
    members: tuple[TaskRow, ...] = ()
    passed_over: tuple[TaskRow, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()


class ProcessStore(Protocol):
    """Process starts and their leases."""

    def announce(self, instance: str) -> None:
        """Make this process start's death visible to others at once, where the operating system can."""

    def is_known_dead(self, instance: str) -> bool:
        """Returns True if that process start is surely gone; False when nobody can tell."""

    async def register(self, instance: str, lease_seconds: float, about: str = "{}") -> int:
        """A new process start; answers its number. ``instance`` was never used before.

        ``about``: what it runs, as JSON text; see ``runtime.node``. Raises AppCollision: see ``core.apps``; of two that
        start at once one comes first, so that they never both begin.
        """
        ...

    async def renew(self, process_no: int, lease_seconds: float, room: str = "") -> Renewal:
        """Prolong a process's lease, unless it is retired; see who else there is.

        When no process renewed for longer than a lease, nobody may free for one lease (``nobody_frees_until``).
        """
        ...

    async def describe(self, process_no: int, about: str) -> None:
        """Replace what a process says of itself (``ProcessRow.about``), unless it is retired. It goes the way of renewals."""
        ...

    async def new_epoch(self, actor: str, reason: str = "") -> int:
        """Open the next epoch, after the store was restored from a backup; answers its number. ``reason``: kept.

        Every process is retired. What a process registered before sends is refused (``old_epoch``), also what it was
        about to send when the store was restored; it begins again by itself. See ``epoch`` for numbers.
        """
        ...

    async def known_processes(self) -> tuple[Instant, list[ProcessRow]]:
        """The store's clock, and the processes that are not retired."""
        ...

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        """Declare a process lost, if its lease has (still) lapsed or it is known to be dead, or by its own wish.

        From then on its renewals fail and what it holds may be freed. One that is known to be dead leads no more.
        """
        ...

    async def rename_app(self, old: str, new: str, count: int, actor: str, reason: str) -> None:
        """Keep in the store's history that ``count`` tasks of App ``old`` are App ``new``'s from now on.

        Who submits by SQL does not find ``old`` any more. The tasks themselves are changed by ``AssignApp``.
        """
        ...


class UpkeepStore(Protocol):
    """Statuses and alerts, kept until people and other programs have them, and purging."""

    # --- reply queues
    async def load_statuses(self, queue: str, limit: int, within: Reach = ANY_REACH) -> list[StatusRow]:
        """The oldest statuses of a queue that are not acknowledged, in their order. ``within``: only of its tasks."""

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        """Remove statuses, each by its queue and ``no``; one that is gone already is no error."""
        ...

    async def drop_statuses(self, before: Instant, limit: int) -> int:
        """Drop statuses older than an instant, leaving one gap mark a queue that counts them; answers how many."""
        ...

    # --- alerts
    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        """Alerts due to be told, each with its ``attempts`` grown and not due again for ``hold_seconds``."""
        ...

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        """Keep who was told, and when to go on (None: everybody knows). False: taken or closed by others meanwhile."""
        ...

    async def alerts(self, *, open_only: bool = True, after: int = 0, limit: int = 100) -> list[AlertRow]:
        """Alerts in the order of their opening, after a ``no``."""
        ...

    # --- purging
    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        """Remove some ended tasks after a task_no, with all that is kept of them, in one transaction.

        Left alone: tasks with statuses that nobody acknowledged, with an alert that somebody is still to be told, and
        with an attempt that may still report. What was removed is counted in the store's own history.
        """
        ...

    async def purge_named(self, which: PurgeNamed, *, actor: str, limit: int | None) -> PurgedNamed:
        """Remove what a person names, at most so many tasks at a time, in one transaction; to be called until it is done.

        Nothing is removed while a task of it has not ended, or stays for a reason of ``core.purging``. What was removed is
        told in the store's own history. ``limit`` None: nothing is removed, only judged.
        """
        ...

    async def empty_log(self) -> bool:
        """Leave no copy of what was removed in the store's files. False: somebody is reading an older state; ask again.

        On PostgreSQL that is the server's own: see docs/how-to/purge.md.
        """
        ...


class StateStore(
    ProcessStore,
    UpkeepStore,
    LedgerStore,
    AttemptStore,
    BreakerStore,
    LeaseStore,
    LimitStore,
    AgentMetricsStore,
    RemoteAgentStore,
    ObsoleteRowsStore,
    ScheduleStore,
    TokenStore,
    Protocol,
):
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

    async def submit(self, batch: Sequence[Submit]) -> Sequence[Submitted | Refusal | ArrieroError]:
        """Keep new tasks, durably, in one transaction if possible; answers in order.

        The same task_id again answers ``created=False``; with another workflow or body: Refusal("conflict"). Busy: another
        transaction has the id open. Another error: what became of this one alone.
        """
        ...

    async def apply(self, batch: Sequence[AnyCommand]) -> Sequence[Answer | ArrieroError]:
        """Apply commands in order, in one transaction, each whole or not at all; answers in order.

        A process that is retired claims and takes nothing: it would only be lost again. Nor does one of what carries the
        name of another App. What is due goes in the
        order of ``core.due``, whether it carries a name or not.
        A command whose guard fails is answered with a Refusal and changes nothing, except that a refused report is
        kept in the task's history with its verdict. Busy: another transaction has the task open; ask again
        soon. UnreadableRow: this release cannot read a row that the command concerns. Another error: what became of this
        one command alone.

        A due task or request with such a row is neither claimed nor taken: it is set apart for a while (``store.quarantine``),
        and an alert tells of it. So it is with every method that reads what this process is to act on.
        """
        ...

    def on_wake_up(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, in the loop of ``open``, when another process may have brought something.

        A hint: it may come late, twice or never.
        """
        ...

    # --- reading
    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        """Tasks held by a process, or with a step running there."""
        ...

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        """(task_no, revision) of tasks held by the process with news it has not seen, longest waiting first.

        News: the claim itself, and what others recorded since. So is a task that could not be read some time ago: nobody
        drives it, and its row may have been mended. It comes again until ``load_tasks`` has read it.
        """
        ...

    async def due(self, workflows: Sequence[str], agents: Sequence[str], app: str = "") -> Due:
        """Work to claim (of these workflows, or an undo of any) or to take (by these Agents), by this App."""
        ...

    async def load_overdue(self, limit: int, progress_seconds: float, ahead_seconds: float = 0.0) -> Overdue:
        """Expired rows.

        Args:
            limit: rows of each kind.
            progress_seconds: how long a holder may leave news unseen before it counts as stuck.
            ahead_seconds: how far ahead the next deadline is looked for; 0: it is not.
        """
        ...

    async def load(self, task_no: int) -> Loaded | None:
        """One task with its steps, as they stand: for people, also where it cannot be read (``store.readable``)."""
        ...

    async def load_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        """The given tasks with their steps, as of one moment; absent and unreadable ones are left out. They are no news any more."""
        ...

    async def find(self, task_id: str) -> Loaded | None:
        """One task by its business id, as it stands; see ``load``."""
        ...

    async def edits(self, task_no: int) -> list[EditRow]:
        """Payloads of a task that people gave or replaced, with those they replaced, in the order of the commits."""
        ...

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        """Answers of a task's attempts that came when they no longer counted, in the order of the commits."""
        ...

    async def load_ended(self, task_nos: Sequence[int]) -> list[Ended]:
        """The ended ones (processed, compensated, error) of the given tasks, each once, ordered by their numbers."""
        ...

    async def list_tasks(
        self,
        which: TaskFilter = ANY_TASK,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[TaskRow]:
        """Tasks between two task_nos, in the order of submission or the other way round, as they stand; see ``load``."""
        ...

    async def count_listed(
        self, which: TaskFilter = ANY_TASK, *, after: int = 0, before: int | None = None, limit: int
    ) -> int:
        """The number of tasks that ``list_tasks`` would find, counted up to ``limit``."""
        ...

    async def counts(self) -> dict[TaskState, int]:
        """Tasks by state."""
        ...

    # --- convoys
    async def find_convoy(self, key: str, limit: int = 10) -> ConvoyLoaded | None:
        """A convoy by its key, with the first of its members."""
        ...

    async def look_at_forgotten(self) -> int:
        """Have those convoys looked at whose open task has ended without passing its turn on; answers how many.

        Only a process of a release that knows no convoys leaves one so.
        """
        ...

    async def look_at_unreadable(self) -> int:
        """Read again what alerts say cannot be read, and close those of tasks and rows that can be; answers how many."""
        ...

    async def list_unreadable(self, limit: int) -> list[UnreadableRow]:
        """Look through the rows that belong to no task alone, for those that this release cannot read."""
        ...

    async def list_convoys(self, shown: str | None = None, *, after: int = 0, limit: int = 100) -> list[ConvoyLoaded]:
        """Convoys in the order of their numbers, after a convoy_no, without members.

        Args:
            shown: ``idle``, ``open``, ``stopped``, ``gap`` or ``parked``; None: all but those that are idle.
        """
        ...

    async def survey(self) -> Survey:
        """Survey the store for a person."""
        ...

    async def survey_leader(self) -> LeaderSurvey | None:
        """The Supervisor that leads now; None: none does."""
        ...

    async def count_refused_terms(self) -> tuple[int, Instant | None]:
        """Count the writes of Supervisors that were refused because their term was past; with the instant of the last one.

        It reads the store's own history.
        """
        ...

    def history(self, task_no: int | None = None) -> AsyncIterator[HistoryRow]:
        """The history in commit order, of one task or of all; a stable prefix as of the first row read."""
        ...
