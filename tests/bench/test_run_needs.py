"""`bench/run.py` looks for what it needs before it measures, and a run that ends early keeps its rows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import run
from works import WORKS

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(run.main, ["--runs", "2", *arguments])


def turn_of(work: Any) -> run.Turn:
    return run.Turn({name: 0.0 if name in work.zero else 1.0 for name in work.figures}, {"python": "3"})


def test_a_missing_postgresql_is_named_with_the_remedy_before_anything_is_measured() -> None:
    command = [sys.executable, "bench/run.py", "--postgres", "99", "--work", "w1", "--peers", ""]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("postgres: PostgreSQL 99 is not on this machine")
    assert done.stderr.endswith("; or leave it out with --stores sqlite\n")
    assert "Traceback" not in done.stderr


def test_every_missing_thing_has_a_line_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def find(side: str) -> Path:
        if side == "dbos":
            raise run.NotInstalled("pip failed")
        return Path(sys.executable)

    monkeypatch.setattr(run, "python_of", find)
    monkeypatch.setattr(run, "take_turn", lambda *_: pytest.fail("it measures"))
    target = tmp_path / "none" / "rows.json"
    done = bench("--stores", "sqlite", "--work", "w1", "--peers", "dbos,restate", "--json", str(target))
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        f"--json: the folder {target.parent} does not exist",
        "dbos: not installed: pip failed; or leave it out with --peers 'restate'",
    ]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyboardInterrupt(), "interrupted: the rows are those of the turns before"),
        (OSError(28, "no space left"), "ended early, the rows are those of the turns before: [Errno 28] no space left"),
    ],
)
def test_a_run_that_ends_early_keeps_the_rows_of_the_turns_before(
    error: BaseException, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken = 0

    def take(_python: Path, _program: str, work: Any, *_: object) -> run.Turn:
        nonlocal taken
        taken += 1
        if taken == 2:
            raise error
        return turn_of(work)

    monkeypatch.setattr(run, "take_turn", take)
    target = tmp_path / "rows.json"
    done = bench("--stores", "sqlite", "--work", "w1", "--peers", "", "--json", str(target))
    assert done.exit_code == 1
    assert line in done.stderr.splitlines()
    rows = json.loads(target.read_text())
    figures = next(work.figures for work in WORKS if work.name == "w1")
    assert [row["figure"] for row in rows] == list(figures)


def test_a_server_that_dies_fails_the_sides_on_it_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Dead:
        pid = 1

        def create_database(self, _name: str) -> str:
            raise psycopg.OperationalError("connection refused")

    really = run.take_turn

    def take(python: Path, program: str, work: Any, store: str, *more: Any) -> run.Turn:
        return really(python, program, work, store, *more) if store == "postgres" else turn_of(work)

    monkeypatch.setattr(run, "start_server", lambda *_: Dead())
    monkeypatch.setattr(run, "take_turn", take)
    target = tmp_path / "rows.json"
    done = bench("--work", "w1", "--peers", "", "--json", str(target))
    assert done.exit_code == 1
    assert "PostgreSQL does not answer: connection refused" in done.stderr
    assert "Traceback" not in done.stderr
    assert {row["store"] for row in json.loads(target.read_text())} == {"sqlite"}
