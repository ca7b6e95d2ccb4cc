"""Input and output of a decision: the rows as they stand, and the rows and events that it writes."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..answers import Dispatch, Refusal
from ..breakers import BreakerRow
from ..events import Event
from ..limits import AgentLimitsRow
from ..model import AlertRow, ConvoyRow, EditRow, Instant, LateAnswerRow, StatusRow, StepRow, TailRow, TaskRow


class BreakerRows(Protocol):
    """Breakers as they stand in the transaction."""

    def breakers(self, agent: str) -> Sequence[BreakerRow]:
        """The breakers of an Agent, of any App, that are not closed, are paused, or were closed a short time ago."""
        ...

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        """A breaker, locked by this transaction. None: it was never opened or paused."""
        ...


class LimitRows(Protocol):
    """Limits of Agents as they stand in the transaction."""

    def limits(self, agent: str) -> Sequence[AgentLimitsRow]:
        """The limits of an Agent, of any App; not locked. None are listed for an App that has none."""
        ...


class Rows(BreakerRows, LimitRows, Protocol):
    """Rows as they stand in the transaction. All methods raise UnreadableRow, of a row that this release cannot read."""

    def task(self, task_no: int) -> TaskRow | None: ...
    def step(self, step_no: int) -> StepRow | None: ...
    def open_steps(self, task_no: int) -> list[StepRow]:
        """Pending and running rows of a task, timers included, in the order of opening."""
        ...

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        """All rows of a task, in the order of opening."""
        ...

    def arguments(self, task_no: int) -> str:
        """The arguments of what a task runs, as they stand."""
        ...

    def people_commits(self, task_no: int, since: Instant) -> Sequence[str]:
        """The events of a task's commits from an instant on that tell of people's verbs, the newest first."""
        ...

    def process_is_retired(self, process_no: int) -> bool: ...
    def term(self, lease: str) -> int: ...

    def convoy(self, convoy_no: int) -> ConvoyRow:
        """The convoy's row, locked by this transaction."""
        ...

    def member(self, task_no: int) -> TaskRow | None:
        """Lock and return a task of a convoy whose row this transaction has locked. Raises: core.convoys.Held."""
        ...

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        """The first task of a convoy that waits for its turn behind a (rank, place), locked by this transaction.

        Raises: core.convoys.Held - it is another transaction's just now; NextUnreadable - this release cannot read it.
        """
        ...

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        """Count the tasks of a convoy with a sequence from ``start`` up to but without ``end``."""
        ...

    def seal(self, convoy_no: int) -> TailRow | None:
        """Lock the convoy's tail, so that nobody adds to it until this transaction ends; None: another transaction has it."""
        ...


class BreakerChange(msgspec.Struct):
    """A breaker's row to write, and the events that tell why."""

    row: BreakerRow
    events: list[Event]
    alert: AlertRow | None = None  # to be opened


class Change(msgspec.Struct):
    """Rows to write and events to append, all for one task."""

    task: TaskRow
    steps: list[StepRow]  # changed
    opened: list[StepRow]  # new
    events: list[Event]
    dispatches: list[Dispatch]
    statuses: list[StatusRow] = []
    alert: AlertRow | None = None  # to be opened
    closes_alert: bool = False
    arguments: str | None = None  # the workflow's, as a person edited them
    rewrites: bool = False  # also fields change that no other command changes
    convoy: "ConvoyChange | None" = None
    edit: EditRow | None = None
    late_answer: LateAnswerRow | None = None
    breakers: list[BreakerChange] = []
    trace_link: str | None = None  # that the convoy had before


class ConvoyChange(msgspec.Struct):
    """Changes of a convoy in one commit: its row and its tail if they changed, other tasks of it, events of its own."""

    convoy: ConvoyRow | None
    tail: TailRow | None
    follows: list[Change] = []
    events: list[Event] = []
    begins: bool = False  # the last of ``follows`` has begun: its code had run ahead


class Refused(msgspec.Struct, frozen=True):
    """The guard did not hold. ``events`` (of ``task_no``; 0: of the store itself) and ``late_answer`` keep it for people."""

    refusal: Refusal
    task_no: int = 0
    events: tuple[Event, ...] = ()
    late_answer: LateAnswerRow | None = None
