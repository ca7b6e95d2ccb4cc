"""Reasons to refuse a verb that follow from the rows alone, not from its arguments. Verbs and ``explain`` share them."""

from collections.abc import Callable

from ..model import (
    STEP_OPEN,
    TASK_FORWARD,
    Instant,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
    Verb,
    step_number,
)
from ..model.commands import Operate
from ..model.failures import TaskFailure, read_task_failure
from ..model.signals import is_question
from ..model.verb_rules import VERBS, explain_left_out
from .changes import Rows
from .supervision import find_pivot, is_held_by_program
from .undo import FORWARD_KINDS, list_stuck_steps, may_undo_go_on

Life = tuple[StepRow, ...]


class NotCarriedOut(Exception):
    """A verb cannot be carried out; the message says why, and what could be. ``verdict``: of the refusal."""

    verdict = "not_allowed"


class ParentUndone(NotCarriedOut):
    """A child is not run again, because its parent is undone: nobody would undo what it does then."""

    verdict = "parent_undone"


def refuse_without_parent(task: TaskRow, rows: Rows) -> None:
    """Refuse to run a task again whose parent is undone, or is being undone. Raises ParentUndone.

    A parent that was purged is not known any longer; it refuses nothing.
    """
    parent = None if task.parent_step is None else rows.parent(task.parent_step)
    if parent is None or parent.is_detached or not parent.is_undone:
        return
    how = "was undone and runs again without it" if parent.state in TASK_FORWARD else f"is {parent.state}"
    raise ParentUndone(
        f"task {task.task_id!r} is step {parent.label} of task {parent.task_id!r}, which {how}: run alone, it would never be"
        f" undone; resubmit task {parent.task_id!r}, or submit the work as a task of its own"
    )


def is_done_by_child(step: StepRow) -> bool:
    """Returns True for a step that another task does now, or whose undo that does: it has no attempts and no limits."""
    return step.is_of_child and step.state is StepState.RUNNING


def refuse_edit_of_child(task: TaskRow, step: StepRow | None) -> None:
    """Refuse to edit the arguments of a child in its parent: it has its own. Raises NotCarriedOut."""
    if step is None or not step.is_of_child:
        return
    from .children import describe_child  # only who edits a child pays for loading it

    child = describe_child(task, step)
    raise NotCarriedOut(
        f"task {task.task_id!r}: {step.label} is task {child!r}, which has its own arguments: resubmit task {child!r} with others"
    )


def may_come_again(task: TaskRow, step: StepRow) -> bool:
    """Returns True if an attempt of a step may begin or fail after now, so that its limits count. A child has its own."""
    if not step.agent and step.is_of_child:
        return False
    is_open = step.state in STEP_OPEN or step.state is StepState.PLANNED
    return is_open and (step.kind is not StepKind.STEP or task.state in TASK_FORWARD)


def count_asked_persons(command: Operate, rows: Rows) -> int:
    """Count the operators who must give an answer: as many as the settings want, or more where a question says so."""
    from ..model.questions import read_question  # only who answers pays for loading it

    step = None if command.step is None else rows.step(step_number(command.task_no, command.step))
    asked = 1 if step is None or not is_question(step) else read_question(step).operators
    return max(command.persons, asked)


def list_allowed_verbs(task: TaskRow, life: Life) -> tuple[Verb, ...]:
    """List the verbs that the task with these steps allows, at least with some arguments; without those that every task allows."""
    possible = list_possible_verbs(task)
    return tuple(verb for verb in possible if VERBS[verb].is_listed and not explain_refusal(verb, task, life))


def list_possible_verbs(task: TaskRow) -> tuple[Verb, ...]:
    """List the verbs that the table allows in the task's state; its steps may still refuse one."""
    return tuple(verb for verb in Verb if not explain_left_out(verb, task))


def explain_refusal(verb: Verb, task: TaskRow, life: Life) -> str:
    """Return why a verb that the table allows is refused whatever its arguments; empty: some would be accepted."""
    judge = _WHY.get(verb)
    return "" if judge is None else judge(task, life)


