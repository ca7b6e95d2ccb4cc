"""Output of commands: a line for each thing, tables on a terminal, JSON lines for programs, progress for operators."""

import codecs
import io
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from ..model import Instant, StepState, TaskState
from ..model.failures import CapturedTraceback
from ..model.instants import as_datetime
from ..text.escaping import escape_json, escape_text, one_line
from ..text.format import format_duration, format_traceback

# Text and tables fitted to the width of a terminal. What is to be copied, like an id, a key or a command, must stand on one line: of
# a table that is too narrow for its ids, each row becomes a block of some lines, in which the title of a column stands before each
# cell. No word is broken that fits a line, and no command in backticks.
GAP = "  "
PROSE_MIN = 24  # columns for sentences are not made narrower than this for their long words
PROSE = frozenset(("reason", "says", "waits for", "arguments", "result", "value"))


class StateMark(NamedTuple):
    """Symbol and colour of a state on a terminal. ``plain``: the symbol where the terminal is not UTF-8."""

    symbol: str
    plain: str
    colour: str


_WAITING = StateMark("○", "o", "blue")
_RUNNING = StateMark("▶", ">", "cyan")
_DONE = StateMark("✓", "+", "green")
STATE_MARKS: Mapping[str, StateMark] = {  # of tasks and of steps
    TaskState.PENDING: _WAITING,
    TaskState.PROCESSING: _RUNNING,
    TaskState.PROCESSED: _DONE,
    TaskState.COMPENSATING: StateMark("◀", "<", "yellow"),
    TaskState.COMPENSATED: StateMark("↩", "~", "yellow"),
    TaskState.HELD: StateMark("!", "!", "red"),
    StepState.PLANNED: StateMark("·", ".", "blue"),
    StepState.RUNNING: _RUNNING,
    StepState.COMPLETED: _DONE,
    StepState.FAILED: StateMark("✗", "x", "red"),
    StepState.WITHDRAWN: StateMark("⊘", "-", "yellow"),
}
MARKED = frozenset(("", "state"))  # titles of the columns that have the colour of the state

_WORDS = re.compile(r"(?:`[^`]*`|\(arriero [^)]*\)|\S)+")  # a command in backticks or alone in brackets is one word


