"""Cache of rows between transactions of the store's own connection."""

import sqlite3

from ...breakers import BreakerRow
from ...limits import AgentLimitsRow
from ...model import TASK_OPEN, ConvoyRow, StepRow, TailRow, TaskRow
from .waiting_cache import WaitingCache

TASKS_MAX = 10_000  # and as many convoys: more are forgotten, all at once, and read again
WAITING_MAX = 1_000  # convoys of which is kept who waits


class RowCache:
    """Cached rows. They are true until another connection writes the file, or a transaction is undone."""

    def __init__(self) -> None:
        self._version = -1  # of the file, as SQLite counts what other connections wrote
        self._at_rest: set[int] = set()
        self.epoch: int | None = None  # None: it is not known
        self.tasks: dict[int, TaskRow] = {}
        self.steps: dict[int, dict[int, StepRow]] = {}  # by the number of their task
        self.convoys: dict[int, ConvoyRow] = {}
        self.tails: dict[str, TailRow] = {}
        self.waiting: dict[int, WaitingCache] = {}  # by convoy
        self.breakers: dict[str, list[BreakerRow]] = {}  # by Agent
        self.limits: dict[str, list[AgentLimitsRow]] = {}  # by Agent

    def compare(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction: forget everything if others have written since the last one."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self.forget()
            self._version = version

    def forget(self) -> None:
        """Forget everything."""
        self.epoch = None
        self._at_rest.clear()
        for rows in (self.tasks, self.steps, self.convoys, self.tails, self.waiting, self.breakers, self.limits):
            rows.clear()

    def keep_task(self, task: TaskRow) -> None:
        """A row as this transaction has read it or is going to write it."""
        self.tasks[task.task_no] = task
        if task.state not in TASK_OPEN or task.locked_by is None:
            self._at_rest.add(task.task_no)
        else:
            self._at_rest.discard(task.task_no)

    def keep_step(self, step: StepRow) -> None:
        """A row as this transaction has read it or is going to write it."""
        self.steps.setdefault(step.task_no, {})[step.step_no] = step

    def find_waiting(self, task: TaskRow) -> WaitingCache | None:
        """The waiting tasks of a task's convoy; None: it is in no convoy, or they are not known."""
        return None if task.convoy_no is None else self.waiting.get(task.convoy_no)

    def forget_waiting(self, task: TaskRow) -> None:
        """Forget the waiting tasks of a task's convoy."""
        if task.convoy_no is not None:
            self.waiting.pop(task.convoy_no, None)

    def tidy(self) -> None:
        """After a transaction: what nobody drives costs no memory, and there is an end to what is kept."""
        for task_no in self._at_rest:
            self.tasks.pop(task_no, None)
            self.steps.pop(task_no, None)
        self._at_rest.clear()
        if len(self.waiting) > WAITING_MAX:
            self.waiting.clear()
        if max(len(self.tasks), len(self.steps), len(self.convoys), len(self.tails)) > TASKS_MAX:
            self.forget()
