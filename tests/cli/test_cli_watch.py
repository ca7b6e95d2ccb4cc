"""`arriero task watch`: on a terminal, line by line, and as JSON."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_calls import SECONDS_MAX, Call, Run, json_lines, order
from live_terminal import LiveTerminal

from arriero.cli.output import display_width

Watch = Callable[..., LiveTerminal]
STORE = ("--store", "sqlite:///arriero.db")
HOSTILE = "[red]order[/red]\u202e7"


@pytest.fixture
def watch(shop: Path) -> Iterator[Watch]:
    """Start `arriero task watch` on a terminal; it is closed when the test is over."""
    terminals: list[LiveTerminal] = []

    def begin(*arguments: str, **options: object) -> LiveTerminal:
        terminals.append(LiveTerminal(shop, "task", "watch", *arguments, **options))  # type: ignore[arg-type]  # as they are
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.close()


def follow(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "arriero", "task", "watch", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- how it ends
@pytest.mark.parametrize(
    ("task", "code"), [("processed", 0), ("compensated", 1), ("unrefundable", 1), ("buggy", 1), ("nobody", 4), ("", 2)]
)
def test_the_exit_code_says_how_the_task_has_ended(sold: Call, task: str, code: int) -> None:
    assert sold("task", "watch", task).exit_code == code
    assert sold("task", "watch", task, "--json").exit_code == code


def test_an_unknown_task_is_refused_in_one_line(sold: Call, watch: Watch) -> None:
    terminal = watch("nobody")
    code, written = terminal.ended()
    assert (code, written.count("\n")) == (4, 1)
    assert written.startswith("arriero: there is no task 'nobody' in the store")


# --- line by line
def test_without_a_terminal_each_event_is_a_line_and_the_end_the_last_one(sold: Call) -> None:
    lines = sold("task", "watch", "compensated").stdout.splitlines()
    assert lines[0] == "task compensated (number 2) of workflow fulfil"
    assert "submitted to workflow fulfil" in lines[1]
    assert any("the undo of charge is done" in line for line in lines)
    assert lines[-1].startswith("task compensated is compensated: ")
    assert not [line for line in lines if "\x1b" in line]


def test_with_json_each_change_is_an_object_of_the_whole_timeline(sold: Call) -> None:
    (shown,) = json_lines(sold("task", "watch", "compensated", "--json").stdout)
    assert (shown["state"], shown["is_open"], shown["waiting_for"]) == ("compensated", False, "")
    assert [(row["label"], row["kind"], row["state"]) for row in shown["rows"][1:]] == [
        ("charge", "step", "completed"),
        ("reserve", "step", "failed"),
        ("undo of charge", "compensation", "completed"),
    ]
    assert [bar["kind"] for bar in shown["rows"][3]["bars"]][-1] == "undo"
    assert shown["last"][-1]["says"].startswith("compensated")


def test_what_happens_is_printed_as_it_happens(call: Call, shop: Path, start: Callable[..., Run]) -> None:
    run = start()
    run.until("ready")
    assert call("submit", "shopfront:app", "parcel", "--arguments", order("a"), "--task-id", "parcel").exit_code == 0
    lines, objects = follow(shop, "parcel"), follow(shop, "parcel", "--json")
    assert lines.stdout is not None
    assert objects.stdout is not None
    next(line for line in lines.stdout if "step pack: attempt 1 begins" in line)
    next(line for line in objects.stdout if '"label":"pack"' in line)
    (shop / "gate").touch()
    rest, errors = lines.communicate(timeout=SECONDS_MAX)
    assert (lines.returncode, errors) == (0, "")
    assert rest.splitlines()[-1] == "task parcel is processed"
    found, errors = objects.communicate(timeout=SECONDS_MAX)
    states = [shown["state"] for shown in json_lines(found)]
    assert (objects.returncode, errors, states[-1]) == (0, "", "processed")
    assert states.count("processed") == 1


# --- on a terminal
def test_a_running_task_is_drawn_until_it_ends(call: Call, shop: Path, start: Callable[..., Run], watch: Watch) -> None:
    run = start()
    run.until("ready")
    assert call("submit", "shopfront:app", "parcel", "--arguments", order("a"), "--task-id", "parcel").exit_code == 0
    terminal = watch("parcel")
    terminal.until(
        "processing", "task parcel (number 1) of workflow parcel", "waiting for: step pack", "attempt 1 begins"
    )
    (shop / "gate").touch()
    code, written = terminal.ended()
    assert code == 0
    assert "processed: it is done" in written
    assert terminal.written.endswith("\x1b[?25h")  # the cursor is seen again


def test_an_interrupt_ends_it_without_a_traceback(sold: Call, watch: Watch) -> None:
    terminal = watch("later")
    terminal.until("waiting for: the time")
    terminal.interrupt()
    code, written = terminal.ended()
    assert code == 130
    assert "Traceback" not in written
    assert "\x1b[?25h" in terminal.written


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_no_line_is_wider_than_the_window(sold: Call, watch: Watch, columns: int) -> None:
    terminal = watch("compensated", columns=columns)
    code, written = terminal.ended()
    assert code == 1
    assert "undo of charge" in written or columns == 40
    assert max(map(display_width, terminal.lines)) <= columns


def test_a_window_of_another_size_is_drawn_anew(sold: Call, watch: Watch) -> None:
    terminal = watch("later", columns=120)
    terminal.until("waiting for: the time")
    terminal.resize(40, 12)
    terminal.until_drawn("waiting for: the time\n  2")  # the line is broken before the time
    terminal.interrupt()
    assert terminal.ended()[0] == 130


def test_colours_are_left_out_where_nobody_wants_them(sold: Call, watch: Watch) -> None:
    coloured, plain = watch("processed"), watch("processed", NO_COLOR="1")
    for terminal in (coloured, plain):
        assert terminal.ended()[0] == 0
    assert "\x1b[32m" in coloured.written
    assert "\x1b[32m" not in plain.written


def test_a_terminal_that_cannot_be_drawn_on_gets_lines(sold: Call, watch: Watch) -> None:
    terminal = watch("processed", TERM="dumb")
    code, written = terminal.ended()
    assert (code, "\x1b" in terminal.written) == (0, False)
    assert written.splitlines()[-1] == "task processed is processed"


def test_a_terminal_without_symbols_gets_ascii(sold: Call, watch: Watch) -> None:
    terminal = watch("compensated", LC_ALL="C", PYTHONUTF8="0")
    assert terminal.ended()[0] == 1
    assert terminal.written.isascii()


def test_an_id_with_markup_and_a_mark_of_direction_is_shown_as_text(call: Call, watch: Watch) -> None:
    from shopfront import Order, app, fulfil

    async def sell() -> None:
        async with app.running():
            await (await app.submit(fulfil(Order("a")), task_id=HOSTILE)).result()

    asyncio.run(sell())
    _, written = watch(HOSTILE).ended()
    assert "[red]order[/red]\\u202e7" in written
    assert "\u202e" not in written
    assert os.linesep.join(call("task", "watch", HOSTILE).stdout.splitlines()[:1]).startswith(
        "task [red]order[/red]\\u202e7 "
    )
