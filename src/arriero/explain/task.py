"""Explains why a task is where it is, since when, and which verb would move it. Rows in, sentences out."""

from collections.abc import Iterable, Sequence

import msgspec

from ..breakers import BreakerRow
from ..errors import UnreadableRow
from ..escaping import shell_argument
from ..limits import LimitsInUse
from ..model import AlertRow, HistoryRow, Instant, Loaded, TaskState
from ..processes import ProcessRow
from ..store.readable import Fault, legible_task
from ..text.format import format_instant
from .available_actions import AvailableAction, list_available_actions
from .convoys import TasksAhead
from .liveness import (
    LiveProcesses,
)
from .schedules import describe_run
from .task_ended import EndedTask
from .task_situation import (
    PersonAct,
    PersonApproval,
    Reason,
    TaskPast,
)
from .task_under_way import TaskUnderWay


class Explanation(msgspec.Struct, frozen=True):
    """The reasons why a task is where it is, the most telling first; actions of people, and those that are possible."""

    reasons: tuple[Reason, ...]
    acts: tuple[PersonAct, ...]
    actions: tuple[AvailableAction, ...]


def explain(
    loaded: Loaded,
    now: Instant,
    processes: Iterable[ProcessRow],
    *,
    history: Iterable[HistoryRow] = (),
    alert: AlertRow | None = None,
    ahead: TasksAhead | None = None,
    breakers: Sequence[BreakerRow] = (),
    limits: Sequence[LimitsInUse] = (),
) -> Explanation:
    """Explain a task as it was read.

    Args:
        loaded: the task and its steps.
        now: the store's clock.
        processes: those not retired, with what they say they run.
        history: of the task, in commit order.
        alert: its open one.
        ahead: who comes before it in its convoy, if its turn has not come.
        breakers: of all Agents.
        limits: of all Agents, with what is in use.
    Returns: of a task with a row that this release cannot read only that, each column by name, and no verb.
    """
    past = TaskPast(history)
    if faults := legible_task(loaded)[1]:
        return Explanation(tuple(map(_cannot_be_read, faults)), tuple(past.acts), ())
    is_ended = loaded.task.state in (TaskState.ERROR, TaskState.PROCESSED, TaskState.COMPENSATED)
    situation = EndedTask if is_ended else TaskUnderWay
    run = describe_run(loaded.task, past.submitted_by)
    return Explanation(
        (
            *situation(loaded, now, LiveProcesses(processes, now), past, alert, ahead, breakers, limits).list_reasons(),
            *(
                Reason(
                    "approval",
                    _describe_approval(loaded.task.task_id, one),
                    request="" if one.request == "{}" else one.request,
                )
                for one in past.approvals
            ),
            *([Reason("schedule", run)] if run else []),
        ),
        tuple(past.acts),
        tuple(list_available_actions(loaded, now)),
    )


def _describe_approval(task_id: str, approval: PersonApproval) -> str:
    command = f"arriero task {approval.verb} {shell_argument(task_id)} --by NAME --reason TEXT"
    return (
        f"{approval.verb} needs {approval.persons} persons, and nothing is done before; {approval.by} approved it at"
        f' {format_instant(approval.at)}: "{approval.reason}"; another one asks for the same, `{command}`'
    )


def _cannot_be_read(fault: Fault) -> Reason:
    """The reason of a task that this release cannot read; no verb is judged on half of a task."""
    return Reason("unreadable", f"{fault.says} cannot be read; {UnreadableRow.remedy}")
