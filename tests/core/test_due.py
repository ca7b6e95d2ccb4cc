"""What is due, and its order: a high priority first, but for no longer than its head start."""

from random import Random
from typing import Any

import msgspec
import pytest
from core_rows import step_row, task_row

from arriero.core.breaker_book import NOTHING_BARRED
from arriero.core.due import (
    HEAD_START,
    PRIORITY_STEP_SECONDS,
    WantedRequests,
    compute_position,
    find_next_deadline,
    find_task_deadline,
    find_wait_deadline,
    is_claimable,
    is_takeable,
)
from arriero.model import Instant, StepKind, StepState, TaskState, later
from arriero.model.commands import Claim, Take

NOON = Instant(1_700_000_000_000_000)


def test_of_what_is_due_at_once_the_highest_priority_goes_first_then_the_older_row() -> None:
    rows = [(priority, number) for priority in range(10) for number in (1, 2)]
    Random(1).shuffle(rows)
    ordered = sorted(rows, key=lambda row: compute_position(row[0], NOON, row[1]))
    assert ordered == [(priority, number) for priority in range(9, -1, -1) for number in (1, 2)]


@pytest.mark.parametrize("steps", range(1, 10))
def test_each_step_of_priority_is_worth_ten_minutes_of_waiting(steps: int) -> None:
    low = compute_position(0, NOON, 7)
    head_start = steps * 600.0
    assert compute_position(steps, later(NOON, head_start - 0.000001), 8) < low
    assert low < compute_position(steps, later(NOON, head_start), 8)
    assert HEAD_START == PRIORITY_STEP_SECONDS * 1_000_000 == 600_000_000


def test_nothing_that_came_after_the_bound_passes_whatever_its_priority() -> None:
    random = Random(2)
    for number in range(1_000):
        priority, other = random.randrange(10), random.randrange(10)
        late = later(NOON, (9 - priority) * 600.0 + random.uniform(0.0, 100.0))
        assert compute_position(priority, NOON, number) < compute_position(other, late, number + 1)


CLAIM = Claim(actor="p1", process_no=1, workflows=("fulfil",), limit=5, probation=True, app="shop")
FREE = {"workflow": "fulfil", "locked_by": None, "not_before": NOON, "paused_at": None, "app": "shop", "lost_count": 0}


@pytest.mark.parametrize(
    ("changes", "probation", "claimable"),
    [
        ({}, True, True),
        ({"app": ""}, True, True),
        ({"app": "bank"}, True, False),
        ({"locked_by": 2}, True, False),
        ({"not_before": None}, True, False),
        ({"not_before": later(NOON, 0.000001)}, True, False),
        ({"paused_at": NOON}, True, False),
        ({"workflow": "refund"}, True, False),
        ({"workflow": "refund", "state": TaskState.COMPENSATING}, True, True),
        ({"lost_count": 2}, True, True),
        ({"lost_count": 2}, False, False),
    ],
)
def test_a_free_due_task_of_known_code_and_app_is_claimable(
    changes: dict[str, Any], probation: bool, claimable: bool
) -> None:
    task = task_row(**{"state": TaskState.PROCESSING, **FREE, **changes})
    assert is_claimable(task, CLAIM, NOON, probation=probation) is claimable


TAKE = Take(actor="p1", process_no=1, room=(("bank", 5),), names=("charge",), probation=None, app="shop")
WANTED = WantedRequests(TAKE, "bank", probation=None, priority_from=3, barred=NOTHING_BARRED)
WAITING = {
    "state": StepState.PENDING,
    "agent": "bank",
    "name": "charge",
    "not_before": NOON,
    "priority": 3,
    "app": "shop",
}


@pytest.mark.parametrize(
    ("changes", "of_task", "of_probation", "takeable"),
    [
        ({}, {}, None, True),
        ({"state": StepState.RUNNING}, {}, None, False),
        ({"kind": StepKind.TIMER}, {}, None, False),
        ({"kind": StepKind.COMPENSATION}, {}, None, True),
        ({"agent": "post"}, {}, None, False),
        ({"name": "refund"}, {}, None, False),
        ({"not_before": None}, {}, None, False),
        ({"not_before": later(NOON, 0.000001)}, {}, None, False),
        ({"priority": 2}, {}, None, False),
        ({"app": "bank"}, {}, None, False),
        ({"app": ""}, {"app": "shop"}, None, True),
        ({"app": ""}, {"app": "bank"}, None, False),
        ({}, {"lost_count": 2}, None, True),
        ({}, {"lost_count": 2}, 1, True),
        ({}, {"lost_count": 2}, 2, False),
        ({}, {}, 2, True),
    ],
)
def test_a_due_request_of_known_code_agent_and_app_is_takeable(
    changes: dict[str, Any], of_task: dict[str, Any], of_probation: int | None, takeable: bool
) -> None:
    step = step_row(1, **{**WAITING, **changes})
    task = task_row(**{"task_no": step.task_no, "app": "shop", "lost_count": 0, **of_task})
    wanted = msgspec.structs.replace(
        WANTED, probation=None if of_probation is None else step.task_no + of_probation - 1
    )
    assert is_takeable(step, task, wanted, NOON) is takeable


def test_only_a_running_task_that_is_not_paused_and_a_request_that_waits_have_a_deadline() -> None:
    for state in TaskState:
        task = task_row(state=state, complete_by=NOON, paused_at=None)
        assert (find_task_deadline(task) is not None) is (state in (TaskState.PENDING, TaskState.PROCESSING)), state
    assert find_task_deadline(task_row(state=TaskState.PROCESSING, complete_by=NOON, paused_at=NOON)) is None
    for step_state in StepState:
        assert (find_wait_deadline(step_row(1, state=step_state, wait_by=NOON)) is not None) is (
            step_state is StepState.PENDING
        )


def test_the_next_deadline_is_the_first_one_after_now_and_not_past_the_look_ahead() -> None:
    at = [later(NOON, seconds) for seconds in range(5)]
    steps = [
        step_row(1, state=StepState.RUNNING, complete_by=at[0]),
        step_row(2, state=StepState.RUNNING, complete_by=at[3]),
    ]
    waiting = step_row(3, state=StepState.PENDING, complete_by=None, wait_by=at[2])
    task = task_row(state=TaskState.PROCESSING, complete_by=at[1], paused_at=None)
    assert find_next_deadline([*steps, waiting], [task], at[0], at[4]) == at[1]
    assert find_next_deadline([*steps, waiting], [], at[0], at[4]) == at[2]
    assert find_next_deadline(steps, [], at[0], at[4]) == at[3]
    assert find_next_deadline(steps, [], at[0], at[2]) is None
