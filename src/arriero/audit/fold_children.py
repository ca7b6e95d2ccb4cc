"""The fold of children: which task is which step of which other one, and whether both histories say the same of it (I83, I84)."""

from collections.abc import Mapping, Sequence

from ..events import Event, UnreadableEvent
from ..events.base import payload_hash
from ..events.step import (
    CompensationFailedEvent,
    CompensationRecorded,
    StepAnswered,
    StepFailedEvent,
    StepRecorded,
)
from ..events.task import TaskClaimed, TaskSubmitted, TaskTerminal
from ..model import StepState, TaskState
from .fold import StepFold, TaskFold

_OPEN = (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING)
_NO_RESULT = payload_hash("null")

EventOfEnd = StepRecorded | StepFailedEvent | CompensationRecorded | CompensationFailedEvent


class ChildrenFold:
    """All children of a history.

    Args:
        tasks: the folds of all tasks, by number. A purge leaves out a parent or a child, so a missing one convicts only
            where no task was purged.
    """

    def __init__(self, tasks: Mapping[int, TaskFold]) -> None:
        self._tasks = tasks
        self._children: dict[tuple[int, int], TaskFold] = {}  # by number of the parent and ordinal of the step
        self._parents: dict[int, list[TaskFold]] = {}  # their children, by number
        self._missing: list[tuple[TaskFold, str]] = []  # violations, unless a task was purged

    def fold_commit(self, task: TaskFold, events: Sequence[Event | UnreadableEvent]) -> None:
        """Fold one commit of a task, which has been folded itself."""
        for event in events:
            if isinstance(event, TaskSubmitted) and task.parent_step is not None:
                if event.continues is None:
                    self._submit(task, task.parent_step)
                else:
                    self._children[task.parent_step] = task  # a detached child: nothing else asks for it
            elif isinstance(event, EventOfEnd):
                step = task.steps.get(event.step)
                if step is not None and step.is_of_child:
                    self._end(task, step, event)
            elif isinstance(event, StepAnswered) and event.happened:
                self._answer(task, event)
            elif isinstance(event, TaskTerminal) and event.state == TaskState.COMPENSATED:
                self._judge_compensated(task)
            elif isinstance(event, TaskClaimed) and task.parent_step is not None:
                self._judge_claim(task, event)

    def end(self, *, purged: bool) -> None:
        """Judge after the last row. ``purged``: tasks were purged, and their histories with them."""
        for task, detail in () if purged else self._missing:
            task.convict("I83", detail)
        for task in self._tasks.values():
            if task.state is TaskState.COMPENSATED:
                for child in self._list_bound_children(task):
                    if child.state in _OPEN:
                        task.convict("I84", f"compensated, and its child {child.task_id} is {child.state} at the end")

    def _submit(self, task: TaskFold, key: tuple[int, int]) -> None:
        known = self._children.setdefault(key, task)
        if known is not task:
            task.convict("I83", f"submitted as step {key[1]} of task number {key[0]}, which is task {known.task_id}")
            return
        self._parents.setdefault(key[0], []).append(task)
        parent = self._tasks.get(key[0])
        if parent is None:
            self._missing.append((task, f"submitted as a step of task number {key[0]}, which nobody had submitted"))
            return
        step = parent.steps.get(key[1])
        if step is None or (step.kind, step.name) != ("child", task.workflow):
            task.convict("I83", f"submitted as step {key[1]} of task {parent.task_id}, which is another one")
        elif step.state is not StepState.RUNNING:
            task.convict("I83", f"submitted as step {key[1]} of task {parent.task_id}, which was {step.state}")

    def _end(self, task: TaskFold, step: StepFold, event: EventOfEnd) -> None:
        """Judge the end of a child, or of its undo, as its parent recorded it."""
        child = self._children.get((task.task_no, step.undoes or step.ordinal))
        is_success = isinstance(event, StepRecorded | CompensationRecorded)
        if child is None:
            if is_success or event.fence:
                self._missing.append(
                    (task, f"step {step.ordinal} ended, and nobody had submitted the child that it is")
                )
            return
        if event.fence != child.incarnation:
            what = f"step {step.ordinal} ended with incarnation {event.fence} of its child {child.task_id}"
            task.convict("I83", f"{what}, which was in incarnation {child.incarnation}")
        elif isinstance(event, CompensationRecorded | StepFailedEvent):
            self._judge_undone(task, step, child)
        elif isinstance(event, StepRecorded):
            self._judge_result(task, step, child, event.result)

    @staticmethod
    def _judge_undone(task: TaskFold, step: StepFold, child: TaskFold) -> None:
        if child.state is not TaskState.COMPENSATED:
            task.convict("I83", f"step {step.ordinal} ended while its child {child.task_id} was {child.state}")
        elif step.kind == "child" and step.failure_code != (child.failure_code or step.failure_code):
            codes = f"failed with {step.failure_code!r}, its child {child.task_id} with {child.failure_code!r}"
            task.convict("I83", f"step {step.ordinal} {codes}")

    @staticmethod
    def _judge_result(task: TaskFold, step: StepFold, child: TaskFold, result: str | None) -> None:
        if step.is_detached:
            return
        if child.state is not TaskState.PROCESSED:
            task.convict("I83", f"step {step.ordinal} was recorded while its child {child.task_id} was {child.state}")
        elif result != (child.output or _NO_RESULT):
            task.convict("I83", f"step {step.ordinal} got another result than its child {child.task_id} ended with")

    def _answer(self, task: TaskFold, event: StepAnswered) -> None:
        """An operator gives a result in place of a child only where that has failed."""
        step = task.steps.get(event.step)
        child = None if step is None or step.kind != "child" else self._children.get((task.task_no, event.step))
        if child is not None and child.state in (*_OPEN, TaskState.HELD):
            task.convict("I83", f"operators answered step {event.step}, its child {child.task_id} was {child.state}")

    def _list_bound_children(self, task: TaskFold) -> list[TaskFold]:
        """The children that are undone with their parent: not those that are detached, nor those whose undo was answered."""
        answered = {step.undoes for step in task.steps.values() if step.is_answered}
        return [
            child
            for child in self._parents.get(task.task_no, ())
            if child.parent_step is not None
            and (step := task.steps.get(child.parent_step[1])) is not None
            and step.ordinal not in answered
            and not step.is_detached
        ]

    def _judge_compensated(self, task: TaskFold) -> None:
        for child in self._list_bound_children(task):
            if child.state is not TaskState.COMPENSATED:
                task.convict("I84", f"compensated while its child {child.task_id} was {child.state}")

    def _judge_claim(self, task: TaskFold, event: TaskClaimed) -> None:
        """Judge that a child does not begin when its parent was undone, or when that part of the parent's life was."""
        assert task.parent_step is not None
        parent = self._tasks.get(task.parent_step[0])
        if parent is None or event.state != TaskState.PROCESSING:
            return
        is_undone = parent.state is TaskState.COMPENSATED or task.parent_step[1] <= parent.past_count
        if is_undone and task in self._list_bound_children(parent):
            task.convict("I84", f"it was claimed after its parent {parent.task_id} was compensated")
