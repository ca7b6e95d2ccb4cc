"""Retry budgets as values: what holds in every span of time, whatever is asked and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.capacity import (
    BURST,
    PER_SECOND,
    RetryBudget,
    add_calls,
    count_allowed_retries,
    give_back,
    seconds_until_allowed,
    spend,
)

# What happens, after how many seconds: a first call, a retry that is wanted, or a Take that keeps tokens and returns some.
EVENTS = st.lists(
    st.tuples(st.floats(0, 5), st.sampled_from(("call", "retry", "take")), st.integers(0, 12)), max_size=80
)


@given(EVENTS, st.floats(0.01, 1))
def test_in_every_span_retries_are_at_most_the_share_of_its_calls_and_the_floor(
    events: list[tuple[float, str, int]], share: float
) -> None:
    now, budget = 0.0, RetryBudget(share, 0.0)
    calls: list[tuple[float, bool]] = []  # when, and if it was a retry
    for seconds, kind, count in events:
        now += seconds
        wanted = count if kind == "take" else int(kind == "retry")
        kept = min(wanted, count_allowed_retries(budget, now))
        budget = spend(budget, kept, now)
        used = kept // 2 if kind == "take" else kept
        budget = give_back(budget, kept - used, now)
        calls += [(now, True)] * used + [(now, False)] * (kind == "call")
        for _ in range(used + (kind == "call")):
            budget = add_calls(budget, 1, now)
    for first in range(len(calls)):
        retries = 0
        for last in range(first, len(calls)):
            retries += calls[last][1]
            floor = BURST + PER_SECOND * (calls[last][0] - calls[first][0])
            assert retries <= share * (last - first + 1) + floor + 1e-6


@given(st.lists(st.floats(0, 3)), st.sampled_from([0.01, 0.2, 1.0]), st.integers(0, 10))
def test_calls_that_are_added_together_later_count_like_calls_that_are_added_at_once(
    waits: list[float], share: float, spent: int
) -> None:
    start, now = spend(RetryBudget(share, 0.0), spent, 0.0), 0.0
    at_once = start
    for wait in waits:
        now += wait
        at_once = add_calls(at_once, 1, now)
    together = add_calls(start, len(waits), now)
    assert together.tokens == pytest.approx(at_once.tokens)


@given(st.floats(0, 1_000), st.integers(0, 12))
def test_a_retry_is_allowed_as_soon_as_was_said_and_not_earlier(start: float, spent: int) -> None:
    budget = spend(RetryBudget(0.2, start), min(spent, 10), start)
    wait = seconds_until_allowed(budget, start)
    assert count_allowed_retries(budget, start + wait + 1e-6) >= 1
    assert wait == 0 or count_allowed_retries(budget, start + wait - 0.01) == 0


def test_a_quiet_agent_may_always_retry() -> None:
    budget = RetryBudget(0.01, 0.0)
    for second in range(1_000):
        assert count_allowed_retries(budget, float(second)) >= 1
        budget = add_calls(spend(budget, 1, float(second)), 1, float(second))


def test_what_healthy_hours_have_saved_is_no_storm_later() -> None:
    budget = RetryBudget(1.0, 0.0)
    for second in range(10_000):
        budget = add_calls(budget, 1, float(second))
    assert count_allowed_retries(budget, 10_000.0) == BURST


def test_five_calls_at_a_fifth_make_one_retry() -> None:
    budget = spend(RetryBudget(0.2, 0.0), 10, 0.0)
    for _ in range(5):
        assert count_allowed_retries(budget, 0.0) == 0
        budget = add_calls(budget, 1, 0.0)
    assert count_allowed_retries(budget, 0.0) == 1


def test_with_a_share_of_one_no_retry_ever_waits() -> None:
    budget = RetryBudget(1.0, 0.0)
    for _ in range(1_000):
        assert count_allowed_retries(budget, 0.0) >= 1
        budget = add_calls(spend(budget, 1, 0.0), 1, 0.0)
