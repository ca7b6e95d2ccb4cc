"""Tasks and convoys that a process leaves alone, because it cannot read a row of theirs. Nothing else waits for them.

They are known to this process alone, and for some seconds: another release may read them, and an operator may mend them. So no
row is marked. What an operator must know is an alert of its own cause, which the store keeps: it is opened once, by the one who finds
the row first, and closed by the one who can read the row (docs/adr/0033).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..core.stand_ins import stand_in
from ..errors import UnreadableRow
from ..model import AlertRow, Instant, Loaded, later
from .readable import AnyRow, legible, name_row, refuse_unreadable, refuse_unreadable_task
from .rows import SharedRow

logger = logging.getLogger("arriero")
R = TypeVar("R", bound=AnyRow)
S = TypeVar("S", bound=SharedRow)
T = TypeVar("T")

UNREADABLE = "unreadable"  # the cause of such an alert
APART_SECONDS = (
    10.0  # until a row is tried again: soon enough for an operator who mends it, seldom enough to cost nothing
)
APART_MAX = 10_000  # of them are left out of what is asked for; more are read each time, and passed over


class Quarantine:
    """Tasks and convoys that this process leaves alone for some seconds. Used by every thread of a store. ``now``: the store's clock."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._tasks: dict[int, Instant] = {}
        self._convoys: dict[int, Instant] = {}
        self._to_be_tried: set[int] = set()
        self.unreported: list[UnreadableRow] = []  # rows without an alert so far
        self._told: dict[
            tuple[int, int, str], str
        ] = {}  # what was said of a task, of a convoy, or of another shared row

    def add(self, error: UnreadableRow) -> bool:
        """Leave the task or convoy of an unreadable row alone for a while, and have an operator notified once.

        False: too many are left alone already; this one is read again whenever it is due.
        """
        until = later(self._now(), APART_SECONDS)
        with self._lock:
            has_room = len(self._tasks) < APART_MAX and len(self._convoys) < APART_MAX
            if error.task_no and has_room:
                self._tasks[error.task_no] = until
                self._to_be_tried.add(error.task_no)
            if error.convoy_no and has_room:
                self._convoys[error.convoy_no] = until
            key = (error.task_no, error.convoy_no, error.row)
            if self._told.get(key) != error.what:
                self._told[key] = error.what
                self.unreported.append(error)
            return has_room

    def tasks(self) -> list[int]:
        """Numbers of the tasks that are left alone now."""
        return self._select_current(self._tasks)

    def convoys(self) -> list[int]:
        """Numbers of the convoys that are left alone now."""
        return self._select_current(self._convoys)

    def _select_current(self, known: dict[int, Instant]) -> list[int]:
        if not known:
            return []
        now = self._now()
        with self._lock:
            for number in [number for number, until in known.items() if until <= now]:
                del known[number]
            return list(known)

    def take_unreported(self) -> list[UnreadableRow]:
        """Unreadable rows that no person was notified of; the caller reports them, or gives them back."""
        with self._lock:
            found, self.unreported = self.unreported, []
            return found

    def give_back(self, errors: list[UnreadableRow]) -> None:
        """Take back rows that could not be notified; a caller asks again."""
        with self._lock:
            self.unreported += errors

    def to_be_tried(self) -> list[int]:
        """Tasks that could not be read and are no longer left alone: the one who holds one reads it again.

        Nobody drives what a process holds and could not read: it must not wait for news. So it is named again and again,
        also if an answer is lost, until the holder has read it (``forget_untried``).
        """
        if not self._to_be_tried:
            return []
        left_alone = set(self.tasks())
        with self._lock:
            return sorted(self._to_be_tried - left_alone)

    def forget_untried(self, task_nos: Iterable[int]) -> None:
        """Their holder reads these tasks now, or this process holds them no longer. What is unreadable is added again."""
        with self._lock:
            self._to_be_tried.difference_update(task_nos)

    def can_read_task(self, loaded: Loaded) -> bool:
        """Returns True if all that is recorded of a task can be read; else sets it apart."""
        can_read = self.can_read(lambda: refuse_unreadable_task(loaded))
        if can_read and self._told:
            self.forget(loaded.task.task_no)
        return can_read

    def forget(self, task_no: int) -> None:
        """Forget a task: every row of it can be read."""
        with self._lock:
            self._tasks.pop(task_no, None)
            for key in [key for key in self._told if key[0] == task_no]:
                del self._told[key]

    def read_shared(self, row: S) -> S:
        """The row of a breaker, a limit, a lease or another thing that many share, or what stands in for it.

        An alert reports one that cannot be read (``core.stand_ins``).
        """
        try:
            refuse_unreadable(row)
        except UnreadableRow as error:
            self.add(error)
            stands_in: S = stand_in(legible(row), error.column, error.what)  # type: ignore[assignment]
            return stands_in
        if self._told:
            self.forget_row(name_row(row))
        return row

    def is_readable(self, row: AnyRow) -> bool:
        """Returns True if a shared row can be read. An alert reports one that cannot."""
        try:
            refuse_unreadable(row)
        except UnreadableRow as error:
            self.add(error)
            return False
        if self._told:
            self.forget_row(name_row(row))
        return True

    def forget_row(self, row: str) -> None:
        """Forget a shared row: it can be read, or it was removed."""
        with self._lock:
            for key in [key for key in self._told if key[2] == row]:
                del self._told[key]

    def readable(self, rows: Iterable[R]) -> list[R]:
        """The rows that can be read; the others are set apart."""
        return [row for row in rows if self.can_read(lambda row=row: refuse_unreadable(row))]  # type: ignore[misc]  # bound now

    def can_read(self, read: Callable[[], object]) -> bool:
        """Returns True if ``read`` meets only readable rows; else sets apart the one it met."""
        try:
            read()
        except UnreadableRow as error:
            self.add(error)
            return False
        return True

    def read_due(self, ask: Callable[[], Sequence[tuple[Any, ...]]], read: Callable[[tuple[Any, ...]], T]) -> list[T]:
        """Rows that are due and can be read. The others are set apart, and asked past: nothing else waits behind them.

        Args:
            ask: the rows as the database gives them, without those of ``tasks``; it is asked again until all can be read.
            read: makes a row of it. Raises UnreadableRow.
        """
        while True:
            found: list[T] = []
            asks_again = False
            for row in ask():
                try:
                    found.append(read(row))
                except UnreadableRow as error:
                    asks_again = self.add(error) or asks_again
            if not asks_again:
                return found


def log(error: UnreadableRow, task_id: str) -> None:
    """A line for the log of this process."""
    whose = f"task {task_id}" if task_id else f"row {error.row}"
    logger.error("%s is set apart, it cannot be read: %s; %s", whose, error.what, error.remedy)


def alert(
    error: UnreadableRow, task_no: int, task_id: str, workflow: str, incarnation: object, now: Instant
) -> AlertRow:
    """Build the alert for a task that cannot continue, because a row of it cannot be read.

    Of a shared row ``task_no`` is 0, and ``step`` its name.
    """
    return AlertRow(
        no=0,
        task_no=task_no,
        task_id=task_id,
        workflow=workflow,
        incarnation=incarnation if isinstance(incarnation, int) else 1,
        cause=UNREADABLE,
        reason=f"it cannot be read: {error.what}; {error.remedy}",
        step="" if task_no else error.row,
        code=f"{error.table}.{error.column}",
        opened_at=now,
        closed_at=None,
        told=(),
        attempts=0,
        next_at=now,
        error="",
    )
