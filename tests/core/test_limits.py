"""Limits as rules: windows of rates, room, and what a starting process declares."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.core.limits import (
    WINDOW_PARTS,
    LimitBook,
    compute_next_at,
    count_begun,
    declare_limits,
    hash_keys,
    note_begun,
)
from arriero.model import Instant, later
from arriero.model.agents import AgentLimitsRow, LimitPolicy, RateRow, encode_limit_keys, encode_limits

NOON = Instant(1_700_000_000_000_000)
TWO = LimitPolicy(name="concurrent", kind="concurrent", most=2)
OF_MERCHANT = LimitPolicy(name="of merchant", kind="concurrent", most=1, is_keyed=True)
THREE = LimitPolicy(name="rate", kind="rate", most=3, per=1.0)


def book(*limits: LimitPolicy, running: tuple[tuple[str | None, int], ...] = ()) -> LimitBook:
    row = AgentLimitsRow(app="shop", agent="payments", limits=encode_limits(limits))
    made = LimitBook(row, running, NOON)
    made.keep_rates([""], [])
    return made


def keys(merchant: str) -> str:
    return encode_limit_keys({"of merchant": merchant})


# --- rates
@given(
    most=st.integers(1, 20),
    per=st.sampled_from([0.01, 0.5, 1.0, 60.0]),
    waits=st.lists(st.floats(0, 0.3), min_size=1, max_size=200),
)
def test_in_no_window_more_calls_begin_than_the_rate_allows(most: int, per: float, waits: list[float]) -> None:
    begun: tuple[tuple[Instant, int], ...] = ()
    now, calls = NOON, []
    for wait in waits:
        now = later(now, wait * per)
        if count_begun(begun, per, now) < most:
            begun = note_begun(begun, per, now)
            calls.append(now)
    window = round(per * 1_000_000)
    assert all(last - first >= window for first, last in zip(calls, calls[most:], strict=False))


@given(most=st.integers(1, 20), per=st.sampled_from([0.5, 1.0, 60.0]))
def test_a_caller_that_never_waits_too_long_uses_nearly_all_of_a_rate(most: int, per: float) -> None:
    begun: tuple[tuple[Instant, int], ...] = ()
    now, count = NOON, 0
    end = later(NOON, 20 * per)
    while now < end:
        while count_begun(begun, per, now) < most:
            begun = note_begun(begun, per, now)
            count += 1
        next_at = compute_next_at(begun, most, per, now)
        assert next_at > now
        assert count_begun(begun, per, next_at) < most
        now = next_at
    assert count >= 20 * most * (1 - 1 / WINDOW_PARTS) - most


@given(st.lists(st.floats(0, 0.05), max_size=300))
def test_what_is_kept_of_a_rate_stays_short(waits: list[float]) -> None:
    begun: tuple[tuple[Instant, int], ...] = ()
    now = NOON
    for wait in waits:
        now = later(now, wait)
        begun = note_begun(begun, 1.0, now)
    assert len(begun) <= WINDOW_PARTS + 1


def test_a_call_may_begin_at_once_while_there_is_room() -> None:
    assert compute_next_at((), 1, 1.0, NOON) == NOON


# --- room
def test_the_smallest_room_of_all_limits_counts() -> None:
    made = book(TWO, OF_MERCHANT, running=((keys("a"), 1),))
    assert (made.count_room(keys("a")), made.count_room(keys("b")), made.count_common_room()) == (0, 1, 1)


def test_steps_without_keys_share_the_room_of_the_empty_key() -> None:
    made = book(OF_MERCHANT, running=((None, 1),))
    assert (made.count_room(None), made.count_room("{}"), made.count_room(keys("a"))) == (0, 0, 1)


def test_more_under_way_than_a_lowered_limit_allows_leaves_no_room() -> None:
    assert book(TWO, running=(("{}", 5),)).count_room("{}") == 0


def test_a_rate_without_room_tells_when_it_has_some_again() -> None:
    made = book(THREE)
    assert made.compute_next_at() is None
    for _ in range(3):
        made.begin_call("{}", NOON)
    assert made.count_room("{}") == 0
    assert made.compute_next_at() == later(NOON, 1.0)
    (row,) = made.list_changed_rates()
    assert (row.name, row.key, row.until) == ("rate", "", later(NOON, 1.0))


def test_a_rate_that_was_kept_counts() -> None:
    row = RateRow(app="shop", agent="payments", name="rate", key="", begun=f"[[{NOON},2]]", until=later(NOON, 1.0))
    made = LimitBook(AgentLimitsRow(app="shop", agent="payments", limits=encode_limits((THREE,))), (), NOON)
    assert made.list_unknown_rates(["{}", None]) == [""]
    made.keep_rates([""], [row])
    assert made.list_unknown_rates(["{}", None]) == []
    assert made.count_room("{}") == 1


def test_the_full_limits_of_a_request_are_named_with_their_key() -> None:
    made = book(TWO, OF_MERCHANT, running=((keys("a"), 1),))
    assert made.list_full(keys("a")) == [(OF_MERCHANT, "a", 1)]
    assert made.list_full(keys("b")) == []


# --- declarations
def declared(known: AgentLimitsRow | None, *limits: LimitPolicy) -> AgentLimitsRow | None:
    return declare_limits(known, app="shop", agent="payments", limits=encode_limits(limits), process_no=7, now=NOON)


def test_an_agent_that_never_had_limits_gets_a_row_with_its_first_ones() -> None:
    assert declared(None) is None
    row = declared(None, TWO)
    assert row is not None
    assert (row.limits, row.process_no, row.has_keyless) == (encode_limits((TWO,)), 7, True)


def test_the_same_limits_again_change_nothing_and_others_do() -> None:
    row = declared(None, TWO)
    assert declared(row, TWO) is None
    changed = declared(row, TWO, OF_MERCHANT)
    assert changed is not None
    assert changed.limits == encode_limits((TWO, OF_MERCHANT))


def test_a_process_without_limits_takes_them_away() -> None:
    row = declared(declared(None, TWO))
    assert row is not None
    assert (row.limits, row.has_keyless) == ("[]", False)


def test_a_history_tells_keys_apart_without_showing_them() -> None:
    limits = encode_limits((TWO, OF_MERCHANT))
    one, other = hash_keys(limits, keys("4711")), hash_keys(limits, keys("4712"))
    assert one["concurrent"] == other["concurrent"] == ""
    assert one["of merchant"] != other["of merchant"]
    assert "4711" not in one["of merchant"]
