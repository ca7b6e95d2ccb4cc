"""Cache of a convoy's next waiting tasks, which saves a query per turn."""

from collections import deque
from collections.abc import Sequence

from ...model import Loaded, TaskRow, Turn

READ_AT_ONCE = 16
SIZE_MAX = 50_000  # characters of arguments that are kept of a line, besides those of the first two


class WaitingCache:
    """The first waiting tasks of one convoy, in their order.

    Args:
        found: as read, ``READ_AT_ONCE`` at most; if fewer, then nobody else waits.
        is_cut: somebody stands behind them who could not be read.
    """

    def __init__(self, found: Sequence[Loaded], *, is_cut: bool = False) -> None:
        self._line: deque[Loaded] = deque()
        self._size = 0
        self._is_cut = False  # somebody was left out: who comes behind is left out as well
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
