"""Reasons of forks, and of tasks that others are forked from: who owns which effect."""

from ..core.forks import find_source
from ..model import Loaded, TaskState, split_number
from ..text.escaping import shell_argument
from ..text.format import format_count
from .children import NO_FAMILY, Relatives, format_explain
from .task_situation import Reason, join_names

FORKS_TOLD_MAX = 3


def describe_forks(loaded: Loaded, family: Relatives | None) -> list[Reason]:
    """Describe what a task has as copies and who undoes it, and its forks; nothing of a task that has neither."""
    found = family or NO_FAMILY
    return [*_describe_origin(loaded, found), *_describe_copies(loaded, found), *_describe_own_forks(loaded, found)]


def _describe_origin(loaded: Loaded, family: Relatives) -> list[Reason]:
    number = loaded.task.forked_from
    if number is None:
        return []
    origin = family.sources.get(number)
    if origin is None:
        says = f"it is forked from step {split_number(number)[1]} of a task that was purged, or that you may not see"
        return [Reason("fork_of_none", says)]
    says = f"it is forked from step {origin.label} of task {origin.task_id}, which is {origin.state}"
    return [Reason("fork_of", f"{says}; {format_explain(origin.task_id)}", origin.label)]


def _describe_copies(loaded: Loaded, family: Relatives) -> list[Reason]:
    """Describe the copies by the task that has done them, those that are undone there first."""
    by_task: dict[int, list[str]] = {}
    states: dict[int, tuple[str, bool]] = {}
    for step in loaded.life if loaded.task.forked_from is not None else ():
        if (step.agent == "" and not step.is_of_child) or (number := find_source(step)) is None:
            continue
        by_task.setdefault(split_number(number)[0], []).append(step.label)
        if (source := family.sources.get(number)) is not None:
            is_undone = source.undoing or source.state in (TaskState.COMPENSATING, TaskState.COMPENSATED)
            states[split_number(number)[0]] = source.task_id, is_undone
    reasons: list[Reason] = []
    for task_no, labels in by_task.items():
        task_id, is_undone = states.get(task_no, ("", False))
        have = "is a copy" if len(labels) == 1 else "are copies"
        owner = f"task {task_id}" if task_id else "a task that was purged, or that you may not see,"
        undone = "; the undo of that task has begun: what this one uses is undone" if is_undone else ""
        says = f"{join_names(tuple(labels))} {have}: {owner} has done it and alone undoes it{undone}"
        reasons.append(Reason("copies_undone" if is_undone else "copies", says))
    return sorted(reasons, key=lambda reason: reason.kind != "copies_undone")


def _describe_own_forks(loaded: Loaded, family: Relatives) -> list[Reason]:
    if not family.forks:
        return []
    shown = [f"{shell_argument(task.task_id)} ({task.state})" for task in family.forks[:FORKS_TOLD_MAX]]
    more = " and others" if len(family.forks) > FORKS_TOLD_MAX else ""
    what = format_count(len(family.forks[:FORKS_TOLD_MAX]), "task")
    says = f"{what}{more} forked from it: {', '.join(shown)}; an undo of this task undoes what they have as copies, too"
    return [Reason("forks", says.replace(" forked", " is forked" if len(family.forks) == 1 else " are forked", 1))]
