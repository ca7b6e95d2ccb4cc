"""Plain data: workflows that operators have paused for new tasks."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from . import Instant


class PauseState(StrEnum):
    """The state of a workflow that is, or was, paused for new tasks."""

    PAUSED = "paused"  # new tasks are accepted, and begin once it is resumed
    REFUSING = "refusing"  # new tasks are refused; those that were accepted before wait
    RESUMING = "resuming"  # the tasks that waited are let begin, some at a time


class WorkflowPauseRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A workflow of an App that an operator has paused. No row: it is not paused, and no task of it waits for that.

    ``workflow``: ``step:NAME`` for tasks of one step.
    """

    app: str
    workflow: str
    state: PauseState
    paused_by: str
    pause_reason: str
    paused_at: Instant

    @property
    def is_paused(self) -> bool:
        """True if no new task of the workflow begins."""
        return self.state is not PauseState.RESUMING


Pauses = Mapping[tuple[str, str], WorkflowPauseRow]  # by App and workflow
NO_PAUSES: Pauses = MappingProxyType({})


def index_pauses(rows: Iterable[WorkflowPauseRow]) -> Pauses:
    """Put rows under their App and workflow."""
    return {(row.app, row.workflow): row for row in rows}


class OperateWorkflow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An operator pauses a workflow for new tasks, or resumes it.

    Args:
        state: PAUSED or REFUSING, or RESUMING to resume it.
        by, reason: who asks, and why; kept in the store's history.
    """

    actor: str
    app: str
    workflow: str
    state: PauseState
    by: str
    reason: str
