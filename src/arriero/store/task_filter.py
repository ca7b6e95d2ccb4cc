"""A selection of tasks, as lists and verbs on many tasks name it."""

import msgspec

from ..model import Instant, TaskState


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A selection of tasks; None, or an empty text: any.

    Args:
        state, workflow: of the task.
        agent, step: of a step that is not completed: where the task stands, or what it failed by.
        submitted_before, submitted_since: at or before, at or after this instant.
        code, text: of its failure: the code exactly, a part of the reason in any case of letters.
        paused: whether a person keeps it from going on.
        app: whose it is; empty: tasks that do not say so.
        ledger: id of the ledger that it came with.
        apps, workflows: of one of these; none: of any.
    """

    state: TaskState | None = None
    workflow: str | None = None
    agent: str | None = None
    step: str | None = None
    submitted_before: Instant | None = None
    submitted_since: Instant | None = None
    code: str | None = None
    text: str | None = None
    paused: bool | None = None
    app: str | None = None
    ledger: str | None = None
    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()


ANY_TASK = TaskFilter()


def fold_text(text: str) -> str:
    """A text as a filter compares it: in any case of letters, its white space as single spaces, as lists show it."""
    return " ".join(text.lower().split())
