"""What is kept of a task's payloads beside its rows: which arguments were sent when, and answers that came too late.

The history has hashes of them and tells who and when; the payloads themselves stand in tables that a purge empties.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ..model import STEP_BITS, EditRow, HistoryRow, Instant, LateAnswerRow, Loaded, StepKind, StepRow
from .chain import payload_hash
from .fold import Event
from .stored_events import events_of

_read_events = msgspec.json.Decoder(list[Event]).decode
UNKNOWN_EDITOR = "somebody (by a release before 0.5, which kept no record)"


class PayloadRecord(msgspec.Struct, frozen=True):
    """What stands beside a task's rows. ``edits`` and ``late_answers`` in the order of their commits."""

    edits: tuple[EditRow, ...] = ()
    late_answers: tuple[LateAnswerRow, ...] = ()


class Sent(msgspec.Struct, frozen=True):
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
    sent: Sent | None


def sent_under(history: Iterable[HistoryRow]) -> dict[str, Sent]:
    """The first dispatch under each idempotency key. ``history``: of the task, in commit order."""
    found: dict[str, Sent] = {}
    for row in history:
        for event in events_of(row):
            if event.get("type") == "step.dispatched":
                found.setdefault(event["key"], Sent(row.at, event["attempt"]))
    return found


def versions(loaded: Loaded, edits: Sequence[EditRow], sent: Mapping[str, Sent]) -> list[Version]:
    """Every life of arguments that a person edited, oldest first: of the task, then of each step.

    Args:
        edits: of the task, in the order of the commits.
        sent: as ``sent_under``.
    Returns: nothing of arguments that were never edited.
    """
    found = _chain("", 0, None, loaded.arguments, edits, _not_sent)
    for step in loaded.steps:
        if step.kind is StepKind.STEP:
            found += _chain(step.label, step.ordinal, step.asked, step.arguments, edits, sent.get, step.idempotency_key)
    return found


def _not_sent(_key: str) -> None:
    return None


def _chain(
    label: str,
    ordinal: int,
    asked: str | None,
    now: str,
    edits: Sequence[EditRow],
    sent: Callable[[str], Sent | None],
    key_now: str = "",
) -> list[Version]:
    """What a release before 0.5 edited left no row: of those lives only the first and the last are known."""
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


def label_of(ordinal: int, steps: Iterable[StepRow]) -> str:
    """How people see a step of a task by its ordinal; empty for the task itself."""
    found = next((step for step in steps if step.step_no & ((1 << STEP_BITS) - 1) == ordinal), None)
    if found is None:
        return "" if ordinal == 0 else f"number {ordinal}"
    return f"the undo of {found.label}" if found.kind is StepKind.COMPENSATION else found.label


# --- against the history
def record_differences(record: PayloadRecord, history: Iterable[HistoryRow]) -> list[str]:
    """Where the tables say something else of edits and late answers than the task's history; empty when they agree.

    ``history``: of the task, in commit order. A release before 0.5 left events without rows; those are passed over.
    """
    edits = {edit.link: edit for edit in record.edits}
    answers = {(answer.ordinal, answer.fence): answer for answer in record.late_answers}
    told: set[tuple[int, int]] = set()
    found: list[str] = []
    for row in history:
        events = _read_events(row.events)
        edit = edits.pop(row.link, None)
        if edit is not None and not any(_tells_of(edit, event) for event in events):
            found.append(f"link {row.link} does not tell of the edit of {edit.what} that is kept for it")
        found += [
            f"link {row.link} tells of an edit that is not kept"
            for event in events
            if edit is None and "replaces" in event
        ]
        for event in events:
            if event.get("kept"):
                told.add((event["step"], event["fence"]))
                found += _untold_answer(event, answers)
    found += [f"link {link} is kept as an edit, and is not in the history" for link in edits]
    found += [f"an answer of step {n} under fence {f} is kept untold" for n, f in answers.keys() - told]
    return found


def _tells_of(edit: EditRow, event: Event) -> bool:
    match edit.what:
        case "arguments":
            hashes = (payload_hash(edit.after), payload_hash(edit.before))
            return (event.get("arguments"), event.get("replaces")) == hashes
        case "result":
            said = (event.get("type"), event.get("step"), event.get("result"))
            return said == ("step.answered", edit.ordinal, payload_hash(edit.after))
        case "output":
            return event.get("type") == "operator.action" and event.get("verb") == "compensate"


def _untold_answer(event: Event, answers: Mapping[tuple[int, int], LateAnswerRow]) -> list[str]:
    """Of two events of one attempt the first one's answer is kept; an attempt answers once."""
    kept = answers.get((event["step"], event["fence"]))
    if kept is None:
        return [f"a late answer of step {event['step']} under fence {event['fence']} is told and not kept"]
    if payload_hash(kept.answer) != event["result"]:
        return [f"another late answer of step {event['step']} under fence {event['fence']} is kept than is told"]
    return []
