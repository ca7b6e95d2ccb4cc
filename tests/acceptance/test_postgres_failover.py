"""The primary dies twice under load, in the middle of commits: nothing acknowledged is lost, nobody is restarted.

All of it is ``examples/failover``; here stands what must come out of it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from postgres_servers import USUAL, describe_missing

from arriero.testing.postgres import installations

pytestmark = pytest.mark.acceptance
RUN = Path(__file__).parents[2] / "examples" / "failover" / "run.py"
SECONDS_MAX = 900  # a hint that it hangs, not a measure
ROUNDS = 2  # to the standby and back; make torture runs twenty
SUBMISSIONS = 150  # acknowledged before each kill; make torture waits for 500


def figures_of(*options: str) -> tuple[int, dict[str, Any]]:
    """Run the example: its exit code and what it printed."""
    if USUAL not in installations():
        pytest.skip(describe_missing(USUAL))
    command = [sys.executable, str(RUN), "--json", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_fail_overs_under_load_lose_nothing_that_was_acknowledged() -> None:
    code, figures = figures_of("--rounds", str(ROUNDS), "--submissions", str(SUBMISSIONS))
    told = json.dumps(figures, indent=2)
    assert len(figures["rounds"]) == ROUNDS, told
    for each in figures["rounds"]:
        assert each["acknowledged_before"] >= SUBMISSIONS, told
        assert each["in_flight"] > 0, told
        assert each["commits_in_flight"] > 0, told
        assert (each["lost"], each["gone_back"]) == (0, 0), told
    assert (figures["doubled"], figures["restarts_needed"]) == (0, 0), told
    assert set(figures["states"]) == {"processed"}, told
    assert figures["is_history_clean"], told
    assert (code, figures["problems"]) == (0, []), told


def test_a_primary_that_does_not_wait_for_its_standby_is_found_out() -> None:
    code, figures = figures_of("--submissions", "100", "--break", "synchronous")
    assert code == 1
    assert figures["lost"] > 0, json.dumps(figures, indent=2)
