"""The order of what is due: a high priority first, but for no longer than its head start."""

from random import Random

import pytest

from arriero.core.ageing import HEAD_START, PRIORITY_STEP_SECONDS, compute_position
from arriero.model import Instant, later

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
