"""The rule of children: what a parent asks of one, and what the end of one is for it."""

from typing import Any

import pytest
from core_rows import NOW, step_row, task_row
from store_world import TASK_POLICY

from arriero.core.children import (
    DEPTH_MAX,
    ChildOrder,
    build_child_end,
    build_child_submission,
    decide_child,
    refuse_child,
)
from arriero.model import StepKind, StepRow, StepState, TaskRow, TaskState
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import GaveUp, Succeeded
from arriero.model.policies import ChildOptions, Retry, StepPolicy, Supervision, encode_policy

FORWARD = task_row(task_id="trip", state=TaskState.PROCESSING)
UNDOING = task_row(task_id="trip", state=TaskState.COMPENSATING)
FULL = TaskFailure("step", "no room left", "book", "full", public="Sorry")
OPEN = (TaskState.PENDING, TaskState.PROCESSING)


def policy_of(**options: Any) -> str:
    child = ChildOptions(TASK_POLICY, **options)
    return encode_policy(StepPolicy(0.0, None, Retry(tries=1), Supervision(), child=child))


def child_row(**changes: Any) -> StepRow:
    fields: dict[str, Any] = {"kind": StepKind.CHILD, "name": "booking", "agent": "", "fence": 0}
    return step_row(3, **(fields | {"policy": policy_of()} | changes))


def undo_row() -> StepRow:
    return child_row(kind=StepKind.COMPENSATION, undoes=child_row().step_no)


def child(state: TaskState, **changes: Any) -> TaskRow:
    return task_row(task_no=9, task_id="trip/booking.3", state=state, parent_step=child_row().step_no, **changes)


def code_of(decided: object) -> str:
    assert isinstance(decided, GaveUp)
    return decided.failure.code


# --- forward
def test_a_child_that_is_not_there_is_submitted() -> None:
    assert decide_child(FORWARD, child_row(), None) is ChildOrder.SUBMIT


def test_a_child_that_its_parent_was_undone_before_is_not_submitted() -> None:
    assert code_of(decide_child(UNDOING, child_row(), None)) == "child_not_begun"


def test_a_child_below_too_many_generations_is_not_submitted() -> None:
    deep = task_row(task_id="t", state=TaskState.PROCESSING, depth=DEPTH_MAX)
    assert code_of(decide_child(deep, child_row(), None)) == "child_too_deep"


def test_a_child_that_is_asked_for_again_and_was_purged_fails() -> None:
    assert code_of(decide_child(FORWARD, child_row(fence=1), None)) == "child_purged"


@pytest.mark.parametrize("state", [*OPEN, TaskState.COMPENSATING, TaskState.HELD])
def test_a_child_that_has_not_ended_is_waited_for(state: TaskState) -> None:
    assert decide_child(FORWARD, child_row(), child(state)) is None


def test_a_processed_child_gives_its_output() -> None:
    assert decide_child(FORWARD, child_row(), child(TaskState.PROCESSED, output='"b-7"')) == Succeeded('"b-7"')


def test_a_compensated_child_gives_its_failure() -> None:
    import msgspec

    decided = decide_child(
        FORWARD, child_row(), child(TaskState.COMPENSATED, failure=msgspec.json.encode(FULL).decode())
    )
    expected = StepFailure(
        "permanent", "no room left", "full", {"task_id": "trip/booking.3", "step": "book"}, public="Sorry"
    )
    assert decided == GaveUp(expected, in_doubt=False)


def test_a_compensated_child_that_is_asked_for_again_is_resubmitted() -> None:
    again = child_row(fence=1)
    assert decide_child(FORWARD, again, child(TaskState.COMPENSATED, incarnation=1)) is ChildOrder.RESUBMIT
    assert code_of(decide_child(FORWARD, again, child(TaskState.COMPENSATED, incarnation=2))) == "compensated"
    assert code_of(decide_child(UNDOING, again, child(TaskState.COMPENSATED, incarnation=1))) == "compensated"


@pytest.mark.parametrize("state", list(TaskState))
def test_a_detached_child_gives_its_id_in_whatever_state_it_is(state: TaskState) -> None:
    row = child_row(policy=policy_of(is_detached=True))
    for parent in (FORWARD, UNDOING):
        assert decide_child(parent, row, child(state)) == Succeeded('"trip/booking.3"')


# --- undo
@pytest.mark.parametrize("state", OPEN)
def test_a_child_that_runs_when_its_parent_is_undone_is_cancelled(state: TaskState) -> None:
    assert decide_child(UNDOING, child_row(), child(state)) is ChildOrder.CANCEL
    assert decide_child(UNDOING, undo_row(), child(state)) is ChildOrder.CANCEL


def test_a_processed_child_is_compensated() -> None:
    assert decide_child(UNDOING, undo_row(), child(TaskState.PROCESSED)) is ChildOrder.COMPENSATE


def test_a_child_that_is_undone_completes_its_undo() -> None:
    assert decide_child(UNDOING, undo_row(), child(TaskState.COMPENSATED)) == Succeeded("null")


@pytest.mark.parametrize("state", [TaskState.HELD, TaskState.COMPENSATING])
def test_a_child_that_an_operator_must_act_on_stops_the_undo(state: TaskState) -> None:
    assert decide_child(UNDOING, undo_row(), child(state)) is None
    assert decide_child(UNDOING, child_row(), child(state)) is None


def test_the_undo_of_a_purged_child_fails() -> None:
    assert code_of(decide_child(UNDOING, undo_row(), None)) == "child_purged"


# --- what is written
def test_the_end_of_a_child_names_the_child_and_its_incarnation() -> None:
    end = build_child_end(child_row(), child(TaskState.PROCESSED, incarnation=4), Succeeded("1"), NOW)
    assert (end.child_no, end.incarnation) == (9, 4)
    assert (build_child_end(child_row(), None, Succeeded("1"), NOW).child_no) == 0


def test_a_child_has_its_options_else_what_its_parent_has() -> None:
    parent = task_row(task_id="trip", priority=8, tags='{"tenant":"acme"}', app="travel", depth=2, trace_context="00-1")
    plain = build_child_submission(parent, child_row(), "p", 7)
    assert (plain.task_id, plain.workflow, plain.priority, plain.tags) == (
        "trip/booking.3",
        "booking",
        8,
        '{"tenant":"acme"}',
    )
    assert (plain.app, plain.depth, plain.trace_context, plain.parent_step) == (
        "travel",
        3,
        "00-1",
        child_row().step_no,
    )
    options = {"task_id": "b-1", "convoy": "c", "priority": 0, "tags": "{}"}
    given = build_child_submission(parent, child_row(policy=policy_of(**options)), "p", 7)
    assert {name: getattr(given, name) for name in options} == options


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({}, False),
        ({"state": StepState.FAILED}, True),
        ({"state": StepState.WITHDRAWN}, True),
        ({"kind": StepKind.STEP}, True),
    ],
)
def test_a_child_is_refused_unless_its_step_runs(changes: dict[str, Any], is_refused: bool) -> None:
    command = build_child_submission(FORWARD, child_row(), "p", 7)
    refused = refuse_child(command, child_row(**changes))
    assert (refused is not None) == is_refused
    assert refuse_child(command, None) is not None
