"""A process under attack by all kinds of hostile callers: what is true of it on any machine. The figures are bench/hostile.py's."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from hostile import KINDS, STORES, compute_p99, run_store

LEASE_SECONDS = 60.0  # how late a renewal may come on a busy machine is no question of this test


def test_the_99th_percentile_leaves_one_of_a_hundred_above_it() -> None:
    assert compute_p99([float(value) for value in range(1, 101)]) == 99.0
    assert compute_p99([1.0]) == 1.0
    assert compute_p99([]) == math.inf


@pytest.mark.acceptance
@pytest.mark.parametrize("store", STORES)
def test_a_process_under_attack_answers_for_its_health_keeps_its_lease_and_writes_little_log(store: str) -> None:
    figures = run_store(store, seconds=3, connections=20, kinds=list(KINDS), lease_seconds=LEASE_SECONDS)
    assert figures["health asked"] > 0
    assert figures["health unanswered"] == 0
    assert figures["lapses of the lease"] == 0
    assert figures["w1 under attack, tasks/s"] > 0
    assert figures["log, kB"] < 200
