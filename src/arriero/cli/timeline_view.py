"""Draws the timeline of a task as lines for a terminal: values in, lines of text out. Nothing here writes or waits.

Every text from outside is escaped, and is never read as markup. No meaning is carried by a colour alone: each kind of bar has a
character, which the legend names.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.text import Text

from ..client.timeline import WatchedTask
from ..explain.timeline_shapes import BarKind, BarOutcome, TaskTimeline, TimelineBar, TimelineRow
from ..model import Instant, seconds_between
from ..text.escaping import one_line
from ..text.format import format_count, format_duration, format_instant, format_relative
from .output import STATE_MARKS, display_width, fold, wrap

LABEL_MAX = 32
EVENTS_MIN = 3  # lines of the last events, where there is room for rows as well
BARS_MIN = 10  # columns
STATE_WORD_FROM = 76  # columns of the window, from which on rows say their state in a word, too


class Look(NamedTuple):
    """The look of a bar. ``plain``: the character where the terminal does not show symbols."""

    symbol: str
    plain: str
    colour: str
    says: str


LOOKS: dict[BarKind, Look] = {
    BarKind.WAIT: Look("·", ".", "bright_black", "waits"),
    BarKind.DELAY: Look("╌", "-", "yellow", "pause before an attempt"),
    BarKind.RUN: Look("━", "=", "cyan", "runs"),
    BarKind.ATTEMPT: Look("█", "#", "green", "attempt"),
    BarKind.UNDO: Look("◀", "<", "yellow", "undo"),
    BarKind.SLEEP: Look("z", "z", "blue", "timer"),
    BarKind.SIGNAL: Look("~", "~", "magenta", "waits for a signal"),
    BarKind.QUESTION: Look("q", "q", "magenta", "waits for an answer"),
    BarKind.CHILD: Look("▬", "%", "cyan", "child"),
    BarKind.OPERATOR: Look("!", "!", "red", "waits for an operator"),
    BarKind.DOUBT: Look("?", "?", "red", "in doubt"),
    BarKind.COPIED: Look("≡", "c", "bright_black", "copied result"),
    BarKind.MERGED: Look("▪", "m", "bright_black", "earlier, merged"),
    BarKind.UNKNOWN: Look("░", ":", "bright_black", "not known"),
}
FAILED = Look("▓", "x", "red", "failed attempt")
LOST = Look("▒", "*", "red", "no answer, or lost")
_ATTEMPTS = frozenset((BarKind.ATTEMPT, BarKind.UNDO, BarKind.CHILD))
_FAILED = frozenset((BarOutcome.FAILED,))
_LOST = frozenset((BarOutcome.EXPIRED, BarOutcome.LATE, BarOutcome.LOST, BarOutcome.REVOKED))


class Screen(NamedTuple):
    """The size of the window, and whether it shows symbols."""

    width: int
    height: int
    has_symbols: bool


def find_look(bar: TimelineBar) -> Look:
    """Find how a bar looks, by its kind and, of an attempt, its outcome."""
    if bar.kind in _ATTEMPTS and bar.outcome in _FAILED:
        return FAILED
    if bar.kind in _ATTEMPTS and bar.outcome in _LOST:
        return LOST
    look = LOOKS[bar.kind]
    return (
        Look(look.symbol, look.plain, "cyan", look.says)
        if bar.kind is BarKind.ATTEMPT and bar.outcome is BarOutcome.OPEN
        else look
    )


def draw_task(watched: WatchedTask, now: Instant, screen: Screen, *, note: str = "") -> list[Text]:
    """Draw a task: what it is and waits for, a row for each step, and the last events in words.

    Args:
        now: the store's clock; open bars reach until then.
        note: a line about the watching itself; empty: none.
    Returns: lines that fit the window, at most as many as it is high.
    """
    timeline = watched.timeline
    head = _draw_head(watched, now, screen, note)
    room = max(screen.height - len(head) - 1, 1)
    axis_end = max(now, timeline.end) if timeline.is_open else timeline.end
    rows = _draw_rows(timeline, axis_end, screen)
    legend = _draw_legend(timeline.rows, screen)
    events = _draw_events(timeline, screen)
    for_events = min(len(events), max(EVENTS_MIN, room - len(rows) - len(legend) - 1))
    for_rows = max(room - for_events - len(legend) - (1 if for_events else 0), min(room, 2))
    shown = _keep_rows(rows, timeline.rows, for_rows)
    lines = [*head, *shown]
    if len(lines) + len(legend) + 1 < screen.height:
        lines += legend
    left = screen.height - len(lines) - 2
    if events and left > 0:
        lines += [Text(), *events[-left:]]
    return [_cut(line, screen.width) for line in lines[: max(screen.height - 1, 1)]]


def _draw_head(watched: WatchedTask, now: Instant, screen: Screen, note: str) -> list[Text]:
    timeline = watched.timeline
    state = f"{timeline.state}{', paused' if watched.paused else ''}"
    incarnation = f", incarnation {timeline.incarnation}" if timeline.incarnation > 1 else ""
    name = f"task {one_line(timeline.id)} (number {timeline.no}) of workflow {one_line(timeline.workflow)}{incarnation}"
    lines = [_paint_state(f"{find_mark(timeline.state, screen)} {state}", timeline.state)]
    lines += [Text(line) for line in break_lines(name, screen.width, hanging=2)]
    told = [("waiting for", watched.waiting_for), ("reason", watched.reason)]
    if watched.complete_by is not None and timeline.is_open:
        by = watched.complete_by
        told.append(("to be done by", f"{format_instant(by)} ({format_relative(by, now)})"))
    told += [("cannot be read", says) for says in watched.unreadable]
    for title, text in told:
        if text:
            lines += [Text(line) for line in break_lines(one_line(text), screen.width, first=f"{title}: ", hanging=2)][
                :3
            ]
    lines += [Text(line, "yellow") for line in break_lines(one_line(note), screen.width)] if note else []
    return [*lines, Text()]


def find_mark(state: str, screen: Screen) -> str:
    """Find the symbol of a state for a window."""
    mark = STATE_MARKS.get(state)
    return " " if mark is None else mark.symbol if screen.has_symbols else mark.plain


def _paint_state(text: str, state: str) -> Text:
    mark = STATE_MARKS.get(state)
    return Text(text, "" if mark is None else mark.colour)


# --- rows
class _Columns(NamedTuple):
    label: int
    word: int
    bars: int


def _measure(rows: Sequence[TimelineRow], screen: Screen) -> _Columns:
    longest = max((display_width(one_line(row.label)) for row in rows), default=4)
    label = max(min(longest, LABEL_MAX, (screen.width - BARS_MIN) // 2), 4)
    word = 18 if screen.width >= STATE_WORD_FROM else 0
    return _Columns(label, word, max(screen.width - label - word - 4, 1))


def _draw_rows(timeline: TaskTimeline, end: Instant, screen: Screen) -> list[Text]:
    """The axis, then a line for each row; the first one is the task."""
    columns = _measure(timeline.rows, screen)
    indent = " " * (columns.label + columns.word + 3)
    span = format_duration(max(seconds_between(timeline.start, end), 0.0))
    begin = format_instant(timeline.start)
    axis = f"{begin}{f'+{span}'.rjust(max(columns.bars - len(begin), len(span) + 2))}"
    if len(axis) > columns.bars:
        axis = f"+{span}".rjust(columns.bars)
    lines = [Text(f"{indent}{axis}"[: screen.width], "bright_black")]
    lines += [_draw_row(row, timeline.start, end, columns, screen) for row in timeline.rows]
    if timeline.rows_left_out:
        lines.append(
            Text(f"and {format_count(timeline.rows_left_out, 'more step')}, which are not shown"[: screen.width])
        )
    return lines


def _draw_row(row: TimelineRow, start: Instant, end: Instant, columns: _Columns, screen: Screen) -> Text:
    label = "the task" if not row.ordinal else one_line(row.label)
    line = Text()
    line.append(find_mark(row.state, screen), _paint_state("", row.state).style)
    line.append(f" {fit(label, columns.label)} ")
    if columns.word:
        tries = f" x{row.attempts}" if row.attempts > 1 else ""
        word = f"{row.state}{tries}{' ?' if row.in_doubt else ''}"
        line.append(f"{fit(word, columns.word - 1)} ", _paint_state("", row.state).style)
    for text, colour in join_cells(draw_cells(row, start, end, columns.bars), screen):
        line.append(text, colour)
    return line


def draw_cells(row: TimelineRow, start: Instant, end: Instant, width: int) -> list[Look | None]:
    """Draw the bars of a row into cells. A bar takes at least one; an attempt is never hidden by a wait."""
    cells: list[Look | None] = [None] * width
    quiet = [bar for bar in row.bars if bar.kind not in _ATTEMPTS]
    loud = [bar for bar in row.bars if bar.kind in _ATTEMPTS]
    for bar in (*quiet, *row.doubts, *loud):
        first, last = _find_cells(bar, start, end, width)
        look = find_look(bar)
        for at in range(first, last + 1):
            cells[at] = look
    return cells


def _find_cells(bar: TimelineBar, start: Instant, end: Instant, width: int) -> tuple[int, int]:
    span = max(end - start, 1)
    until = end if bar.end is None else min(bar.end, end)
    first = min(max((bar.start - start) * width // span, 0), width - 1)
    last = min(max(-(-(until - start) * width // span) - 1, first), width - 1)
    return first, last


def join_cells(cells: Iterable[Look | None], screen: Screen) -> list[tuple[str, str]]:
    """Join neighbours of one look into texts with their colours."""
    found: list[tuple[str, str]] = []
    for look in cells:
        character = " " if look is None else look.symbol if screen.has_symbols else look.plain
        colour = "" if look is None else look.colour
        if found and found[-1][1] == colour:
            found[-1] = (found[-1][0] + character, colour)
        else:
            found.append((character, colour))
    return found


def break_lines(text: str, width: int, *, first: str = "", hanging: int = 0) -> list[str]:
    """A text as lines of that width at most, as ``wrap`` gives them; a word that is longer than a line is broken, too."""
    lines: list[str] = []
    for line in wrap(text, width, first=first, hanging=hanging):
        lines += [line] if display_width(line) <= width else fold(line, max(width, 2))
    return lines


def fit(text: str, width: int) -> str:
    """A text of exactly that width: cut, with dots at its end, or filled."""
    if display_width(text) > width:
        dots = "." * min(width, 2)
        while display_width(text) > width - len(dots):
            text = text[:-1]
        text += dots
    return text + " " * (width - display_width(text))


def _keep_rows(lines: list[Text], rows: Sequence[TimelineRow], room: int) -> list[Text]:
    """The axis and the task, and of the steps those that there is room for: the open and the doubtful ones, then the last ones."""
    if len(lines) <= room:
        return lines
    kept = max(room - 3, 0)
    steps = [(_is_open(row), at) for at, row in enumerate(rows[1:], start=2)]  # the axis and the task stand before them
    steps += [(False, at) for at in range(len(rows) + 1, len(lines))]
    chosen = sorted(at for _, at in sorted(steps, reverse=True)[:kept])
    hidden = len(lines) - 2 - len(chosen)
    note = Text(f"  ... {format_count(hidden, 'line')} for which the window is too low")
    return [*lines[:2], note, *(lines[at] for at in chosen)][: max(room, 2)]


def _is_open(row: TimelineRow) -> bool:
    return row.in_doubt or (bool(row.bars) and row.bars[-1].end is None)


def _draw_legend(rows: Iterable[TimelineRow], screen: Screen) -> list[Text]:
    """One line that names the kinds of bars that are drawn; two at most."""
    looks = {find_look(bar).says: find_look(bar) for row in rows for bar in (*row.bars, *row.doubts)}
    line, lines = Text(), []
    for look in looks.values():
        entry = f"{look.symbol if screen.has_symbols else look.plain} {look.says}"
        if line.plain and display_width(line.plain) + len(entry) + 3 > screen.width:
            lines.append(line)
            line = Text()
        if line.plain:
            line.append("   ")
        line.append(entry[:2], look.colour)
        line.append(entry[2:], "bright_black")
    return [*lines, line][:2] if line.plain else []


def _draw_events(timeline: TaskTimeline, screen: Screen) -> list[Text]:
    lines = (
        [Text(f"and {format_count(timeline.unreadable, 'event')} that cannot be read")] if timeline.unreadable else []
    )
    for entry in timeline.last:
        first = f"+{format_duration(max(entry.after, 0.0))}  ".rjust(14 if screen.width >= STATE_WORD_FROM else 0)
        line = break_lines(one_line(entry.says), screen.width, first=first, hanging=len(first))
        lines += [Text(one) for one in line]
    return lines


def _cut(line: Text, width: int) -> Text:
    line.truncate(max(width, 1))
    return line
