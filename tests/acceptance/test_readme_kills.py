"""The program of the README dies by SIGKILL at every point and is run again: each order is done or undone, the books balance."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from arriero.cli.main import commands

pytestmark = pytest.mark.acceptance
PROGRAM = Path(__file__).parents[2] / "examples" / "quickstart" / "quickstart.py"
COMMITS = 10  # a whole run makes at least as many

# Order 1001 charges and reserves, 1002 charges, fails to reserve and refunds. Each kill is one process of a row.
STEPS = [(f"{side}_send:{nth}",) for side in ("before", "after") for nth in (1, 2, 3, 4)]
UNDO = [("before_undo_send:1",), ("after_undo_send:1",)]  # the refund
# A reservation in doubt is released, too: then the kill is in the undo of either step.
UNDO_OF_DOUBT = [
    (f"{side}_send:4", f"{moment}_undo_send:{nth}")
    for side in ("before", "after")
    for moment in ("before", "after")
    for nth in (1, 2)
]
REPEATED = [("after_send:1",) * 2, ("after_undo_send:1",) * 2]
SUBMISSIONS = [(f"{moment}_submit_commit:{nth}",) for moment in ("before", "after") for nth in (1, 2)]
REPORTS = [(f"{moment}_commit:{nth}",) for moment in ("before", "after") for nth in range(1, COMMITS + 1)]


def run(folder: Path, crash_at: str | None = None) -> subprocess.CompletedProcess[str]:
    """Each line is written when it is printed: a line is an effect on a service, and survives the process."""
    env = os.environ | {"PYTHONUNBUFFERED": "1"} | ({"ARRIERO_CRASH_AT": crash_at} if crash_at else {})
    return subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def find_faults(effects: str) -> list[str]:
    """What is wrong with the books of both services, which count each key once."""
    faults = []
    keys = {
        order: set(re.findall(rf"^charge {order} under (\w+)$", effects, re.MULTILINE)) for order in ("1001", "1002")
    }
    faults += [f"order {order} is charged under {len(under)} keys" for order, under in keys.items() if len(under) != 1]
    for expected in "reserve 2 for 1001", "refund receipt-1002":
        if expected not in effects.splitlines():
            faults.append(f"nothing says {expected!r}")
    faults += re.findall(r"^refund .*1001.*|^release .*1001.*|^reserve .*1002.*", effects, re.MULTILINE)
    return faults


@pytest.mark.parametrize("kills", [*STEPS, *UNDO, *UNDO_OF_DOUBT, *REPEATED, *SUBMISSIONS, *REPORTS], ids="-".join)
def test_each_order_is_done_or_undone_after_kills_and_another_run(kills: tuple[str, ...], tmp_path: Path) -> None:
    effects = ""
    for crash_at in kills:
        killed = run(tmp_path, crash_at)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        effects += killed.stdout
    last = run(tmp_path)
    assert last.returncode == 0, last.stderr
    answers = [line for line in last.stdout.splitlines() if line.startswith("100")]
    assert answers == ["1001 receipt-1001", "1002 undone: out of stock"]
    assert find_faults(effects + last.stdout) == []
    store = f"sqlite:///{tmp_path}/arriero.db"
    history = CliRunner().invoke(commands, ["export", "--store", store], catch_exceptions=False)
    checked = CliRunner().invoke(commands, ["check", "-"], input=history.stdout_bytes, catch_exceptions=False)
    assert (checked.exit_code, checked.stdout.partition(":")[0]) == (0, "clean"), checked.stdout
