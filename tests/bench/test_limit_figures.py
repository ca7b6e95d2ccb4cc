"""The figures of the work `limits` of `bench/run.py`, from histories that are made by hand."""

import pytest

from arriero.events.step import StepDispatched, StepRecorded
from arriero.model import Instant
from bench.sides.limit_figures import Commit, Moment, count_most, list_moments, measure_rate, measure_room

SECOND = 1_000_000


def begun(at: float, key: str = "") -> Moment:
    return Moment(round(at * SECOND), True, {"concurrent": key})


def ended(at: float, key: str = "") -> Moment:
    return Moment(round(at * SECOND), False, {"concurrent": key})


def dispatched(limits: dict[str, str] | None) -> StepDispatched:
    return StepDispatched(step=1, attempt=1, fence=1, complete_by=Instant(0), process=1, key="key-1", limits=limits)


def test_an_attempt_lasts_from_its_dispatch_to_its_result_and_one_without_limits_does_not_count() -> None:
    recorded = StepRecorded(step=1, number=1, result=None)
    history = [
        Commit(1, 10, [dispatched({"concurrent": ""})]),
        Commit(2, 15, [dispatched(None)]),
        Commit(2, 18, [recorded]),
        Commit(1, 20, [recorded]),
    ]
    assert list_moments(history) == [Moment(10, True, {"concurrent": ""}), Moment(20, False, {"concurrent": ""})]


def test_the_share_in_use_counts_from_the_first_full_moment_until_too_few_requests_are_left() -> None:
    moments = [begun(0), begun(1), ended(2), begun(3), ended(4), begun(5), ended(6), begun(7), ended(8), ended(9)]
    share, calls = measure_room(moments, 2, 5)
    # All are in use from 1 on. The fourth begins at 5 and leaves one. In between 2, 1, 2 and 1 are in use.
    assert share == (2 + 1 + 2 + 1) / (2 * 4)
    assert calls == 2 / 4


def test_slots_that_are_never_all_in_use_fail_the_run() -> None:
    with pytest.raises(SystemExit, match="never 2 were under way"):
        measure_room([begun(0), ended(1), begun(2), ended(3), begun(4), ended(5)], 2, 3)


def test_the_most_under_way_is_counted_of_each_key_in_the_order_of_the_history() -> None:
    moments = [begun(0, "a"), begun(0, "b"), ended(2, "a"), begun(1, "a"), begun(1, "b")]
    assert count_most(moments, "concurrent") == 2
    assert count_most(moments, "another") == 0


def test_a_rate_is_measured_over_whole_windows_and_its_closest_calls_are_counted() -> None:
    moments = [begun(at) for at in (0, 0.5, 1.25, 1.75, 2.5, 3, 3.75, 4.25)]
    share, closest = measure_rate(moments, 2, 8)
    assert share == 4 / (2 * 2.5)
    assert closest == 2
    assert measure_rate([begun(at) for at in (0, 0.5, 0.999, 2, 3, 4)], 2, 6)[1] == 3


def test_too_few_requests_for_a_whole_window_fail_the_run() -> None:
    with pytest.raises(SystemExit, match="too few"):
        measure_rate([begun(0), begun(1), begun(2)], 2, 3)
