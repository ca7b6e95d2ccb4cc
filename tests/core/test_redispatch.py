"""However many attempts expire at once, they come back at the stated rate; one alone comes back when its policy says."""

import random

from hypothesis import given
from hypothesis import strategies as st

from arriero.core.supervision import RedispatchSlots
from arriero.model import MICROSECONDS, Instant

NOW = Instant(1_800_000_000_000_000)


def most_in_a_second(instants: list[int]) -> int:
    times = sorted(instants)
    return max(sum(at <= other < at + MICROSECONDS for other in times) for at in times)


def test_an_attempt_that_expires_alone_comes_back_when_its_policy_says() -> None:
    slots = RedispatchSlots(200)
    assert slots.take(NOW, jitter=0.9) == NOW
    assert slots.take(Instant(NOW + 70_000_123), jitter=0.9) == NOW + 70_000_123


def test_ten_thousand_that_expire_at_once_come_back_over_fifty_seconds() -> None:
    slots, source = RedispatchSlots(200), random.Random(1)
    taken = [slots.take(Instant(NOW + source.randrange(500_000)), jitter=source.random()) for _ in range(10_000)]
    assert most_in_a_second(taken[:2_000]) <= 201
    assert 49 < (max(taken) - NOW) / MICROSECONDS < 51
    assert len(set(taken)) == 10_000  # chance spreads them inside their slots, too


@given(
    st.integers(1, 1_000),
    st.lists(st.tuples(st.integers(0, 3_000_000), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=60),
)
def test_no_second_gets_more_than_the_rate_and_none_comes_back_early(
    per_second: int, wanted: list[tuple[int, float]]
) -> None:
    slots = RedispatchSlots(per_second)
    taken = [slots.take(Instant(NOW + after), jitter=jitter) for after, jitter in wanted]
    assert most_in_a_second(taken) <= per_second + 1
    assert all(at >= NOW + after for at, (after, _) in zip(taken, wanted, strict=True))


def test_slots_that_are_over_are_forgotten_and_those_ahead_are_not() -> None:
    slots = RedispatchSlots(10)
    for _ in range(30):
        slots.take(NOW, jitter=0.0)
    slots.forget_before(Instant(NOW + 2 * MICROSECONDS))
    assert slots.take(NOW, jitter=0.0) == NOW  # over: nobody asks for it any more
    assert slots.take(Instant(NOW + 2 * MICROSECONDS), jitter=0.0) == NOW + 3 * MICROSECONDS
