"""Cache of rows between transactions of the store's own connection."""

import sqlite3
from collections import deque
from collections.abc import Sequence

from ...model import TASK_OPEN, ConvoyRow, Loaded, StepRow, TailRow, TaskRow, Turn
from ...model.agents import AgentLimitsRow, BreakerRow
from ...model.workflow_pauses import Pauses

READ_AT_ONCE = 16
SIZE_MAX = 50_000  # characters of arguments that are kept of a line, besides those of the first two


class WaitingCache:
    """The first waiting tasks of one convoy, in their order.

    Args:
        found: as read, ``READ_AT_ONCE`` at most; if fewer, then nobody else waits.
        is_cut: a task behind them could not be read.
    """

    def __init__(self, found: Sequence[Loaded], *, is_cut: bool = False) -> None:
        self._line: deque[Loaded] = deque()
        self._size = 0
        self._is_cut = False  # a task was left out: those behind it are left out as well
        for each in found:
            self._append(each)
        self._is_cut = self._is_cut or is_cut
        self._is_whole = len(self._line) < READ_AT_ONCE and not self._is_cut

    def _append(self, one: Loaded) -> None:
        """Append a task, if there is room."""
        size = self._size + len(one.arguments)
        has_room = len(self._line) < 2 or (len(self._line) < READ_AT_ONCE and size <= SIZE_MAX)
        if self._is_cut or not has_room:
            self._is_cut = True
            return
        self._line.append(one)
        self._size = size

    def tells(self, after: tuple[int, int]) -> bool:
        """Returns True if the first task after a (rank, place) is known; if not, the file must be asked."""
        return _stand(self._line[0].task) > after if self._line else self._is_whole

    @property
    def first(self) -> Loaded | None:
        """The first waiting task; None: none waits."""
        return self._line[0] if self._line else None

    @property
    def second(self) -> Loaded | None:
        """The second waiting task, as far as is known."""
        return self._line[1] if len(self._line) > 1 else None

    def add(self, task: TaskRow, arguments: str) -> bool:
        """Add a task that came to the convoy. False: the cache is no longer true."""
        if task.turn is not Turn.WAITING:
            return not self._line
        if self._line and _stand(task) <= _stand(self._line[-1].task):
            return False
        if self._is_whole:
            self._append(Loaded(task, arguments, ()))
            self._is_whole = not self._is_cut
        return True

    def update(self, task: TaskRow) -> bool:
        """Take over a changed row of the convoy. False: the cache is no longer true."""
        if self._line and self._line[0].task.task_no == task.task_no and task.turn is not Turn.WAITING:
            self._size -= len(self._line.popleft().arguments)  # its turn has come
            return True
        return task.turn is not Turn.WAITING and all(each.task.task_no != task.task_no for each in self._line)


def _stand(task: TaskRow) -> tuple[int, int]:
    return task.rank or 0, task.place or 0


TASKS_MAX = 10_000  # and as many convoys: more are forgotten, all at the same time, and read again
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
        self.pauses: Pauses | None = None  # None: they are not known

    def compare(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction: forget everything if others have written since the last one."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self.forget()
            self._version = version

    def forget(self) -> None:
        """Forget everything."""
        self.epoch = self.pauses = None
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
