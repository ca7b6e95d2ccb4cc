"""`arriero demo --supervisors`: the leading Supervisor is killed again and again, and the books balance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.orders.demo import run_demo
from examples.orders.election import (
    LEADER_KILLS,
    ElectionReport,
    as_election_figures,
    describe_election,
    find_election_problems,
)

LEADER_SECONDS = 1.5


@pytest.mark.acceptance
def test_three_supervisors_whose_leader_is_killed_three_times_balance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARRIERO_LEADER_SECONDS", str(LEADER_SECONDS))
    store = f"sqlite:///{tmp_path / 'tasks.sqlite'}"
    done = run_demo(orders=80, kills=1, processes=2, store=store, supervisors=3, as_json=True)
    captured = capsys.readouterr()
    assert done == 0, captured
    figures = json.loads(captured.out)
    told = figures["election"]
    assert (told["supervisors"], told["leader_kills"]) == (3, LEADER_KILLS)
    assert told["leader_changes"] >= LEADER_KILLS
    assert told["longest_gap_seconds"] > 0
    assert figures["faults_fired"]["leader_killed"] == LEADER_KILLS
    assert "leader_killed" in figures["faults_planned"]
    assert captured.err.count("is killed") == LEADER_KILLS


def test_the_report_says_how_often_the_leader_changed_and_the_longest_gap() -> None:
    report = ElectionReport(supervisors=3, kills=3, changes=4, longest_gap_seconds=6.04)
    assert list(describe_election(report)) == [
        "election: 3 Supervisors, the leading one killed 3 of 3 times; the leader changed 4 times, nobody led for 6.0 s at most"
    ]
    assert as_election_figures(report) == {
        "supervisors": 3,
        "leader_kills": 3,
        "leader_kills_planned": 3,
        "leader_changes": 4,
        "longest_gap_seconds": 6.04,
    }


def test_kills_that_did_not_happen_are_a_problem() -> None:
    assert find_election_problems(None) == ()
    assert find_election_problems(ElectionReport(3, 3, 3, 1.0)) == ()
    (problem,) = find_election_problems(ElectionReport(3, 1, 1, 1.0))
    assert problem == "only 1 of 3 kills found a Supervisor that led"
