"""How far the time of an attempt may be extended, and whether one whose time is over has expired."""

import pytest
from core_rows import NOW, step_row

from arriero.core.attempts import find_latest_complete_by, has_expired, was_found_expired
from arriero.events.step import AttemptReleased, StepExpired
from arriero.model import StepState, later
from arriero.model.policies import Retry, StepPolicy, Supervision, encode_policy


@pytest.mark.parametrize(
    ("attempt", "factor", "extend_max", "most"),
    [
        (1, 1.0, None, 300.0),  # ten times its time
        (3, 2.0, None, 1200.0),  # of this attempt
        (1, 1.0, 45.0, 45.0),
        (3, 2.0, 45.0, 120.0),  # never less than it has anyway
    ],
)
def test_an_attempt_is_extended_to_so_many_seconds_after_it_was_taken(
    attempt: int, factor: float, extend_max: float | None, most: float
) -> None:
    policy = StepPolicy(30.0, None, Retry(), Supervision(complete_within_factor=factor), extend_max)
    within = 30.0 * factor ** (attempt - 1)
    step = step_row(policy=encode_policy(policy), attempt=attempt, complete_by=later(NOW, within))
    assert find_latest_complete_by(step) == later(NOW, most)


def test_a_policy_without_extend_max_has_the_text_that_it_had_before_there_was_one() -> None:
    assert "extend_max" not in encode_policy(StepPolicy(30.0, None, Retry(), Supervision()))


@pytest.mark.parametrize(
    ("state", "fence", "until", "expired"),
    [
        (StepState.RUNNING, 3, 0.0, True),
        (StepState.RUNNING, 3, 5.0, False),  # extended by way of another process
        (StepState.COMPLETED, 3, None, False),  # reported there
        (StepState.PENDING, 3, None, False),  # reported there as failed
        (StepState.PENDING, 4, None, False),  # the history tells how it ended
        (StepState.RUNNING, 5, 5.0, False),
        (StepState.PENDING, 2, None, False),  # of a store that was restored
    ],
)
def test_an_attempt_whose_time_is_over_has_expired_unless_another_process_was_told_of_it(
    state: StepState, fence: int, until: float | None, expired: bool
) -> None:
    step = step_row(state=state, fence=fence, complete_by=None if until is None else later(NOW, until))
    assert has_expired(step, 3, NOW) is expired
    assert has_expired(None, 3, NOW) is False


def test_an_attempt_that_is_over_has_expired_only_if_the_supervisor_found_it_so() -> None:
    def expired(step: int, fence: int) -> StepExpired:
        return StepExpired(step=step, fence=fence, why="expired", term=None)

    released = [
        AttemptReleased(step=1, fence=3),
        expired(1, 6),
        expired(2, 4),
    ]  # released, and taken anew: that one expired
    assert not was_found_expired(released, 1, 3)
    assert was_found_expired(released, 1, 5)
    assert not was_found_expired([], 1, 3)
