"""What the events of a history say of the App that a task carries, and of the Apps of those who ran it."""

from collections.abc import Mapping, Sequence

from .apps import NOT_SAID, may_run
from .fold import Event, TaskFold

_RUNS = frozenset(("task.claimed", "step.dispatched", "compensation.dispatched"))


def assigned(task: TaskFold, event: Event) -> None:
    """A person said which App runs it from now on."""
    if not event["by"]:
        task.convict("I59", "assigned to an App by nobody")
    if event["from"] != task.app:
        task.convict("I59", f"it is recorded to have been of App {event['from']!r}, it was of {task.app!r}")
    task.grow_fence(event["fence"], "assigned")
    task.app, task.holder, task.not_before = event["app"], None, event["not_before"]


def judge_app(task: TaskFold, events: Sequence[Event], apps: Mapping[int, str]) -> None:
    """After the events of one commit. ``apps``: of process starts, by number; of one of release 0.4.0 none is known."""
    for event in events:
        kind, process = event.get("type"), event.get("process")
        if not isinstance(kind, str) or kind not in _RUNS or not isinstance(process, int):
            continue
        app = apps.get(process, NOT_SAID)
        if app != NOT_SAID and not may_run(app, task.app):
            task.convict("I61", f"{kind} by process {process} of App {app!r}, the task is of App {task.app!r}")
