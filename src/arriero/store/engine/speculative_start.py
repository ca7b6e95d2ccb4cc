"""Tasks that begin in their submission commit, the same for all stores."""

from typing import Protocol

from ...answers import Begun, Submitted
from ...commands import Submit
from ...core import transitions
from ...core.changes import BreakerRows, Change
from ...core.placement import Spot
from ...core.speculative_start import may_start, start_task
from ...model import Instant, Loaded


class ProcessLookup(BreakerRows, Protocol):
    """Looks up the process that asks, and the breakers of its Agents."""

    def process_is_retired(self, process_no: int) -> bool: ...


def build_new_rows(
    command: Submit, task_no: int, now: Instant, spot: Spot | None, processes: ProcessLookup, store_id: str | None
) -> Change:
    """The rows of a submitted task, begun if its process asks for that and may begin tasks.

    Args:
        spot: see ``core.transitions.build_new_task``.
        store_id: of the store; None: the process speaks in an epoch that is over, and begins nothing.
    """
    change = transitions.build_new_task(command, task_no, now, spot)
    start = command.start
    if start is None or store_id is None or not may_start(change.task, now):
        return change
    if processes.process_is_retired(start.process_no):
        return change
    return start_task(change, start, processes, now, store_id)


def build_answer(change: Change, command: Submit) -> Submitted:
    """The answer, once the rows are kept."""
    task = change.task
    if task.locked_by is None:
        return Submitted(task.task_no, True)
    loaded = Loaded(task, command.arguments, tuple(change.opened))
    return Submitted(task.task_no, True, begun=Begun(loaded, tuple(change.dispatches)))
