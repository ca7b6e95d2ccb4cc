"""Text and tables at the width of a terminal: what is to be copied stays whole, and no line breaks a word without need."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cli_calls import SECONDS_MAX, Call
from hypothesis import given
from hypothesis import strategies as st

from arriero import TaskFailed
from arriero.cli.output import display_width, fold, format_table, wrap

LONG = "order-2026-11-23-01J9ZK3M5Q7R8S9T0V1W2X3Y4Z-customer-000042"
words = st.lists(st.text("abcÄ日 -", min_size=1, max_size=30), max_size=20).map(" ".join)


@given(words, st.integers(10, 100), st.integers(0, 8))
def test_wrapped_lines_fit_unless_they_are_one_word_and_hold_the_same_words(
    text: str, width: int, hanging: int
) -> None:
    lines = wrap(text, width, hanging=hanging)
    assert " ".join(lines).split() == text.split()
    assert all(display_width(line) <= width or len(line.split()) == 1 for line in lines)


@given(words, st.integers(2, 40))
def test_folded_lines_always_fit(text: str, width: int) -> None:
    assert all(display_width(line) <= width for line in fold(text, width))
    assert "".join(fold(text, width)).replace(" ", "") == text.replace(" ", "")


def test_a_command_is_not_broken() -> None:
    text = "do it: `arriero convoy release customer-7 --reason TEXT`, or start one (arriero run MODULE:APP)"
    assert wrap(text, 40) == [
        "do it:",
        "`arriero convoy release customer-7 --reason TEXT`,",
        "or start one (arriero run MODULE:APP)",
    ]


def test_a_table_that_fits_is_a_table_and_its_sentences_are_broken_between_words() -> None:
    rows = [("1", "o-1", "2026-11-23 17:47:13Z", "TimeoutError: the bank did not answer")]
    assert format_table(("no", "id", "submitted", "reason"), rows, 80) == [
        "no  id   submitted             reason",
        "1   o-1  2026-11-23 17:47:13Z  TimeoutError: the bank did not answer",
    ]
    assert format_table(("no", "id", "submitted", "reason"), rows, 57) == [
        "no  id   submitted             reason",
        "1   o-1  2026-11-23 17:47:13Z  TimeoutError: the bank did",
        "                               not answer",
    ]


def test_a_table_too_narrow_for_its_ids_becomes_blocks_with_whole_ids() -> None:
    rows = [("1", LONG, "error", "it did not answer"), ("2", "o-2", "processed", "")]
    assert format_table(("no", "id", "state", "reason"), rows, 70) == [
        f"no 1  id {LONG}",
        "  state error  reason it did not answer",
        "no 2  id o-2  state processed",
    ]


def screen(folder: Path, *arguments: str, columns: int = 80) -> list[str]:
    """What a command prints on a terminal of that width, line by line."""
    keyboard, terminal = os.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "24"}
    child = subprocess.Popen(
        [sys.executable, "-m", "arriero", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    os.close(terminal)
    printed = b""
    with suppress(OSError):  # so it is on Linux, once nobody has the other side open
        while read := os.read(keyboard, 10_000):
            printed += read
    os.close(keyboard)
    child.wait(SECONDS_MAX)
    return printed.decode().replace("\r\n", "\n").splitlines()


@pytest.fixture
def crowded(call: Call) -> Call:
    """The command line on a store with long ids: one task in doubt, one processed, two in a convoy."""
    from shopfront import Order, app, fulfil, later, wired

    async def sell() -> None:
        async with app.running():
            for task_id, work in ((LONG, wired(Order("d"))), (f"{LONG}-done", fulfil(Order("p")))):
                with suppress(TaskFailed):
                    await (await app.submit(work, task_id=task_id)).result()
            for number in (1, 2):
                await app.submit(later(Order("e")), task_id=f"{LONG}-{number}", convoy=f"customer-{LONG}")

    asyncio.run(sell())
    return call


@pytest.mark.parametrize(
    "command",
    [
        ("task", "list"),
        ("task", "show", LONG),
        ("task", "show", f"{LONG}-done"),
        ("task", "explain", LONG),
        ("task", "explain", f"{LONG}-2"),
        ("task", "compensate", "--older-than", "0", "--reason", "x", "--dry-run"),
        ("task", "pause", f"{LONG}-1", "--reason", "x", "--dry-run"),
        ("history", LONG),
        ("convoy", "list"),
        ("convoy", "show", f"customer-{LONG}"),
        ("config",),
    ],
    ids=" ".join,
)
def test_at_80_columns_lines_fit_but_for_commands_and_long_words_and_ids_stay_whole(
    crowded: Call, shop: Path, command: tuple[str, ...]
) -> None:
    lines = screen(shop, *command)
    assert lines
    too_long = [line for line in lines if display_width(line) > 80]
    assert all(line.lstrip().startswith("arriero ") or len(line.split()) <= 3 for line in too_long), too_long
    if command != ("config",):
        assert any("000042" in line for line in lines)
    for line in lines:  # the id stands whole on its line, or is not there
        assert ("order-2026" in line) == ("customer-000042" in line), line


def test_commands_that_explain_suggests_stand_on_one_line_each_and_are_the_same_in_a_pipe(
    crowded: Call, shop: Path
) -> None:
    on_screen = [line for line in screen(shop, "task", "explain", LONG) if line.startswith("    arriero ")]
    piped = [line for line in crowded("task", "explain", LONG).stdout.splitlines() if line.startswith("    arriero ")]
    assert on_screen == piped
    assert len(piped) == 4
