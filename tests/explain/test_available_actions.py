"""How much an explanation judges to list the verbs that a task allows."""

from collections.abc import Callable

import pytest
from core_rows import NOW, done, failed, failure_text, loaded, step_row, undo_row

from arriero.core.verb_preview import find_verb_refusal
from arriero.explain import available_actions
from arriero.explain.available_actions import ANSWERS_SHOWN_MAX, AvailableAction, list_available_actions
from arriero.model import Instant, Loaded, StepRow, StepState, TaskState, Verb
from arriero.model.answers import Refusal
from arriero.model.commands import Operate


def _waiting(ordinal: int) -> StepRow:
    return step_row(ordinal, state=StepState.PENDING, locked_by=None)


def _completed_and_a_waiting_one(count: int) -> Loaded:
    return loaded(*map(done, range(1, count)), _waiting(count), opened_count=count, open_count=1)


def _all_waiting(count: int) -> Loaded:
    return loaded(*map(_waiting, range(1, count + 1)), opened_count=count, open_count=count)


def _undone_and_one_to_undo(count: int) -> Loaded:
    undone = [undo_row(n, done(n), state=StepState.COMPLETED, result="null") for n in range(1, count)]
    return loaded(*undone, _waiting(count), opened_count=count, open_count=1)


def _held_by_failed_ones(count: int) -> Loaded:
    steps = map(failed, range(1, count + 1))
    return loaded(*steps, state=TaskState.HELD, failure=failure_text(), locked_by=None, opened_count=count)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Verb]:
    """The verbs that were judged: each judgement reads all steps of the task."""
    verbs: list[Verb] = []

    def judge(command: Operate, of: Loaded, now: Instant, parent: object = None) -> Refusal | None:
        verbs.append(command.verb)
        return find_verb_refusal(command, of, now)

    monkeypatch.setattr(available_actions, "find_verb_refusal", judge)
    return verbs


@pytest.mark.parametrize(
    "build", [_completed_and_a_waiting_one, _all_waiting, _undone_and_one_to_undo, _held_by_failed_ones]
)
def test_a_task_of_many_steps_is_judged_no_more_often_than_one_of_few(
    build: Callable[[int], Loaded], judged: list[Verb]
) -> None:
    few = [action.verb for action in list_available_actions(build(ANSWERS_SHOWN_MAX + 1), NOW)]
    often = len(judged)
    judged.clear()
    assert [action.verb for action in list_available_actions(build(300), NOW)] == few
    assert len(judged) == often
    assert Verb.ADJUST in few or Verb.RESUBMIT in few


def test_the_first_open_steps_are_listed_whose_limits_could_change() -> None:
    of = loaded(*map(done, range(1, 40)), *map(_waiting, range(40, 60)), opened_count=59, open_count=20)
    found: list[AvailableAction] = [one for one in list_available_actions(of, NOW) if one.verb is Verb.ADJUST]
    assert [one.options[1] for one in found] == [f"step{n}" for n in range(40, 40 + ANSWERS_SHOWN_MAX)]
