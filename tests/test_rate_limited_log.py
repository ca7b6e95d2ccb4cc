"""Which lines of the log are written when thousands come alike, and that their number is told."""

import logging

import pytest

from arriero.system.rate_limited_log import KINDS_MAX, LINES_MAX, WINDOW_SECONDS, RateLimitedLog, Repeats


def test_the_first_lines_of_a_kind_are_written_and_then_one_with_the_number_of_the_rest() -> None:
    repeats = Repeats()
    written = [line for number in range(10_000) for line in repeats.offer("a", f"line {number}", 100.0)]
    assert written == [f"line {number}" for number in range(LINES_MAX)]
    assert repeats.due(100.0 + WINDOW_SECONDS - 0.1) == []
    assert repeats.due(100.0 + WINDOW_SECONDS) == [
        f"line 9999; and {10_000 - LINES_MAX - 1:,} more like it in the last 30 s"
    ]
    assert repeats.due(1_000.0) == []


def test_an_outage_of_an_hour_gives_a_few_lines_a_minute_and_every_line_is_counted() -> None:
    repeats = Repeats()
    written: list[str] = []
    for tenth in range(36_000):
        written += repeats.offer("a", "refused", 100.0 + tenth / 10)
    written += repeats.rest()
    assert len(written) <= LINES_MAX + 3_600 / WINDOW_SECONDS
    more = sum(int(line.split("and ")[1].split(" more")[0]) for line in written if "more like it" in line)
    assert more + len(written) == 36_000


def test_kinds_do_not_hide_one_another() -> None:
    repeats = Repeats()
    for _ in range(100):
        repeats.offer("a", "loud", 100.0)
    assert repeats.offer("b", "quiet", 100.0) == ["quiet"]


def test_after_a_quiet_time_lines_are_written_at_once_again() -> None:
    repeats = Repeats()
    for _ in range(LINES_MAX):
        repeats.offer("a", "before", 100.0)
    assert repeats.offer("a", "later", 100.0 + WINDOW_SECONDS) == ["later"]
    for _ in range(100):
        repeats.offer("a", "again", 100.0 + WINDOW_SECONDS)
    assert len(repeats.due(1_000.0)) == 1
    assert repeats.due(2_000.0) == []
    assert repeats.offer("a", "much later", 2_000.0) == ["much later"]


def test_one_line_that_was_left_out_is_written_as_it_is() -> None:
    repeats = Repeats()
    for number in range(LINES_MAX + 1):
        repeats.offer("a", f"line {number}", 100.0)
    assert repeats.rest() == [f"line {LINES_MAX}"]
    assert repeats.rest() == []


def test_so_many_kinds_are_remembered_and_what_is_forgotten_is_told() -> None:
    repeats = Repeats()
    for _ in range(LINES_MAX + 2):
        repeats.offer(0, "the oldest", 100.0)
    told = [line for kind in range(1, 2 * KINDS_MAX) for line in repeats.offer(kind, "line", 100.0) if line != "line"]
    assert told == ["the oldest; and 1 more like it in the last 30 s"]


def test_the_log_gets_what_is_due_and_the_rest_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    at = 100.0
    log = RateLimitedLog(logging.getLogger("arriero"), lambda: at)
    for _ in range(LINES_MAX + 3):
        log.tell("a", "100 % refused")
    at += WINDOW_SECONDS
    log.flush()
    log.flush()
    for _ in range(2):
        log.tell("a", "100 % refused")
    log.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(caplog.records)
    assert caplog.messages[LINES_MAX] == "100 % refused; and 2 more like it in the last 30 s"
    assert caplog.messages[0] == "100 % refused"
