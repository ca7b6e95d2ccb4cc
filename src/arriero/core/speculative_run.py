"""Runs a task's code before the commit that begins it, so that its first steps are recorded with that commit."""

from collections.abc import Mapping

from msgspec.structs import replace

from ..commands import Ending, Hold, Process, Submit
from ..model import ConvoyRow, Instant, Loaded, TaskState
from .apps import may_run
from .task_run import RunnableCode, TaskRun
from .transitions import build_new_task

AHEAD_MAX = 100  # first steps of a task whose code runs ahead of its turn; one that asks for more begins by itself


def run_ahead(
    behind: Loaded | None,
    convoy: ConvoyRow | None,
    ending: Ending,
    codes: Mapping[str, RunnableCode],
    now: Instant,
    app: str = "",
) -> TaskRun | None:
    """Run the code of the task behind one that is about to end, up to its first requests.

    Args:
        behind: the task that waits for the next turn; None: it is not known here.
        convoy: the row of the convoy as the task that ends has read it.
        ending: how that task is about to end. The next task finds the state of the key that it keeps.
        codes: what this process can run, by the name in the task's row.
        now: the store's clock; the code must not depend on it.
        app: of this process; a task of another App is not run.
    Returns: None for a task that has begun before, and for code that ends or breaks before its first step. None also for code
        that looks at the time before that step: the task starts at the time of the commit, which is not known yet.
    """
    if behind is None or convoy is None or isinstance(ending, Hold):  # on a held task the key stands still, as a rule
        return None
    code = codes.get(behind.task.workflow) if may_run(app, behind.task.app) else None
    if code is None or behind.task.state is not TaskState.PENDING or behind.task.opened_count:
        return None
    kept = ending.convoy_state if isinstance(ending, Process) else None
    found = convoy if kept is None else replace(convoy, value=kept)
    return _at_first_steps(behind.as_begun(now, found), code)


def run_new(command: Submit, codes: Mapping[str, RunnableCode], now: Instant) -> TaskRun | None:
    """Run the code of a task that is about to be submitted, up to its first requests; its number is not known yet.

    Args:
        codes, now: as above.
    Returns: None as above, and for code that is not here.
    """
    code = codes.get(command.workflow)
    if code is None:
        return None
    task = build_new_task(command, 0, now).task
    return _at_first_steps(Loaded(task, command.arguments, ()).as_begun(now, None), code)


def _at_first_steps(begun: Loaded, code: RunnableCode) -> TaskRun | None:
    run = TaskRun(begun, code)
    if run.end() is None and not run.looked_at_time and 0 < len(run.fresh) <= AHEAD_MAX:
        return run
    run.close()
    return None
