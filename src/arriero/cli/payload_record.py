"""What is kept of a task's payloads beside its rows, as ``task show`` and ``task explain`` show it."""

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from ..attempt import as_datetime
from ..core.payload_record import PayloadRecord, Version, label_of, sent_under, versions
from ..core.readable import legible_task
from ..core.wording import answered_late, failed
from ..model import EditRow, HistoryRow, LateAnswerRow, Loaded, StepFailure, seconds_between
from ..store.base import StateStore
from .output import cut, one_line, shown_time, time_of

_read_failure = msgspec.json.Decoder(StepFailure).decode


class ShownVersion(msgspec.Struct, frozen=True):
    """One life of the arguments of a step (``ordinal`` 0: of the task itself), oldest first.

    ``edited_by`` empty: as the code asked. ``sent_at``: when they were first dispatched, as attempt ``sent_attempt``.
    """

    ordinal: int
    step: str
    arguments: msgspec.Raw
    idempotency_key: str
    attempt: int
    incarnation: int
    edited_at: datetime | None
    edited_by: str
    reason: str
    sent_at: datetime | None
    sent_attempt: int | None


class ShownByHand(msgspec.Struct, frozen=True):
    """A step's ``result`` that a person gave, or the task's ``output`` until a person had it undone."""

    what: str
    ordinal: int
    step: str
    value: msgspec.Raw
    incarnation: int
    at: datetime
    by: str
    reason: str


class ShownLateAnswer(msgspec.Struct, frozen=True):
    """What an attempt answered when it no longer counted. ``late_seconds`` below 0: its time was not over."""

    ordinal: int
    step: str
    attempt: int
    verdict: str
    outcome: str
    answer: msgspec.Raw
    answered_at: datetime
    complete_by: datetime
    late_seconds: float
    says: str


class ShownRecord(msgspec.Struct, frozen=True):
    """All of it; each list in the order in which it happened."""

    versions: tuple[ShownVersion, ...] = ()
    by_hand: tuple[ShownByHand, ...] = ()
    late_answers: tuple[ShownLateAnswer, ...] = ()


async def read_record(loaded: Loaded, store: StateStore, history: Sequence[HistoryRow] | None = None) -> ShownRecord:
    """What is kept of a task beside its rows. ``history``: of the task, where it was read already. Raises StoreError."""
    task_no = loaded.task.task_no
    record = PayloadRecord(tuple(await store.edits(task_no)), tuple(await store.late_answers(task_no)))
    legible, _ = legible_task(loaded)
    has_versions = bool(record.edits) or any(step.asked is not None for step in legible.steps)
    if history is None:  # only the dispatches of edited steps are looked for
        history = [row async for row in store.history(task_no)] if has_versions else []
    return _shown(record, legible, history)


def _shown(record: PayloadRecord, loaded: Loaded, history: Sequence[HistoryRow]) -> ShownRecord:
    return ShownRecord(
        tuple(map(_version, versions(loaded, record.edits, sent_under(history)))),
        tuple(_by_hand(edit, loaded) for edit in record.edits if edit.what != "arguments"),
        tuple(_late_answer(answer, loaded) for answer in record.late_answers),
    )


def _version(version: Version) -> ShownVersion:
    return ShownVersion(
        ordinal=version.ordinal,
        step=version.label,
        arguments=msgspec.Raw(version.arguments.encode()),
        idempotency_key=version.key,
        attempt=version.attempt,
        incarnation=version.incarnation,
        edited_at=time_of(version.at),
        edited_by=version.edited_by,
        reason=version.reason,
        sent_at=None if version.sent is None else as_datetime(version.sent.at),
        sent_attempt=None if version.sent is None else version.sent.attempt,
    )


def _by_hand(edit: EditRow, loaded: Loaded) -> ShownByHand:
    value = edit.after if edit.what == "result" else edit.before
    return ShownByHand(
        what=edit.what,
        ordinal=edit.ordinal,
        step=label_of(edit.ordinal, loaded.steps),
        value=msgspec.Raw((value or "null").encode()),
        incarnation=edit.incarnation,
        at=as_datetime(edit.at),
        by=edit.edited_by,
        reason=edit.reason,
    )


def _late_answer(answer: LateAnswerRow, loaded: Loaded) -> ShownLateAnswer:
    return ShownLateAnswer(
        ordinal=answer.ordinal,
        step=label_of(answer.ordinal, loaded.steps),
        attempt=answer.attempt,
        verdict=answer.verdict,
        outcome=answer.outcome,
        answer=msgspec.Raw(answer.answer.encode()),
        answered_at=as_datetime(answer.answered_at),
        complete_by=as_datetime(answer.complete_by),
        late_seconds=seconds_between(answer.complete_by, answer.answered_at),
        says=answered_late(answer.attempt, answer.answered_at, answer.complete_by),
    )


# --- for people
def print_record(record: ShownRecord) -> None:
    """Print what there is of it, each part under a heading."""
    _print_versions(record.versions)
    if record.by_hand:
        click.echo("\nby hand:")
    for one in record.by_hand:
        _say(f'{_what(one)} {shown_time(one.at)} by {one.by}: "{one.reason}"', 2)
        _say(_payload(one.value), 4)
    if record.late_answers:
        click.echo("\nlate answers:")
    for answer in record.late_answers:
        _say(f"step {answer.step}: {answer.says}", 2)
        _say(_answer(answer), 4)


def _print_versions(shown: Sequence[ShownVersion]) -> None:
    before: int | None = None
    for version in shown:
        if version.ordinal != before:
            what = f"step {version.step}" if version.ordinal else "the task"
            click.echo(f"\nedited arguments of {one_line(what)}:")
        _say(_payload(version.arguments) if version.ordinal != before else f"-> {_payload(version.arguments)}", 2)
        before = version.ordinal
        _say(_origin(version), 5)
        if version.ordinal:
            _say(_sent(version), 5)


def _origin(version: ShownVersion) -> str:
    if not version.edited_by:
        return "asked by the code" if version.ordinal else "as submitted"
    at = "" if version.edited_at is None else f" {shown_time(version.edited_at)}"
    why = f': "{version.reason}"' if version.reason else ""
    return f"edited{at} by {version.edited_by}{why}"


def _sent(version: ShownVersion) -> str:
    if not version.idempotency_key:
        return "under which key it was sent is not known"
    if version.sent_at is None:
        return f"not sent; key {version.idempotency_key}"
    return f"sent {shown_time(version.sent_at)}, from attempt {version.sent_attempt} on, key {version.idempotency_key}"


def _answer(answer: ShownLateAnswer) -> str:
    return _payload(answer.answer) if answer.outcome == "succeeded" else failed(_read_failure(answer.answer))


def _payload(payload: msgspec.Raw) -> str:
    return cut(bytes(payload).decode())


def _what(one: ShownByHand) -> str:
    return f"the result of step {one.step}, given" if one.what == "result" else "the task's output, until it was undone"


def _say(text: str, indent: int) -> None:
    click.echo(" " * indent + one_line(text))
