"""Text from outside is read in time that grows with its length, and no faster."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from arriero.core.replay_hints import suggest_source
from arriero.explain.outages import failure_kind
from arriero.http.meaning import parse_retry_after
from arriero.model.failures import StepFailure
from arriero.model.trace_context import check_trace_headers, parse_headers
from arriero.payloads.codec import measure_depth
from arriero.system.traceback_capture import _mask_secrets
from arriero.text.escaping import escape_json, escape_text, shell_word

LENGTHS = (1_000, 8_000)
GROWTH_MAX = 24  # of eight times the text: linear work takes 8 times as long, quadratic work 64 times
SURE_SECONDS = 0.004  # what took less has not grown
PIECES = (
    '\\"',
    '"',
    "'",
    "\\",
    "[",
    "://a:",
    "://",
    "@",
    "pass",
    "pass=",
    "a",
    "0",
    "-",
    ".",
    " ",
    "\n",
    "deadbeef",
    "00-",
)


def suggest(text: str) -> str:
    return suggest_source(f'["{text}"]', '["x"]')


def classify(text: str) -> Any:
    return failure_kind(StepFailure(cause="permanent", code="", message=text))


# Not those of URLs and options: they are the operator's own.
READERS: dict[str, Callable[[str], Any]] = {
    "depth of JSON": lambda text: measure_depth(text.encode()),
    "depth of JSON in a text": lambda text: measure_depth(b'"' + text.encode()),
    "hints of a replay": suggest,
    "escaped text": escape_text,
    "escaped JSON": escape_json,
    "word of a shell": shell_word,
    "kind of a failure": classify,
    "Retry-After": lambda text: parse_retry_after(text, None, datetime(2026, 1, 1)),
    "traceparent": parse_headers,
    "tracestate": lambda text: check_trace_headers(f"00-{1:032x}-{1:016x}-01", text),
    "line of source": _mask_secrets,
}


def measure(read: Callable[[str], Any], text: str) -> float:
    """The least CPU time of three readings, in seconds."""
    took = []
    for _ in range(3):
        began = time.thread_time()
        read(text)
        took.append(time.thread_time() - began)
    return min(took)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", READERS)
def test_eight_times_the_text_takes_about_eight_times_as_long(name: str, piece: str) -> None:
    read = READERS[name]
    for end in ("", "!", "\\"):
        short, long = (piece * (length // len(piece)) + end for length in LENGTHS)
        took = measure(read, long)
        if took > SURE_SECONDS:
            assert took < GROWTH_MAX * measure(read, short), f"{piece!r} to {end!r}: {took:.3f} s"
