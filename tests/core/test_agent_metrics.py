"""Counts of calls as values: what is added up, what is kept for how long, what a quantile is."""

import itertools
import random

import pytest
from agent_counts import sum_up

from arriero.core.agent_metrics import (
    BOUNDS_MS,
    BOUNDS_SECONDS,
    KEPT_MINUTES,
    MINUTE,
    WINDOWS,
    WRITABLE_MINUTES,
    AgentCounts,
    MinuteCounts,
    encode_counts,
    estimate_quantile,
    find_first_kept,
    find_minute,
    fold_counts,
    may_be_written,
    read_counts,
)
from arriero.inspection.facts import CountsRow
from arriero.model import Instant

NOW = Instant(28_000_000 * MINUTE + 30_000_000)
MINUTE_NOW = 28_000_000


def counts_of(*seconds: float, outcome: str = "succeeded") -> AgentCounts:
    counts = AgentCounts()
    for one in seconds:
        counts.add_call(outcome, one)
    return counts


def row(minutes_ago: int, calls: int, process_no: int = 1, agent: str = "bank", app: str = "shop") -> CountsRow:
    text = encode_counts({agent: counts_of(*[0.01] * calls)})
    return CountsRow(app=app, process_no=process_no, minute=MINUTE_NOW - minutes_ago, calls=calls, counts=text)


def test_neighbouring_bounds_differ_by_a_factor_of_two_at_most_and_grow() -> None:
    assert all(lower < upper <= 2 * lower for lower, upper in itertools.pairwise(BOUNDS_MS))
    assert (BOUNDS_SECONDS[0], BOUNDS_SECONDS[-1]) == (0.001, 300.0)


def test_a_call_is_in_the_bucket_of_the_first_bound_that_it_does_not_exceed() -> None:
    buckets = counts_of(0.0, 0.001, 0.0011, 300.0, 301.0).list_buckets()
    assert (buckets[0], buckets[1], buckets[-2], buckets[-1]) == (2, 1, 1, 1)
    assert sum(buckets) == 5


def test_what_is_added_up_in_any_order_is_the_same_and_what_is_written_is_read() -> None:
    source = random.Random(7)
    parts = [counts_of(*[source.expovariate(2) for _ in range(50)]) for _ in range(5)]
    forth, back = AgentCounts(), AgentCounts()
    for part in parts:
        forth.add_counts(part)
    for part in reversed(parts):
        back.add_counts(read_counts(encode_counts({"bank": part}))["bank"])
    assert (forth.outcomes, forth.buckets) == (back.outcomes, back.buckets)
    assert forth.seconds == pytest.approx(back.seconds)
    assert forth.calls == 250


def test_one_agent_is_read_alone() -> None:
    text = encode_counts({"bank": counts_of(1.0), "post": counts_of(2.0)})
    assert read_counts(text, "post") == {"post": counts_of(2.0)}
    assert read_counts(text, "nobody") == {}


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[1]", '{"bank":3}', '{"bank":{"outcomes":{"succeeded":"x"}}}', "null"]
)
def test_what_cannot_be_read_counts_as_no_call(text: str) -> None:
    assert read_counts(text) == {}
    assert read_counts(text, "bank") == {}


def test_bounds_and_fields_of_a_later_release_are_read_all_the_same() -> None:
    text = '{"bank":{"outcomes":{"succeeded":2},"buckets":{"4":1,"999999":1},"later":true}}'
    buckets = read_counts(text)["bank"].list_buckets()
    assert (buckets[BOUNDS_MS.index(5)], buckets[-1]) == (1, 1)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_quantile_is_off_by_the_width_of_its_bucket_at_most(share: float) -> None:
    source = random.Random(3)
    seconds = sorted(source.lognormvariate(-2, 1) for _ in range(2_000))
    exact = seconds[int(share * len(seconds)) - 1]
    found = estimate_quantile(counts_of(*seconds).list_buckets(), share)
    assert found is not None
    assert exact / 2 < found < exact * 2


def test_quantiles_at_the_edges() -> None:
    assert estimate_quantile(AgentCounts().list_buckets(), 0.5) is None
    assert estimate_quantile(counts_of(1_000.0).list_buckets(), 0.5) == 300.0
    assert estimate_quantile(counts_of(0.05).list_buckets(), 1.0) == 0.05
    assert estimate_quantile(counts_of(0.0005).list_buckets(), 0.5) == 0.0005


def test_each_window_holds_its_minutes_and_the_one_that_has_begun() -> None:
    rows = [row(0, 1), row(1, 2), row(2, 4), row(10, 8), row(11, 16), row(60, 32), row(61, 64)]
    total = CountsRow(app="shop", process_no=0, minute=0, calls=128, counts=row(0, 128).counts)
    found = sum_up([*rows, total], NOW)["shop", "bank"]
    assert dict(zip(WINDOWS, [window.calls for window in found.recent], strict=True)) == {1: 3, 10: 15, 60: 63}
    assert found.total.calls == 255


def test_a_minute_ahead_of_the_clock_is_recent() -> None:
    assert sum_up([row(-5, 3)], NOW)["shop", "bank"].recent[0].calls == 3


def test_processes_are_added_up_and_apps_are_not() -> None:
    found = sum_up([row(0, 1), row(0, 2, process_no=2), row(0, 4, app="depot"), row(0, 8, agent="post")], NOW)
    assert {key: counts.total.calls for key, counts in found.items()} == {
        ("shop", "bank"): 3,
        ("depot", "bank"): 4,
        ("shop", "post"): 8,
    }
    assert set(sum_up([row(0, 1), row(0, 8, agent="post")], NOW, "post")) == {("shop", "post")}


def test_a_minute_is_folded_only_when_it_is_in_no_window_and_nobody_may_write_it() -> None:
    kept = find_first_kept(NOW)
    assert find_minute(NOW) - kept == KEPT_MINUTES > max(WINDOWS)
    assert not may_be_written(kept, NOW)
    assert may_be_written(find_minute(NOW) - WRITABLE_MINUTES, NOW)
    assert not may_be_written(find_minute(NOW) - WRITABLE_MINUTES - 1, NOW)
    assert may_be_written(find_minute(NOW), NOW)
    assert KEPT_MINUTES - WRITABLE_MINUTES >= 10


def test_the_sum_holds_what_was_folded() -> None:
    total = CountsRow(app="shop", process_no=0, minute=0, calls=5, counts=row(0, 5).counts)
    folded = fold_counts(total, [row(70, 1), row(71, 2, agent="post")])
    assert (folded.process_no, folded.minute, folded.calls) == (0, 0, 8)
    assert {agent: counts.calls for agent, counts in read_counts(folded.counts).items()} == {"bank": 6, "post": 2}


def test_each_of_the_last_minutes_is_read_by_itself_and_what_is_older_or_lies_ahead_is_left_out() -> None:
    now = Instant(1_000 * MINUTE + 5)
    counts = MinuteCounts(now, "bank")
    for process, minute in ((1, 1_000), (2, 1_000), (1, 999), (1, 940), (1, 939), (1, 1_001), (0, 0)):
        of_agents = {"bank": AgentCounts({"succeeded": 1}), "other": AgentCounts({"succeeded": 9})}
        counts.add_row(
            CountsRow(app="shop", process_no=process, minute=minute, calls=10, counts=encode_counts(of_agents))
        )
    (minutes,) = counts.read().values()
    assert counts.first_minute == 940
    assert {number: one.calls for number, one in enumerate(minutes, 940) if one.calls} == {940: 1, 999: 1, 1_000: 2}
