"""The diagrams in ARCHITECTURE.md are the tables in core/states.py, no move more and none less."""

import re
from pathlib import Path

from arriero.core.states import STEP_MOVES, TASK_MOVES

PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"

Edges = list[tuple[str, str, str]]


def diagrams() -> list[Edges]:
    """(from, to, event) of every arrow with an event, for each state diagram of the page."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [sorted(re.findall(r"^ +(\w+) --> (\w+): (\w+)$", block, flags=re.MULTILINE)) for block in blocks]


def test_the_diagram_of_a_task_is_its_table() -> None:
    assert diagrams()[0] == sorted((str(state), str(to), str(event)) for (state, event), to in TASK_MOVES.items())


def test_the_diagram_of_a_step_is_its_table() -> None:
    assert diagrams()[1] == sorted((str(state), str(to), str(event)) for (state, event), to in STEP_MOVES.items())


def test_every_line_of_a_diagram_is_an_arrow_that_was_compared() -> None:
    """A line spelled in another way would be drawn and not compared."""
    text = PAGE.read_text(encoding="utf-8")
    drawn = [line for line in text.splitlines() if "-->" in line and not line.strip().startswith("[*]")]
    assert len(drawn) == sum(map(len, diagrams())) == len(TASK_MOVES) + len(STEP_MOVES)
