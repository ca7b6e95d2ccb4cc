"""The fold of events about the App of a task, and the Apps of the processes that ran it."""

from collections.abc import Mapping, Sequence

from ..events import Event, UnreadableEvent
from ..events.step import CompensationDispatched, StepDispatched
from ..events.task import TaskAssigned, TaskClaimed
from ..model import NOT_SAID
from .fold import TaskFold


def assign_app(task: TaskFold, event: TaskAssigned) -> None:
    """Fold the event by which a person gave the task to an App."""
    if not event.by:
        task.convict("I59", "assigned to an App by nobody")
    if event.from_app != task.app:
        task.convict("I59", f"it is recorded to have been of App {event.from_app!r}, it was of {task.app!r}")
    task.grow_fence(event.fence, "assigned")
    task.app, task.holder, task.not_before = event.app, None, event.not_before


def judge_app(task: TaskFold, events: Sequence[Event | UnreadableEvent], apps: Mapping[int, str]) -> None:
    """Judge the App after one commit. ``apps``: of process starts, by number; of one of release 0.4.0 none is known."""
    for event in events:
        if not isinstance(event, TaskClaimed | StepDispatched | CompensationDispatched):
            continue
        app = apps.get(event.process, NOT_SAID)
        if NOT_SAID not in (app, task.app) and app != task.app:
            task.convict(
                "I61", f"{event.type} by process {event.process} of App {app!r}, the task is of App {task.app!r}"
            )
