"""The recording of the README holds lines of the program and of the engine as they are today, and is drawn from them."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from core_rows import NOW, step_row, task_row

from arriero.explain.failure_lines import describe_lost_attempt
from arriero.model import StepState

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECORDING = runpy.run_path(str(ROOT / "docs" / "recording.py"))
DRAWN = (ROOT / "docs" / "recording.svg").read_text(encoding="utf-8")


@pytest.fixture
def lines() -> list[Any]:
    return list(RECORDING["read"](DRAWN))


def list_texts(lines: list[Any], pane: str) -> list[str]:
    return [line.text for line in lines if line.pane == pane]


def without_key(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{32}\b", "KEY", text)


def test_the_recording_is_drawn_from_the_lines_that_it_holds(lines: list[Any]) -> None:
    assert len(lines) > 10
    assert RECORDING["draw"](lines) == DRAWN


def test_the_recording_shows_the_commands_that_make_it(lines: list[Any]) -> None:
    assert [line.text for line in lines if line.text.startswith("$ ")] == [
        f"$ {RECORDING[name]}" for name in ("KILLED", "CLIENT", "SURVIVOR")
    ]


def test_both_workers_charge_under_one_key_and_the_second_one_refunds(lines: list[Any]) -> None:
    (program,) = re.findall(r"^```text\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    promised = [line for line in without_key(program).splitlines() if re.match(r"charge 1002|refund", line)]
    by_killed, by_survivor = list_texts(lines, "killed"), list_texts(lines, "survivor")
    printed = [line for line in by_survivor if without_key(line) in promised]
    assert [without_key(line) for line in printed] == promised
    assert by_killed[-2:] == [printed[0], "Killed"]


def test_the_second_worker_logs_the_loss_in_the_words_of_the_engine(lines: list[Any]) -> None:
    step = step_row(name="charge", state=StepState.PENDING, attempt=1, not_before=NOW)
    lost = describe_lost_attempt(step, task_row(task_id="1002"), 1, NOW).says
    assert f"WARNING arriero: {lost}" in list_texts(lines, "survivor")


def test_no_line_of_the_recording_is_too_long_to_be_drawn(lines: list[Any]) -> None:
    rows = [row for line in lines for row in RECORDING["split_into_rows"](line.text)]
    assert max(map(len, rows)) <= RECORDING["COLUMNS"] + 1  # a space at the end is not seen
