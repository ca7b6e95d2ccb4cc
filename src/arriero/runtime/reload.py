"""Queue of tasks whose record is read again, many in one query."""

import logging
import types
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from itertools import islice

from ..model import Loaded
from ..model.moves import Reported
from ..store.state_store import StateStore
from ..system.loops import Loop, LoopGuard
from .ports import Ports

logger = logging.getLogger("arriero")

AGAIN_SECONDS = 0.2  # between questions while the store does not answer
TASKS_MAX = 100  # of one question: what was read for the first ones is not old by the time they continue

OnRead = Callable[[int, Loaded | None, tuple[Reported, ...]], None]


class ReloadQueue:
    """Reads records, one query at a time. Tasks asked for meanwhile go with the next query, so there is no timer.

    Args:
        on_read: called with each task's number, its record (None: it no longer exists), and the reports that came for it meanwhile.
        reading: entered while a question is running and what it found is acted on.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        ports: Ports,
        spawn: Callable[..., None],
        on_read: OnRead,
        reading: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._store = store
        self._ports = ports
        self._spawn = spawn
        self._on_read = on_read
        self._reading = reading
        # By the tasks that are to be read, in the order of questions: reports that came for them.
        self.pending: dict[int, tuple[Reported, ...]] = {}
        self._under_way: set[int] = set()  # of the question that is being asked
        self._again: set[int] = set()  # of these, asked for since: what is being read may be older than what they know
        self._is_asking = False
        self._guard = LoopGuard(
            Loop.REREADING, ports.clock.monotonic, unanswered="tasks could not be read again yet: %s"
        )

    def ask(self, task_no: int, reports: tuple[Reported, ...]) -> None:
        """Read a task's record. ``reports``: came for it and are not recorded yet."""
        self.pending[task_no] = self.pending.get(task_no, ()) + reports
        if task_no in self._under_way:
            self._again.add(task_no)
        if not self._is_asking:
            self._spawn(self._ask())
            self._is_asking = True

    def is_alive(self) -> bool:
        """Returns True unless something is to be read and nobody reads."""
        return self._is_asking or not self.pending

    async def _ask(self) -> None:
        size = TASKS_MAX
        try:
            while self.pending:
                asked = list(islice(self.pending, size))
                with self._guard:
                    await self._read_and_tell(asked)
                if self._guard.failed:
                    size = max(1, len(asked) // 2)  # it may have been too much for an answer in time
                    left = [task_no for task_no in asked if task_no in self.pending]
                    self.pending |= {task_no: self.pending.pop(task_no) for task_no in left}  # after the others
                    await self._ports.clock.sleep(AGAIN_SECONDS)
        finally:
            self._is_asking = False

    async def _read_and_tell(self, asked: list[int]) -> None:
        """Read records and hand them on. A task that fails is read again, because nobody else drives what is ours."""
        failed: Exception | None = None
        self._under_way, self._again = set(asked), set()
        with self._reading():
            found = {loaded.task.task_no: loaded for loaded in await self._store.load_tasks(asked)}
            for task_no in asked:
                reports = self.pending.pop(task_no)
                try:
                    self._on_read(task_no, found.get(task_no), reports)
                except Exception as error:  # it must not cost the others of its question theirs
                    self.pending[task_no] = reports + self.pending.get(task_no, ())
                    failed = error
                self._under_way.discard(task_no)
                await _yield_to_event_loop()  # running code again from its start takes its time: others have their turn
        for task_no in self._again:
            self.pending.setdefault(task_no, ())
        if failed is not None:
            raise failed


@types.coroutine
def _yield_to_event_loop() -> Generator[None, None, None]:
    """Let other tasks of the event loop go first, without waiting on any clock."""
    yield
