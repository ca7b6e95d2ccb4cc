"""What to look at after the demonstration: commands on what it left, and what to read."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from arriero.text.escaping import mask_url

from .turns import Life

PROGRAM = "arriero"
UNDONE = "compensated"


def next_steps(url: str | None, lives: Mapping[str, Life], kept: str = "What happened is kept.") -> Iterator[str]:
    """Lines for people.

    Args:
        url: of the store that was kept; None: nothing was.
        lives: of its tasks, by order.
        kept: a sentence that says how long the store is kept.
    """
    yield ""
    if url is None:
        yield f"Nothing was kept. To look into it: {_program()} demo --keep FOLDER"
    else:
        yield f"{kept} Look into it:"
        yield from (f"  {command}" for command in commands(url, lives))
    yield "Then read examples/orders/shop.py, which is all that its user writes, and docs/tutorial.md: your first task, your"
    yield "first undo, your first resubmission, in a quarter of an hour."


def commands(url: str, lives: Mapping[str, Life]) -> Iterator[str]:
    """Lines for a shell, each with what it shows. A password in the URL is masked."""
    yield f"export ARRIERO_STORE={shlex.quote(mask_url(url))}"
    undone = next((order for order, life in sorted(lives.items()) if life.state == UNDONE), None)
    yield f"{_program()} task list --state {UNDONE}    # which orders were undone, and why"
    if undone is not None:
        order = shlex.quote(undone)
        yield f"{_program()} history {order}    # each attempt, each failure and each undo of one of them"
        yield f"{_program()} task show {order}    # its steps, and what is known of each"
    yield f"{_program()} doctor    # whether it is one task, or everything"


def _program() -> str:
    """As it was started here, so that the lines can be copied."""
    started = Path(sys.argv[0])
    return shlex.quote(sys.argv[0]) if started.name == PROGRAM else PROGRAM
