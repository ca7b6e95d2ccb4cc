"""Payloads kept beside a task's rows (edits, answers by hand, late answers)."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ..audit.payload_record import (
    PayloadRecord,
    Version,
    find_first_dispatches,
    find_step_label,
    list_argument_versions,
)
from ..model import EditRow, HistoryRow, LateAnswerRow, Loaded, seconds_between
from ..model.instants import as_datetime
from ..store.readable import legible_task
from ..store.state_store import StateStore
from ..text.format import format_late_answer
from .row_shapes import build_output, to_datetime


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
    """A step's ``result`` that an operator gave, or the task's ``output`` until an operator had it undone."""

    what: str
    ordinal: int
    step: str
    value: msgspec.Raw
    incarnation: int
    at: datetime
    by: str
    reason: str


class ShownLateAnswer(msgspec.Struct, frozen=True):
    """The answer of an attempt that no longer counted. ``late_seconds`` below 0: its time was not over."""

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
    """Read what is kept of a task beside its rows. ``history``: of the task, if it was read already. Raises StoreError."""
    task_no = loaded.task.task_no
    record = PayloadRecord(tuple(await store.edits(task_no)), tuple(await store.late_answers(task_no)))
    legible, _ = legible_task(loaded)
    has_versions = bool(record.edits) or any(step.asked is not None for step in legible.steps)
    if history is None:  # only the dispatches of edited steps are looked for
        history = [row async for row in store.history(task_no)] if has_versions else []
    return _build_record(record, legible, history)


def _build_record(record: PayloadRecord, loaded: Loaded, history: Sequence[HistoryRow]) -> ShownRecord:
    return ShownRecord(
        tuple(map(_build_version, list_argument_versions(loaded, record.edits, find_first_dispatches(history)))),
        tuple(_build_by_hand(edit, loaded) for edit in record.edits if edit.what != "arguments"),
        tuple(_build_late_answer(answer, loaded) for answer in record.late_answers),
    )


def _build_version(version: Version) -> ShownVersion:
    return build_output(
        ShownVersion,
        version,
        step=version.label,
        idempotency_key=version.key,
        edited_at=to_datetime(version.at),
        sent_at=None if version.sent is None else as_datetime(version.sent.at),
        sent_attempt=None if version.sent is None else version.sent.attempt,
    )


def _build_by_hand(edit: EditRow, loaded: Loaded) -> ShownByHand:
    value = edit.after if edit.what == "result" else edit.before
    step = find_step_label(edit.ordinal, loaded.steps)
    return build_output(ShownByHand, edit, step=step, value=msgspec.Raw((value or "null").encode()), by=edit.edited_by)


def _build_late_answer(answer: LateAnswerRow, loaded: Loaded) -> ShownLateAnswer:
    return build_output(
        ShownLateAnswer,
        answer,
        step=find_step_label(answer.ordinal, loaded.steps),
        late_seconds=seconds_between(answer.complete_by, answer.answered_at),
        says=format_late_answer(answer.attempt, answer.answered_at, answer.complete_by),
    )
