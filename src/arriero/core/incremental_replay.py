"""Finds the results in a newer record that the running code has not got, so that it need not be replayed from its start."""

from collections.abc import Mapping

from ..model import STEP_OPEN, Loaded, StepKind, StepRow, StepState, TaskRow, TaskState

_WITH_RESULT = (StepState.COMPLETED, StepState.FAILED)


def find_new_results(task: TaskRow, steps: Mapping[int, StepRow], record: Loaded) -> list[StepRow] | None:
    """Return the results that others have recorded since, in recorded order. None: something else changed too, or nothing did.

    A replay of the whole record would deliver the same results in the same order. The code has got all earlier ones. Once it
    gets these as well, it is where that replay would be.

    Args:
        task, steps: as the code knows them. The code has got every result in them, and they contain all that it asked for.
        record: the task as it stands in the store now.
    """
    if not _is_same_run(task, record.task) or len(record.life) != len(steps):
        return None
    unseen: list[StepRow] = []
    for step in record.life:
        known = steps.get(step.step_no)
        if known is None or not _goes_on(known, step):
            return None
        if known.result_number is None and step.result_number is not None:
            unseen.append(step)
    last = max(map(_number, steps.values()), default=0)
    unseen.sort(key=_number)
    return unseen if unseen and _number(unseen[0]) > last else None


def _is_same_run(known: TaskRow, now: TaskRow) -> bool:
    """Returns True if the task was held by the same process since, going forward: its code depends on its results alone."""
    if known.state is not TaskState.PROCESSING or known.incarnation != 1:
        return False
    return (known.state, known.incarnation, known.fence, known.locked_by) == (
        now.state,
        now.incarnation,
        now.fence,
        now.locked_by,
    )


def _goes_on(known: StepRow, now: StepRow) -> bool:
    """Returns True if only attempts and a result have come to a step."""
    if known.result_number is not None:
        return known == now
    if now.kind is StepKind.COMPENSATION or (known.arguments, known.asked) != (now.arguments, now.asked):
        return False
    return now.state in (STEP_OPEN if now.result_number is None else _WITH_RESULT)


def _number(step: StepRow) -> int:
    return step.result_number or 0
