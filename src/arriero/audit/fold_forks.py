"""The fold of forks: whether what a task has as a copy is what another task has done, and stays that one's to undo (I86)."""

from collections.abc import Mapping, Sequence

from ..events import Event, UnreadableEvent
from ..events.step import StepOpened
from ..events.task import StepCopied, TaskForked
from ..model import StepState
from .fold import StepFold, TaskFold
from .fold_steps import open_step


def copy_step(task: TaskFold, event: StepCopied) -> None:
    """Fold a step that a fork has as a copy."""
    open_step(task, event)
    step = task.steps[event.step]
    step.copied_from = event.from_task, event.from_step
    step.state = StepState.FAILED if event.failed else StepState.COMPLETED
    step.result, step.failure_code = event.result, event.code
    if event.undoable:
        task.convict("I86", f"step {event.step} is a copy, and may be undone")


class ForksFold:
    """All forks of a history.

    Args:
        tasks: the folds of all tasks, by number. A purge leaves out some, so a missing one convicts only where no task was purged.
    """

    def __init__(self, tasks: Mapping[int, TaskFold]) -> None:
        self._tasks = tasks
        self._missing: list[tuple[TaskFold, str]] = []  # violations, unless a task was purged

    def fold_commit(self, task: TaskFold, events: Sequence[Event | UnreadableEvent]) -> None:
        """Fold one commit of a task, which has been folded itself."""
        if task.origin is None:
            return
        for event in events:
            if isinstance(event, TaskForked):
                self._judge_origin(task, event)
            elif isinstance(event, StepCopied):
                self._judge_copy(task, task.steps[event.step], event)
            elif isinstance(event, StepOpened) and event.undoes is not None:
                self._judge_undo(task, event.step, event.undoes)

    def end(self, *, purged: bool) -> None:
        """Judge after the last row. ``purged``: tasks were purged, and their histories with them."""
        for task, detail in () if purged else self._missing:
            task.convict("I86", detail)

    def _judge_origin(self, task: TaskFold, event: TaskForked) -> None:
        origin = self._tasks.get(event.task)
        if origin is None:
            self._missing.append((task, f"forked from task number {event.task}, which nobody had submitted"))
        elif origin.workflow != task.workflow:  # its id is another one once it has continued in another run
            task.convict(
                "I86", f"forked from task {origin.task_id} of workflow {origin.workflow}, which is another one"
            )
        elif event.step not in origin.steps:
            task.convict("I86", f"forked from step {event.step} of task {origin.task_id}, which has no such step")

    def _judge_copy(self, task: TaskFold, copy: StepFold, event: StepCopied) -> None:
        source = self._tasks.get(event.from_task)
        if source is None:
            self._missing.append(
                (task, f"step {copy.ordinal} is copied from task number {event.from_task}, which is not there")
            )
            return
        step = source.steps.get(event.from_step)
        where = f"step {copy.ordinal} is a copy of step {event.from_step} of task {source.task_id}"
        if step is None or (step.kind, step.name, step.key) != (copy.kind, copy.name, copy.key):
            task.convict("I86", f"{where}, which is another one")
        elif step.copied_from is not None:
            task.convict("I86", f"{where}, which is a copy itself")
        elif event.failed:  # a resubmission may have set it back since it was read
            return
        elif step.state is not StepState.COMPLETED:
            task.convict("I86", f"{where}, which was {step.state}")
        elif step.kind != "timer" and step.result != copy.result:
            task.convict("I86", f"{where}, which has another result")

    @staticmethod
    def _judge_undo(task: TaskFold, ordinal: int, undoes: int) -> None:
        step = task.steps.get(undoes)
        if step is not None and step.copied_from is not None:
            task.convict(
                "I86", f"compensation {ordinal} undoes step {undoes}, which task number {step.copied_from[0]} has done"
            )
