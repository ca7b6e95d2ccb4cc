"""How far the four ways of `bench/walk.py` lead through the code, so that no way grows unseen."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
MODULES_AND_CALLS = {
    "submit": (30, 76),
    "begin": (57, 203),
    "next": (50, 186),
    "pause": (62, 350),
}  # lower them with each way
SLACK = 1.04  # another Python, or a machine so slow that every way meets a check by the clock


def test_no_way_leads_through_more_of_the_code_than_it_did(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    # In a process of its own: its functions are counted in all threads.
    subprocess.run([sys.executable, BENCH / "walk.py", "--json", figures], check=True, stdout=subprocess.DEVNULL)
    counted = json.loads(figures.read_text())
    assert set(counted) == set(MODULES_AND_CALLS)
    for way, (modules, calls) in MODULES_AND_CALLS.items():
        assert counted[way]["modules"] <= modules * SLACK, way
        assert counted[way]["calls"] <= calls * SLACK, way
