"""What commands print: one line per thing, a table on a terminal, JSON lines for programs, progress for people."""

import logging
import os
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, BinaryIO

import click
import msgspec

from ..attempt import as_datetime
from ..core.wording import span
from ..escaping import escaped, escaped_json, one_line
from ..model import Instant
from . import layout

PROGRESS_AFTER_SECONDS = 1.0
TEXT_SHOWN_MAX = 300
PROGRESS_EVERY_SECONDS = 0.2

__all__ = [
    "PlainFormatter",
    "Progress",
    "cut",
    "data_output",
    "for_reader",
    "json_line",
    "one_line",
    "print_json",
    "print_table",
    "print_text",
    "shown_exactly",
    "shown_span",
    "shown_time",
    "terminal_width",
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


def cut(text: str) -> str:
    """A text for people, at most so long; the whole of it is in the JSON."""
    if len(text) <= TEXT_SHOWN_MAX:
        return text
    return f"{text[:TEXT_SHOWN_MAX]}... [{len(text):,} characters; whole with --json]"


def shown_span(start: datetime | None, end: datetime | None) -> str:
    """The length of the time between two times; empty while one is missing."""
    return "" if start is None or end is None else span((end - start).total_seconds())


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


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under their columns: fitted to a terminal, else aligned text that tools can cut."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    width = terminal_width()
    if width is not None:
        click.echo("\n".join(layout.table(columns, cells, width)))
        return
    widths = [max(len(row[at]) for row in (columns, *cells)) for at in range(len(columns))]
    for row in (columns, *cells):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_text(text: str, *, first: str = "", hanging: int = 0) -> None:
    """A sentence: broken between words on a terminal, else one line.

    Args:
        first: what it begins with, as it is, like a label and its indentation.
        hanging: how far its later lines are indented.
    """
    line, width = one_line(text), terminal_width()
    click.echo(first + line if width is None else "\n".join(layout.wrapped(line, width, first=first, hanging=hanging)))


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
