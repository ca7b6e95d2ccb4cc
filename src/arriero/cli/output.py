"""What commands print: one line per thing, a table on a terminal, JSON lines for programs, progress for people."""

import logging
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, BinaryIO

import click
import msgspec

from ..attempt import as_datetime
from ..escaping import escaped, escaped_json, one_line
from ..model import Instant

PROGRESS_AFTER_SECONDS = 1.0
PROGRESS_EVERY_SECONDS = 0.2
GAP = 2  # between two columns
INDENT = "    "  # of what stands below a row

__all__ = [
    "PlainFormatter",
    "Progress",
    "data_output",
    "for_reader",
    "json_line",
    "one_line",
    "print_json",
    "print_table",
    "shown_exactly",
    "shown_span",
    "shown_time",
    "time_of",
    "write_no_more",
]


def write_no_more() -> None:
    """Point standard output at nothing, after it failed: else the interpreter tries to write the rest as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def time_of(instant: Instant | None) -> datetime | None:
    """An instant for JSON."""
    return None if instant is None else as_datetime(instant)


def shown_time(when: datetime | None) -> str:
    """A time for people, in UTC; empty for none."""
    return "" if when is None else f"{when:%Y-%m-%d %H:%M:%S}Z"


def shown_span(start: datetime | None, end: datetime | None) -> str:
    """Seconds between two times; empty while one is missing."""
    return "" if start is None or end is None else f"{(end - start).total_seconds():.3f} s"


def shown_exactly(instant: Instant) -> str:
    """An instant with its microseconds; one that no calendar has, as a damaged row may hold it, as its number."""
    try:
        return as_datetime(instant).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (OverflowError, ValueError, TypeError):
        return f"instant {instant!r}"


def data_output() -> BinaryIO:
    """Standard output for many bytes. Raises ClickException: it is closed."""
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; send it to a file or a pipe")
    return sys.stdout.buffer


def print_json(value: Any) -> None:
    """A value as one line of JSON."""
    click.echo(json_line(value))


def json_line(value: Any) -> str:
    """A value as JSON in which nothing moves a cursor: what cannot be seen is escaped, which changes no value."""
    return escaped_json(msgspec.json.encode(value).decode())


def for_reader(output: BinaryIO, line: bytes) -> bytes:
    """A line of JSON whose very bytes are hashed: as it is for files and programs, escaped for a terminal."""
    return escaped_json(line.decode()).encode() if output.isatty() else line


class PlainFormatter(logging.Formatter):
    """Log records whose texts, tracebacks included, move no cursor."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record), keep="\n\t")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, last_below: bool = False) -> None:
    """Rows under their columns: fitted to a terminal, else aligned text that tools can cut.

    Args:
        last_below: the last column is a sentence, which nobody reads in a column of ten characters: on a terminal that
            is too narrow the last columns stand below their row, cut to one line.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout is not None and sys.stdout.isatty():
        if not (last_below and _printed_below(columns, cells)):
            _print_framed(columns, cells)
        return
    widths = [max(len(row[at]) for row in (columns, *cells)) for at in range(len(columns))]
    for row in (columns, *cells):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _printed_below(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    """Print what does not fit below each row, in one line; not where all fits, or less than two columns do."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console

    width = Console().width
    widths = [max(cell_len(row[at]) for row in (columns, *cells)) for at in range(len(columns))]
    ends = [sum(widths[:count]) + GAP * (count - 1) for count in range(1, len(widths) + 1)]
    fitting = sum(end <= width for end in ends)
    if not 2 <= fitting < len(columns):
        return False
    for row in (columns, *cells):
        padded = [set_cell_size(cell, size) for cell, size in zip(row, widths, strict=True)]
        click.echo((" " * GAP).join(padded[:fitting]).rstrip())
        below = (" " * GAP).join(filter(None, row[fitting:]))
        if below:
            click.echo(f"{INDENT}{_cut_to(below, width - len(INDENT))}")
    return True


def _cut_to(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 3).rstrip()}..."


def _print_framed(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")  # an id is folded rather than cut
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


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
        self.reached(self._count + 1)

    def reached(self, count: int) -> None:
        """So many are done."""
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
