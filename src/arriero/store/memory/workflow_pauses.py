"""Workflows that are paused for new tasks, in the memory store."""

from collections.abc import Sequence

from ...model import WAITS_FOR_WORKFLOW, TaskRow, TaskState
from ...model.workflow_pauses import Pauses, WorkflowPauseRow
from ..sql.workflow_pauses import WorkflowPauseRows
from .agent_rows import MemoryLimits


class MemoryWorkflowPauses(MemoryLimits, WorkflowPauseRows):
    """See ``store.sql.workflow_pauses``."""

    @property
    def pauses(self) -> Pauses:
        return {key: self._quarantine.read_shared(row) for key, row in self.pause_rows.items()}

    def select_pauses(self) -> list[WorkflowPauseRow]:
        return [self._quarantine.read_shared(self.pause_rows[key]) for key in sorted(self.pause_rows)]

    def lock_starts(self) -> None:
        """No other transaction is open."""

    def lock_pause(self, app: str, workflow: str) -> WorkflowPauseRow | None:
        row = self.pause_rows.get((app, workflow))
        return None if row is None else self._quarantine.read_shared(row)

    def put_pause(self, pause: WorkflowPauseRow) -> None:
        self._put(self.pause_rows, (pause.app, pause.workflow), pause)

    def remove_pause(self, pause: WorkflowPauseRow) -> None:
        self._remove(self.pause_rows, (pause.app, pause.workflow))

    def lock_waiting_tasks(self, apps: Sequence[str], workflow: str, limit: int) -> list[TaskRow]:
        return self._quarantine.readable(self._list_waiting(apps, workflow)[:limit])

    def has_waiting_tasks(self, apps: Sequence[str], workflow: str) -> bool:
        return bool(self._list_waiting(apps, workflow))

    def _list_waiting(self, apps: Sequence[str], workflow: str) -> list[TaskRow]:
        free = [t for t in self.tasks.values() if t.locked_by is None and t.paused_at is None]
        waiting = [t for t in free if t.not_before == WAITS_FOR_WORKFLOW and t.state is not TaskState.COMPENSATING]
        of_workflow = (t for t in waiting if t.workflow == workflow and t.app in apps)
        return sorted(of_workflow, key=lambda t: t.task_no)