def display_width(text: str) -> int:
    """Count the places that a text takes on a terminal; many characters of East Asia take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int, *, first: str = "", hanging: int = 0) -> list[str]:
    """A text as lines of that width at most, broken between words.

    Args:
        first: what the first line begins with, as it is.
        hanging: places by which the lines after the first are indented.
    Returns: at least one line. A word that is longer than a line stands on a separate line, whole.
    """
    lines: list[str] = []
    line, has_word = first, False
    for word in _WORDS.findall(text):
        if has_word and display_width(line) + 1 + display_width(word) > width:
            lines.append(line)
            line, has_word = " " * hanging, False
        line = f"{line} {word}" if has_word else f"{line}{word}"
        has_word = True
    return [*lines, line]


def fold(text: str, width: int) -> list[str]:
    """The same for a cell of a table, where also a word that is too long must be broken."""
    lines: list[str] = []
    for line in wrap(text, width):
        rest = line
        while display_width(rest) > width:
            at = next(n for n in range(len(rest), 0, -1) if display_width(rest[:n]) <= width or n == 1)
            lines.append(rest[:at])
            rest = rest[at:]
        lines.append(rest)
    return lines


Paint = Callable[[int, str, str], str]  # the number of a row, the title of a column, and the text that gets a colour


def _leave_plain(row: int, title: str, text: str) -> str:
    return text


def format_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, paint: Paint = _leave_plain
) -> list[str]:
    """Rows under their columns, or as blocks where the terminal is too narrow for that.

    Args:
        columns: titles; those in ``PROSE`` hold sentences, which may be broken anywhere between words.
        rows: cells without line breaks, as many as there are columns.
        width: of the terminal, in places.
        paint: gives a text its colour.
    Returns: lines.
    """
    everything = [columns, *rows]
    natural = [max(display_width(row[at]) for row in everything) for at in range(len(columns))]
    whole = [_minimum_width(title, at, everything, whole=True) for at, title in enumerate(columns)]
    by_words = [_minimum_width(title, at, everything, whole=False) for at, title in enumerate(columns)]
    room = width - len(GAP) * (len(columns) - 1)
    for least in (natural, whole, by_words):
        if sum(least) <= room:
            return _format_columns(columns, rows, _distribute_width(least, natural, room), paint)
    return _format_blocks(columns, rows, width, paint)


def choose_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, optional: Sequence[str]
) -> list[int]:
    """Choose the columns that a terminal has room for: the optional ones are left out, the first of them first."""
    shown = list(range(len(columns)))
    for title in ("", *optional):
        shown = [at for at in shown if not title or columns[at] != title]
        everything = [[row[at] for at in shown] for row in (columns, *rows)]
        least = [_minimum_width(columns[at], n, everything, whole=True) for n, at in enumerate(shown)]
        if sum(least) + len(GAP) * (len(shown) - 1) <= width:
            return shown
    return list(range(len(columns)))


def _minimum_width(title: str, at: int, rows: Sequence[Sequence[str]], *, whole: bool) -> int:
    """The least width of a column. ``whole``: its cells are not broken at all, unless they are sentences."""
    if whole and title not in PROSE:
        return max(display_width(row[at]) for row in rows)
    longest = max((display_width(word) for row in rows for word in _WORDS.findall(row[at])), default=0)
    return min(longest, PROSE_MIN) if title in PROSE else longest


def _distribute_width(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Widths of the columns: what is left over goes to those that want more, from the left."""
    widths = list(least)
    left = room - sum(widths)
    for at, wanted in enumerate(natural):
        more = max(min(wanted - widths[at], left), 0)
        widths[at] += more
        left -= more
    return widths


def _format_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], paint: Paint
) -> list[str]:
    lines: list[str] = []
    for at, row in enumerate((columns, *rows), start=-1):
        cells = [fold(cell, max(width, 1)) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            padded = (
                (text if at < 0 else paint(at, title, text)) + " " * (width - display_width(text))
                for text, title, width in zip(line, columns, widths, strict=True)
            )
            lines.append(GAP.join(padded).rstrip())
    return lines


def _format_blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, paint: Paint) -> list[str]:
    """Each row as some lines of titles and cells; a line is begun again before a cell is broken."""
    lines: list[str] = []
    for at, row in enumerate(rows):
        line, first = "", len(lines)
        symbol = "" if columns[0] else row[0]
        for title, cell in zip(columns, row, strict=True):
            pair = f"{title} {cell}".strip() if cell else ""
            is_begun = line.strip() not in ("", symbol)
            if is_begun and pair and display_width(line) + len(GAP) + display_width(pair) > width:
                lines.append(line)
                line = GAP
            if pair:
                joined = line + GAP if line.strip() else line
                *done, line = wrap(pair, width, first=joined, hanging=2 * len(GAP))
                lines += done
        lines.append(line)
        if symbol:
            lines[first] = paint(at, "", symbol) + lines[first].removeprefix(symbol)
    return lines


PROGRESS_AFTER_SECONDS = 1.0
TEXT_SHOWN_MAX = 300
PROGRESS_EVERY_SECONDS = 0.2


def discard_output() -> None:
    """Point standard output at nothing, after it failed: else the interpreter tries to write the rest as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def escape_unencodable_output() -> None:
    """Let standard output and error escape the characters that their encoding lacks; without this, they raise."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _find_output_encoding() -> str:
    """The name of the encoding of standard output. ASCII means that no language is set: click then writes UTF-8."""
    name = codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name
    return "utf-8" if name == "ascii" else name


