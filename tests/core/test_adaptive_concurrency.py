"""Adaptive concurrency as values: where the limit settles beside a simulated service, and that it keeps its bounds."""

import heapq
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero import Adaptive
from arriero.core.capacity import CALLS_MIN, Concurrency, add_ended_call, begin_concurrency

PLACES = 100


class Service:
    """A service that is called with as many calls at once as the limit allows. ``answer``: (seconds, has failed) by that number."""

    def __init__(
        self, answer: Callable[[int], tuple[float, bool]], policy: Adaptive = Adaptive(), demand: int = 10_000
    ):
        self.answer = answer
        self.policy = policy
        self.demand = demand
        self.state = begin_concurrency(policy)
        self._random = Random(7)
        self._now = 0.0
        self._under_way: list[tuple[float, float, bool]] = []  # when it ends, how long it took, if it failed

    def run(self, calls: int) -> list[int]:
        """Make so many calls. Returns: the limits after each."""
        limits: list[int] = []
        for _ in range(calls):
            while len(self._under_way) < min(self.state.places, self.demand):
                seconds, has_failed = self.answer(len(self._under_way) + 1)
                seconds *= self._random.uniform(0.9, 1.1)
                heapq.heappush(self._under_way, (self._now + seconds, seconds, has_failed))
            in_flight = len(self._under_way)
            self._now, seconds, has_failed = heapq.heappop(self._under_way)
            self.state = add_ended_call(
                self.state, self.policy, PLACES, seconds=seconds, has_failed=has_failed, in_flight=in_flight
            )
            limits.append(self.state.places)
        return limits


def _doubles_above(number: int) -> Callable[[int], tuple[float, bool]]:
    return lambda at_once: (0.1 if at_once <= number else 0.2, False)


@pytest.mark.parametrize("number", [8, 20, 50])
def test_the_limit_settles_near_the_number_of_calls_above_which_latency_doubles(number: int) -> None:
    limits = Service(_doubles_above(number)).run(20_000)[10_000:]
    average = sum(limits) / len(limits)
    assert 0.7 * number <= average <= 1.4 * number, average
    assert max(limits) <= 1.7 * number + 3


@pytest.mark.parametrize("number", [10, 30])
def test_it_settles_also_beside_a_service_that_works_through_a_queue(number: int) -> None:
    limits = Service(lambda at_once: (0.1 * max(1.0, at_once / number), False)).run(20_000)[10_000:]
    assert 0.7 * number <= sum(limits) / len(limits) <= 2 * number


def test_a_service_that_answers_as_fast_as_always_gets_all_places() -> None:
    assert Service(lambda _: (0.1, False)).run(10_000)[-1] >= PLACES / 2


def test_it_recovers_when_the_service_does() -> None:
    service = Service(_doubles_above(10))
    assert service.run(10_000)[-1] <= 20
    service.answer = lambda _: (0.1, False)
    assert service.run(10_000)[-1] >= PLACES / 2


def test_a_service_that_stays_slower_becomes_the_new_normal() -> None:
    service = Service(lambda _: (0.1, False))
    service.run(10_000)
    service.answer = lambda _: (0.3, False)
    assert min(service.run(3_000)) <= PLACES / 2
    assert max(service.run(30_000)) == PLACES


def test_it_falls_when_calls_fail_and_a_fast_failure_is_no_fast_answer() -> None:
    service = Service(lambda _: (0.1, False))
    service.run(10_000)
    service.answer = lambda _: (0.001, True)
    assert service.run(2_000)[-1] == 1
    service.answer = lambda _: (0.1, False)
    assert service.run(10_000)[-1] >= PLACES / 2


def test_a_few_failures_move_nothing() -> None:
    random = Random(3)
    assert Service(lambda _: (0.1, random.random() < 0.02)).run(10_000)[-1] >= PLACES / 2


def test_it_does_not_grow_beyond_what_is_used() -> None:
    service = Service(lambda _: (0.1, False), demand=3)
    assert max(service.run(10_000)) <= 4


ENDS = st.tuples(st.floats(0, 1_000), st.booleans(), st.integers(1, PLACES))


@given(st.lists(ENDS, max_size=200), st.integers(1, PLACES), st.floats(1, 10))
def test_the_limit_never_leaves_its_bounds_and_never_falls_far_at_once(
    ends: list[tuple[float, bool, int]], minimum: int, tolerance: float
) -> None:
    policy = Adaptive(minimum=minimum, tolerance=tolerance)
    state: Concurrency = begin_concurrency(policy)
    for seconds, has_failed, in_flight in ends:
        before = state
        state = add_ended_call(state, policy, PLACES, seconds=seconds, has_failed=has_failed, in_flight=in_flight)
        assert minimum <= state.places <= PLACES
        assert state.limit >= before.limit * 0.22  # it falls, and half of that is measured
        assert state.limit == before.limit or before.calls + 1 >= CALLS_MIN  # one call alone moves nothing
