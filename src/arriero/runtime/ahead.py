"""Runs the code of the next task of a convoy ahead of its turn, so that its first steps are recorded with the commit that brings it."""

from collections.abc import Mapping

from msgspec.structs import replace

from ..commands import Ending, Hold, Process
from ..model import Instant, TaskState
from .code import Code
from .live import LiveTask

AHEAD_MAX = 100  # first steps of a task whose code runs ahead of its turn; one that asks for more begins by itself


def run_ahead(live: LiveTask, ending: Ending, codes: Mapping[str, Code], now: Instant) -> LiveTask | None:
    """The task behind one that is about to end, run to what its code asks for first.

    Args:
        live: whose turn it is.
        ending: how it is about to end: what it keeps of the key is what the next one finds.
        codes: what this process can run, by the name in the task's row.
        now: the store's clock; the code must not depend on it.
    Returns: None for a task that has begun before, and for code that ends, breaks or looks at the time before its first
        step: the moment of its start is that of the commit.
    """
    behind, convoy = live.behind, live.convoy
    if behind is None or convoy is None or isinstance(ending, Hold):  # on a held task the key stands still, as a rule
        return None
    code = codes.get(behind.task.workflow)
    if code is None or behind.task.state is not TaskState.PENDING or behind.task.opened_count:
        return None
    kept = ending.convoy_state if isinstance(ending, Process) else None
    found = convoy if kept is None else replace(convoy, value=kept)
    ahead = LiveTask(behind.as_begun(now, found), code)
    if ahead.end() is None and not ahead.looked_at_time and 0 < len(ahead.fresh) <= AHEAD_MAX:
        return ahead
    ahead.close()
    return None
