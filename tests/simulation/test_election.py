"""Leaders are lost, or there is no election at all: somebody leads soon again, and no safety hangs on it."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from arriero.audit.check import Violation
from lab.simulation.leaderless import LeaderlessWorld
from lab.simulation.losses import LOSSES, LossWorld
from lab.simulation.world import SETTINGS, World

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "arriero"
BREAKAGE = HERE / "breakages" / "recover_without_still_expired.patch"
SEEDS = 12  # without an election; `python -m lab.simulation --no-election` runs as many as one likes
LOST_TWICE = LOSSES * 2
AT_ONCE_SECONDS = 3 * SETTINGS.poll_seconds  # a poll that has just begun, the next one, and the requests


def events_of(world: World) -> list[dict[str, object]]:
    return [event for row in world.store.log for event in msgspec.json.decode(row.events)]


@pytest.mark.parametrize("seed", range(6))
def test_after_a_single_loss_somebody_leads_within_a_lease_a_poll_and_a_margin(seed: int) -> None:
    world = LossWorld(seed, LOST_TWICE)
    assert world.run().violations == []
    assert Counter(kind for kind, _ in world.gaps) == Counter(LOST_TWICE)
    granted = [event["term"] for event in events_of(world) if event["type"] == "lease.granted"]
    assert granted == list(range(1, len(granted) + 1))
    assert len(granted) > len(LOST_TWICE)


@pytest.mark.parametrize("seed", range(6))
def test_after_a_clean_stop_somebody_leads_at_once(seed: int) -> None:
    world = LossWorld(seed, ("stop", "stop"))
    assert world.run().violations == []
    assert max(gap for _, gap in world.gaps) < AT_ONCE_SECONDS


def test_without_an_election_every_invariant_holds_although_all_supervisors_act_at_once() -> None:
    together = decided = came_second = 0
    for seed in range(SEEDS):
        world = LeaderlessWorld(seed)
        result = world.run()
        assert not result.violations, f"{result.violations[:5]}; python -m lab.simulation --no-election --seeds {seed}"
        assert not [event for event in events_of(world) if event["type"] == "leader.refused"]
        decided += world.decided.total()
        came_second += world.came_second
        together += len(+world.decided) > 1
    assert together > SEEDS / 2, "Supervisors that do not act in the same world show nothing"
    assert came_second > decided / 4, "neither do decisions that never meet"


def test_without_an_election_a_guard_that_is_taken_away_is_missed(tmp_path: Path) -> None:
    # With the bytecode that is there: only patched modules are compiled again. Files that are being written are left out.
    shutil.copytree(SOURCE, tmp_path / "arriero", ignore=shutil.ignore_patterns("*.pyc.*"))
    subprocess.run(["git", "apply", "-p1", str(BREAKAGE)], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "lab.simulation", "--no-election", "--seeds", "0:100", "--stop-at-first"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 1, f"it went unnoticed: {told.stdout}{told.stderr}"
    assert "I24" in told.stdout


def test_the_oracle_convicts_two_that_believe_at_once_and_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LossWorld(1, ("crash",))
    assert world.election is not None
    monkeypatch.setattr("lab.simulation.election.TRUSTED_SHARE", 0.1)
    found = world.run().violations
    assert {violation.invariant for violation in found} == {"I36"}
    assert isinstance(found[0], Violation)
    patient = LossWorld(1, ("crash",))
    monkeypatch.undo()
    monkeypatch.setattr("lab.simulation.election.TAKE_OVER_MARGIN_SECONDS", -SETTINGS.leader_seconds)
    assert "I38" in {violation.invariant for violation in patient.run().violations}
