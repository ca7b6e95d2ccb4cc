"""Prints the payloads kept beside a task's rows, for ``task show`` and ``task explain``."""

from collections.abc import Sequence

import click
import msgspec

from ..client.payload_record import ShownByHand, ShownLateAnswer, ShownRecord, ShownVersion
from ..escaping import one_line
from ..failures import read_step_failure
from ..text.format import format_failure_with_line
from .output import format_time, truncate


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
