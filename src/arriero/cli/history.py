"""``arriero history``, ``arriero export`` and ``arriero check``."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import IO, Any

import click
import msgspec

from ..core.export import Summed, export_line, read_export, trailer_line
from ..core.stored_events import events_of
from ..core.story import Section, Story
from ..core.wording import span, when
from ..errors import MutilatedExport
from ..model import HistoryRow, Instant, TaskRow
from ..store.base import StateStore
from .layout import wrapped
from .output import Progress, data_output, for_reader, one_line, print_json, print_text, shown_exactly, terminal_width
from .stores import json_option, reading, store_option
from .task import find_task

VIOLATED = 1
_INSTANTS = ("not_before", "complete_by", "fire_at", "answered_at")  # in events, microseconds
_NOT_SHOWN = ("type", "policy")  # the one stands first, the other fills a line; `task show` tells it


@click.command(short_help="Print what happened, event by event.")
@click.argument("task", metavar="[TASK]", required=False)
@click.option("--raw", is_flag=True, help="Of one task too: every event with all its fields, as of all tasks.")
@store_option
@json_option
def history(task: str | None, raw: bool, store: str | None, as_json: bool) -> None:
    """Tell what happened to a task in plain words, one line per event; or, without TASK, the events of all.

    Times are UTC by the store's clock; beside each stands how long after the beginning of its incarnation it was. With
    --json, the rows as `arriero export` writes them, whole but without its trailer.
    """
    asyncio.run(_history(task, store, raw, as_json))


async def _history(task_id: str | None, store: str | None, raw: bool, as_json: bool) -> None:
    output = data_output()
    async with reading(store) as opened:
        task = None if task_id is None else (await find_task(task_id, opened)).task
        lines = _as_json if as_json else _events if raw or task is None else _told(task)
        async for row in opened.history(None if task is None else task.task_no):
            for line in lines(row):
                output.write(for_reader(output, line) if as_json else line)
    output.flush()


def _as_json(row: HistoryRow) -> Iterator[bytes]:
    yield export_line(row)


def _events(row: HistoryRow) -> Iterator[bytes]:
    for event in events_of(row):
        fields = [f"{name}={_value(name, value)}" for name, value in event.items() if name not in _NOT_SHOWN]
        name = row.task_id if row.task_no > 0 else f"convoy:{row.task_id}" if row.task_no < 0 else "-"
        head = [shown_exactly(row.at), name, event["type"]]
        yield _line(" ".join([*head, *fields, "by", row.actor]))


def _told(task: TaskRow) -> Callable[[HistoryRow], Iterator[bytes]]:
    story = Story()

    def lines(row: HistoryRow) -> Iterator[bytes]:
        for told in story.told(row):
            if isinstance(told, Section):
                if told.incarnation == 1:
                    head = f"task {task.task_id} (number {task.task_no}) of workflow {task.workflow}, now {task.state}"
                    yield _wrapped_line(head, hanging=2)
                yield b"\n"
                yield _line(f"incarnation {told.incarnation}, from {shown_exactly(told.at)}")
            else:
                after = f"+{span(told.after)}"
                first = f"{when(told.at)}  {after:>12}  "
                yield _wrapped_line(told.says, first=first, hanging=len(first))

    return lines


def _line(text: str) -> bytes:
    return one_line(text).encode() + b"\n"


def _wrapped_line(text: str, *, first: str = "", hanging: int) -> bytes:
    """A line, on a terminal broken between words."""
    width = terminal_width()
    if width is None:
        return _line(first + text)
    return "".join(f"{line}\n" for line in wrapped(one_line(text), width, first=first, hanging=hanging)).encode()


def _value(name: str, value: Any) -> str:
    if name in _INSTANTS and isinstance(value, int):
        return shown_exactly(Instant(value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@click.command(short_help="Write the whole history as JSON lines.")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Accepted as everywhere; an export is JSON lines anyway.")
def export(store: str | None, as_json: bool) -> None:
    """Write the whole history to standard output, as JSON lines with a trailer, for `arriero check`.

    It is a complete state of the history, as of its beginning, also while Apps run on the store.
    """
    asyncio.run(_export(store))


async def _export(store: str | None) -> None:
    output = data_output()
    async with reading(store) as opened:
        with Progress("export") as progress:
            async for line in _lines(opened):
                output.write(for_reader(output, line))
                progress.advance()
    output.flush()


async def _lines(store: StateStore) -> AsyncIterator[bytes]:
    summed = Summed()
    async for row in store.history():
        summed.add(row)
        yield export_line(row)
    yield trailer_line(summed.trailer(store.store_id))


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``check --json`` prints."""

    clean: bool
    rows: int
    tasks: int
    violations: tuple[Any, ...] = ()
    mutilated: str = ""


@click.command(short_help="Check an exported history.")
@click.argument("file")
@json_option
def check(file: str, as_json: bool) -> None:
    """Check an exported history: that it is whole, and that what it tells keeps every promise. - is standard input.

    Exits with 0 when it is clean, with 1 when it is not, with 2 when the file cannot be read.
    """
    verdict = _checked(file)
    if as_json:
        print_json(verdict)
    else:
        _print(verdict)
    if not verdict.clean:
        sys.exit(VIOLATED)


def _checked(file: str) -> Verdict:
    from ..core.history import check as check_history

    try:
        rows = _rows(file)
    except MutilatedExport as error:
        return Verdict(False, 0, 0, mutilated=str(error))
    violations = check_history(rows)
    return Verdict(not violations, len(rows), len({row.task_no for row in rows if row.task_no > 0}), tuple(violations))


def _rows(file: str) -> list[HistoryRow]:
    try:
        with click.open_file(file, "rb") as stream, Progress("check") as progress:
            return read_export(_counted(stream, progress))
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error


def _counted(stream: IO[Any], progress: Progress) -> Iterable[bytes]:
    for line in stream:
        progress.advance()
        yield line


def _print(verdict: Verdict) -> None:
    if verdict.clean:
        click.echo(f"clean: {verdict.rows:,} rows of {verdict.tasks:,} tasks keep every invariant")
    if verdict.mutilated:
        click.echo(f"not clean: {one_line(verdict.mutilated)}")
    for violation in verdict.violations:
        print_text(f"{violation.invariant} {violation.task or 'the store'}: {violation.detail}", hanging=2)
    if verdict.violations:
        click.echo(
            f"not clean: {len(verdict.violations):,} violations in {verdict.rows:,} rows of {verdict.tasks:,} tasks"
        )
