"""Rules of workflows that operators have paused for new tasks. Values in, values out.

A task has begun once a process has claimed it. A task of a paused workflow that has not begun waits: the claim that finds it
puts it off, instead of claiming it. So a backlog costs each of its tasks one write, and no claim reads it again. What has begun
continues: running tasks, their retries and undos, and a task that an operator resubmits.
"""

import shlex

from msgspec.structs import replace

from ..events import Event
from ..events.store import WorkflowPausedEvent, WorkflowResumed
from ..events.task import TaskReleased
from ..model import NOT_SAID, WAITS_FOR_WORKFLOW, Instant, TaskRow, TaskState
from ..model.answers import WORKFLOW_PAUSED, Refusal
from ..model.commands import Submit
from ..model.workflow_pauses import OperateWorkflow, Pauses, PauseState, WorkflowPauseRow
from ..text.format import format_instant
from .changes import Change
from .starts import find_start


def find_pause(pauses: Pauses, app: str, workflow: str) -> WorkflowPauseRow | None:
    """Find the pause of a workflow. None: new tasks of it begin.

    Args:
        app: of the task; one that names none may be of any App.
    """
    for pause in pauses.values():
        if pause.workflow == workflow and app in (pause.app, NOT_SAID) and pause.is_paused:
            return pause
    return None


def has_not_begun(task: TaskRow) -> bool:
    """Returns True if no process has ever claimed the task. An operator's resubmission counts as a begin."""
    return task.state is TaskState.PENDING and task.incarnation == 1


def must_wait(task: TaskRow, pauses: Pauses) -> bool:
    """Returns True if the task may not begin, because its workflow is paused."""
    return has_not_begun(task) and find_pause(pauses, task.app, task.workflow) is not None


def put_off(task: TaskRow) -> Change:
    """Let a due, free task wait for its workflow."""
    return _move(task, WAITS_FOR_WORKFLOW, "workflow_paused")


def let_begin(task: TaskRow, now: Instant) -> Change:
    """Let a task begin that waited for its workflow: now, or when its delay or snooze ends."""
    due = now if task.due_at is None else max(now, task.due_at)
    return _move(task, find_start(task, due), "workflow_resumed")


def _move(task: TaskRow, not_before: Instant, why: str) -> Change:
    moved = replace(task, not_before=not_before, fence=task.fence + 1, revision=task.revision + 1)
    return Change(moved, [], [], [TaskReleased(moved.fence, not_before, why)], [])


def waits_for_workflow(task: TaskRow) -> bool:
    """Returns True if a claim has put the task off because its workflow was paused."""
    return task.not_before == WAITS_FOR_WORKFLOW


def refuse_submission(command: Submit, pauses: Pauses) -> Refusal | None:
    """Refuse a new task of a workflow that takes none. None: it is accepted."""
    pause = find_pause(pauses, command.app, command.workflow)
    if pause is None or pause.state is not PauseState.REFUSING:
        return None
    return build_refusal(pause)


def build_refusal(pause: WorkflowPauseRow) -> Refusal:
    """Build the refusal of a new task."""
    remedy = f"submit again once it is resumed: {format_resume(pause)}"
    return Refusal(WORKFLOW_PAUSED, f"{describe_pause(pause)}; {remedy}", str(pause.state))


def describe_pause(pause: WorkflowPauseRow) -> str:
    """Describe who paused a workflow, since when and why."""
    takes = "and takes no new tasks" if pause.state is PauseState.REFUSING else "for new tasks"
    of = f" of App {pause.app!r}" if pause.app else ""
    since = format_instant(pause.paused_at)
    return (
        f"workflow {pause.workflow!r}{of} is paused {takes}, by {pause.paused_by} since {since}: {pause.pause_reason}"
    )


def format_resume(pause: WorkflowPauseRow) -> str:
    """Format the command that resumes a workflow."""
    app = f" --app-name {shlex.quote(pause.app)}" if pause.app else ""
    return f"`arriero workflow resume {shlex.quote(pause.workflow)}{app} --reason WHY`"


def operate_workflow(
    command: OperateWorkflow, row: WorkflowPauseRow | None, now: Instant
) -> tuple[WorkflowPauseRow, Event] | Refusal:
    """Pause or resume a workflow.

    Args:
        row: as it stands, locked; None: it is not paused.
    Returns: the row and the event that says so; a Refusal if it stands so already.
    """
    name = f"workflow {command.workflow!r} of App {command.app!r}"
    who = {"app": command.app, "workflow": command.workflow, "by": command.by, "reason": command.reason}
    if command.state is PauseState.RESUMING:
        if row is None or not row.is_paused:
            return Refusal("not_allowed", f"{name} is not paused", "active" if row is None else str(row.state))
        return replace(row, state=PauseState.RESUMING), WorkflowResumed(**who)
    if row is not None and row.state is command.state:
        how = "and takes no new tasks" if row.state is PauseState.REFUSING else "for new tasks"
        said = f"{name} is paused {how} already, by {row.paused_by}: {row.pause_reason}"
        return Refusal("not_allowed", said, str(row.state))
    paused = WorkflowPauseRow(
        app=command.app,
        workflow=command.workflow,
        state=command.state,
        paused_by=command.by,
        pause_reason=command.reason,
        paused_at=now,
    )
    return paused, WorkflowPausedEvent(**who, refuses=command.state is PauseState.REFUSING)
