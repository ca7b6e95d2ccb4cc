"""Which rows a release can read, what it says of those it cannot, and what of them it can show."""

from typing import Any

import msgspec
import pytest
from core_rows import step_row, task_row

from arriero.errors import UnreadableRow
from arriero.model import ConvoyRow, Loaded, StepKind, TaskState, Turn
from arriero.store.readable import (
    faults_of,
    format_faults,
    legible,
    legible_task,
    refuse_unreadable,
    refuse_unreadable_task,
)

CONVOY = ConvoyRow(convoy_no=3, key="key", ordering="place")
DAMAGED_TASKS: list[dict[str, Any]] = [
    {"state": "archived"},
    {"turn": "next"},
    {"policy": '{"x": 1}'},
    {"policy": '{"complete_within":null,"supervision":{"attempts":"adaptive"}}'},
    {"failure": "{}"},
    {"fence": "three"},
    {"seed": 1.5},
    {"undoing": 2},
    {"workflow": None},
    {"task_id": b"t"},
]
DAMAGED_STEPS: list[dict[str, Any]] = [
    {"state": "dreaming"},
    {"kind": "poem"},
    {"policy": "null"},
    {"compensation": "[]"},
    {"undo": "{}"},
    {"failure": "no"},
    {"in_doubt": "yes"},
]


def damaged(row: Any, **columns: Any) -> Any:
    return msgspec.structs.replace(row, **columns)


@pytest.mark.parametrize("columns", DAMAGED_TASKS)
def test_a_task_with_such_a_column_is_refused_and_the_column_named(columns: dict[str, Any]) -> None:
    (column,) = columns
    with pytest.raises(UnreadableRow, match=f"column {column} of table task") as refused:
        refuse_unreadable(damaged(task_row(), **columns))
    assert (refused.value.table, refused.value.column, refused.value.task_no) == ("task", column, task_row().task_no)


@pytest.mark.parametrize("columns", DAMAGED_STEPS)
def test_a_step_with_such_a_column_is_refused_and_the_column_named(columns: dict[str, Any]) -> None:
    (column,) = columns
    with pytest.raises(UnreadableRow, match=f"column {column} of table step") as refused:
        refuse_unreadable(damaged(step_row(), **columns))
    assert refused.value.task_no == step_row().task_no


@pytest.mark.parametrize("columns", [{"state": "resting"}, {"fence": None}, {"gap_within": "long"}])
def test_a_convoy_with_such_a_column_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(UnreadableRow) as refused:
        refuse_unreadable(damaged(CONVOY, **columns))
    assert refused.value.convoy_no == 3


def test_rows_as_they_should_be_are_read() -> None:
    for row in (task_row(), step_row(), CONVOY):
        assert refuse_unreadable(row) is row
        assert faults_of(row) == ()
        assert legible(row) is row


def test_whoever_has_a_turn_has_a_place() -> None:
    in_line = damaged(task_row(), convoy_no=3, place=1, rank=1, turn=Turn.WAITING)
    assert refuse_unreadable(in_line) is in_line
    with pytest.raises(UnreadableRow, match="column rank"):
        refuse_unreadable(damaged(in_line, rank=None))


def test_a_timer_needs_no_policy() -> None:
    timer = damaged(step_row(), kind=StepKind.TIMER, policy="")
    assert refuse_unreadable(timer) is timer
    assert faults_of(timer) == ()


@pytest.mark.parametrize("columns", DAMAGED_TASKS)
def test_what_can_be_read_of_a_damaged_task_is_kept_and_the_rest_can_be_shown(columns: dict[str, Any]) -> None:
    row = damaged(task_row(), **columns)
    (fault,) = faults_of(row)
    assert [fault.column] == list(columns)
    shown = legible(row)
    same = [name for name in row.__struct_fields__ if name not in columns]
    assert all(getattr(shown, name) == getattr(row, name) for name in same)
    assert [left.column for left in faults_of(shown)] in ([], ["state"], ["turn"])


def test_a_word_that_is_not_known_is_shown_as_it_stands() -> None:
    assert str(legible(damaged(task_row(), state="archived")).state) == "archived"


def test_an_instant_beyond_every_calendar_is_no_reason_to_leave_a_task_alone_but_is_not_shown() -> None:
    row = damaged(task_row(), complete_by=10**18)
    assert refuse_unreadable(row) is row
    assert [fault.column for fault in faults_of(row)] == ["complete_by"]
    assert legible(row).complete_by is None


def test_every_column_of_a_task_and_of_its_steps_is_named() -> None:
    steps = (step_row(), damaged(step_row(), policy="?", result="{"))
    loaded = Loaded(damaged(task_row(), policy="?"), "{}", steps, damaged(CONVOY, state="resting"))
    shown, faults = legible_task(loaded)
    assert [(fault.table, fault.column) for fault in faults] == [
        ("task", "policy"),
        ("step", "policy"),
        ("step", "result"),
        ("convoy", "state"),
    ]
    assert "column policy of table task (row 1), which holds '?'" in format_faults(faults)
    assert format_faults(faults).count("cannot be read") == 4
    assert shown.task.state is task_row().state
    with pytest.raises(UnreadableRow):
        refuse_unreadable_task(loaded)


def test_what_may_be_private_is_not_repeated() -> None:
    (fault,) = faults_of(damaged(task_row(), failure='{"card": "4111'))
    assert fault.value == ""
    (fault,) = faults_of(damaged(task_row(), policy="?" * 1000))
    assert len(fault.value) < 100


def test_a_task_without_arguments_cannot_be_read() -> None:
    nothing: Any = None
    with pytest.raises(UnreadableRow, match="column arguments of table body"):
        refuse_unreadable_task(Loaded(task_row(), nothing, ()))
    shown, (fault,) = legible_task(Loaded(task_row(), nothing, ()))
    assert (shown.arguments, fault.table) == ("null", "body")


def test_a_state_of_tasks_is_of_one_type_only() -> None:
    with pytest.raises(UnreadableRow):
        refuse_unreadable(damaged(task_row(), state=str(TaskState.PENDING)))