def encode_text(text: str) -> bytes:
    """Encode a text for standard output; characters that its encoding lacks are escaped."""
    return text.encode(_find_output_encoding(), "backslashreplace")


def _escape_unencodable(text: str) -> str:
    """Escape what standard output cannot encode, before the width of the text is measured."""
    return text if text.isascii() else encode_text(text).decode(_find_output_encoding())


def format_time(when: datetime | None) -> str:
    """A time for operators, in UTC; empty for none."""
    return "" if when is None else f"{when:%Y-%m-%d %H:%M:%S}Z"


def truncate(text: str) -> str:
    """A text for operators, at most this long; the whole of it is in the JSON."""
    if len(text) <= TEXT_SHOWN_MAX:
        return text
    return f"{text[:TEXT_SHOWN_MAX]}... [{len(text):,} characters; whole with --json]"


def format_time_between(start: datetime | None, end: datetime | None) -> str:
    """The length of the time between two times; empty while one is missing."""
    return "" if start is None or end is None else format_duration((end - start).total_seconds())


def format_exact_instant(instant: Instant) -> str:
    """An instant with its microseconds; one that no calendar has, as a damaged row may hold it, as its number."""
    try:
        return as_datetime(instant).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (OverflowError, ValueError, TypeError):
        return f"instant {instant!r}"


def open_data_output() -> BinaryIO:
    """Standard output for many bytes. Raises ClickException: it is closed."""
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; send it to a file or a pipe")
    return sys.stdout.buffer


def print_json(value: Any) -> None:
    """A value as one line of JSON."""
    click.echo(json_line(value))


def json_line(value: Any) -> str:
    """A value as JSON in which nothing moves a cursor: what cannot be seen or encoded is escaped, which changes no value."""
    return escape_json(msgspec.json.encode(value).decode(), ascii_only=_find_output_encoding() != "utf-8")


def escape_for_terminal(output: BinaryIO, line: bytes) -> bytes:
    """A line of JSON whose very bytes are hashed: as it is for files and programs, escaped for a terminal."""
    if not output.isatty():
        return line
    return escape_json(line.decode(), ascii_only=_find_output_encoding() != "utf-8").encode()


