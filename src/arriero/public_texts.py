"""Texts about failed tasks that customers may read."""

from .failures import TaskFailure
from .model import TaskState

_NEUTRAL = {
    TaskState.COMPENSATING: "The operation could not be completed and is being undone.",
    TaskState.COMPENSATED: "The operation could not be completed and was undone.",
}
_HELD = "The operation could not be completed yet. It is being looked into."


def choose_public_text(failure: TaskFailure, state: TaskState) -> str:
    """Return what customers may read of a task that failed: what its error says to them, else a neutral sentence.

    The reason is never part of it: it may hold addresses, names of machines and what a service answered.
    """
    return failure.public or _NEUTRAL.get(state, _HELD)
