"""`arriero top`: what keys do, what is drawn, and the command on a terminal, in a pipe and as JSON."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cli_calls import SECONDS_MAX, Call, Run, json_lines, order
from live_terminal import LiveTerminal
from rich.console import Console

from arriero import App, StoreError
from arriero.cli import top_screen
from arriero.cli.output import display_width
from arriero.cli.timeline_view import Screen
from arriero.cli.top_screen import TopScreen
from arriero.cli.top_state import PANES, ActOnAgent, OpenTask, Quit, ReadAgain, TopState, press, settle
from arriero.cli.top_view import draw_rows, draw_top
from arriero.client.agents import AgentView
from arriero.client.overview import (
    AgentRoom,
    HeldTask,
    LiveProcess,
    MinuteOfCalls,
    NewestTasks,
    OpenTasks,
    Overview,
    RetriedTask,
)
from arriero.explain.doctor import Finding

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOSTILE = "[red]x[/red]\u202ey\x1b[2Jz"
TASKS, AGENTS, FINDINGS, PROCESSES = range(4)
Top = Callable[..., LiveTerminal]


def held(task_id: str) -> HeldTask:
    return HeldTask(id=task_id, workflow="fulfil", step="charge", reason="declined", since=NOON)


def retried(task_id: str) -> RetriedTask:
    return RetriedTask(
        id=task_id, agent="bank", step="charge", attempt=2, failure_count=1, next_at=NOON, reason="no line"
    )


def agent(name: str = "bank", **fields: Any) -> AgentView:
    return AgentView(**{"agent": name, "app": "shop", "target": "", "state": "closed", **fields})


def minute(calls: int, failed: int = 0) -> MinuteOfCalls:
    return MinuteOfCalls(minute=NOON, calls=calls, failed=failed, p50_seconds=0.1, p99_seconds=2.0)


def overview(**fields: Any) -> Overview:
    shown: dict[str, Any] = {
        "store": "sqlite:///shop.db",
        "now": NOON,
        "tasks": OpenTasks(running=3, due=10_000, later=2, in_convoy=1, held=2),
        "newest": NewestTasks(count=0, is_cut=False, since=None, states={}),
        "oldest_wait_seconds": 7.5,
        "hour": minute(60, 6),
        "calls": tuple(minute(one, one // 10) for one in range(60)),
        "agents": (agent(), agent("stock", paused_at=NOON, paused_by="ana", pause_reason="stocktaking")),
        "rooms": (AgentRoom(agent="bank", app="shop", health=0.5, free=3, places=4),),
        "leader": None,
        "processes": (
            LiveProcess(no=1, name="vm-1-a", app="shop", roles=("agents",), is_alive=True, is_leaving=False),
        ),
        "healthy": False,
        "findings": (Finding("care", "held", "2 tasks are held", "arriero task list --state held"),),
        "held": (held("h-1"), held("h-2")),
        "retrying": (retried("r-1"), retried("h-1")),
        **fields,
    }
    return Overview(**shown)


def drawn(
    state: TopState = TopState(), of: Overview | None = None, width: int = 120, height: int = 40, **more: Any
) -> list[str]:
    screen = Screen(width, height, more.pop("has_symbols", True))
    return [line.plain.rstrip() for line in draw_top(overview() if of is None else of, state, screen, **more)]


# --- keys
def typed(keys: list[str], state: TopState = TopState(), of: Overview | None = None) -> tuple[TopState, object]:
    effect: object = None
    for key in keys:
        state, effect = press(state, key, overview() if of is None else of)
    return state, effect


@pytest.mark.parametrize("keys", [["down"], ["j"], ["end", "up"], ["page-down", "k"]])
def test_keys_move_the_selected_line_and_enter_opens_its_task(keys: list[str]) -> None:
    assert typed([*keys, "enter"])[1] == OpenTask("h-2")


def test_a_task_that_is_held_and_tried_again_stands_there_once() -> None:
    assert typed(["end", "enter"])[1] == OpenTask("r-1")
    assert "\n".join(drawn()).count("h-1") == 1


def test_tab_goes_through_all_panes_and_back() -> None:
    panes = [typed(["tab"] * times)[0].pane for times in range(5)]
    assert panes == [0, 1, 2, 3, 0]
    assert typed(["back-tab"])[0].pane == PROCESSES
    assert typed(["right", "left"])[0].pane == TASKS


def test_each_pane_keeps_its_line() -> None:
    state, _ = typed(["down", "tab", "down", "tab", "tab", "tab"])
    assert (state.pane, state.selected) == (TASKS, (1, 1, 0, 0))


def test_pausing_an_agent_asks_for_a_reason_and_is_sent_with_enter() -> None:
    state, effect = typed(["tab", "p", *"bank x", "erase", *"called", "enter"])
    assert effect == ActOnAgent("pause", "bank", "shop", "", "bank called")
    assert state.prompt is None
    state, effect = typed(["tab", "down", "r", *"done", "enter"])
    assert effect == ActOnAgent("resume", "stock", "shop", "", "done")


def test_a_reason_may_hold_letters_that_are_keys_elsewhere_but_may_not_be_empty() -> None:
    state, effect = typed(["tab", "p", "q", "?", " ", "down", "enter"])
    assert effect == ActOnAgent("pause", "bank", "shop", "", "q?")
    state, effect = typed(["tab", "p", " ", "enter"])
    assert effect is None
    assert state.prompt is not None


def test_escape_gives_a_verb_up() -> None:
    state, effect = typed(["tab", "p", *"bank", "escape"])
    assert (state.prompt, effect, state.message) == (None, None, "pause: nothing was changed")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["p"], "pause is for an Agent"),
        (["tab", "r"], "Agent bank is not paused"),
        (["tab", "down", "p"], "Agent stock is paused already"),
        (["tab", "enter"], "Enter opens a task"),
    ],
)
def test_a_key_that_does_nothing_here_says_why(keys: list[str], message: str) -> None:
    state, effect = typed(keys)
    assert effect is None
    assert state.message.startswith(message)
    assert typed(["j"], state)[0].message == ""


def test_keys_quit_read_again_and_show_help() -> None:
    assert typed(["q"])[1] == Quit()
    assert typed(["interrupt"])[1] == Quit()
    assert typed(["tab", "p", "interrupt"])[1] == Quit()
    assert typed([" "])[1] == ReadAgain()
    state, _ = typed(["?"])
    assert state.has_help
    assert "pause the selected Agent" in "\n".join(drawn(state))
    assert not typed(["q"], state)[0].has_help


def test_before_anything_was_read_no_key_fails() -> None:
    for pane, key in product(range(len(PANES)), ("j", "k", "enter", "p", "r", "tab", "end")):
        state, effect = press(TopState(pane=pane), key, None)
        assert effect is None
        assert state.line == 0


def test_the_selected_line_stays_within_a_pane_that_became_shorter() -> None:
    state, _ = typed(["end"])
    assert settle(state, overview(held=(), retrying=(retried("r-1"),))).line == 0
    assert settle(state, overview(held=(), retrying=())).line == 0


# --- what is drawn
@pytest.mark.parametrize(("width", "height", "pane"), list(product((1, 20, 40, 80, 300), (1, 5, 24, 60), range(4))))
def test_the_overview_fits_a_window_of_any_size(width: int, height: int, pane: int) -> None:
    many = overview(
        agents=tuple(agent(f"agent-{one}") for one in range(90)),
        held=tuple(held(f"日本-{one}" * 9) for one in range(90)),
    )
    for state in (TopState(pane=pane), TopState(has_help=True), typed(["tab", "p", *"x" * 90])[0]):
        lines = drawn(state, many, width, height)
        assert len(lines) <= height
        assert max(map(display_width, lines), default=0) <= width


def test_the_numbers_say_how_the_store_is() -> None:
    text = "\n".join(drawn())
    for part in (
        "sqlite:///shop.db   2026-01-01 12:00:00Z",
        "3 running, 10,000 or more due, 2 later, 1 wait in a convoy, 2 held; the oldest free task has waited 7.5 s",
        "60 within the last hour; 10.0 % failed; p50 0.100 s, p99 2.0 s",
        "1 alive; no Supervisor leads",
        "1 thing needs an operator",
        "59 a minute at most",
    ):
        assert part in text


def test_an_agent_shows_its_health_its_room_its_state_and_why() -> None:
    lines = drawn(TopState(pane=AGENTS))
    assert any(line.split()[:4] == ["bank", "closed", "50%", "3/4"] for line in lines)
    assert any("stock" in line and "paused" in line and "stocktaking" in line for line in lines)


def test_findings_come_with_their_remedies_and_processes_with_their_roles() -> None:
    assert any("2 tasks are held -> arriero task list --state held" in line for line in drawn(TopState(pane=FINDINGS)))
    assert any("vm-1-a" in line and "agents" in line for line in drawn(TopState(pane=PROCESSES)))


def test_a_long_pane_scrolls_with_the_selected_line() -> None:
    many = overview(held=tuple(held(f"h-{one}") for one in range(90)), retrying=())
    state, _ = typed(["end"], of=many)
    text = "\n".join(drawn(state, many, 120, 24))
    assert "h-89 " in text
    assert "h-10 " not in text


def test_what_is_wrong_with_the_reading_and_its_age_are_shown() -> None:
    text = "\n".join(drawn(note="the store does not answer", age=75.0))
    assert "the store does not answer" in text
    assert "read 1 min 15 s ago" in text


def test_names_with_markup_and_control_characters_are_shown_as_text() -> None:
    of = overview(
        store=HOSTILE,
        held=(held(HOSTILE),),
        agents=(agent(HOSTILE),),
        findings=(Finding("care", "x", HOSTILE),),
    )
    for pane in range(4):
        text = "\n".join(drawn(TopState(pane=pane), of, 200))
        assert "[red]x[/red]\\u202ey\\x1b[2Jz" in text
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_without_symbols_everything_is_ascii() -> None:
    for pane in range(4):
        assert all(line.isascii() for line in drawn(TopState(pane=pane), has_symbols=False))


def test_a_narrow_table_leaves_columns_out_and_empty_ones_always() -> None:
    columns, rows = ("name", "empty", "state", "reason"), [("bank", "", "open", "it is down")]
    assert next(line.plain.split() for line in draw_rows(columns, rows, 80)) == ["name", "state", "reason"]
    assert next(line.plain.split() for line in draw_rows(columns, rows, 22)) == ["name", "reason"]


# --- the command
@pytest.fixture
def top(shop: Path) -> Iterator[Top]:
    """Start `arriero top` on a terminal; it is closed when the test is over."""
    terminals: list[LiveTerminal] = []

    def begin(*arguments: str, **options: Any) -> LiveTerminal:
        terminals.append(LiveTerminal(shop, "top", *arguments, **options))
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.close()


def test_in_a_pipe_it_prints_one_snapshot(sold: Call) -> None:
    printed = sold("top")
    assert printed.exit_code == 0
    assert "2 held" in printed.stdout
    assert "unrefundable" in printed.stdout
    assert "\x1b" not in printed.stdout


def test_with_json_it_prints_one_snapshot_for_programs(sold: Call) -> None:
    (shown,) = json_lines(sold("top", "--json").stdout)
    assert {task["id"] for task in shown["held"]} == {"buggy", "unrefundable"}
    assert shown["tasks"]["held"] == 2
    assert not shown["healthy"]
    assert {finding["level"] for finding in shown["findings"]} <= {"care", "information"}


def test_a_store_that_is_not_there_and_a_bad_option_are_refused_in_one_line(call: Call) -> None:
    for arguments, code in ((["--store", "sqlite:///missing.db"], 5), (["--every", "often"], 2)):
        refused = call("top", *arguments)
        assert (refused.exit_code, refused.stderr.count("\n")) == (code, 1)


def test_keys_open_a_held_task_and_come_back_and_the_terminal_is_left_as_it_was(sold: Call, top: Top) -> None:
    terminal = top()
    terminal.until("things need an operator", "unrefundable", "buggy")
    first = next(line for line in terminal.frame.splitlines() if "buggy" in line or "unrefundable" in line)
    opened = "buggy" if "buggy" in first else "unrefundable"
    terminal.press("\r")
    terminal.until(f"task {opened} (number", "escape goes back", "charge")
    terminal.press("\x1b")
    terminal.until("things need an operator", "tab pane")
    terminal.press("q")
    assert terminal.ended()[0] == 0
    assert "\x1b[?1049l" in terminal.written
    assert "\x1b[?25h" in terminal.written


def test_an_agent_is_paused_and_resumed_by_keys_under_the_name_of_who_asks(sold: Call, top: Top) -> None:
    terminal = top("--by", "ana")
    terminal.until("things need an operator")
    terminal.press("\tp")
    terminal.until("pause Agent payments as ana", "reason:")
    terminal.press("the bank called\r")
    terminal.until("Agent payments of App shopfront is paused")
    (payments,) = [one for one in json_lines(sold("agent", "list", "--json").stdout) if one["agent"] == "payments"]
    assert (payments["paused_by"], payments["pause_reason"]) == ("ana", "the bank called")
    terminal.press("rit is back\r")
    terminal.until("takes requests again")
    terminal.press("q")
    assert terminal.ended()[0] == 0


def test_it_shows_what_happens_while_it_runs_and_draws_a_window_of_another_size(
    call: Call, shop: Path, start: Callable[..., Run], top: Top
) -> None:
    run = start()
    run.until("ready")
    terminal = top("--every", "0.2")
    terminal.until("1 alive", "0 running")
    assert call("submit", "shopfront:app", "parcel", "--arguments", order("a"), "--task-id", "parcel").exit_code == 0
    terminal.until("1 running")
    terminal.resize(40, 20)
    terminal.until("tab pane   j k move", columns=40)
    terminal.press("\t\t\t")
    terminal.until("lease", "alive")
    (shop / "gate").touch()
    terminal.until("0 running")
    terminal.press("q")
    assert terminal.ended()[0] == 0


@pytest.mark.parametrize("how", ["interrupt", "terminate"])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(sold: Call, top: Top, how: str) -> None:
    terminal = top()
    terminal.until("tab pane")
    assert not terminal.is_as_before()
    getattr(terminal, how)()
    code, written = terminal.ended()
    assert code == (130 if how == "interrupt" else 0)
    assert "Traceback" not in written
    assert "\x1b[?1049l" in terminal.written


def test_a_terminal_that_cannot_be_drawn_on_gets_a_snapshot(sold: Call, top: Top) -> None:
    terminal = top(TERM="dumb")
    code, written = terminal.ended()
    assert (code, "\x1b" in terminal.written) == (0, False)
    assert "2 held" in written


async def test_while_the_store_does_not_answer_the_last_reading_stays_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Overview | StoreError] = [
        StoreError("the disk is away"),
        overview(),
        StoreError("away again"),
        overview(),
    ]

    async def load(_: object) -> Overview:
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    monkeypatch.setattr(top_screen, "load_overview", load)
    console = Console(width=100, height=30, file=io.StringIO(), markup=False)
    shown = []
    async with App("operator", store="memory://") as app:
        screen = TopScreen(app.session, 2.0, lambda: "ana")
        for _ in range(4):
            await screen.read()
            shown.append("\n".join("".join(part.text for part in line) for line in console.render_lines(screen)))
    assert ["does not answer" in text for text in shown] == [True, False, True, False]
    assert ["3 running" in text for text in shown] == [False, True, True, True]
    assert "the disk is away" in shown[0]


def test_no_other_command_loads_what_only_a_live_terminal_needs(shop: Path) -> None:
    code = "import sys, arriero.cli.main; print([name for name in sys.modules if name.partition('.')[0] == 'rich'])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS_MAX
    )
    assert loaded.stdout.strip() == "[]"
