"""Who waits in a convoy, read some at a time, so that not every turn that ends must ask the file who is next."""

from collections import deque
from collections.abc import Sequence

from ...model import Loaded, TaskRow, Turn

READ_AT_ONCE = 16
SIZE_MAX = 50_000  # characters of arguments that are kept of a line, besides those of the first two


class WaitingLine:
    """The first of those who wait in one convoy, in their order.

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
        """At the end, if there is room."""
        size = self._size + len(one.arguments)
        has_room = len(self._line) < 2 or (len(self._line) < READ_AT_ONCE and size <= SIZE_MAX)
        if self._is_cut or not has_room:
            self._is_cut = True
            return
        self._line.append(one)
        self._size = size

    def tells(self, after: tuple[int, int]) -> bool:
        """Whether it tells who stands first after a (rank, place); if not, the file must be asked."""
        return _stand(self._line[0].task) > after if self._line else self._is_whole

    @property
    def first(self) -> Loaded | None:
        """Who stands first; None: nobody waits."""
        return self._line[0] if self._line else None

    @property
    def second(self) -> Loaded | None:
        """Who stands behind, as far as is known."""
        return self._line[1] if len(self._line) > 1 else None

    def added(self, task: TaskRow, arguments: str) -> bool:
        """One was added to the convoy. False: what is known of the line is no longer so."""
        if task.turn is not Turn.WAITING:
            return not self._line
        if self._line and _stand(task) <= _stand(self._line[-1].task):
            return False
        if self._is_whole:
            self._append(Loaded(task, arguments, ()))
            self._is_whole = not self._is_cut
        return True

    def changed(self, task: TaskRow) -> bool:
        """The row of one of the convoy has changed. False: what is known of the line is no longer so."""
        if self._line and self._line[0].task.task_no == task.task_no and task.turn is not Turn.WAITING:
            self._size -= len(self._line.popleft().arguments)  # its turn has come
            return True
        return task.turn is not Turn.WAITING and all(each.task.task_no != task.task_no for each in self._line)


def _stand(task: TaskRow) -> tuple[int, int]:
    return task.rank or 0, task.place or 0
