"""The fold of workflows that operators paused for new tasks, and the tasks that begin meanwhile."""

from collections.abc import Callable, Sequence

from ..events import Event, UnreadableEvent
from ..events.store import WorkflowPausedEvent, WorkflowResumed
from ..events.task import TaskClaimed
from ..model import NOT_SAID
from ..model.workflow_pauses import PauseState, WorkflowPauseRow
from .fold import TaskFold

Convict = Callable[[str, str], None]


class WorkflowFold:
    """The fold of all workflows: those that are paused, as of the last commit."""

    def __init__(self, convict: Convict) -> None:
        self._convict = convict
        self.paused: dict[tuple[str, str], WorkflowPausedEvent] = {}  # by App and workflow

    def fold(self, event: WorkflowPausedEvent | WorkflowResumed) -> None:
        """Fold one event."""
        key = (event.app, event.workflow)
        name = f"workflow {event.workflow} of App {event.app!r}"
        if not event.by or not event.reason:
            self._convict("I59", f"{event.type} of {name} by {event.by or 'nobody'}, reason {event.reason!r}")
        before = self.paused.get(key)
        if isinstance(event, WorkflowResumed):
            if before is None:
                self._convict("I80", f"{name} was resumed, but was not paused")
            self.paused.pop(key, None)
            return
        if before is not None and before.refuses is event.refuses:
            self._convict("I80", f"{name} was paused twice")
        self.paused[key] = event

    def judge_claims(self, task: TaskFold, events: Sequence[Event | UnreadableEvent]) -> None:
        """Convict a task that a process claims for the first time while its workflow is paused.

        Rows come in the order of their commits: who pauses a workflow waits for claims that were judged before.
        """
        begins = task.incarnation == 1 and task.claims == 1 and not task.undo_began
        if not self.paused or not begins or not any(isinstance(event, TaskClaimed) for event in events):
            return
        for app, workflow in self.paused:
            if workflow == task.workflow and task.app in (app, NOT_SAID):
                task.convict("I80", f"it began at {task.at}, while its workflow {workflow} was paused for new tasks")


def find_pause_differences(fold: WorkflowFold, rows: Sequence[WorkflowPauseRow]) -> list[str]:
    """Find what rows of paused workflows say otherwise than the history."""
    said = {key: PauseState.REFUSING if event.refuses else PauseState.PAUSED for key, event in fold.paused.items()}
    kept = {(row.app, row.workflow): row.state for row in rows if row.is_paused}
    names = sorted({*said, *kept})
    return [
        f"workflow {workflow} of App {app!r} is {kept.get((app, workflow), 'not paused')}, its history says"
        f" {said.get((app, workflow), 'not paused')}"
        for app, workflow in names
        if kept.get((app, workflow)) != said.get((app, workflow))
    ]
