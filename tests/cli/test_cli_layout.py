"""Text and tables at the width of a terminal: what is to be copied stays whole, and no line breaks a word without need."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest
from cli_calls import SECONDS_MAX, Call
from hypothesis import given
from hypothesis import strategies as st

from arriero import TaskFailed
from arriero.cli import output
from arriero.cli.output import STATE_MARKS, display_width, fold, format_table, print_table, print_text, wrap
from arriero.model import StepState, TaskState

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


def test_a_row_begins_with_its_symbol_in_a_block_too() -> None:
    rows = [("✓", LONG, "processed"), ("!", "o-2", "held")]
    lines = format_table(("", "id", "state"), rows, 68, lambda row, title, text: f"<{row}{text}>")
    assert lines == ["<0✓>  id " + LONG, "  state processed", "<1!>  id o-2  state held"]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 40 columns; the colours are not taken out of what is printed."""
    monkeypatch.setattr(output, "terminal_width", lambda: 40)
    monkeypatch.setattr(click, "echo", print)
    for name in ("NO_COLOR", "LC_ALL", "TERM"):
        monkeypatch.delenv(name, raising=False)


def show_rows() -> None:
    rows = [("1", "processed", "2026-11-23 17:47:13Z", "it did"), ("2", "failed", "2026-11-23 17:47:13Z", "it did not")]
    print_table(("no", "state", "submitted", "reason"), rows, states=("processed", "failed"), optional=("submitted",))
    print_text("task 1: processed", state="processed")


@pytest.mark.usefixtures("wide")
def test_on_a_terminal_states_have_a_symbol_and_a_colour_and_columns_without_room_are_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_rows()
    assert capsys.readouterr().out.splitlines() == [
        "   no  state      reason",
        "\x1b[32m✓\x1b[0m  1   \x1b[32mprocessed\x1b[0m  it did",
        "\x1b[31m✗\x1b[0m  2   \x1b[31mfailed\x1b[0m     it did not",
        "\x1b[32m✓\x1b[0m task 1: processed",
    ]


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("variable", ["NO_COLOR=1", "TERM=dumb"])
def test_the_environment_turns_colours_off_and_symbols_have_a_form_in_ascii(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(*variable.split("="))
    monkeypatch.setenv("LC_ALL", "C")
    show_rows()
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.splitlines()[1:] == [
        "+  1   processed  it did",
        "x  2   failed     it did not",
        "+ task 1: processed",
    ]


def test_a_pipe_gets_neither_symbols_nor_colours_and_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows()
    assert capsys.readouterr().out.splitlines() == [
        "no  state      submitted             reason",
        "1   processed  2026-11-23 17:47:13Z  it did",
        "2   failed     2026-11-23 17:47:13Z  it did not",
        "task 1: processed",
    ]


def test_every_state_of_a_task_and_of_a_step_has_a_mark_of_its_own_unless_it_means_the_same() -> None:
    assert set(STATE_MARKS) == {*TaskState, *StepState}
    for form in ("symbol", "plain"):
        looks = [getattr(mark, form) for mark in dict.fromkeys(STATE_MARKS.values())]
        assert len(looks) == len(set(looks)) == 9
        assert all(display_width(look) == 1 for look in looks)
    assert all(mark.plain.isascii() for mark in STATE_MARKS.values())


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
    return click.unstyle(printed.decode()).replace("\r\n", "\n").splitlines()


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
