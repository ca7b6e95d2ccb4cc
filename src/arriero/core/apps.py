"""Rules about Apps: the tasks that each may run, the code that continues one, and two Apps that have code of the same name.

A task carries the name of the App that runs it, and so do its steps. A process takes up what carries the name of its own
App. What was kept by release 0.4.0 or before carries none; any App with the code runs it, as long as only one can be meant.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

from msgspec.structs import replace

from ..events.task import TaskAssigned
from ..model import NOT_SAID, WAITS_FOR_WORKFLOW, Instant, TaskRow
from ..model.answers import Refusal
from ..model.commands import AssignApp
from ..model.processes import ProcessAbout
from .changes import Change, Refused, Rows
from .writer import Writer


def assign_app(command: AssignApp, rows: Rows, now: Instant) -> Change | Refused:
    """Give a task and its steps to an App. It frees the task, as a verb does: who held it may be of another App.

    Guard: the App that it carried as the person saw it.
    """
    task = rows.task(command.task_no)
    if task is None:
        return Refused(Refusal("unknown", f"there is no task number {command.task_no}"))
    if task.ledger_no is not None:
        return Refused(
            Refusal("came_first", f"the ledger of task {task.task_id!r} is still letting its tasks go: try again")
        )
    if task.app != command.from_app:
        said = f"another verb came first: task {task.task_id!r} is of App {task.app!r}, not {command.from_app!r}"
        return Refused(Refusal("came_first", said, task.state))
    writer = Writer(task, rows, now, None)
    writer.rewrites = True
    is_at_rest = task.locked_by is None and task.not_before != WAITS_FOR_WORKFLOW  # the next claim judges it again
    writer.set(
        app=command.app,
        locked_by=None,
        fence=task.fence + 1,
        revision=task.revision + 1,
        unseen_since=None,
        not_before=task.not_before if is_at_rest else now,
    )
    for step in rows.steps_of(task.task_no):
        if step.is_canary:
            writer.breakers.end(step, None)  # else the breaker of its old App would wait for its end indefinitely
        writer.put(replace(step, app=command.app, canary=None))
    writer.events.append(
        TaskAssigned(
            app=command.app,
            from_app=command.from_app,
            by=command.by,
            reason=command.reason,
            fence=task.fence + 1,
            not_before=writer.task.not_before,
        )
    )
    return writer.change()


def follow_renames(renames: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return by its old name what each renamed App is called now.

    Args:
        renames: old and new names, in the order of the renames.
    """
    names: dict[str, str] = {}
    for old, new in renames:
        names = {before: new if known == old else known for before, known in names.items() if before != new}
        names[old] = new
    return names


OLDER_RELEASE = "were kept by a release that did not record their App"


def may_run(app: str, of: str) -> bool:
    """Returns True if processes of the App ``app`` may run a task or step that carries the name ``of``."""
    return of in (NOT_SAID, app)


def apps_run_by(app: str) -> tuple[str, ...]:
    """Return the App names of the tasks that a process of the App may run; the empty name comes first."""
    return (NOT_SAID,) if app == NOT_SAID else (NOT_SAID, app)


class VersionedCode(Protocol):
    """Code of which a process may have several versions."""

    def for_task(self, task: TaskRow) -> Self | None:
        """The version that continues a task: the newest one, if it has not begun. None: it is not here."""
        ...


C = TypeVar("C", bound=VersionedCode)


def find_code(codes: Mapping[str, C], task: TaskRow) -> C | None:
    """Find the code that continues a task. ``codes``: by the name in the task's row. None: it is not here."""
    code = codes.get(task.workflow)
    return None if code is None else code.for_task(task)


def is_another_app(one: str, other: str) -> bool:
    """Returns True if two submissions under one id name two Apps; one that names none may be of the same."""
    return NOT_SAID not in (one, other) and one != other


def find_name_conflict(
    mine: ProcessAbout,
    known: Iterable[ProcessAbout],
    count_unsaid: Callable[[Sequence[str]], Mapping[str, int]],
) -> str | None:
    """Refuse the start of a process if another App has code of the same name and tasks do not name their App.

    Args:
        mine: what the process runs; one that names no App is of nobody, and may start.
        known: what all processes ran that ever started on the store.
        count_unsaid: counts the tasks of some workflows that carry no App's name and are open or held, by workflow.
    Returns: the refusal with its remedy, for operators; None: it may start.
    """
    if mine.app == NOT_SAID:
        return None
    ours = [about for about in known if about.app == mine.app] + [mine]
    for app in sorted({about.app for about in known} - {mine.app, NOT_SAID}):
        theirs = [about for about in known if about.app == app]
        if not (shared := _list_shared_code(ours, theirs)):
            continue
        counts = count_unsaid(sorted(_workflows(ours) | _workflows(theirs)))
        if any(counts.values()):
            return _describe_conflict(mine.app, app, shared, counts)
    return None


def _workflows(abouts: Iterable[ProcessAbout]) -> set[str]:
    return {workflow for about in abouts for workflow in about.workflows}


def _steps(abouts: Iterable[ProcessAbout]) -> set[tuple[str, str]]:
    return {step for about in abouts for step in about.steps}


def _list_shared_code(ours: list[ProcessAbout], theirs: list[ProcessAbout]) -> list[str]:
    """List the workflows and steps that both have code for, with the names that operators use."""
    workflows = sorted(_workflows(ours) & _workflows(theirs))
    steps = sorted(_steps(ours) & _steps(theirs))
    return [f"a workflow {name!r}" for name in workflows] + [f"a step {agent}.{name}" for agent, name in steps]


def _describe_conflict(mine: str, other: str, shared: list[str], counts: Mapping[str, int]) -> str:
    open_count = sum(counts.values())
    tasks = f"{open_count} open task{'' if open_count == 1 else 's'}"
    of = ", ".join(f"{name!r}" for name, count in sorted(counts.items()) if count)
    return (
        f"App {mine!r} and App {other!r} both have {shared[0]}, and {tasks} of {of} {OLDER_RELEASE}: say whose they are"
        f" with `arriero store assign --to {shlex.quote(other)} --reason WHY` or `--to {shlex.quote(mine)}`, or give one of"
        " the two a store of its own"
    )
