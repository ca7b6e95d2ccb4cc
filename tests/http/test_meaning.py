"""The table of what answers over HTTP mean."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero import InvalidInput
from arriero.http.meaning import Meaning, check_meanings, interpret_status, parse_retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.integers(100, 399), st.booleans())
def test_what_is_no_error_is_an_answer(status: int, has_retry_after: bool) -> None:
    assert interpret_status(status, has_retry_after=has_retry_after) is Meaning.ANSWER


@pytest.mark.parametrize("status", [408, 425, 429])
@pytest.mark.parametrize("has_retry_after", [True, False])
def test_what_the_server_gave_up_before_it_began_did_not_happen(status: int, has_retry_after: bool) -> None:
    assert interpret_status(status, has_retry_after=has_retry_after) is Meaning.TRANSIENT


def test_an_unavailable_service_did_nothing_only_if_it_says_when_to_come_again() -> None:
    assert interpret_status(503, has_retry_after=True) is Meaning.TRANSIENT
    assert interpret_status(503, has_retry_after=False) is Meaning.IN_DOUBT


@given(st.integers(400, 499).filter(lambda status: status not in (408, 425, 429)), st.booleans())
def test_any_other_error_of_the_caller_is_permanent(status: int, has_retry_after: bool) -> None:
    assert interpret_status(status, has_retry_after=has_retry_after) is Meaning.PERMANENT


@given(st.integers(500, 599).filter(lambda status: status != 503), st.booleans())
def test_any_other_error_of_the_server_is_in_doubt(status: int, has_retry_after: bool) -> None:
    assert interpret_status(status, has_retry_after=has_retry_after) is Meaning.IN_DOUBT


@given(st.integers(100, 599), st.sampled_from(Meaning), st.booleans())
def test_a_meaning_of_the_services_own_comes_first(status: int, meaning: Meaning, has_retry_after: bool) -> None:
    assert interpret_status(status, has_retry_after=has_retry_after, meanings={status: meaning}) is meaning


@pytest.mark.parametrize("status", [99, 600, "409", True, None])
def test_a_status_that_http_does_not_have_is_refused(status: object) -> None:
    with pytest.raises(InvalidInput, match="is no status of HTTP; give a number from 100 to 599"):
        check_meanings({status: "transient"})  # type: ignore[dict-item]


def test_a_meaning_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        InvalidInput, match="409 is 'retry'; give one of 'answer', 'transient', 'permanent', 'in_doubt'"
    ):
        check_meanings({409: "retry"})


@given(st.integers(0, 10**9))
def test_seconds_are_read_as_seconds(seconds: int) -> None:
    assert parse_retry_after(f" {seconds} ", NOW) == seconds


@given(st.integers(-(10**6), 10**6))
def test_a_date_is_read_as_the_seconds_until_then_and_one_that_has_passed_as_none_to_wait(seconds: int) -> None:
    text = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert parse_retry_after(text, NOW) == max(0, seconds)


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    wait = parse_retry_after(text, NOW)
    assert wait is None or wait >= 0


def test_none_and_nonsense_say_nothing() -> None:
    assert [parse_retry_after(text, NOW) for text in (None, "", "soon", "-1", "1e3", "²")] == [None] * 6
