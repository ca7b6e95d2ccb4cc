"""The geometry of a task's timeline: where its bars, marks and ticks lie. Pure functions.

Positions are in percent of the width, and heights in pixels. So a page draws each row as an SVG that is as wide as the window, and texts in
it keep their size from a telephone to a wall.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from ...explain.timeline_shapes import (
    BarKind,
    BarOutcome,
    MarkKind,
    TaskTimeline,
    TimelineBar,
    TimelineMark,
    TimelineRow,
)
from ...model import Instant, seconds_between
from ...model.instants import as_datetime, as_instant
from ...text.format import format_count, format_duration

INSTANT_SHOWN_MAX = as_instant(datetime(9999, 12, 31, tzinfo=UTC))
ROWS_DRAWN_MAX = 120
MARKS_DRAWN_MAX = 60
LINES_MAX = 400  # of the table beside the drawing
TICKS_MAX = 6  # labels that stand beside each other; on a telephone every second one is left out
WIDTH_MIN = 0.4  # percent: what took no time can be seen, too
LABEL_WIDTH_MIN = 6.0  # percent of a bar that has its number in it
TEXT_MAX = 12  # bars of a row that its description lists
_MS, _SECOND, _MINUTE, _HOUR, _DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
UNITS = ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s"), (_MS, "ms"), (1, "µs"))
STEPS = (
    *(one * ten for ten in (1, 10, 100, _MS, 10 * _MS, 100 * _MS) for one in (1, 2, 5)),
    *(one * _SECOND for one in (1, 2, 5, 10, 15, 30)),
    *(one * _MINUTE for one in (1, 2, 5, 10, 15, 30)),
    *(one * _HOUR for one in (1, 2, 3, 6, 12)),
    *(one * _DAY for one in (1, 2, 7, 14, 30, 90, 180, 365)),
)

# The words of the legend. A bar's tone is the name of its kind; a pattern and its description say it without colour.
BARS = {
    BarKind.RUN: "code of the task runs",
    BarKind.ATTEMPT: "attempt",
    BarKind.UNDO: "undo",
    BarKind.CHILD: "another task",
    BarKind.WAIT: "waits for its turn",
    BarKind.DELAY: "delay before a retry",
    BarKind.SLEEP: "timer",
    BarKind.SIGNAL: "waits for a signal",
    BarKind.QUESTION: "waits for an answer",
    BarKind.OPERATOR: "waits for an operator",
    BarKind.DOUBT: "in doubt",
    BarKind.COPIED: "copied",
    BarKind.MERGED: "earlier, merged",
    BarKind.UNKNOWN: "unknown",
}
MARKS = {
    MarkKind.BEGIN: ("▸", "begins"),
    MarkKind.OPERATOR: ("◆", "operator"),
    MarkKind.APPROVAL: ("◇", "approval"),
    MarkKind.ALERT: ("▲", "alert"),
    MarkKind.SIGNAL: ("✉", "signal"),
    MarkKind.LOSS: ("✗", "loss"),
    MarkKind.NOTE: ("•", "note"),
    MarkKind.END: ("■", "ends"),
    MarkKind.UNREADABLE: ("?", "cannot be read"),
}
OUTCOMES = {
    BarOutcome.OPEN: "still open",
    BarOutcome.OK: "succeeded",
    BarOutcome.FAILED: "failed",
    BarOutcome.EXPIRED: "not answered in time",
    BarOutcome.LATE: "answered too late",
    BarOutcome.LOST: "lost with its process",
    BarOutcome.RELEASED: "released before it began",
    BarOutcome.REVOKED: "revoked",
    BarOutcome.WITHDRAWN: "withdrawn",
    BarOutcome.NONE: "",
}
_BAD = frozenset((BarOutcome.FAILED, BarOutcome.EXPIRED, BarOutcome.LATE, BarOutcome.LOST, BarOutcome.REVOKED))


class DrawnBar(msgspec.Struct, frozen=True):
    """A rectangle. ``x``, ``width``: percent. ``tones``: names of its classes. ``text``: in it; empty: it is too narrow."""

    x: float
    width: float
    tones: str
    title: str
    text: str = ""


class DrawnMark(msgspec.Struct, frozen=True):
    """A symbol at ``x`` percent. ``anchor``: where the symbol stands, so that it is within the drawing."""

    x: float
    symbol: str
    tone: str
    title: str
    anchor: str


class DrawnTick(msgspec.Struct, frozen=True):
    """A line of the axis of time. ``text``: how long after the start, like ``1 min 30 s``."""

    x: float
    text: str
    anchor: str


class DrawnRow(msgspec.Struct, frozen=True):
    """A row of the drawing. ``says``: all that is drawn in it, in words."""

    row: TimelineRow
    bars: tuple[DrawnBar, ...]
    doubts: tuple[DrawnBar, ...]
    marks: tuple[DrawnMark, ...]
    says: str


class TableLine(msgspec.Struct, frozen=True):
    """A bar as a line of the table. ``end`` None: it is open. ``took``: seconds."""

    row: str
    says: str
    outcome: str
    start: datetime
    end: datetime | None
    took: float


class Drawing(msgspec.Struct, frozen=True):
    """A timeline as it is drawn.

    Args:
        length: how long the axis is, in words.
        legend: of the bars that are drawn: their tone and what it means. ``symbols``: the same of the marks.
        rows_left_out: rows that are not drawn. ``marks_left_out``: marks.
        table: the bars as lines, ``lines_left_out`` more are not there.
    """

    start: datetime
    end: datetime
    length: str
    ticks: tuple[DrawnTick, ...]
    rows: tuple[DrawnRow, ...]
    rows_left_out: int
    marks_left_out: int
    legend: tuple[tuple[str, str], ...]
    symbols: tuple[tuple[str, str], ...]
    table: tuple[TableLine, ...]
    lines_left_out: int


class Axis:
    """Places instants on an axis of time. Instants before its start, or after its end, lie at its ends."""

    def __init__(self, start: Instant, end: Instant) -> None:
        self.start, self.span = start, max(end - start, 1)

    def place(self, at: Instant) -> float:
        """Place an instant, in percent from the left."""
        return round(min(max(at - self.start, 0) / self.span, 1.0) * 100, 2)

    def list_ticks(self) -> tuple[DrawnTick, ...]:
        """List the ticks: at round distances from the start, and at most ``TICKS_MAX``."""
        step = next((one for one in STEPS if self.span // one < TICKS_MAX), self.span)
        found = []
        for offset in range(0, self.span + 1, step):
            x = self.place(Instant(self.start + offset))
            found.append(DrawnTick(x, format_offset(offset), _choose_anchor(x)))
        return tuple(found)


def show_instant(at: Instant) -> datetime:
    """Convert an instant to a datetime; one outside the calendar, as in a damaged row, to the end of the calendar."""
    return as_datetime(Instant(min(max(at, 0), INSTANT_SHOWN_MAX)))


def format_offset(microseconds: int) -> str:
    """Format a distance in its two largest units: ``1 min 30 s``."""
    parts: list[str] = []
    for size, name in UNITS:
        count, microseconds = divmod(microseconds, size)
        if count:
            parts.append(f"{count} {name}")
        if parts and (len(parts) == 2 or not microseconds):
            break
    return " ".join(parts) or "0"


def draw_timeline(
    timeline: TaskTimeline, *, rows_max: int = ROWS_DRAWN_MAX, marks_max: int = MARKS_DRAWN_MAX
) -> Drawing:
    """Draw a timeline, up to a number of rows; the task and the last rows are those that are drawn."""
    axis = Axis(timeline.start, timeline.end)
    task, steps = timeline.rows[:1], timeline.rows[1:]
    kept = (*task, *steps[max(len(steps) - rows_max + 1, 0) :])
    drawn = {row.ordinal for row in kept}
    marks = timeline.marks[-marks_max:]
    rows = tuple(
        _draw_row(
            row, axis, timeline, [one for one in marks if (one.ordinal if one.ordinal in drawn else 0) == row.ordinal]
        )
        for row in kept
    )
    kinds = {bar.kind for row in kept for bar in (*row.bars, *row.doubts)}
    lines = list(_list_lines(kept, timeline.now))
    return Drawing(
        show_instant(timeline.start),
        show_instant(timeline.end),
        format_duration(max(timeline.end - timeline.start, 0) / _SECOND),
        axis.list_ticks(),
        rows,
        timeline.rows_left_out + len(timeline.rows) - len(kept),
        timeline.marks_left_out + len(timeline.marks) - len(marks),
        tuple((str(kind), says) for kind, says in BARS.items() if kind in kinds),
        tuple(MARKS[kind] for kind in MARKS if any(one.kind is kind for one in marks)),
        tuple(lines[:LINES_MAX]),
        max(len(lines) - LINES_MAX, 0),
    )


def _draw_row(row: TimelineRow, axis: Axis, timeline: TaskTimeline, marks: Sequence[TimelineMark]) -> DrawnRow:
    bars = tuple(_draw_bar(bar, axis, timeline) for bar in row.bars)
    doubts = tuple(_draw_bar(bar, axis, timeline) for bar in row.doubts)
    drawn = tuple(_draw_mark(one, axis) for one in marks)
    said = [*(one.title for one in (*bars, *doubts)), *(one.title for one in drawn)]
    more = [f"and {len(said) - TEXT_MAX} more, see the table"] if len(said) > TEXT_MAX else []
    says = "; ".join([*said[:TEXT_MAX], *more]) or "nothing is recorded"
    return DrawnRow(row, bars, doubts, drawn, f"{row.label}: {says}")


def _draw_bar(bar: TimelineBar, axis: Axis, timeline: TaskTimeline) -> DrawnBar:
    x, end = axis.place(bar.start), axis.place(timeline.end if bar.end is None else bar.end)
    width = max(round(end - x, 2), WIDTH_MIN)
    tones = [str(bar.kind)]
    tones += ["bad"] if bar.outcome in _BAD else ["open"] if bar.end is None else []
    number = f"#{bar.attempt}" if bar.attempt else ""
    text = number if number and width >= LABEL_WIDTH_MIN else ""
    return DrawnBar(min(x, 100 - width), width, " ".join(tones), _describe(bar, timeline.now), text)


def _describe(bar: TimelineBar, now: Instant) -> str:
    outcome = OUTCOMES[bar.outcome]
    took = format_duration(_measure(bar, now))
    return ", ".join(filter(None, (bar.label, outcome, f"for {took}" if bar.end is None else took)))


def _measure(bar: TimelineBar, now: Instant) -> float:
    return max(seconds_between(bar.start, now if bar.end is None else bar.end), 0.0)


def _draw_mark(mark: TimelineMark, axis: Axis) -> DrawnMark:
    x = axis.place(mark.at)
    return DrawnMark(x, MARKS[mark.kind][0], str(mark.kind), mark.says, _choose_anchor(x))


def _choose_anchor(x: float) -> str:
    return "start" if x < 4 else "end" if x > 92 else "middle"


def _list_lines(rows: Sequence[TimelineRow], now: Instant) -> Iterator[TableLine]:
    for row in rows:
        for bar in sorted((*row.bars, *row.doubts), key=lambda one: one.start):
            end = None if bar.end is None else show_instant(bar.end)
            yield TableLine(
                row.label, bar.label, OUTCOMES[bar.outcome], show_instant(bar.start), end, _measure(bar, now)
            )


def describe_left_out(drawing: Drawing) -> str:
    """Describe in a sentence what is not drawn; empty: all is."""
    parts = [
        format_count(count, what)
        for count, what in ((drawing.rows_left_out, "row"), (drawing.marks_left_out, "mark"))
        if count
    ]
    return f"Not drawn: {' and '.join(parts)}. The open, the doubtful and the newest are." if parts else ""
