"""``arriero history``, ``arriero export`` and ``arriero check``; and the record of what was sent to a task and to its steps."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import click
import msgspec

from ..audit.export import TrailerSum, encode_record, encode_row, encode_trailer, read_export
from ..client.payload_record import ShownByHand, ShownLateAnswer, ShownRecord, ShownVersion
from ..client.replaying import list_records
from ..client.session import find_task
from ..core.replay_judgement import STATES
from ..errors import MutilatedExport, UnreadableRow
from ..events import decode_event_fields
from ..explain.past import IncarnationStart, Timeline
from ..model import HistoryRow, Instant, Loaded, TaskRow
from ..model.failures import read_step_failure
from ..operations.problems import ExitCode
from ..store.readable import refuse_unreadable_task
from ..store.state_store import StateStore
from ..text.escaping import one_line
from ..text.format import format_count, format_duration, format_failure_with_line, format_instant
from .options import json_option, print_note, store_option
from .output import (
    Progress,
    encode_text,
    escape_for_terminal,
    format_exact_instant,
    format_time,
    open_data_output,
    print_json,
    print_text,
    terminal_width,
    truncate,
    wrap,
)
from .stores import open_store_to_read

_INSTANTS = ("not_before", "complete_by", "fire_at", "answered_at")  # in events, microseconds
_NOT_SHOWN = ("type", "policy")  # the one stands first, the other fills a line; `task show` shows it


@click.command(short_help="Print what happened, event by event.")
@click.argument("task", metavar="[TASK]", required=False)
@click.option("--raw", is_flag=True, help="Print every event with all its fields, also for one task.")
@store_option
@json_option
def history(task: str | None, raw: bool, store: str | None, as_json: bool) -> None:
    """Print what happened to a task in plain words, one line per event; or, without TASK, the events of all.

    Times are UTC by the store's clock; beside each stands how long after the beginning of its incarnation it was. With
    --json, the rows as `arriero export` writes them, whole but without its trailer.
    """
    asyncio.run(_print_history(task, store, raw, as_json))


async def _print_history(task_id: str | None, store: str | None, raw: bool, as_json: bool) -> None:
    output = open_data_output()
    async with open_store_to_read(store) as opened:
        task = None if task_id is None else (await find_task(task_id, opened)).task
        lines = _encode_row if as_json else _format_events if raw or task is None else _make_timeline_formatter(task)
        async for row in opened.history(None if task is None else task.task_no):
            for line in lines(row):
                output.write(escape_for_terminal(output, line) if as_json else line)
    output.flush()


def _encode_row(row: HistoryRow) -> Iterator[bytes]:
    yield encode_row(row)


def _format_events(row: HistoryRow) -> Iterator[bytes]:
    for event in decode_event_fields(row):
        fields = [f"{name}={_format_field(name, value)}" for name, value in event.items() if name not in _NOT_SHOWN]
        name = row.task_id if row.task_no > 0 else f"convoy:{row.task_id}" if row.task_no < 0 else "-"
        head = [format_exact_instant(row.at), name, event["type"]]
        yield _encode_line(" ".join([*head, *fields, "by", row.actor]))


def _make_timeline_formatter(task: TaskRow) -> Callable[[HistoryRow], Iterator[bytes]]:
    timeline = Timeline()

    def lines(row: HistoryRow) -> Iterator[bytes]:
        for told in timeline.list_entries(row):
            if isinstance(told, IncarnationStart):
                if told.incarnation == 1:
                    head = f"task {task.task_id} (number {task.task_no}) of workflow {task.workflow}, now {task.state}"
                    yield _encode_wrapped(head, hanging=2)
                yield b"\n"
                yield _encode_line(f"incarnation {told.incarnation}, from {format_exact_instant(told.at)}")
            else:
                after = f"+{format_duration(told.after)}"
                first = f"{format_instant(told.at)}  {after:>12}  "
                yield _encode_wrapped(told.says, first=first, hanging=len(first))

    return lines


def _encode_line(text: str) -> bytes:
    return encode_text(one_line(text)) + b"\n"


def _encode_wrapped(text: str, *, first: str = "", hanging: int) -> bytes:
    """A line, on a terminal broken between words."""
    width = terminal_width()
    if width is None:
        return _encode_line(first + text)
    return encode_text("".join(f"{line}\n" for line in wrap(one_line(text), width, first=first, hanging=hanging)))


def _format_field(name: str, value: Any) -> str:
    if name in _INSTANTS and isinstance(value, int):
        return format_exact_instant(Instant(value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@click.command(short_help="Write the whole history as JSON lines.")
@click.option(
    "--payloads",
    type=click.Choice(STATES),
    metavar="STATE",
    help="Also write the arguments and results of the tasks in this state, for `arriero replay`: open, all, or a state. Without it"
    " the export holds no payload.",
)
@store_option
@click.option("--json", "as_json", is_flag=True, help="Has no effect: an export always consists of JSON lines.")
def export(payloads: str | None, store: str | None, as_json: bool) -> None:
    """Write the whole history to standard output, as JSON lines with a trailer, for `arriero check`.

    It is a complete state of the history, as of its beginning, also while Apps run on the store. What --payloads adds is as of
    the moment at which each task is read.
    """
    asyncio.run(_write_export(store, payloads))


async def _write_export(store: str | None, payloads: str | None) -> None:
    output = open_data_output()
    async with open_store_to_read(store) as opened:
        with Progress("export") as progress:
            async for line in _encode_export(opened, payloads):
                output.write(escape_for_terminal(output, line))
                progress.advance()
    output.flush()


async def _encode_export(store: StateStore, payloads: str | None) -> AsyncIterator[bytes]:
    summed = TrailerSum()
    async for row in store.history():
        summed.add(row)
        yield encode_row(row)
    if payloads is not None:
        async for page in list_records(store, payloads):
            for loaded in page:
                if payload_line := _encode_readable(loaded):
                    summed.add_record(payload_line)
                    yield payload_line
    yield encode_trailer(summed.trailer(store.store_id, payloads))


def _encode_readable(loaded: Loaded) -> bytes:
    """Encode the record of a task; empty for one that this release cannot read, of which an alert reports."""
    try:
        return encode_record(refuse_unreadable_task(loaded))
    except UnreadableRow as error:
        print_note(f"left out of the payloads: {error}")
        return b""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of ``check --json``."""

    clean: bool
    rows: int
    tasks: int
    violations: tuple[Any, ...] = ()
    mutilated: str = ""