class PlainFormatter(logging.Formatter):
    """Log records whose texts, tracebacks included, move no cursor."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_text(super().format(record), keep="\n\t")


def encodes_symbols() -> bool:
    """Returns True if standard output shows symbols, and not only letters."""
    return os.environ.get("LC_ALL") not in ("C", "POSIX") and codecs.lookup(sys.stdout.encoding).name == "utf-8"


def find_symbol(state: str) -> str:
    """Find the symbol of a state; empty for a state without one."""
    mark = STATE_MARKS.get(state)
    return "" if mark is None else mark.symbol if encodes_symbols() else mark.plain


def colour_by_state(text: str, state: str) -> str:
    """Give a text on a terminal the colour of a state, unless the environment forbids colours (NO_COLOR)."""
    mark = STATE_MARKS.get(state)
    if mark is None or not text or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, fg=mark.colour)


def format_state(state: str) -> str:
    """Format a state: on a terminal its symbol and the word in its colour, else the word."""
    return state if terminal_width() is None else colour_by_state(f"{find_symbol(state)} {state}".lstrip(), state)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    states: Sequence[str] | None = None,
    optional: Sequence[str] = (),
) -> None:
    """Rows under their columns: fitted to a terminal, else aligned text that tools can cut.

    Args:
        states: of the things in the rows; on a terminal each has a symbol in front and a colour.
        optional: titles of the columns that are left out where a terminal is too narrow, the first one first.
    """
    cells = [[_escape_unencodable(one_line(cell)) for cell in row] for row in rows]
    width = terminal_width()
    if width is not None:
        if states is not None:
            columns = ("", *columns)
            cells = [[find_symbol(state), *row] for state, row in zip(states, cells, strict=True)]
        shown = choose_columns(columns, cells, width, optional)

        def paint(row: int, title: str, text: str) -> str:
            return text if states is None or title not in MARKED else colour_by_state(text, states[row])

        titles, kept = [columns[at] for at in shown], [[row[at] for at in shown] for row in cells]
        click.echo("\n".join(format_table(titles, kept, width, paint)))
        return
    widths = [max(len(row[at]) for row in (columns, *cells)) for at in range(len(columns))]
    for row in (columns, *cells):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_text(text: str, *, first: str = "", hanging: int = 0, breaks_words: bool = False, state: str = "") -> None:
    """A sentence: broken between words on a terminal, else one line.

    Args:
        first: what it begins with, as it is, like a label and its indentation.
        hanging: how far its later lines are indented.
        breaks_words: whether a word that is longer than a line is broken, as of a payload.
        state: of what the sentence is about; on a terminal its symbol comes first, or ``first`` gets its colour.
    """
    line, width = _escape_unencodable(one_line(text)), terminal_width()
    if width is None:
        click.echo(first + line)
    elif breaks_words:
        click.echo(first + f"\n{' ' * hanging}".join(fold(line, max(width - hanging, 1))))
    else:
        symbol = find_symbol(state)
        first = first or (f"{symbol} " if symbol else "")
        lines = "\n".join(wrap(line, width, first=first, hanging=hanging))
        coloured = first.rstrip()
        click.echo(colour_by_state(coloured, state) + lines.removeprefix(coloured))


def print_fields(fields: Mapping[str, str], width: int) -> None:
    """Print what is there of some fields, each behind its name. ``width``: of the column of names."""
    for name, value in fields.items():
        if value:
            print_text(value, first=f"{name + ':':{width}}", hanging=width)


def print_history(lines: Sequence[str]) -> None:
    """Print what happened to a thing, if anything is known of that."""
    if lines:
        click.echo("\nwhat happened:")
    for line in lines:
        print_text(line, first="- ", hanging=2)


def print_commands(commands: Sequence[tuple[str, str]]) -> None:
    """Print the commands that would change something, each with what it does."""
    if commands:
        click.echo("\nwhat you can do:")
    for command, does in commands:
        print_text(f"{does}:", first="- ", hanging=2)
        click.echo(f"    {command}")


def terminal_width() -> int | None:
    """Places of a line of the terminal that standard output is; None: it is none."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _is_watched(beside_data: bool) -> bool:
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    return not beside_data or (sys.stdout is not None and not sys.stdout.isatty())


class Progress:
    """Counts on standard error, if that is a terminal and the data goes elsewhere; silent in the first second.

    Args:
        unit: of what is counted.
        beside_data: whether data is printed meanwhile; else a terminal may show both, as data comes at the end.
    """

    def __init__(self, what: str, unit: str = "rows", *, beside_data: bool = True) -> None:
        self._what = what
        self._unit = unit
        self._count = 0
        self._next = time.monotonic() + PROGRESS_AFTER_SECONDS
        self._is_shown = _is_watched(beside_data)
        self._wrote = False

    def __enter__(self) -> "Progress":
        return self

    def advance(self) -> None:
        """One more is done."""
        self.set_count(self._count + 1)

    def set_count(self, count: int) -> None:
        """Set the count of what is done."""
        self._count = count
        if self._is_shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_EVERY_SECONDS
            self._wrote = True
            click.echo(f"\r{self._what}: {self._count:,} {self._unit}", err=True, nl=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._wrote:
            click.echo(f"\r{self._what}: {self._count:,} {self._unit}", err=True)


def print_trace(trace: CapturedTraceback, *, indent: int) -> None:
    """The lines that an exception passed; nothing for an empty one."""
    for line in format_traceback(trace):
        depth = len(line) - len(line.lstrip())
        print_text(line.strip(), first=" " * (indent + depth), hanging=indent + depth + 2)
