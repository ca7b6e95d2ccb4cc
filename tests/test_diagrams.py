"""The diagrams of a task and of a step are the tables in core/states.py, no move more and none less."""

import re
from pathlib import Path

import pytest

from arriero.core.states import STEP_MOVES, TASK_MOVES

ROOT = Path(__file__).parents[1]
OF_A_TASK = ROOT / "ARCHITECTURE.md"
OF_A_STEP = ROOT / "docs" / "internals" / "states.md"

Edges = list[tuple[str, str, str]]


def diagram(page: Path) -> Edges:
    """(from, to, event) of every arrow with an event in the page's one state diagram."""
    text = page.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return sorted(re.findall(r"^ +(\w+) --> (\w+): (\w+)$", block, flags=re.MULTILINE))


def test_the_diagram_of_a_task_is_its_table() -> None:
    assert diagram(OF_A_TASK) == sorted((str(state), str(to), str(event)) for (state, event), to in TASK_MOVES.items())


def test_the_diagram_of_a_step_is_its_table() -> None:
    assert diagram(OF_A_STEP) == sorted((str(state), str(to), str(event)) for (state, event), to in STEP_MOVES.items())


@pytest.mark.parametrize("page", [OF_A_TASK, OF_A_STEP], ids=lambda page: page.name)
def test_every_line_of_a_diagram_is_an_arrow_that_was_compared(page: Path) -> None:
    """A line in another notation would be drawn and not compared."""
    drawn = [line for line in page.read_text(encoding="utf-8").splitlines() if "-->" in line]
    assert len([line for line in drawn if not line.strip().startswith("[*]")]) == len(diagram(page))
