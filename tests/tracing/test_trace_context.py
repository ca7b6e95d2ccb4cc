"""W3C Trace Context: what is read, what is refused, and ids that every process computes alike."""

import pytest

from arriero.errors import InvalidInput
from arriero.model.trace_context import (
    SpanIds,
    TraceContext,
    check_trace_headers,
    encode_trace_context,
    parse_headers,
    read_trace_context,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KNOWN_SPANS = [2104219779551106179, 15320057971229273043, 4589513737313384454]
KNOWN_TRACE = 0xC523DC9B624C9A06C7C21D985DE20D71
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_header_is_read_and_told_again_as_it_was() -> None:
    found = parse_headers(GOOD, "vendor=a, other=b")
    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), True, "vendor=a, other=b")
    assert found.headers == {"traceparent": GOOD, "tracestate": "vendor=a, other=b"}
    assert read_trace_context(encode_trace_context(found)) == found


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\r\nX-Evil: 1",
    ],
)
def test_what_the_specification_says_to_ignore_is_no_context_and_refused_from_a_caller(header: str) -> None:
    assert parse_headers(header) is None
    with pytest.raises(InvalidInput, match="traceparent"):
        check_trace_headers(header, None)


def test_a_later_version_may_have_more_fields() -> None:
    assert parse_headers(f"01-{TRACE}-{SPAN}-01-more") is not None


@pytest.mark.parametrize("state", ["x" * 513, "a=\n", "a=\x7f", "ü=1"])
def test_a_tracestate_that_cannot_be_a_header_is_left_out(state: str) -> None:
    found = parse_headers(GOOD, state)
    assert found is not None
    assert found.state == ""


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_only_the_sampled_flag_is_read(flags: str, is_sampled: bool) -> None:
    found = parse_headers(f"00-{TRACE}-{SPAN}-{flags}")
    assert found is not None
    assert found.is_sampled is is_sampled


def test_ids_differ_by_everything_that_they_are_made_of_and_by_nothing_else() -> None:
    stores = [SpanIds("a"), SpanIds("b")]
    spans = [
        derive(number, more)
        for ids in stores
        for derive in (ids.derive_task, ids.derive_step, ids.derive_attempt)
        for number in (*range(100), *(number << 20 for number in range(1, 100)), 2**62)
        for more in range(5)
    ]
    assert len(set(spans)) == len(spans)
    assert min(spans) > 0
    assert max(spans) < 2**64
    assert SpanIds("a").derive_task(1, 1) == stores[0].derive_task(1, 1)
    assert 0 < stores[0].derive_trace("order-1") < 2**128
    assert stores[0].derive_trace("order-1") != stores[1].derive_trace("order-1")
    assert stores[0].derive_trace("order-\udc80") > 0


def test_ids_stay_the_same_over_releases_because_processes_of_two_of_them_work_side_by_side() -> None:
    ids = SpanIds("store")
    assert [ids.derive_task(1, 1), ids.derive_step(1, 1), ids.derive_attempt(1, 1)] == KNOWN_SPANS
    assert ids.derive_trace("order-1") == KNOWN_TRACE


def test_a_caller_who_gives_no_header_gives_no_trace() -> None:
    assert check_trace_headers(None, None) is None
    assert check_trace_headers(GOOD, "a=b") == f"{GOOD} a=b"
    with pytest.raises(InvalidInput):
        check_trace_headers(1, None)
