"""Circuit breakers as values: every move of the table and every missing one, and what holds whatever calls do."""

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero import Breaker, DefinitionError
from arriero.core.breaker import (
    BREAKER_MOVES,
    RETRY_AFTER_MAX,
    BreakerEvent,
    advance_breaker,
    close_after_ramp,
    close_by_hand,
    drop_burnt,
    end_canary,
    grant_canary,
    is_barred,
    is_request_to_blame,
    judge_calls,
    may_let_through,
    open_by_hand,
    trip,
)
from arriero.errors import IllegalTransition
from arriero.model import Instant, later
from arriero.model.agents import BreakerRow, BreakerState, CallCounts

NOON = Instant(1_700_000_000_000_000)
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
POLICY = Breaker(cool_off=10, ramp=30)
ROW = BreakerRow(app="shop", agent="payments")


def opened(policy: Breaker = POLICY, **changes: object) -> BreakerRow:
    row = trip(ROW, policy, NOON, reason="20 of 20 calls failed", failing_since=later(NOON, -5), retry_after=None)
    return msgspec.structs.replace(row, **changes)


def granted(row: BreakerRow, now: Instant) -> BreakerRow:
    after = grant_canary(row, now)
    assert after is not None
    return after


@pytest.mark.parametrize(("state", "event"), list(product(BreakerState, BreakerEvent)))
def test_a_pair_that_is_not_in_the_table_is_refused(state: BreakerState, event: BreakerEvent) -> None:
    if (state, event) in BREAKER_MOVES:
        assert advance_breaker(state, event) is BREAKER_MOVES[state, event]
    else:
        with pytest.raises(IllegalTransition):
            advance_breaker(state, event)


def test_an_outage_that_follows_the_last_one_within_a_window_goes_on_with_it() -> None:
    first = close_by_hand(opened(), later(NOON, 40))
    again = trip(first, POLICY, later(NOON, 65), reason="again", failing_since=later(NOON, 60), retry_after=None)
    assert (again.failing_since, again.opened_at) == (first.failing_since, later(NOON, 65))
    apart = trip(first, POLICY, later(NOON, 99), reason="later", failing_since=later(NOON, 71), retry_after=None)
    assert apart.failing_since == later(NOON, 71)


