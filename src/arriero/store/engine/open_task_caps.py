"""The cap on open tasks of one submitter, inside the transactions of all stores. The rule is ``core.open_task_caps``."""

from typing import Protocol

from ...answers import Refusal
from ...commands import Submit
from ...core import open_task_caps


class OpenTaskCounter(Protocol):
    """Counts open tasks by their submitter."""

    def count_open_tasks(self, submitter: str, limit: int) -> int:
        """Count open tasks, with those that this transaction has added; no more than ``limit`` are counted."""
        ...


def refuse_beyond_cap(command: Submit, counter: OpenTaskCounter) -> Refusal | None:
    """Refuse a new task that goes beyond the cap of its submitter. Of a submission without a cap nothing is asked."""
    if command.submitter is None or command.open_tasks_max is None:
        return None
    return open_task_caps.refuse_beyond_cap(
        command, counter.count_open_tasks(command.submitter, command.open_tasks_max)
    )
