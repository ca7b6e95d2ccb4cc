"""The fold of runs: each run that ended by ContinueAs, and the run in which its task continues (I89)."""

from collections.abc import Sequence

from ..events import Event, UnreadableEvent
from ..events.signal import SignalSent
from ..events.task import TaskContinued, TaskSubmitted
from .fold import TaskFold

_Kept = tuple[str, str, str | None]  # of a signal: name, id, hash of its value


class RunsFold:
    """All runs of a history that follow each other. Their rows stand in it one behind the other, at one instant."""

    def __init__(self) -> None:
        self._expected: dict[
            int, tuple[TaskFold, int, list[_Kept]]
        ] = {}  # by number of the next run: the run before, when, what went along
        self._missing: list[tuple[TaskFold, str]] = []  # violations, unless a task was purged

    def fold_commit(self, task: TaskFold, at: int, events: Sequence[Event | UnreadableEvent]) -> None:
        """Fold one commit of a task, which has been folded itself."""
        for event in events:
            if isinstance(event, TaskContinued):
                self._end_run(task, at, event)
            elif isinstance(event, TaskSubmitted) and event.continues is not None:
                sent = [(one.name, one.signal_id, one.value) for one in events if isinstance(one, SignalSent)]
                self._begin_run(task, at, event, sent)

    def end(self, *, purged: bool) -> None:
        """Judge after the last row. ``purged``: tasks were purged, and their histories with them."""
        for task, _, _ in self._expected.values():
            self._missing.append((task, "it continued in another run, which never began"))
        for task, detail in () if purged else self._missing:
            task.convict("I89", detail)

    def _end_run(self, task: TaskFold, at: int, event: TaskContinued) -> None:
        if event.following in self._expected:
            task.convict("I89", f"it continued in run {event.following}, as another task did")
        passed = [task.signals[number] for number in event.signals if number in task.signals]
        along = [(signal.name, signal.signal_id, signal.value) for signal in passed]
        self._expected[event.following] = (task, at, along)
        left = [n for n, signal in task.signals.items() if signal.taken_by is None and "#" not in signal.name]
        if left:
            task.convict("I89", f"signal {left[0]}, which no wait had taken, did not go along to the next run")

    def _begin_run(self, task: TaskFold, at: int, event: TaskSubmitted, sent: list[_Kept]) -> None:
        before = self._expected.pop(task.task_no, None)
        if before is None:
            self._missing.append((task, f"it continues task number {event.continues}, which has not ended so"))
            return
        earlier, ended_at, along = before
        if (earlier.task_no, ended_at) != (event.continues, at):
            task.convict(
                "I89", f"its run began at {at}, the run before is {earlier.task_no}, which ended at {ended_at}"
            )
        if (earlier.workflow, earlier.app, earlier.tags) != (task.workflow, task.app, task.tags):
            task.convict("I89", "its run is of another workflow or App than the run before, or has other tags")
        if sent != along:
            task.convict("I89", f"it began with {len(sent)} signals, {len(along)} others went along")
