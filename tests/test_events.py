"""Events of a history: their JSON never changes, what cannot be read stays visible, and readers that must know all do."""

import ast
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from core_events import OF_TASK_STREAMS

import arriero
from arriero.audit.export import read_export
from arriero.events import (
    ERASED,
    TYPES,
    EventOfBreaker,
    EventOfConvoy,
    EventOfPeople,
    EventOfSchedule,
    EventOfSignal,
    EventOfStep,
    EventOfStore,
    EventOfTask,
    EventOfTurn,
    HistoryEvent,
    UnreadableEvent,
    encode_events,
    list_event_types,
    read_events,
)

DATA = Path(__file__).parent / "data"
WRITTEN = (DATA / "events.jsonl").read_text().splitlines()
EXPORT = read_export((DATA / "release_0_4" / "export.jsonl").read_bytes().splitlines(keepends=True))
SRC = Path(arriero.__file__).parent
# Each function that must know every event of a union: it ends with ``assert_never``, so mypy names an event it misses.
CLOSED = {
    "audit/check.py": {"_fold_event", "_fold_store_event"},
    "audit/fold_agents.py": {"fold"},
    "audit/fold_convoys.py": {"fold_turn_event"},
    "audit/fold_people.py": {"fold_people_event"},
    "audit/fold_store.py": {"fold"},
    "audit/fold_signals.py": {"fold_signal_event"},
    "audit/fold_steps.py": {"fold_step_event"},
    "audit/fold_task.py": {"fold_task_event"},
    "audit/fold_turns.py": {"fold_key_event", "fold_turn_of_key"},
}


def test_every_type_of_event_was_recorded() -> None:
    assert {msgspec.json.decode(line)["type"] for line in WRITTEN} == TYPES


@pytest.mark.parametrize("line", WRITTEN, ids=lambda line: msgspec.json.decode(line)["type"])
def test_an_event_is_written_again_with_the_same_bytes(line: str) -> None:
    assert encode_events(read_events(f"[{line}]")) == f"[{line}]"  # type: ignore[arg-type]  # none is unreadable


def test_a_history_of_release_0_4_is_written_again_with_the_same_bytes() -> None:
    for row in EXPORT:
        events = read_events(row.events)
        assert not [event for event in events if isinstance(event, UnreadableEvent)]
        assert encode_events(events) == bytes(row.events).decode()  # type: ignore[arg-type]


def test_every_event_in_the_history_of_a_task_has_a_sentence_of_its_own() -> None:
    silent = [
        kind
        for kind in get_args(
            EventOfTask | EventOfPeople | EventOfStep | EventOfTurn | EventOfBreaker | EventOfSchedule | EventOfSignal
        )
        if kind.describe is HistoryEvent.describe
    ]
    assert silent == []


def test_the_mark_of_an_erased_row_is_the_one_that_stores_hold() -> None:
    assert ERASED == '[{"type":"erased"}]'


def test_every_event_belongs_to_one_kind_of_stream() -> None:
    of_store = list_event_types(EventOfStore | EventOfBreaker | EventOfSchedule)
    streams = [OF_TASK_STREAMS, list_event_types(EventOfConvoy), of_store]
    assert frozenset().union(*streams) == TYPES
    assert sum(map(len, streams)) == len(TYPES)


def test_one_event_that_cannot_be_read_does_not_hide_the_others_of_its_commit() -> None:
    text = '[{"type":"task.expired","term":1},{"type":"step.lost"},{"type":"task.teleported","to":"Mars"},{}]'
    expired, lost, teleported, nothing = read_events(text)
    assert expired.type == "task.expired"
    assert isinstance(lost, UnreadableEvent)
    assert (lost.type, lost.error) == ("step.lost", "Object missing required field `step`")
    assert teleported == UnreadableEvent("task.teleported", {"type": "task.teleported", "to": "Mars"})
    assert nothing == UnreadableEvent("", {})


def test_a_field_of_a_later_release_is_passed_over() -> None:
    (event,) = read_events('[{"type":"task.expired","term":1,"mood":"calm"}]')
    assert encode_events([event]) == '[{"type":"task.expired","term":1}]'  # type: ignore[list-item]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"type":"task.expired"', "null"])
def test_what_is_no_list_of_objects_is_refused(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_events(text)


def test_the_readers_that_must_know_every_event_are_closed() -> None:
    found: dict[str, set[str]] = {}
    for folder in ("audit", "explain"):
        for path in SRC.joinpath(folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and _calls_assert_never(node):
                    found.setdefault(path.relative_to(SRC).as_posix(), set()).add(node.name)
    missing = {path: names - found.get(path, set()) for path, names in CLOSED.items()}
    assert not any(missing.values()), missing


def _calls_assert_never(function: ast.FunctionDef) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "assert_never" for call in calls)
