"""Payloads kept beside a task's rows: the arguments sent under each key, and answers that came too late.

The history has hashes of them and shows who and when; the payloads themselves stand in tables that a purge empties.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET

from ..events import Event, UnreadableEvent, read_events, read_events_to_show
from ..events.base import payload_hash
from ..events.step import StepAnswered, StepDispatched, StepEdited, StepReport
from ..events.task import OperatorAction
from ..model import STEP_BITS, EditRow, HistoryRow, Instant, LateAnswerRow, Loaded, StepKind, StepRow

UNKNOWN_EDITOR = "unknown (by a release before 0.5, which kept no record)"


class PayloadRecord(msgspec.Struct, frozen=True):
    """The payloads beside a task's rows. ``edits`` and ``late_answers`` in the order of their commits."""

    edits: tuple[EditRow, ...] = ()
    late_answers: tuple[LateAnswerRow, ...] = ()


class FirstDispatch(msgspec.Struct, frozen=True):
    """The first dispatch under an idempotency key."""

    at: Instant
    attempt: int


class Version(msgspec.Struct, frozen=True):
    """One life of the arguments of a step, or of the task itself.

    Args:
        ordinal, label: of the step; 0 and empty for the task itself.
        arguments: JSON text.
        key: the step's idempotency key with them; empty where it is not known.
        attempt: the step's first attempt with them; of the task itself 0.
        incarnation: of the task when they were edited; 1 for what was asked first.
        at, edited_by, reason: of the edit; None and empty: as the code, or the submitter, asked.
        sent: their first dispatch; None: they were not sent.
    """

    ordinal: int
    label: str
    arguments: str
    key: str
    attempt: int
    incarnation: int
    at: Instant | None
    edited_by: str
    reason: str
    sent: FirstDispatch | None


def find_first_dispatches(history: Iterable[HistoryRow]) -> dict[str, FirstDispatch]:
    """Return the first dispatch under each idempotency key. ``history``: of the task, in commit order."""
    found: dict[str, FirstDispatch] = {}
    for row in history:
        for event in read_events_to_show(row):
            if isinstance(event, StepDispatched):
                found.setdefault(event.key, FirstDispatch(row.at, event.attempt))
    return found


def list_argument_versions(
    loaded: Loaded, edits: Sequence[EditRow], sent: Mapping[str, FirstDispatch]
) -> list[Version]:
    """List every life of arguments that an operator edited, oldest first: of the task, then of each step.

    Args:
        edits: of the task, in the order of the commits.
        sent: as ``find_first_dispatches`` returns it.
    Returns: nothing of arguments that were never edited.
    """
    found = _add_missing_versions("", 0, None, loaded.arguments, edits, _is_not_sent)
    for step in loaded.steps:
        if step.kind is StepKind.STEP:
            found += _add_missing_versions(
                step.label, step.ordinal, step.asked, step.arguments, edits, sent.get, step.idempotency_key
            )
    return found


def _is_not_sent(_key: str) -> None:
    return None


def _add_missing_versions(
    label: str,
    ordinal: int,
    asked: str | None,
    now: str,
    edits: Sequence[EditRow],
    sent: Callable[[str], FirstDispatch | None],
    key_now: str = "",
) -> list[Version]:
    """Add the first and the last life of arguments that a release before 0.5 edited; it kept no row of the others."""
    own = [edit for edit in edits if edit.what == "arguments" and edit.ordinal == ordinal]
    if not own and asked is None:
        return []
    chain: list[Version] = []

    def add(arguments: str | None, key: str, edit: EditRow | None = None) -> None:
        by = edit.edited_by if edit is not None else UNKNOWN_EDITOR if chain else ""
        first = sent(key) if key else None
        attempt = edit.attempt if edit is not None else first.attempt if first is not None else min(ordinal, 1)
        incarnation, at, why = (1, None, "") if edit is None else (edit.incarnation, edit.at, edit.reason)
        chain.append(Version(ordinal, label, arguments or "null", key, attempt, incarnation, at, by, why, first))

    if asked is not None and (not own or own[0].before != asked):
        add(asked, "")
    for edit in own:
        if not chain or chain[-1].key != edit.key_before or chain[-1].arguments != edit.before:
            add(edit.before, edit.key_before)
        add(edit.after, edit.key_after, edit)
    if chain[-1].arguments != now:
        add(now, key_now)
    return chain


def find_step_label(ordinal: int, steps: Iterable[StepRow]) -> str:
    """Return the label of a step by its ordinal; empty for the task itself."""
    found = next((step for step in steps if step.step_no & ((1 << STEP_BITS) - 1) == ordinal), None)
    if found is None:
        return "" if ordinal == 0 else f"number {ordinal}"
    return f"the undo of {found.label}" if found.kind is StepKind.COMPENSATION else found.label


# --- against the history
def find_record_differences(record: PayloadRecord, history: Iterable[HistoryRow]) -> list[str]:
    """Return the differences between the rows of edits and late answers and the task's history; empty if they agree.

    ``history``: of the task, in commit order. A release before 0.5 left events without rows; those are passed over.
    """
    edits = {edit.link: edit for edit in record.edits}
    answers = {(answer.ordinal, answer.fence): answer for answer in record.late_answers}
    told: set[tuple[int, int]] = set()
    found: list[str] = []
    for row in history:
        events = read_events(row.events)
        edit = edits.pop(row.link, None)
        if edit is not None and not any(_tells_of(edit, event) for event in events):
            found.append(f"link {row.link} does not record the edit of {edit.what} that is kept for it")
        found += [
            f"link {row.link} records an edit that is not kept"
            for event in events
            if edit is None and isinstance(event, StepEdited | OperatorAction) and event.replaces is not UNSET
        ]
        for event in events:
            if isinstance(event, StepReport) and event.kept and (event.step, event.fence) not in told:
                told.add((event.step, event.fence))
                found += _describe_untold_answer(event, answers)
    found += [f"link {link} is kept as an edit, and is not in the history" for link in edits]
    found += [f"an answer of step {n} under fence {f} is kept untold" for n, f in answers.keys() - told]
    return found


def _tells_of(edit: EditRow, event: Event | UnreadableEvent) -> bool:
    match edit.what, event:
        case "arguments", StepEdited() | OperatorAction():
            return (event.arguments, event.replaces) == (payload_hash(edit.after), payload_hash(edit.before))
        case "result", StepAnswered():
            return (event.step, event.result) == (edit.ordinal, payload_hash(edit.after))
        case "output", OperatorAction(verb="compensate"):
            return True
    return False


def _describe_untold_answer(event: StepReport, answers: Mapping[tuple[int, int], LateAnswerRow]) -> list[str]:
    """Describe how the row of a late answer differs from the first event that reports one of its attempt; empty: it does not.

    Of several answers of one attempt only the first is kept. Two can report being kept: two reports of a program that came
    at the same time by way of two processes.
    """
    kept = answers.get((event.step, event.fence))
    if kept is None:
        return [f"a late answer of step {event.step} under fence {event.fence} is recorded and not kept"]
    if payload_hash(kept.answer) != event.result:
        return [f"another late answer of step {event.step} under fence {event.fence} is kept than is recorded"]
    return []
