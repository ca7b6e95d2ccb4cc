"""The cap on open tasks of one submitter, inside the transactions of all stores. The rule is ``core.open_task_caps``."""

from collections.abc import Callable

from ...answers import Refusal
from ...commands import Submit
from ...core import open_task_caps


def refuse_beyond_cap(command: Submit, count_open_tasks: Callable[[str, int], int]) -> Refusal | None:
    """Refuse a new task that goes beyond the cap of its submitter. Of a submission without a cap nothing is asked.

    ``count_open_tasks``: see ``LedgerRows``.
    """
    if command.submitter is None or command.open_tasks_max is None:
        return None
    return open_task_caps.refuse_beyond_cap(command, count_open_tasks(command.submitter, command.open_tasks_max))
