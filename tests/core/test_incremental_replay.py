"""Which results of a newer record code goes on with, and when it must be run from its start instead."""

from typing import Any

import msgspec
import pytest
from core_rows import done, failed, step_row, task_row

from arriero.core.task_run import find_new_results
from arriero.model import Loaded, StepKind, StepRow, StepState, TaskRow, TaskState

running = step_row  # what they are made as
changed = msgspec.structs.replace


def since(
    known: list[StepRow], now: list[StepRow], *, task: TaskRow | None = None, later: TaskRow | None = None
) -> Any:
    """The ordinals of the results to go on with; None: not from here."""
    task = task or task_row()
    record = Loaded(later or changed(task, revision=task.revision + 1), "{}", tuple(now))
    found = find_new_results(task, {step.step_no: step for step in known}, record)
    return None if found is None else [step.ordinal for step in found]


def test_a_result_that_another_process_recorded_is_gone_on_with() -> None:
    assert since(
        [done(1, result_number=1), running(2), running(3)],
        [done(1, result_number=1), running(2), done(3, result_number=2)],
    ) == [3]


def test_results_come_in_the_order_in_which_they_were_recorded() -> None:
    assert since(
        [running(1), running(2), running(3)],
        [done(1, result_number=3), done(2, result_number=1), done(3, result_number=2)],
    ) == [2, 3, 1]


def test_a_failure_is_a_result() -> None:
    assert since([running(1)], [failed(1)]) == [1]


def test_attempts_of_what_is_still_open_are_no_obstacle() -> None:
    again = step_row(2, state=StepState.PENDING, attempt=2, fence=3, failure_count=1, not_before=7)
    assert since([running(1), running(2)], [done(1, result_number=1), again]) == [1]


def test_a_record_without_a_new_result_is_read_from_its_start() -> None:
    assert since([done(1, result_number=1), running(2)], [done(1, result_number=1), running(2)]) is None
    assert since([running(1)], [step_row(1, state=StepState.PENDING, attempt=2)]) is None


@pytest.mark.parametrize(
    "later",
    [
        {"fence": 2},
        {"locked_by": 2},
        {"incarnation": 2},
        {"state": TaskState.COMPENSATING},
        {"state": TaskState.HELD},
    ],
    ids=str,
)
def test_a_task_that_was_let_go_or_turned_round_meanwhile_is_read_from_its_start(later: dict[str, Any]) -> None:
    assert since([running(1)], [done(1, result_number=1)], later=changed(task_row(), **later)) is None


def test_a_task_that_was_resubmitted_is_read_from_its_start() -> None:
    assert since([running(1)], [done(1, result_number=1)], task=task_row(incarnation=2)) is None


def test_a_task_that_is_being_undone_is_read_from_its_start() -> None:
    assert since([running(1)], [done(1, result_number=1)], task=task_row(state=TaskState.COMPENSATING)) is None


@pytest.mark.parametrize(
    "known, now",
    [
        ([running(1)], [done(1, result_number=1), running(2)]),
        ([running(1), running(2)], [done(1, result_number=1)]),
        ([running(1), running(2)], [done(1, result_number=1), running(3)]),
        ([done(1, result_number=1), running(2)], [done(1, result_number=1, result="2"), done(2, result_number=2)]),
        ([done(1, result_number=1), running(2)], [running(1), done(2, result_number=2)]),
        ([done(1, result_number=2), running(2)], [done(1, result_number=2), done(2, result_number=1)]),
        ([running(1), running(2)], [done(1, result_number=1), step_row(2, state=StepState.WITHDRAWN)]),
        ([running(1), running(2)], [done(1, result_number=1), running(2, arguments='{"n":2}')]),
        ([running(1), running(2)], [done(1, result_number=1), running(2, asked='{"n":2}')]),
        ([running(1)], [done(1, result_number=1, state=StepState.RUNNING)]),
        ([running(1)], [done(1, result_number=1, kind=StepKind.COMPENSATION)]),
    ],
    ids=[
        "a step more", "a step less", "another step", "another result", "a result taken back", "a number given late",
        "a step withdrawn", "other arguments", "arguments edited", "a result of what runs", "a compensation",
    ],
)  # fmt: skip
def test_a_record_in_which_more_than_results_has_changed_is_read_from_its_start(
    known: list[StepRow], now: list[StepRow]
) -> None:
    assert since(known, now) is None
