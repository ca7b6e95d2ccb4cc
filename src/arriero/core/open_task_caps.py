"""The cap on open tasks of one submitter: a token of the HTTP API may fill the store only so far."""

from ..answers import TOO_MANY_OPEN_TASKS, Refusal
from ..commands import Submit


def refuse_beyond_cap(command: Submit, open_tasks: int) -> Refusal | None:
    """Refuse a new task whose submitter has as many open tasks as its cap allows; None: there is room, or no cap.

    ``open_tasks``: tasks of the submitter that have not ended, with those that the same transaction has accepted before.
    """
    cap = command.open_tasks_max
    if cap is None or open_tasks < cap:
        return None
    return Refusal(
        TOO_MANY_OPEN_TASKS,
        f"{open_tasks:,} tasks of token {command.submitter} are open, and its open_tasks_max is {cap:,}: wait until some have"
        " ended, or ask for a token with a higher one (`arriero token create --open-tasks-max`)",
    )
