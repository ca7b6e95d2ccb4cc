"""The Supervisor's period: short while something is overdue, growing while nothing is, never beyond its bounds."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from arriero.core.supervision import choose_period

BOUNDS: Any = {"period_min": 0.25, "period_max": 2.0}
IDLE: Any = {"found_overdue": False, "next_deadline_in": None, **BOUNDS}


def test_it_doubles_while_nothing_is_overdue_up_to_the_longest() -> None:
    periods = [0.25]
    for _ in range(4):
        periods.append(choose_period(periods[-1], **IDLE))
    assert periods == [0.25, 0.5, 1.0, 2.0, 2.0]


def test_it_is_the_shortest_at_once_when_something_is_overdue() -> None:
    assert choose_period(2.0, found_overdue=True, next_deadline_in=None, **BOUNDS) == 0.25
    assert choose_period(2.0, found_overdue=True, next_deadline_in=1.5, **BOUNDS) == 0.25


def test_it_ends_with_the_next_deadline_that_is_known() -> None:
    assert choose_period(2.0, found_overdue=False, next_deadline_in=1.5, **BOUNDS) == 1.5
    assert choose_period(2.0, found_overdue=False, next_deadline_in=0.01, **BOUNDS) == 0.25
    assert choose_period(2.0, found_overdue=False, next_deadline_in=-3.0, **BOUNDS) == 0.25  # it passed meanwhile
    assert choose_period(2.0, found_overdue=False, next_deadline_in=900.0, **BOUNDS) == 2.0


@given(
    st.floats(0.001, 1e6), st.booleans(), st.none() | st.floats(-1e6, 1e6), st.floats(0.001, 1e3), st.floats(0.001, 1e3)
)
def test_it_never_leaves_its_bounds(
    last: float, found_overdue: bool, next_deadline_in: float | None, period_min: float, period_max: float
) -> None:
    period = choose_period(
        last,
        found_overdue=found_overdue,
        next_deadline_in=next_deadline_in,
        period_min=period_min,
        period_max=period_max,
    )
    assert period_min <= period <= max(period_min, period_max)
