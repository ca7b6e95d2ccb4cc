"""Rows that a store finds and keeps inside its transaction: what each store does in its own way."""

from typing import Protocol

from ...core.changes import Rows
from ...core.progress import PublishedRows
from ...errors import UnreadableRow
from ...model import (
    AlertRow,
    ConvoyRow,
    EditRow,
    Instant,
    LateAnswerRow,
    Loaded,
    SignalRow,
    StatusRow,
    StepRow,
    TailRow,
    TaskRow,
)
from ...model.agents import BreakerRow


class Table(Rows, PublishedRows, Protocol):
    """Rows that a store finds and keeps inside its transaction."""

    def read_clock(self) -> Instant:
        """The store's clock, not before the last commit of any row that this transaction has locked."""
        ...

    def put_task(self, task: TaskRow, *, rewrites: bool = False) -> None:
        """Keep a task's row, new or changed; ``rewrites``: also what only an operator's verb changes."""
        ...

    def add_run(self, earlier: TaskRow, task: TaskRow, arguments: str) -> None:
        """Keep the row of a task's next run, which has the id from now on that the run before, put already, has given up.

        What the task was submitted with still answers for its id.
        """
        ...

    def put_step(self, step: StepRow, *, rewrites: bool = False) -> None:
        """Keep a changed step's row; ``rewrites``: also what only a resubmission changes."""
        ...

    def add_step(self, step: StepRow) -> None:
        """Keep a new step's row."""
        ...

    def put_convoy(self, convoy: ConvoyRow) -> None:
        """Keep a convoy's row."""
        ...

    def put_tail(self, tail: TailRow) -> None:
        """Keep a convoy's tail."""
        ...

    def arguments(self, task_no: int) -> str:
        """The arguments of a task's workflow."""
        ...

    def find_following(self, task: TaskRow) -> Loaded | None:
        """The task that waits behind one whose turn has just come, as far as that is known; not ours: a hint."""
        ...

    def put_arguments(self, task_no: int, arguments: str) -> None:
        """Keep a workflow's arguments as an operator edited them; what was submitted still answers for its id."""
        ...

    def add_edit(self, edit: EditRow) -> None:
        """Keep a payload that an operator gave or replaced, and the one it replaced."""
        ...

    def add_late_answer(self, answer: LateAnswerRow) -> None:
        """Keep what an attempt answered when it no longer counted; of one attempt only the first answer."""
        ...

    def add_status(self, status: StatusRow) -> None:
        """Keep a status at the end of its queue; its ``no`` is given now."""
        ...

    def add_alert(self, alert: AlertRow) -> None:
        """Keep an alert; its ``no`` is given now."""
        ...

    def close_alert(self, task_no: int, at: Instant) -> None:
        """Close a task's open alert: every sink is to be delivered again."""
        ...

    def close_question(self, step_no: int, at: Instant) -> None:
        """Close the open alert of a question, if there is one: every sink is to be delivered again."""
        ...

    def set_apart(self, error: UnreadableRow) -> None:
        """Leave the task or convoy of an unreadable row alone for a while, and notify an operator."""
        ...

    def put_breaker(self, breaker: BreakerRow) -> None:
        """Keep the row of a breaker that this transaction has locked."""
        ...

    def add_breaker(self, breaker: BreakerRow) -> None:
        """Keep a new breaker's row, unless there is one under its name."""
        ...

    def close_breaker_alert(self, breaker: BreakerRow, at: Instant) -> None:
        """Close the open alert of a breaker: every sink is to be delivered again."""
        ...

    def put_signal(self, signal: SignalRow) -> None:
        """Keep a signal, new or changed."""
        ...

    def store_head(self) -> tuple[int, str]:
        """Link number and hash of the store's own history."""
        ...

    def put_store_head(self, link: int, head: str) -> None: ...

    def add_history(
        self, task_no: int, task_id: str, link: int, at: Instant, actor: str, events: str, digest: str
    ) -> None: ...
