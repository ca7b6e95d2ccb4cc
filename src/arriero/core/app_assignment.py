"""A person says which App runs a task: for tasks that do not say it themselves, and for those of an App that was renamed."""

from msgspec.structs import replace

from ..answers import Refusal
from ..commands import AssignApp
from ..events.task import TaskAssigned
from ..model import Instant
from .changes import Change, Refused, Rows
from .writer import Writer


def assign_app(command: AssignApp, rows: Rows, now: Instant) -> Change | Refused:
    """Give a task and its steps to an App. It frees the task, as a verb does: who held it may be of another App.

    Guard: the App that it carried as the person saw it.
    """
    task = rows.task(command.task_no)
    if task is None:
        return Refused(Refusal("unknown", f"there is no task number {command.task_no}"))
    if task.ledger_no is not None:
        return Refused(
            Refusal("came_first", f"the ledger of task {task.task_id!r} is still letting its tasks go: try again")
        )
    if task.app != command.from_app:
        said = f"somebody else came first: task {task.task_id!r} is of App {task.app!r}, not {command.from_app!r}"
        return Refused(Refusal("came_first", said, task.state))
    writer = Writer(task, rows, now, None)
    writer.rewrites = True
    writer.set(
        app=command.app,
        locked_by=None,
        fence=task.fence + 1,
        revision=task.revision + 1,
        unseen_since=None,
        not_before=task.not_before if task.locked_by is None else now,
    )
    for step in rows.steps_of(task.task_no):
        if step.is_canary:
            writer.breakers.end(step, None)  # else the breaker of its old App would wait for its end for ever
        writer.put(replace(step, app=command.app, canary=None))
    writer.events.append(
        TaskAssigned(
            app=command.app,
            from_app=command.from_app,
            by=command.by,
            reason=command.reason,
            fence=task.fence + 1,
            not_before=writer.task.not_before,
        )
    )
    return writer.change()
