"""How long a task and its steps took, told apart from the time they waited for an operator."""

from typing import Any

import msgspec
import pytest
from core_events import whole
from core_rows import NOW, step_row, task_row

from arriero.explain.past import Elapsed, TaskPast
from arriero.model import HistoryRow, Instant, later

HOUR = 3600.0


def at(seconds: float) -> Instant:
    return later(NOW, seconds)


def times(*events: tuple[float, dict[str, Any]]) -> TaskPast:
    """Of a task with these events, each so many seconds after its submission."""
    return TaskPast(
        HistoryRow(no, 1, "t-1", no, at(when), "client", msgspec.Raw(msgspec.json.encode([event])), "")
        for no, (when, event) in enumerate(events, 1)
    )


def ended(state: str) -> dict[str, Any]:
    return whole({"type": "task.terminal", "state": state})


def asked(verb: str) -> dict[str, Any]:
    return whole({"type": "operator.action", "verb": verb, "by": "ana", "reason": "r"})


def dispatched(ordinal: int, kind: str = "step") -> dict[str, Any]:
    return whole({"type": f"{kind}.dispatched", "step": ordinal})


@pytest.mark.parametrize(
    ("events", "end", "now", "wanted", "says"),
    [
        ([], None, 60.0, Elapsed(None, 0.0), ""),
        ([(2.0, ended("processed"))], 2.0, 9 * HOUR, Elapsed(2.0, 0.0), "2.0 s"),
        ([(2.0, ended("held"))], 2.0, HOUR + 2, Elapsed(2.0, HOUR), "2.0 s (and 1 h waiting for an operator)"),
        (
            [(2.0, ended("held")), (3 * HOUR + 2, asked("resubmit")), (3 * HOUR + 3, ended("processed"))],
            3 * HOUR + 3,
            9 * HOUR,
            Elapsed(3.0, 3 * HOUR),
            "3.0 s (and 3 h waiting for an operator)",
        ),
        ([(1.0, asked("pause"))], None, 61.0, Elapsed(None, 60.0), "so far 1 min waiting for an operator"),
        (
            [(1.0, asked("pause")), (61.0, asked("extend")), (121.0, asked("resume")), (122.0, ended("processed"))],
            122.0,
            999.0,
            Elapsed(2.0, 120.0),
            "2.0 s (and 2 min waiting for an operator)",
        ),
        (
            [(1.0, asked("pause")), (61.0, asked("cancel")), (62.0, ended("compensated"))],
            62.0,
            999.0,
            Elapsed(2.0, 60.0),
            "2.0 s (and 1 min waiting for an operator)",
        ),
        (  # an answer leaves it held
            [(2.0, ended("held")), (62.0, asked("answer")), (122.0, asked("compensate")), (123.0, ended("held"))],
            123.0,
            183.0,
            Elapsed(3.0, 180.0),
            "3.0 s (and 3 min waiting for an operator)",
        ),
        (  # what was done and is undone days later neither worked nor waited meanwhile
            [(2.0, ended("processed")), (48 * HOUR, asked("compensate")), (48 * HOUR + 1, ended("compensated"))],
            48 * HOUR + 1,
            99 * HOUR,
            Elapsed(3.0, 0.0),
            "3.0 s",
        ),
    ],
)
def test_what_a_task_took_is_without_the_time_it_waited_for_a_person(
    events: list[tuple[float, dict[str, Any]]], end: float | None, now: float, wanted: Elapsed, says: str
) -> None:
    task = task_row(ended_at=None if end is None else at(end))
    elapsed = times(*events).measure_task(task, at(now))
    assert elapsed == wanted
    assert elapsed.says == says


def test_a_step_that_was_done_again_took_no_more_than_its_attempts_and_their_delays() -> None:
    events = [(2.0, ended("held")), (HOUR, asked("resubmit")), (HOUR + 5, ended("processed"))]
    step = step_row(1, opened_at=at(1), finished_at=at(HOUR + 3))
    before = step_row(2, opened_at=at(0.5), finished_at=at(1))
    after = step_row(3, opened_at=at(HOUR + 1), finished_at=at(HOUR + 2))
    of_step = times(*events).measure_step
    assert of_step(step, at(2 * HOUR)) == Elapsed(4.0, HOUR - 2)
    assert of_step(before, at(2 * HOUR)) == Elapsed(0.5, 0.0)
    assert of_step(after, at(2 * HOUR)) == Elapsed(1.0, 0.0)


def test_the_last_attempt_of_each_step_tells_when_it_began() -> None:
    told = times((1.0, dispatched(1)), (2.0, dispatched(2, "compensation")), (5.0, dispatched(1)))
    assert told.began == {1: at(5), 2: at(2)}


def test_a_row_of_the_history_that_cannot_be_read_is_named_and_the_others_count() -> None:
    told = times((1.0, dispatched(1)), (2.0, {"type": "step.dispatched"}), (3.0, dispatched(2)))
    broken = HistoryRow(9, 1, "t-1", 9, at(4), "client", msgspec.Raw(b"{"), "")
    told.add(broken)
    assert (told.began, told.unreadable) == ({1: at(1), 2: at(3)}, [2, 9])
