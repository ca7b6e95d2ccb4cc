"""Rows of workflows that are paused for new tasks, and the tasks that wait for them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import WAITS_FOR_WORKFLOW, TaskRow
from ...model.workflow_pauses import Pauses, WorkflowPauseRow, index_pauses
from ..rows import Row
from .rows import SqlRows


class WorkflowPauseRows(SqlRows):
    """Rows of paused workflows. There are hardly any, so all of them are read at a time."""

    def select_pauses(self) -> list[WorkflowPauseRow]:
        """All of them, by App and workflow."""
        return self.read_shared(WorkflowPauseRow, self.ask("list_workflow_pauses").fetchall())

    def read_pauses(self) -> Pauses:
        """See ``core.changes.Rows.pauses``."""
        return index_pauses(self.select_pauses())

    def index_pauses(self, rows: Sequence[Row]) -> Pauses:
        """See ``read_pauses``. ``rows``: as they were read."""
        return index_pauses(self.read_shared(WorkflowPauseRow, rows))

    def lock_starts(self) -> None:
        """Wait until no other transaction can still let a task begin that it judged before, and let none judge before this one ends."""
        raise NotImplementedError

    def lock_pause(self, app: str, workflow: str) -> WorkflowPauseRow | None:
        """Lock one row; None: the workflow is not paused."""
        found = self.ask("lock_workflow_pause", {"app": app, "workflow": workflow}).fetchall()
        return next(iter(self.read_shared(WorkflowPauseRow, found)), None)

    def put_pause(self, pause: WorkflowPauseRow) -> None:
        """Keep a row, new or changed."""
        self.ask("put_workflow_pause", msgspec.structs.asdict(pause) | {"state": str(pause.state)})

    def remove_pause(self, pause: WorkflowPauseRow) -> None:
        """Remove a row that this transaction has locked."""
        self.ask("remove_workflow_pause", {"app": pause.app, "workflow": pause.workflow})

    def lock_waiting_tasks(self, apps: Sequence[str], workflow: str, limit: int) -> list[TaskRow]:
        """Lock free tasks that wait for a workflow, by number. Those that another transaction has are left out."""
        asked: dict[str, Any] = {"apps": list(apps), "workflow": workflow, "limit": limit}
        found: list[Row] = self.ask("lock_waiting_for_workflow", asked | {"waits": WAITS_FOR_WORKFLOW}).fetchall()
        return self._quarantine.readable(self.task_as_is(row) for row in found)

    def has_waiting_tasks(self, apps: Sequence[str], workflow: str) -> bool:
        """Returns True if a free task waits for a workflow, also one that another transaction has, or that cannot be read."""
        asked = {"apps": list(apps), "workflow": workflow, "waits": WAITS_FOR_WORKFLOW}
        return self.ask("has_waiting_for_workflow", asked).fetchone() is not None
