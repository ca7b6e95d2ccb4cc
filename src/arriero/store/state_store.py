"""StateStore: what every store does. All stores pass the same conformance suite (tests/store).

A store finds, locks and keeps rows (``store.sql``, or dicts). What an operation means stands once, in ``store.engine``; what a
command does to rows is ``core.transitions``. All methods may raise StoreError. After one the outcome of a write is unknown, and
repeating it is safe: every command is guarded.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence

from ..errors import ArrieroError
from ..model import HistoryRow, TaskRow
from ..model.answers import Answer, Refusal, Submitted
from ..model.commands import AnyCommand, Submit
from ..model.schedules import ScheduleApplied, ScheduleCommand
from .contract import Purge, Purged
from .engine.agents import AgentMetricsOperations, BreakerOperations, RemoteAgentOperations
from .engine.children import ChildOperations
from .engine.code_versions import CodeVersionReading
from .engine.history import HistoryReading
from .engine.ledgers import LedgerOperations
from .engine.limits import LimitOperations
from .engine.processes import LeaseOperations, ObsoleteRowsOperations, ProcessOperations
from .engine.reading import ReadingOperations, SurveyOperations
from .engine.schedules import ScheduleOperations
from .engine.signals import SignalReading
from .engine.tokens import TokenOperations
from .engine.upkeep import UpkeepOperations
from .engine.workflow_pauses import WorkflowPauseOperations
from .task_filter import ANY_TASK, TaskFilter


class StateStore(
    ProcessOperations,
    ReadingOperations,
    SurveyOperations,
    ChildOperations,
    UpkeepOperations,
    LedgerOperations,
    BreakerOperations,
    LeaseOperations,
    LimitOperations,
    AgentMetricsOperations,
    RemoteAgentOperations,
    ObsoleteRowsOperations,
    ScheduleOperations,
    TokenOperations,
    WorkflowPauseOperations,
    CodeVersionReading,
    SignalReading,
    HistoryReading,
    ABC,
):
    """A state store."""

    url: str
    store_id: str  # random, made with the store; part of every idempotency key

    @abstractmethod
    async def open(self) -> None:
        """Make it ready; creates what is missing. Raises SchemaOutdated, StoreError naming file and remedy."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything; what was acknowledged is kept."""

    @abstractmethod
    async def submit(self, batch: Sequence[Submit]) -> Sequence[Submitted | Refusal | ArrieroError]:
        """Keep new tasks, durably, in one transaction if possible; answers in order.

        The same task_id again answers ``created=False``; with another workflow or body: Refusal("conflict"). Busy: another
        transaction has the id open. Another error: what became of this one alone.
        """

    @abstractmethod
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
        and an alert reports it. So it is with every method that reads what this process is to act on.
        """

    @abstractmethod
    async def change_schedules(
        self, batch: Sequence[ScheduleCommand]
    ) -> Sequence[ScheduleApplied | Refusal | ArrieroError]:
        """Apply commands in order, in one transaction, each with its submissions: whole or not at all; answers in order.

        A command whose guard fails is answered with a Refusal, changes nothing and submits nothing. Busy: another
        transaction has a row of it open; ask again soon. After a StoreError it may be written, or not: repeating it is
        safe, because of the row's revision and because a run's id is its instant.
        """

    # --- reading
    @abstractmethod
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

    @abstractmethod
    async def count_listed(
        self, which: TaskFilter = ANY_TASK, *, after: int = 0, before: int | None = None, limit: int
    ) -> int:
        """The number of tasks that ``list_tasks`` would find, counted up to ``limit``."""

    @abstractmethod
    def history(self, task_no: int | None = None, *, after: int = 0) -> AsyncIterator[HistoryRow]:
        """The history in commit order, of one task or of all; a stable prefix as of the first row read.

        ``after``: the link of the task, of all histories the number of the row, behind which it begins.
        """

    # --- upkeep
    @abstractmethod
    async def look_at_forgotten(self) -> int:
        """Have those convoys looked at whose open task has ended without passing its turn on; answers how many.

        Only a process of a release that knows no convoys leaves one so.
        """

    @abstractmethod
    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        """Remove some ended tasks after a task_no, with all that is kept of them, in one transaction.

        Left alone: tasks with statuses that nobody acknowledged, with an alert that is not delivered yet, and
        with an attempt that may still report. What was removed is counted in the store's own history.
        """

    @abstractmethod
    async def empty_log(self) -> bool:
        """Leave no copy of what was removed in the store's files. False: a caller is reading an older state; ask again.

        On PostgreSQL that is the server's own: see docs/how-to/purge.md.
        """