class TestOpening:
    @pytest.mark.parametrize(
        ("calls", "failed", "opens"), [(19, 19, False), (20, 9, False), (20, 10, True), (40, 19, False), (40, 40, True)]
    )
    def test_it_opens_from_the_minimum_of_calls_and_the_share_of_failures_on(
        self, calls: int, failed: int, opens: bool
    ) -> None:
        assert (judge_calls(POLICY, CallCounts(calls, failed, 0, NOON), 10) is not None) == opens

    @pytest.mark.parametrize(
        ("calls", "failed", "seconds", "opens"),
        [(5, 5, 150.0, True), (5, 5, 149.0, False), (4, 4, 600.0, False), (6, 5, 600.0, False), (19, 19, 0.1, False)],
    )
    def test_a_service_that_hangs_opens_it_before_the_minimum_of_calls(
        self, calls: int, failed: int, seconds: float, opens: bool
    ) -> None:
        counts = CallCounts(calls, failed, 0, NOON, failed_seconds=seconds)
        assert (judge_calls(POLICY, counts, 10) is not None) == opens

    @pytest.mark.parametrize(
        ("is_one_request", "has_other_success", "opens"),
        [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
    )
    def test_one_request_that_fails_does_not_open_it_while_others_succeed(
        self, is_one_request: bool, has_other_success: bool, opens: bool
    ) -> None:
        counts = CallCounts(4, 3, 0, NOON, is_one_request=is_one_request, has_other_success=has_other_success)
        assert (judge_calls(Breaker(minimum=2), counts, 10) is not None) == opens

    def test_slow_calls_open_it_where_the_policy_says_so(self) -> None:
        slow = CallCounts(20, 0, 15, NOON)
        assert judge_calls(POLICY, slow, 10) is None
        reason = judge_calls(Breaker(slow_rate=0.7, slow_seconds=2), slow, 10)
        assert reason == "15 of 20 calls took longer than 2 s in 30 s"

    def test_the_reason_names_the_numbers_and_the_last_error(self) -> None:
        reason = judge_calls(POLICY, CallCounts(20, 12, 0, NOON, "connection refused"), 10)
        assert reason == "12 of 20 calls failed in 30 s: connection refused"

    def test_while_it_is_open_nothing_goes_before_the_cool_off_is_over(self) -> None:
        row = opened()
        assert is_barred(row, later(NOON, 9.99))
        assert not may_let_through(row, later(NOON, 9.99))
        assert may_let_through(row, later(NOON, 10))

    @pytest.mark.parametrize(("asked", "wait"), [(3.0, 10.0), (60.0, 60.0), (1e9, RETRY_AFTER_MAX)])
    def test_the_service_s_word_keeps_it_open_for_longer_but_not_for_ever(self, asked: float, wait: float) -> None:
        row = trip(ROW, POLICY, NOON, reason="busy", failing_since=NOON, retry_after=asked)
        assert row.probe_at == later(NOON, wait)

    def test_one_that_a_person_has_opened_stays_open(self) -> None:
        row = open_by_hand(ROW, NOON, by="ana", reason="they move their data centre")
        assert (row.state, row.probe_at, row.opened_by) == (OPEN, None, "ana")
        assert is_barred(row, later(NOON, 1e6))
        assert close_by_hand(row, later(NOON, 60)).state is CLOSED


class TestCanaries:
    def test_one_goes_and_no_other_until_it_has_ended(self) -> None:
        row = granted(opened(), later(NOON, 10))
        assert (row.state, row.wave, row.granted) == (HALF_OPEN, 1, 1)
        assert grant_canary(row, later(NOON, 1000)) is None

    def test_after_one_that_fails_it_cools_off_anew(self) -> None:
        at = later(NOON, 11)
        row = end_canary(granted(opened(), later(NOON, 10)), 3, at, has_answered=False)
        assert (row.state, row.probe_at) == (OPEN, later(at, 10))

    def test_a_service_that_names_a_later_time_is_left_alone_until_then(self) -> None:
        at = later(NOON, 11)
        row = granted(opened(), later(NOON, 10))
        assert end_canary(row, row.fence, at, has_answered=False, not_before=later(at, 99)).probe_at == later(at, 99)

    def test_a_service_is_left_alone_for_so_long_at_most_whatever_it_names(self) -> None:
        at = later(NOON, 11)
        row = granted(opened(), later(NOON, 10))
        ended = end_canary(row, row.fence, at, has_answered=False, not_before=later(at, 1e9))
        assert ended.probe_at == later(at, RETRY_AFTER_MAX)

    def test_after_success_waves_grow_over_the_ramp_and_then_it_closes(self) -> None:
        row, now, sizes = opened(), later(NOON, 10), []
        while row.state is not CLOSED:
            after = grant_canary(close_after_ramp(row, now), now)
            if after is None:
                now = later(now, 0.5)
                row = close_after_ramp(row, now)
                continue
            if after.granted == 1:
                sizes.append((after.wave, (now - NOON) / 1_000_000))
            row = end_canary(after, after.fence, now, has_answered=True)
        assert sizes == [(1, 10), (2, 10), (4, 16), (8, 22), (16, 28), (32, 34)]
        assert (now - NOON) / 1_000_000 == 40
        assert row.closed_at == now

    def test_one_whose_process_was_lost_gives_its_place_back(self) -> None:
        row = granted(opened(), later(NOON, 10))
        again = granted(end_canary(row, row.fence, later(NOON, 11), has_answered=None), later(NOON, 11))
        assert (again.wave, again.granted, again.fence) == (1, 1, row.fence)

    def test_one_of_an_earlier_fence_says_nothing_any_more(self) -> None:
        row = granted(opened(), later(NOON, 10))
        reopened = end_canary(row, row.fence, later(NOON, 11), has_answered=False)
        assert end_canary(reopened, row.fence, later(NOON, 12), has_answered=True) is reopened

    def test_a_few_failures_of_a_large_wave_do_not_open_it_again(self) -> None:
        row = opened(state=HALF_OPEN, fence=9, wave=8, granted=8, ramp_from=NOON)
        for _ in range(3):
            row = end_canary(row, 9, NOON, has_answered=False)
        assert row.state is HALF_OPEN
        assert end_canary(row, 9, NOON, has_answered=False).state is OPEN

    def test_a_wave_that_nobody_fills_is_judged_by_those_that_went(self) -> None:
        row = opened(state=HALF_OPEN, fence=9, wave=32, granted=2, ramp_from=NOON)
        row = end_canary(row, 9, NOON, has_answered=False)
        assert end_canary(row, 9, NOON, has_answered=False).state is OPEN

    @pytest.mark.parametrize(
        ("changes", "is_to_blame"),
        [
            ({}, True),
            ({"failed": 1}, False),
            ({"ramp_from": None}, False),
            ({"fence": 8}, False),
            ({"state": OPEN}, False),
        ],
    )
    def test_the_first_of_a_wave_to_fail_is_to_blame_if_the_service_answers_others(
        self, changes: dict[str, Any], is_to_blame: bool
    ) -> None:
        row = opened(**({"state": HALF_OPEN, "fence": 9, "wave": 4, "granted": 3, "ramp_from": NOON} | changes))
        assert is_request_to_blame(row, 9) is is_to_blame

    def test_without_a_ramp_the_first_success_closes_it(self) -> None:
        row = granted(opened(Breaker(ramp=0)), later(NOON, 10))
        assert end_canary(row, row.fence, later(NOON, 11), has_answered=True).state is CLOSED

    @given(
        seconds=st.lists(st.floats(0, 20), min_size=5, max_size=60),
        words=st.lists(st.sampled_from(["grant", "answered", "failed", "lost", "pause"]), min_size=60, max_size=60),
    )
    def test_whatever_happens_no_more_are_under_way_than_their_wave_has(
        self, seconds: list[float], words: list[str]
    ) -> None:
        row, now, under_way = opened(), NOON, 0
        for wait, word in zip(seconds, words, strict=False):
            now = later(now, wait)
            before = row
            if word == "grant" and row.state is not CLOSED and not is_barred(row, now):
                after = grant_canary(row, now)
                if after is not None:
                    under_way = under_way + 1 if after.fence == row.fence else 1
                    row = after
            elif word in ("answered", "failed", "lost") and under_way and row.state is HALF_OPEN:
                answer = {"answered": True, "failed": False, "lost": None}[word]
                row, under_way = end_canary(row, row.fence, now, has_answered=answer), under_way - 1
            assert row.fence >= before.fence
            if row.state is HALF_OPEN:
                assert 0 <= under_way <= row.wave
                assert row.granted == under_way + row.succeeded + row.failed
                assert row.wave == 1 or row.ramp_from is not None
            if row.state is CLOSED:
                assert row.ramp_from is None
                return


def test_failures_from_the_window_that_opened_it_to_its_end_are_burnt() -> None:
    row = opened()
    charged = tuple(later(NOON, at) for at in (-60, -4, 3, 50))
    before, _, _, after = charged
    assert drop_burnt(row, charged) == (before,)
    assert drop_burnt(close_by_hand(row, later(NOON, 40)), charged) == (before, after)
    assert drop_burnt(ROW, charged) == charged


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"failure_rate": 0}, "Breaker.failure_rate is 0; it must be above 0 and at most 1"),
        ({"failure_rate": 1.1}, "Breaker.failure_rate is 1.1; it must be above 0 and at most 1"),
        ({"failure_rate": float("nan")}, "Breaker.failure_rate is nan; it must be above 0 and at most 1"),
        ({"minimum": 0}, "Breaker.minimum is 0; it must be a whole number from 1 to 1000000"),
        ({"window": 0.5}, "Breaker.window is 0.5 seconds; it must lie between 1 and 3600"),
        ({"cool_off": 0}, "Breaker.cool_off is 0 seconds; it must lie between 0.1 and 86400"),
        ({"ramp": 1e6}, "Breaker.ramp is 1e+06 seconds; it must lie between 0 and 86400"),
        ({"slow_rate": 0.5}, "slow_rate and slow_seconds need each other"),
        ({"slow_rate": 0.5, "slow_seconds": 30}, "a window shorter than a call sees none of them"),
        ({"slow_rate": 2, "slow_seconds": 3}, "Breaker.slow_rate is 2; it must be above 0 and at most 1"),
    ],
)
def test_a_breaker_that_cannot_work_is_refused_by_name(policy: dict[str, float], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Breaker(**policy)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_calls_that_succeeded_before_an_outage_do_not_keep_it_closed() -> None:
    before = CallCounts(100, 19, 0, NOON, "down", failed_in_a_row=19, steps_in_a_row=10)
    assert judge_calls(POLICY, before, 10) is None
    after = CallCounts(101, 20, 0, NOON, "down", failed_in_a_row=20, steps_in_a_row=10)
    assert judge_calls(POLICY, after, 10) == "the last 20 calls all failed: down"


def test_the_calls_of_a_few_steps_that_always_fail_do_not_open_it() -> None:
    of_nine = CallCounts(100, 40, 0, NOON, failed_in_a_row=40, steps_in_a_row=9)
    assert judge_calls(POLICY, of_nine, 10) is None