@click.command(short_help="Check an exported history.")
@click.argument("file")
@click.option(
    "--redispatch-per-second",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also check how many expired attempts returned per second, against the setting redispatch_per_second_max.",
)
@json_option
def check(file: str, redispatch_per_second: int | None, as_json: bool) -> None:
    """Check an exported history: that it is whole, and that what it says keeps every promise. - is standard input.

    Exits with 0 when it is clean, with 1 when it is not, with 2 when the file cannot be read.
    """
    verdict = _check_file(file, redispatch_per_second)
    if as_json:
        print_json(verdict)
    else:
        _print_verdict(verdict)
    if not verdict.clean:
        sys.exit(ExitCode.NO)


def _check_file(file: str, redispatch_per_second: int | None) -> Verdict:
    from ..audit.check import check as check_history

    try:
        rows = _read_rows(file)
    except MutilatedExport as error:
        return Verdict(False, 0, 0, mutilated=str(error))
    violations = check_history(rows, redispatch_per_second=redispatch_per_second)
    return Verdict(not violations, len(rows), len({row.task_no for row in rows if row.task_no > 0}), tuple(violations))


def _read_rows(file: str) -> list[HistoryRow]:
    try:
        with click.open_file(file, "rb") as stream, Progress("check") as progress:
            return read_export(_count_lines(stream, progress))
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error


def _count_lines(stream: IO[Any], progress: Progress) -> Iterable[bytes]:
    for line in stream:
        progress.advance()
        yield line


def _print_verdict(verdict: Verdict) -> None:
    read = f"{format_count(verdict.rows, 'row')} of {format_count(verdict.tasks, 'task')}"
    if verdict.clean:
        click.echo(f"clean: {read} keep every invariant")
    if verdict.mutilated:
        click.echo(f"not clean: {one_line(verdict.mutilated)}")
    for violation in verdict.violations:
        print_text(f"{violation.invariant} {violation.task or 'the store'}: {violation.detail}", hanging=2)
    if verdict.violations:
        click.echo(f"not clean: {format_count(len(verdict.violations), 'violation')} in {read}")


# --- the record of payloads
def print_record(record: ShownRecord) -> None:
    """Print what there is of it, each part under a heading."""
    _print_versions(record.versions)
    if record.by_hand:
        click.echo("\nby hand:")
    for one in record.by_hand:
        _print_indented(f'{_format_subject(one)} {format_time(one.at)} by {one.by}: "{one.reason}"', 2)
        _print_indented(_format_payload(one.value), 4)
    if record.late_answers:
        click.echo("\nlate answers:")
    for answer in record.late_answers:
        _print_indented(f"step {answer.step}: {answer.says}", 2)
        _print_indented(_format_answer(answer), 4)


def _print_versions(shown: Sequence[ShownVersion]) -> None:
    before: int | None = None
    for version in shown:
        if version.ordinal != before:
            what = f"step {version.step}" if version.ordinal else "the task"
            click.echo(f"\nedited arguments of {one_line(what)}:")
        _print_indented(
            _format_payload(version.arguments)
            if version.ordinal != before
            else f"-> {_format_payload(version.arguments)}",
            2,
        )
        before = version.ordinal
        _print_indented(_format_origin(version), 5)
        if version.ordinal:
            _print_indented(_format_sent(version), 5)


def _format_origin(version: ShownVersion) -> str:
    if not version.edited_by:
        return "asked by the code" if version.ordinal else "as submitted"
    at = "" if version.edited_at is None else f" {format_time(version.edited_at)}"
    why = f': "{version.reason}"' if version.reason else ""
    return f"edited{at} by {version.edited_by}{why}"


def _format_sent(version: ShownVersion) -> str:
    if not version.idempotency_key:
        return "under which key it was sent is not known"
    if version.sent_at is None:
        return f"not sent; key {version.idempotency_key}"
    return f"sent {format_time(version.sent_at)}, from attempt {version.sent_attempt} on, key {version.idempotency_key}"


def _format_answer(answer: ShownLateAnswer) -> str:
    return (
        _format_payload(answer.answer)
        if answer.outcome == "succeeded"
        else format_failure_with_line(read_step_failure(answer.answer))
    )


def _format_payload(payload: msgspec.Raw) -> str:
    return truncate(bytes(payload).decode())


def _format_subject(one: ShownByHand) -> str:
    return f"the result of step {one.step}, given" if one.what == "result" else "the task's output, until it was undone"


def _print_indented(text: str, indent: int) -> None:
    click.echo(" " * indent + one_line(text))