def _explain_resubmit_refusal(task: TaskRow, life: Life) -> str:
    if task.forked_from is not None and task.run == 1 and task.state is TaskState.COMPENSATED:
        return (
            f"task {task.task_id!r} is a fork that was undone: from the beginning it would do again what it has as copies; fork the"
            " other task again"
        )
    if task.next_no is not None and not (task.undoing and task.state is TaskState.HELD):
        return f"task {task.task_id!r} is a run that has ended: the task continues in a later one, and nothing of it runs again"
    if not task.undoing or task.state is not TaskState.HELD or may_undo_go_on(task, life):
        return ""
    names = ", ".join(step.label for step in list_stuck_steps(life))
    return (
        f"task {task.task_id!r}: {names} may have happened and has no compensation: answer it first,"
        " with its result or as not happened"
    )


def _explain_compensate_refusal(task: TaskRow, life: Life) -> str:
    if task.state is TaskState.HELD and task.undoing:
        stuck = "" if may_undo_go_on(task, life) else ", ".join(step.label for step in list_stuck_steps(life))
        first = f"answer {stuck} first, which may have happened and has no compensation; then " if stuck else ""
        return f"task {task.task_id!r}: its undo has begun and failed; {first}resubmit continues it"
    pivot = find_pivot(life)
    if pivot is None:
        return ""
    return f"task {task.task_id!r} cannot be compensated: step {pivot.label} is a pivot and has or may have happened"


def _explain_extend_refusal(task: TaskRow, life: Life) -> str:
    if task.complete_by is not None:
        return ""
    return f"task {task.task_id!r} has no limit of its own: there is nothing to extend; adjust gives it one"


def _explain_adjust_refusal(task: TaskRow, life: Life) -> str:
    if task.state in TASK_FORWARD or any(
        step.kind is StepKind.COMPENSATION and (step.state in STEP_OPEN or step.state is StepState.PLANNED)
        for step in life
    ):
        return ""
    return f"task {task.task_id!r} is being undone, and has no open compensation whose limits could change"


def _explain_answer_refusal(task: TaskRow, life: Life) -> str:
    if any(not explain_missing_result(step, task, life) or not explain_unsettled_doubt(step, task) for step in life):
        return ""
    return f"task {task.task_id!r} has no step that could be answered"


def explain_missing_result(step: StepRow, task: TaskRow, life: Life) -> str:
    """Return why an operator cannot give a step its result; empty: they can."""
    if step.kind is StepKind.TIMER:
        return _explain_unanswerable_wait(step, task)
    if step.state is StepState.COMPLETED:
        return f"task {task.task_id!r}: step {step.label} has a result already; it never changes"
    if not step.agent and is_done_by_child(step):
        return _explain_running_child(step, task, life)
    is_closed = step.kind in FORWARD_KINDS and step.state not in STEP_OPEN
    if is_closed and task.undoing and not step.in_doubt:
        return f"task {task.task_id!r}: step {step.label} did not happen, and the undo has begun: there is nothing to answer"
    if is_closed and not task.undoing and step.state is StepState.FAILED and step not in list_steps_to_redo(task, life):
        return f"task {task.task_id!r}: step {step.label} failed and the workflow has gone another way since; it cannot be answered"
    return ""


def _explain_running_child(step: StepRow, task: TaskRow, life: Life) -> str:
    """Return why an operator cannot give what a child that has not ended is to give, with the task to act on."""
    from .children import describe_child  # only who answers a child pays for loading it

    number = step.step_no if step.undoes is None else step.undoes
    child = next((describe_child(task, one) for one in life if one.step_no == number), step.label)
    what = "its undo" if step.kind is StepKind.COMPENSATION else "its result"
    return f"task {task.task_id!r}: {step.label} is task {child!r}, which has not ended and gives {what} itself: act on task {child!r}"


