"""The timeline of a task as lines of a terminal: they fit the window, and texts from outside stay texts."""

from itertools import product
from typing import Any

import pytest
from rich.text import Text

from arriero.cli.output import display_width
from arriero.cli.timeline_view import FAILED, LOOKS, LOST, Screen, draw_cells, draw_task, find_look, fit
from arriero.client.timeline import WatchedTask
from arriero.explain.past import TimelineEntry
from arriero.explain.timeline_shapes import BarKind, BarOutcome, TaskTimeline, TimelineBar, TimelineRow
from arriero.model import Instant

SECOND = 1_000_000
AT = 1_767_225_600 * SECOND
HOSTILE = "[red]x[/red]\u202ey\x1b[2Jz"


def at(seconds: float) -> Instant:
    return Instant(AT + round(seconds * SECOND))


def bar(kind: BarKind, start: float, end: float | None, outcome: BarOutcome = BarOutcome.NONE) -> TimelineBar:
    return TimelineBar(kind, at(start), None if end is None else at(end), "", outcome=outcome)


def step(ordinal: int, *bars: TimelineBar, label: str = "charge", **fields: Any) -> TimelineRow:
    return TimelineRow(ordinal, label, "step", "running", bars=bars, **fields)


def watched(*rows: TimelineRow, events: int = 0, **fields: Any) -> WatchedTask:
    last = tuple(TimelineEntry(at(one), float(one), f"event {one} {HOSTILE}", "ana") for one in range(events))
    shown = {"id": "order-7", "workflow": "fulfil", **fields}
    timeline = TaskTimeline(
        no=7,
        state="processing",
        incarnation=1,
        is_open=True,
        start=at(0),
        end=at(10),
        now=at(10),
        rows=(TimelineRow(0, "order-7", "task", "processing", bars=(bar(BarKind.RUN, 0, None),)), *rows),
        last=last,
        events=events,
        **shown,
    )
    return WatchedTask(timeline=timeline, waiting_for="step charge of Agent bank", reason="", complete_by=at(60))


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def drawn(
    task: WatchedTask, width: int = 80, height: int = 30, *, has_symbols: bool = True, now: float = 10
) -> list[str]:
    return plain(draw_task(task, at(now), Screen(width, height, has_symbols)))


@pytest.mark.parametrize(("width", "height"), list(product((1, 12, 40, 80, 300), (2, 8, 24, 100))))
def test_every_line_fits_a_window_of_any_size(width: int, height: int) -> None:
    rows = [
        step(one, bar(BarKind.WAIT, 0, 2), bar(BarKind.ATTEMPT, 2, None), label=f"step-日本-{one}")
        for one in range(1, 60)
    ]
    lines = drawn(watched(*rows, events=60), width, height)
    assert len(lines) < max(height, 2)
    if width >= 40:  # no word is broken that is longer than a window
        assert max(map(display_width, lines)) <= width


def test_bars_stand_where_their_times_are_on_one_axis() -> None:
    row = step(1, bar(BarKind.WAIT, 0, 5), bar(BarKind.ATTEMPT, 5, 7, BarOutcome.FAILED), bar(BarKind.DELAY, 7, 9))
    cells = draw_cells(row, at(0), at(10), 10)
    looks = [LOOKS[BarKind.WAIT]] * 5 + [FAILED] * 2 + [LOOKS[BarKind.DELAY]] * 2 + [None]
    assert cells == looks


def test_an_attempt_that_took_no_time_has_a_cell_that_no_wait_hides() -> None:
    row = step(1, bar(BarKind.WAIT, 0, 5), bar(BarKind.ATTEMPT, 5, 5.0001, BarOutcome.OK), bar(BarKind.WAIT, 5, 10))
    assert draw_cells(row, at(0), at(10), 10)[5] == LOOKS[BarKind.ATTEMPT]


def test_an_open_bar_grows_with_the_time() -> None:
    task = watched(step(1, bar(BarKind.WAIT, 0, 9), bar(BarKind.ATTEMPT, 9, None, BarOutcome.OPEN)))
    counts = ["".join(drawn(task, now=now)[:-1]).count("█") for now in (10, 20, 90)]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2]


def test_a_doubt_lies_over_waits_and_not_over_attempts() -> None:
    attempts = (
        bar(BarKind.ATTEMPT, 0, 2, BarOutcome.LOST),
        bar(BarKind.WAIT, 2, 8),
        bar(BarKind.ATTEMPT, 8, 10, BarOutcome.OK),
    )
    row = step(1, *attempts, doubts=(bar(BarKind.DOUBT, 2, 10),))
    cells = draw_cells(row, at(0), at(10), 10)
    assert [LOOKS[BarKind.DOUBT] if cell is None else cell for cell in cells] == [
        *[LOST] * 2, *[LOOKS[BarKind.DOUBT]] * 6, *[LOOKS[BarKind.ATTEMPT]] * 2,
    ]  # fmt: skip


def test_every_kind_and_outcome_of_a_bar_has_a_look_whose_character_no_other_kind_has() -> None:
    for kind, outcome in product(BarKind, BarOutcome):
        assert display_width(find_look(bar(kind, 0, 1, outcome)).symbol) == 1
    looks = [*LOOKS.values(), FAILED, LOST]
    for form in ("symbol", "plain"):
        characters = [getattr(look, form) for look in looks]
        assert len(set(characters)) == len(looks)
    assert all(look.plain.isascii() for look in looks)


def test_without_symbols_everything_is_ascii() -> None:
    task = watched(step(1, *(bar(kind, at, at + 1) for at, kind in enumerate(BarKind))), events=3)
    assert all(line.isascii() for line in drawn(task, has_symbols=False))


def test_texts_from_outside_are_shown_and_neither_read_as_markup_nor_move_the_cursor() -> None:
    lines = "\n".join(drawn(watched(step(1, label=HOSTILE), events=4, id=HOSTILE, workflow=HOSTILE), 120))
    assert "[red]x[/red]" in lines
    assert "\\u202ey\\x1b[2Jz" in lines
    assert "\u202e" not in lines
    assert "\x1b" not in lines


def test_a_low_window_says_how_many_steps_it_leaves_out_and_keeps_the_open_and_the_last_ones() -> None:
    rows = [step(one, bar(BarKind.ATTEMPT, 0, None if one == 7 else 1), label=f"step-{one}") for one in range(1, 41)]
    lines = drawn(watched(*rows), 80, 16)
    assert any("lines for which the window is too low" in line for line in lines)
    shown = [row.label for row in rows if any(f" {row.label} " in line for line in lines)]
    assert shown[0] == "step-7"
    assert shown[-1] == "step-40"
    assert len(shown) < 12


def test_steps_and_events_that_are_left_out_are_counted() -> None:
    lines = drawn(watched(step(1), rows_left_out=9_800, unreadable=2, events=1), 80, 40)
    assert "and 9,800 more steps, which are not shown" in lines
    assert any("2 events that cannot be read" in line for line in lines)


@pytest.mark.parametrize("width", range(0, 12))
def test_a_text_is_cut_or_filled_to_a_width(width: int) -> None:
    for text in ("", "ab", "日本語", "a long text of many words"):
        assert display_width(fit(text, width)) == width
