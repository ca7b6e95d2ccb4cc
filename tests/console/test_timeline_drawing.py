"""The geometry of timelines: everything drawn lies within the drawing, and all that is left out is said."""

import pytest

from arriero.explain.timeline_shapes import (
    BarKind,
    BarOutcome,
    MarkKind,
    TaskTimeline,
    TimelineBar,
    TimelineMark,
    TimelineRow,
)
from arriero.model import Instant
from arriero.server.console.timeline_drawing import (
    LINES_MAX,
    TEXT_MAX,
    TICKS_MAX,
    WIDTH_MIN,
    Axis,
    Drawing,
    describe_left_out,
    draw_timeline,
    format_offset,
)

SECOND = 1_000_000
BEGIN = 1_764_000_000 * SECOND


def at(seconds: float) -> Instant:
    return Instant(BEGIN + round(seconds * SECOND))


def bar(start: float, end: float | None, kind: BarKind = BarKind.ATTEMPT, **more: object) -> TimelineBar:
    outcome = BarOutcome.OPEN if end is None else BarOutcome.OK
    return TimelineBar(
        kind, at(start), None if end is None else at(end), "attempt 1", **{"attempt": 1, "outcome": outcome, **more}
    )  # type: ignore[arg-type]


def row(ordinal: int, *bars: TimelineBar, doubts: tuple[TimelineBar, ...] = ()) -> TimelineRow:
    return TimelineRow(ordinal, f"step {ordinal}", "step", "completed", "till", bars=bars, doubts=doubts)


def timeline(end: float, *rows: TimelineRow, now: float | None = None, **more: object) -> TaskTimeline:
    task = TimelineRow(0, "order-1", "task", "processing")
    return TaskTimeline(
        1,
        "order-1",
        "fulfil",
        "processing",
        1,
        True,
        at(0),
        at(end),
        at(end if now is None else now),
        (task, *rows),
        **more,
    )  # type: ignore[arg-type]


def check_within(drawing: Drawing) -> None:
    for one in drawing.rows:
        for drawn in (*one.bars, *one.doubts):
            assert 0 <= drawn.x <= drawn.x + drawn.width <= 100.01
            assert drawn.width >= WIDTH_MIN
        assert all(0 <= mark.x <= 100 for mark in one.marks)
    assert 1 <= len(drawing.ticks) <= TICKS_MAX
    assert all(0 <= tick.x <= 100 for tick in drawing.ticks)


def test_bars_lie_at_their_times_and_say_what_they_are() -> None:
    drawing = draw_timeline(timeline(10, row(1, bar(0, 2.5), bar(5, 10, outcome=BarOutcome.FAILED, attempt=2))))
    first, second = drawing.rows[1].bars
    assert (first.x, first.width, first.text) == (0, 25, "#1")
    assert (second.x, second.width, second.tones) == (50, 50, "attempt bad")
    assert first.title == "attempt 1, succeeded, 2.5 s"
    assert [tick.text for tick in drawing.ticks] == ["0", "2 s", "4 s", "6 s", "8 s", "10 s"]
    assert drawing.legend == (("attempt", "attempt"),)


def test_a_running_attempt_reaches_to_now() -> None:
    drawing = draw_timeline(timeline(4, row(1, bar(1, None))))
    (drawn,) = drawing.rows[1].bars
    assert (drawn.x, drawn.width) == (25, 75)
    assert drawn.title == "attempt 1, still open, for 3.0 s"
    assert drawn.tones == "attempt open"


def test_a_wait_for_an_operator_says_its_whole_length_though_the_axis_ends_before() -> None:
    held = bar(2, None, BarKind.OPERATOR, attempt=0)
    (drawn,) = draw_timeline(timeline(4, row(1, held), now=3_602)).rows[1].bars
    assert drawn.x + drawn.width == 100
    assert drawn.title.endswith("for 1 h")


def test_a_task_without_length_is_drawn() -> None:
    drawing = draw_timeline(timeline(0, row(1, bar(0, 0))))
    check_within(drawing)
    assert [tick.text for tick in drawing.ticks] == ["0", "1 µs"]
    assert drawing.length == "0.000 s"


def test_a_task_with_one_event_has_one_row() -> None:
    mark = TimelineMark(at(0), MarkKind.BEGIN, "submitted")
    drawing = draw_timeline(timeline(0, marks=(mark,)))
    check_within(drawing)
    (only,) = drawing.rows
    assert only.says == "order-1: submitted"
    assert drawing.symbols == (("▸", "begins"),)


def test_what_clocks_that_step_back_have_written_stays_within_the_drawing() -> None:
    late = TimelineMark(at(-50), MarkKind.OPERATOR, "resubmitted it")
    early = TimelineMark(at(500), MarkKind.ALERT, "alert")
    drawing = draw_timeline(timeline(10, row(1, bar(-100, 5), bar(9, 3), bar(20, 30)), marks=(late, early)))
    check_within(drawing)
    assert "0.000 s" in drawing.rows[1].bars[1].title


def test_of_ten_thousand_steps_the_task_and_the_last_are_drawn_and_the_others_counted() -> None:
    rows = tuple(
        row(number, bar(number, number + 1), doubts=(bar(number, number + 1, BarKind.DOUBT),))
        for number in range(1, 10_001)
    )
    drawing = draw_timeline(timeline(10_001, *rows, rows_left_out=7), rows_max=100)
    check_within(drawing)
    assert [drawing.rows[0].row.ordinal, drawing.rows[-1].row.ordinal, len(drawing.rows)] == [0, 10_000, 100]
    assert drawing.rows_left_out == 9_908
    assert describe_left_out(drawing) == "Not drawn: 9,908 rows. The open, the doubtful and the newest are."
    assert (len(drawing.table), drawing.lines_left_out) == (198, 0)


def test_a_mark_of_a_row_that_is_not_drawn_stands_at_the_task() -> None:
    marks = tuple(TimelineMark(at(1), MarkKind.NOTE, f"note {number}", ordinal=number) for number in (1, 2))
    drawing = draw_timeline(timeline(2, row(1), row(2), marks=marks), rows_max=2)
    assert [[mark.title for mark in one.marks] for one in drawing.rows] == [["note 1"], ["note 2"]]


def test_a_row_with_many_bars_says_the_first_and_the_number_of_the_others() -> None:
    drawing = draw_timeline(
        timeline(100, *(row(number, *(bar(one, one + 1) for one in range(40))) for number in range(1, 12)))
    )
    assert drawing.rows[1].says.endswith(f"and {40 - TEXT_MAX} more, see the table")
    assert (len(drawing.table), drawing.lines_left_out) == (LINES_MAX, 440 - LINES_MAX)


@pytest.mark.parametrize(
    "span", [1, 3, 999, 10**6, 59 * 10**6, 86_399 * 10**6, 40 * 86_400 * 10**6, 3 * 10**15, 10**17]
)
def test_ticks_are_few_and_readable_at_every_length(span: int) -> None:
    ticks = Axis(Instant(0), Instant(span)).list_ticks()
    assert 2 <= len(ticks) <= TICKS_MAX
    assert len({tick.text for tick in ticks}) == len(ticks)
    assert all(len(tick.text) <= 16 for tick in ticks)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0"),
        (1_500, "1 ms 500 µs"),
        (90 * SECOND, "1 min 30 s"),
        (36 * 3_600 * SECOND, "1 d 12 h"),
        (3_600 * SECOND, "1 h"),
    ],
)
def test_an_offset_is_written_in_its_two_largest_units(microseconds: int, text: str) -> None:
    assert format_offset(microseconds) == text