def explain_late_answer(step: StepRow, now: Instant) -> str:
    """Return why an answer comes too late; empty: in time, or it is not the answer of an open question."""
    from ..model.questions import has_passed  # as above

    is_late = is_question(step) and step.state is StepState.PENDING and has_passed(step.not_before, now)
    return f"the time to answer {step.label} is over" if is_late else ""


def _explain_unanswerable_wait(step: StepRow, task: TaskRow) -> str:
    if not is_question(step):
        return f"task {task.task_id!r} has no step number {step.ordinal} that could be answered"
    if step.state is StepState.COMPLETED:
        how = "was over before an answer came" if step.result is None else "was answered before"
        return f"task {task.task_id!r}: {step.label} {how}; what the code got never changes"
    if step.state is not StepState.PENDING:
        return f"task {task.task_id!r}: nothing waits for the answer of {step.label} any longer"
    return ""


def explain_unsettled_doubt(step: StepRow, task: TaskRow) -> str:
    """Return why an operator cannot say that a step did not happen; empty: they can."""
    if step.kind is StepKind.TIMER:
        return f"task {task.task_id!r}: {step.label} waits for an answer and cannot be in doubt; give the answer with --result"
    if step.state is StepState.COMPLETED:
        return f"task {task.task_id!r}: step {step.label} has a result already; it never changes"
    if not step.agent and is_done_by_child(step):
        return f"task {task.task_id!r}: {step.label} is another task and cannot be in doubt: act on that task"
    if is_held_by_program(step):
        return ""  # no process of arriero carries it out, so there is no end to wait for
    if step.state is StepState.RUNNING:
        return f"task {task.task_id!r}: step {step.label} is being attempted now: wait for the attempt's end, or give its result"
    if not step.in_doubt:
        return f"task {task.task_id!r}: step {step.label} is not in doubt: there is nothing to settle"
    return ""


_WHY: dict[Verb, Callable[[TaskRow, Life], str]] = {
    Verb.RESUBMIT: _explain_resubmit_refusal,
    Verb.COMPENSATE: _explain_compensate_refusal,
    Verb.EXTEND: _explain_extend_refusal,
    Verb.ADJUST: _explain_adjust_refusal,
    Verb.ANSWER: _explain_answer_refusal,
}


def may_edit_all(task: TaskRow, life: tuple[StepRow, ...]) -> bool:
    """Returns True if a resubmission may edit the arguments of the task, and not only those of a step.

    So it is when that begins from nothing: the task was undone, or its code has asked for no step.
    """
    return task.state is TaskState.COMPENSATED or (task.state is TaskState.HELD and not task.undoing and not life)


def list_steps_to_redo(task: TaskRow, life: tuple[StepRow, ...]) -> list[StepRow]:
    """List the failed steps that a resubmission does again: those that stopped the task, and those that failed later.

    A failure that the workflow caught is not such a step: its code has gone another way since, and still does.
    """
    if task.failure is None or task.state is not TaskState.HELD:
        return []
    failure = read_task_failure(task.failure)
    failed = [step for step in life if step.kind in FORWARD_KINDS and step.state is StepState.FAILED]
    named = failure.redo
    if not named and failure.results is None and failure.kind == "step":
        named = _list_steps_named_by_release_one(failure, failed)
    return [step for step in failed if step.ordinal in named or _is_after_error(step, failure)]


def _list_steps_named_by_release_one(failure: TaskFailure, failed: list[StepRow]) -> tuple[int, ...]:
    """List the steps that stopped a task under release 0.1.0, which kept only name and reason, and those that failed later."""
    of_name = [step for step in failed if step.name == failure.step]
    fitting = [step for step in of_name if step.failure is not None and failure.reason in step.failure] or of_name
    last = max((step.result_number or 0 for step in fitting), default=0)
    return tuple(step.ordinal for step in failed if fitting and (step.result_number or 0) >= last)


def _is_after_error(step: StepRow, failure: TaskFailure) -> bool:
    """Returns True if the step's result was recorded after the task was held."""
    return failure.results is not None and (step.result_number or 0) > failure.results
