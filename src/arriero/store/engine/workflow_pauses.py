"""Workflows that operators pause for new tasks, in one transaction. The rules are in ``core.workflow_pauses``."""

from ...core.apps import apps_run_by
from ...core.workflow_pauses import let_begin, operate_workflow
from ...model.answers import Refusal
from ...model.workflow_pauses import OperateWorkflow, WorkflowPauseRow
from ..sql.store_rows import StoreRows
from .batch import STORE_STREAM, Batch
from .transactions import Lane, Transactions, writes


def change_workflow_pause(rows: StoreRows, command: OperateWorkflow) -> WorkflowPauseRow | Refusal:
    """Pause a workflow for new tasks, or resume it. Once this has returned, no process begins a new task of a paused one.

    Returns: the row as it stands now; a Refusal if it stands so already.
    """
    rows.lock_starts()
    row = rows.lock_pause(command.app, command.workflow)
    now = rows.read_clock()
    changed = operate_workflow(command, row, now)
    if isinstance(changed, Refusal):
        return changed
    pause, event = changed
    rows.put_pause(pause)
    Batch(rows, now).note(STORE_STREAM, command.actor, [event])
    return pause


def let_waiting_begin(rows: StoreRows, app: str, workflow: str, limit: int, actor: str) -> bool:
    """Let the next tasks begin that waited for a workflow which was resumed. Returns True if there may be others.

    When none is left, its row is removed. Two that do this at the same time do no harm.
    """
    pause = rows.lock_pause(app, workflow)
    if pause is None or pause.is_paused:
        return False
    apps = apps_run_by(app)
    tasks = rows.lock_waiting_tasks(apps, workflow, limit)
    work = Batch(rows, rows.read_clock())
    for task in tasks:
        work.write(let_begin(task, work.now), actor)
    if len(tasks) == limit:
        return True
    if not tasks and not rows.has_waiting_tasks(apps, workflow):
        rows.remove_pause(pause)
        return False
    return bool(tasks)


class WorkflowPauseOperations(Transactions):
    """Workflows that are paused for new tasks."""

    change_workflow_pause = writes(change_workflow_pause, Lane.UPKEEP)
    let_waiting_begin = writes(let_waiting_begin, Lane.UPKEEP)

    async def list_workflow_pauses(self) -> list[WorkflowPauseRow]:
        """All workflows that are paused, and those whose tasks have still to be let begin, by App and workflow."""
        return await self._read(lambda rows: rows.select_pauses())
