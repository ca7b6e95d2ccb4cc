"""Waits between tries and attempts: bounds, growth, and where chance comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.supervision import (
    ATTEMPT_DELAY_SECONDS,
    DELAY_SECONDS_MAX,
    JITTER_SHARE,
    attempt_delay,
    retry_delay,
)

delays = st.floats(0, 1e6)
factors = st.floats(1, 100)
jitters = st.floats(0, 1, exclude_max=True)
counts = st.integers(1, 100_000)


@given(counts, delays, factors, delays, jitters)
def test_a_delay_is_never_negative_and_never_past_its_maximum(
    tries: int, delay: float, factor: float, delay_max: float, jitter: float
) -> None:
    found = retry_delay(tries, delay=delay, factor=factor, delay_max=delay_max, jitter=jitter)
    assert 0 <= found <= delay_max


@given(counts, delays, factors, delays, jitters)
def test_chance_takes_away_half_of_a_delay_at_most(
    tries: int, delay: float, factor: float, delay_max: float, jitter: float
) -> None:
    def with_jitter(jitter: float) -> float:
        return retry_delay(tries, delay=delay, factor=factor, delay_max=delay_max, jitter=jitter)

    shortest, found = with_jitter(0), with_jitter(jitter)
    assert shortest <= found
    assert found * (1 - JITTER_SHARE) <= shortest * (1 + 1e-9)


@given(counts, delays, factors, delays, jitters)
def test_a_delay_grows_with_the_tries_or_stays(
    tries: int, delay: float, factor: float, delay_max: float, jitter: float
) -> None:
    def after(tries: int) -> float:
        return retry_delay(tries, delay=delay, factor=factor, delay_max=delay_max, jitter=jitter)

    assert after(tries) <= after(tries + 1)


@given(delays, jitters)
def test_a_longer_chance_gives_a_longer_delay(delay: float, jitter: float) -> None:
    def with_jitter(jitter: float) -> float:
        return retry_delay(1, delay=delay, factor=2, delay_max=delay, jitter=jitter)

    assert with_jitter(jitter / 2) <= with_jitter(jitter)


@pytest.mark.parametrize(("tries", "seconds"), [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (5, 0.5), (10_000, 0.5)])
def test_a_delay_grows_by_its_factor_up_to_its_maximum(tries: int, seconds: float) -> None:
    assert retry_delay(tries, delay=0.2, factor=2, delay_max=1.0, jitter=0) == pytest.approx(seconds)


@given(counts, jitters)
def test_attempts_wait_from_a_quarter_of_a_second_to_a_minute(failure_count: int, jitter: float) -> None:
    assert ATTEMPT_DELAY_SECONDS / 2 <= attempt_delay(failure_count, jitter=jitter) <= DELAY_SECONDS_MAX
