"""The figures of the work `outage` of `bench/run.py`, with few requests: they differ from those of many only in how long all last."""

import json
import subprocess
import sys
from pathlib import Path

SIDE = Path(__file__).parents[2] / "bench" / "sides" / "arriero_side.py"


def test_an_outage_of_a_minute_costs_one_call_a_canary_interval_and_no_attempt(tmp_path: Path) -> None:
    side = subprocess.run([sys.executable, SIDE, "outage", tmp_path, "100"], check=True, capture_output=True, text=True)
    figures = json.loads(side.stdout)["figures"]
    assert figures["canaries an interval"] == 1
    assert 5 <= figures["canaries"] <= 6
    assert figures["charged"] == 0
    assert figures["before"] <= 4 * 20
    assert figures["under way"] <= 4 * 10  # the places of all processes
    assert 30 <= figures["full flow"] <= 31
    assert figures["first success"] <= 11
