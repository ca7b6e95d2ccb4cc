"""Values that a store takes and answers, and its errors. ``store.state_store`` has the operations."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..core.purging import Named
from ..errors import StoreError
from ..model import ConvoyRow, Instant, Loaded, StepRow, TailRow, TaskRow, TaskState
from ..model.processes import ProcessRow

CAPABILITY_SECRET = "capability"
CALLBACK_SECRET = "callback"  # kept when an epoch begins: who was given a token before does not get another one
CURSOR_SECRET = "cursor"  # of the lists of the HTTP API
SECRET_BYTES = 32
COUNTED_MAX = 10_000  # of each kind: enough for a trend and an alarm, few enough to count within milliseconds
OBSOLETE_AT_ONCE = 2_000  # rows of processes, leases or breakers that one transaction removes
FOLDED_AT_ONCE = 200  # rows in one transaction; each holds all Agents of a process in one minute
SUPERVISOR_LEASE = "supervisor"


class Unanswered(StoreError):
    """The answer was lost, and nobody could be asked in time: it may have been written, or not."""


class Unwritten(StoreError):
    """Definitely nothing of it was written."""

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
    """Answer to a renewal. ``renewed`` False: the process was retired and holds nothing any longer."""

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
    """Answer to one purge: how many tasks it removed, and after which task_no to continue; None: nothing is left."""

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


class VersionCount(NamedTuple):
    """Open and held tasks of one workflow and state with one version of their code.

    ``code_version``: as their rows keep it. ``has_begun``: False: no version has begun them. ``oldest_at``: when the oldest was submitted.
    """

    app: str
    workflow: str
    code_version: str | None
    has_begun: bool
    state: TaskState
    tasks: int
    oldest_at: Instant


class QueueSurvey(msgspec.Struct, frozen=True):
    """A reply queue with statuses that nobody has acknowledged yet."""

    queue: str
    count: int
    oldest_at: Instant


class Survey(msgspec.Struct, frozen=True):
    """Counts over a store for an operator, some with the instant since when.

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
    """A convoy as an operator looks at it.

    Args:
        waiting, set_aside: how many tasks wait for their turn, and were passed over.
        members: the task whose turn it is, if there is one, then those that wait, in their order; at most that many.
        passed_over: tasks that were set aside and are still held, the oldest first; at most that many.
        missing: ranges of sequence numbers (first, last) that have not come, up to the last one known; at most that many.
    """

    convoy: ConvoyRow
    tail: TailRow
    waiting: int
    set_aside: int
    members: tuple[TaskRow, ...] = ()
    passed_over: tuple[TaskRow, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()


class MissingRight(StoreError):
    """The role under which the store was opened may not do this."""


class HeldAttempt(NamedTuple):
    """An attempt that is running, as its row stands."""

    step_no: int
    fence: int
    complete_by: Instant


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


class PastDeadline(msgspec.Struct, frozen=True):
    """Rows whose deadline has passed, each list in the order of the deadlines; see ``Overdue``.

    ``past_limit`` and ``stuck`` are numbers of tasks.
    """

    expired: Sequence[StepRow]
    starved: Sequence[StepRow]
    past_limit: Sequence[int]
    stuck: Sequence[int]
    next_at: Instant | None


class Renewals(msgspec.Struct, frozen=True):
    """Rows that a renewal reads.

    Args:
        last_at: when any process renewed last.
        nobody_frees_until: as it was kept; 0: never.
        others: as in ``Renewal``.
    """

    last_at: Instant | None
    nobody_frees_until: Instant
    others: tuple[ProcessRow, ...]
