"""Which attempts a process remembers to have begun, and for how long."""

from arriero.model import Instant
from arriero.runtime.attempt_time import KEPT_SECONDS, SWEEP_FROM, AttemptRegistry

SECOND = 1_000_000


def instant(seconds: float) -> Instant:
    return Instant(round(seconds * SECOND))


def test_an_attempt_begins_once() -> None:
    registry = AttemptRegistry()
    assert registry.begin((1, 1), instant(30), instant(0))
    assert not registry.begin((1, 1), instant(30), instant(0))
    assert registry.begin((1, 2), instant(30), instant(0))  # another fence is another attempt


def test_an_attempt_that_never_reports_is_remembered_past_its_complete_by() -> None:
    registry = AttemptRegistry()
    registry.begin((1, 1), instant(30), instant(0))
    for number in range(2 * SWEEP_FROM):
        registry.begin((2, number), instant(60), instant(30))
    assert not registry.begin((1, 1), instant(30), instant(30))


def test_what_a_reading_under_way_may_still_show_is_forgotten_only_when_it_is_over() -> None:
    registry = AttemptRegistry()
    registry.begin((1, 1), instant(30), instant(0))
    registry.begin((1, 2), instant(30), instant(0))
    with registry.reading():
        with registry.reading():
            registry.settle((1, 1))
        assert (1, 1) in registry
    assert (1, 1) not in registry
    registry.settle((1, 2))
    assert (1, 2) not in registry


def test_a_later_reading_does_not_keep_what_was_settled_before_it_began() -> None:
    registry = AttemptRegistry()
    for number in range(1, 4):
        registry.begin((number, 1), instant(30), instant(0))
    first = registry.begin_reading()
    registry.settle((1, 1))
    second = registry.begin_reading()
    registry.settle((2, 1))
    registry.end_reading(first)
    assert ((1, 1) in registry, (2, 1) in registry) == (False, True)
    third = registry.begin_reading()
    registry.end_reading(second)
    assert (2, 1) not in registry
    registry.settle((3, 1))
    registry.end_reading(third)
    assert len(registry) == 0


def test_readings_that_overlap_without_end_let_no_attempts_pile_up() -> None:
    registry, under_way = AttemptRegistry(), 0
    for number in range(5_000):
        before, under_way = under_way, registry.begin_reading()
        registry.begin((number, 1), instant(30), instant(0))
        registry.settle((number, 1))
        if before:
            registry.end_reading(before)
        assert len(registry) <= 2


def test_old_attempts_do_not_pile_up() -> None:
    registry = AttemptRegistry()
    for number in range(50 * SWEEP_FROM):
        now = instant(number * KEPT_SECONDS / SWEEP_FROM)
        registry.begin((number, 1), now, now)
    assert len(registry) <= 4 * SWEEP_FROM


def test_an_attempt_that_may_be_extended_is_remembered_past_the_latest_deadline_that_it_may_get() -> None:
    registry = AttemptRegistry()
    registry.begin((1, 1), instant(30), instant(0))
    registry.extend((1, 1), instant(5_000))
    for number in range(2 * SWEEP_FROM):
        registry.begin((2, number), instant(4_500), instant(4_400))
    assert not registry.begin((1, 1), instant(5_000), instant(4_500))
