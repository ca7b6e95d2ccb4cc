"""The two tables of states: every move that is there, and a refusal for every pair that is not."""

import pytest

from arriero.core.states import STEP_MOVES, TASK_MOVES, StepEvent, TaskEvent, advance_step, advance_task
from arriero.errors import IllegalTransition
from arriero.model import TASK_OPEN, StepState, TaskState

ENDED = [TaskState.PROCESSED, TaskState.HELD, TaskState.COMPENSATED]


@pytest.mark.parametrize(("state", "event"), list(TASK_MOVES), ids=str)
def test_a_task_moves_as_its_table_says(state: TaskState, event: TaskEvent) -> None:
    assert advance_task(state, event) is TASK_MOVES[state, event]


@pytest.mark.parametrize(("state", "event"), list(STEP_MOVES), ids=str)
def test_a_step_moves_as_its_table_says(state: StepState, event: StepEvent) -> None:
    assert advance_step(state, event) is STEP_MOVES[state, event]


@pytest.mark.parametrize(
    ("state", "event"), [(s, e) for s in TaskState for e in TaskEvent if (s, e) not in TASK_MOVES], ids=str
)
def test_a_task_refuses_every_move_that_its_table_does_not_have(state: TaskState, event: TaskEvent) -> None:
    with pytest.raises(IllegalTransition, match=f"an? {state} task cannot be {event}"):
        advance_task(state, event)


@pytest.mark.parametrize(
    ("state", "event"), [(s, e) for s in StepState for e in StepEvent if (s, e) not in STEP_MOVES], ids=str
)
def test_a_step_refuses_every_move_that_its_table_does_not_have(state: StepState, event: StepEvent) -> None:
    with pytest.raises(IllegalTransition, match=f"an? {state} step cannot be {event}"):
        advance_step(state, event)


def test_every_state_and_event_is_of_use() -> None:
    assert {state for state, _ in TASK_MOVES} | set(TASK_MOVES.values()) == set(TaskState)
    assert {state for state, _ in STEP_MOVES} | set(STEP_MOVES.values()) == set(StepState)
    assert {event for _, event in TASK_MOVES} == set(TaskEvent)
    assert {event for _, event in STEP_MOVES} == set(StepEvent)


def test_only_a_person_s_verb_leaves_the_end_of_a_task_or_the_batch_that_has_its_message() -> None:
    by_person = {TaskEvent.RESUBMITTED, TaskEvent.UNDO_RESUMED, TaskEvent.UNDO_BEGUN}
    by_batch = {TaskEvent.BATCH_ENDED, TaskEvent.BATCH_UNDONE}
    leaving = {(state, event): end for (state, event), end in TASK_MOVES.items() if state in ENDED}
    assert {event for _, event in leaving} == by_person | by_batch
    assert {end for (state, event), end in leaving.items() if event is TaskEvent.UNDO_BEGUN} == {TaskState.COMPENSATING}
    assert set(TaskState) - TASK_OPEN == set(ENDED)


def test_an_undo_never_turns_forward_again() -> None:
    after = {end for (state, _), end in TASK_MOVES.items() if state is TaskState.COMPENSATING}
    assert after == {TaskState.COMPENSATING, TaskState.COMPENSATED, TaskState.HELD}


def test_a_result_is_final() -> None:
    assert not [state for state, _ in STEP_MOVES if state is StepState.COMPLETED]


def test_only_a_person_leads_out_of_a_failure_or_a_withdrawal() -> None:
    by_person = {StepEvent.SET_BACK, StepEvent.REOPENED, StepEvent.ANSWERED}
    leaving = {event for state, event in STEP_MOVES if state in (StepState.FAILED, StepState.WITHDRAWN)}
    assert leaving == by_person | {StepEvent.PARKED}  # a failed compensation, for the undo that an operator resumes
