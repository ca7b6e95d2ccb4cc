"""The lives of edited arguments, also where a release before 0.5 edited some; and tables against their history."""

from typing import Any

import msgspec
import pytest
from core_events import whole
from core_rows import NOW, step_row, task_row

from arriero.audit.payload_record import (
    UNKNOWN_EDITOR,
    FirstDispatch,
    PayloadRecord,
    find_record_differences,
    find_step_label,
    list_argument_versions,
)
from arriero.events.base import payload_hash
from arriero.model import EditRow, HistoryRow, LateAnswerRow, Loaded, StepKind, later
from arriero.text.format import format_late_answer


def edit(before: str | None, after: str | None, number: int = 1, **changes: Any) -> EditRow:
    fields: dict[str, Any] = {
        "task_no": 1,
        "link": number,
        "ordinal": 1,
        "what": "arguments",
        "incarnation": number + 1,
    }
    fields |= {"attempt": number + 1, "at": later(NOW, number), "edited_by": "ann", "reason": "wrong card"}
    fields |= {"before": before, "after": after, "key_before": f"k{number - 1}", "key_after": f"k{number}"}
    return EditRow(**(fields | changes))


def answer(**changes: Any) -> LateAnswerRow:
    fields: dict[str, Any] = {"task_no": 1, "ordinal": 1, "fence": 3, "attempt": 1, "verdict": "late"}
    fields |= {"outcome": "succeeded", "answer": "7", "answered_at": later(NOW, 2), "complete_by": NOW, "link": 1}
    return LateAnswerRow(**(fields | changes))


def lives(step: Any, *edits: EditRow, sent: dict[str, FirstDispatch] | None = None) -> list[tuple[str, str]]:
    found = list_argument_versions(Loaded(task_row(), "{}", (step,)), edits, sent or {})
    return [(one.arguments, one.edited_by) for one in found]


def test_arguments_that_nobody_edited_have_no_lives_to_tell() -> None:
    assert lives(step_row(arguments="1")) == []


def test_every_life_stands_between_what_was_asked_and_what_is_sent() -> None:
    step = step_row(arguments="3", asked="1", idempotency_key="k2")
    assert lives(step, edit("1", "2"), edit("2", "3", 2)) == [("1", ""), ("2", "ann"), ("3", "ann")]


def test_an_edit_of_a_release_that_kept_no_record_is_told_as_somebodys() -> None:
    step = step_row(arguments="2", asked="1", idempotency_key="k1")
    assert lives(step) == [("1", ""), ("2", UNKNOWN_EDITOR)]


def test_an_edit_of_such_a_release_between_others_is_seen_by_what_it_left() -> None:
    step = step_row(arguments="9", asked="1", idempotency_key="k9")
    found = lives(step, edit("1", "2"), edit("5", "6", 4))
    assert found == [("1", ""), ("2", "ann"), ("5", UNKNOWN_EDITOR), ("6", "ann"), ("9", UNKNOWN_EDITOR)]


def test_an_edit_of_such_a_release_before_others_leaves_what_was_asked_first() -> None:
    step = step_row(arguments="3", asked="1", idempotency_key="k2")
    assert lives(step, edit("2", "3", 2)) == [("1", ""), ("2", UNKNOWN_EDITOR), ("3", "ann")]


def test_the_first_attempt_of_a_life_is_that_of_its_first_dispatch() -> None:
    step = step_row(arguments="2", asked="1", idempotency_key="k1")
    sent = {"k0": FirstDispatch(NOW, 1)}
    first, second = list_argument_versions(Loaded(task_row(), "{}", (step,)), [edit("1", "2")], sent)
    assert (first.sent, first.attempt, second.sent, second.attempt) == (sent["k0"], 1, None, 2)


def test_the_arguments_of_the_task_come_before_those_of_its_steps() -> None:
    loaded = Loaded(task_row(), "b", (step_row(arguments="2", asked="1", idempotency_key="k2"),))
    edits = [edit("a", "b", ordinal=0, attempt=0, key_before="", key_after=""), edit("1", "2", 2)]
    assert [(one.ordinal, one.arguments) for one in list_argument_versions(loaded, edits, {})] == [
        (0, "a"),
        (0, "b"),
        (1, "1"),
        (1, "2"),
    ]


def test_a_step_is_named_as_people_know_it() -> None:
    steps = (
        step_row(1, step_no=1 << 20 | 1),
        step_row(2, step_no=1 << 20 | 2, kind=StepKind.COMPENSATION, name="charge"),
    )
    assert [find_step_label(number, steps) for number in (0, 1, 2, 3)] == [
        "",
        "step1",
        "the undo of charge",
        "number 3",
    ]


def test_an_answer_within_its_time_is_told_as_one_that_no_longer_counted() -> None:
    assert format_late_answer(2, later(NOW, 2), NOW).endswith(", 2.0 s late: kept, not counted")
    assert format_late_answer(2, NOW, later(NOW, 2)).endswith(", when it no longer counted: kept, not counted")


# --- tables against the history
def history(*commits: list[dict[str, Any]]) -> list[HistoryRow]:
    rows = [msgspec.Raw(msgspec.json.encode(events)) for events in commits]
    return [HistoryRow(no, 1, "t-1", no, NOW, "p", events, "") for no, events in enumerate(rows, 1)]


EDITED = whole({"type": "step.edited", "step": 1, "arguments": payload_hash("2"), "replaces": payload_hash("1")})
LATE = whole(
    {"type": "step.report", "step": 1, "fence": 3, "verdict": "late", "kept": True, "result": payload_hash("7")}
)


def test_a_record_that_fits_its_history_differs_in_nothing() -> None:
    record = PayloadRecord((edit("1", "2", 1),), (answer(link=2),))
    assert find_record_differences(record, history([EDITED], [LATE])) == []
    assert (
        find_record_differences(PayloadRecord(), history([whole({"type": "step.edited", "step": 1})])) == []
    )  # of a release before 0.5


@pytest.mark.parametrize(
    ("record", "events", "says"),
    [
        (PayloadRecord(), EDITED, "an edit that is not kept"),
        (PayloadRecord((edit("0", "2"),)), EDITED, "does not record the edit"),
        (PayloadRecord((edit("1", "2"), edit("2", "3", 7))), EDITED, "is not in the history"),
        (PayloadRecord(), LATE, "recorded and not kept"),
        (PayloadRecord((), (answer(answer="8"),)), LATE, "another late answer"),
        (PayloadRecord((), (answer(), answer(fence=9))), LATE, "kept untold"),
    ],
)
def test_a_record_that_says_something_else_is_found(record: PayloadRecord, events: dict[str, Any], says: str) -> None:
    (found,) = find_record_differences(record, history([events]))
    assert says in found


def test_of_two_late_answers_of_one_attempt_the_first_is_kept_and_the_second_is_no_difference() -> None:
    second = LATE | {"result": payload_hash("8")}
    record = PayloadRecord((), (answer(),))
    assert find_record_differences(record, history([LATE], [second])) == []
    (found,) = find_record_differences(record, history([second], [LATE]))
    assert "another late answer" in found
