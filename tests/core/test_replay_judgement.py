"""Judgement of one stored task: which ends mean that it would be held, and which do not."""

from typing import Any

import pytest
from core_rows import NOW, failure_text, step_row, task_row, undo_row

from arriero import Agent, Attempt, Undo, workflow
from arriero.core.replay_judgement import OPEN, STATES, KnownCode, is_meant, judge_task
from arriero.model import Loaded, StepState, TaskState, Turn
from arriero.runtime.code import Code

keys_asked: list[Any] = []


def key_of(number: int) -> str:
    keys_asked.append(number)
    raise RuntimeError("no key function is called")


till = Agent("till", breaker_key=key_of)


@till.step
async def count(attempt: Attempt, number: int) -> int: ...


@count.compensation
async def uncount(undo: Undo[int], number: int) -> None: ...


@till.step(effect_free=True)
async def look(attempt: Attempt, number: int) -> int: ...


@workflow
async def fulfil(number: int) -> int:
    first = await count(number)
    return await look(first)


def known(app: str = "shop") -> KnownCode:
    codes = {
        "fulfil": Code("fulfil", fulfil),
        "step:count": Code("step:count", count),
        "step:look": Code("step:look", look),
    }
    return KnownCode(app, codes, frozenset(code.definition for code in codes.values()), {"till": till})


def counted(**changes: Any) -> Any:
    row = {"name": "count", "agent": "till", "arguments": '{"number":5}', "state": StepState.COMPLETED, "result": "6"}
    return step_row(1, **{**row, "result_number": 1, "delivered_at": NOW, **changes})


def stored(*steps: Any, arguments: str = '{"number":5}', **task: Any) -> Loaded:
    return Loaded(task_row(opened_count=len(steps), **task), arguments, steps)


def test_a_task_whose_code_asks_for_more_than_is_recorded_is_fine_and_no_key_function_is_called() -> None:
    judged = judge_task(stored(counted()), known(), NOW)
    assert (judged.failure, judged.skipped, keys_asked) == (None, "", [])


def test_a_result_that_does_not_fit_is_named_with_its_step() -> None:
    judged = judge_task(stored(counted(result='"six"')), known(), NOW)
    assert judged.failure is not None
    assert "a recorded result does not fit the code" in judged.failure.reason
    assert judged.step == "count"


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.PROCESSING, TaskState.PROCESSED, TaskState.HELD])
def test_arguments_that_do_not_fit_are_found_in_each_state(state: TaskState) -> None:
    failure = failure_text("bug", "a bug", code="bug") if state is TaskState.HELD else None
    task = stored(arguments='{"number":"five"}', state=state, failure=failure)
    judged = judge_task(task, known(), NOW)
    assert judged.failure is not None
    assert (judged.failure.code, judged.skipped) == ("refused_arguments", "")
    assert "number" in judged.failure.reason


def test_a_task_that_waits_in_a_convoy_is_judged_by_its_arguments_alone() -> None:
    waits = {
        "state": TaskState.PENDING,
        "turn": Turn.WAITING,
        "started_at": None,
        "convoy_no": 1,
        "place": 2,
        "rank": 2,
    }
    assert judge_task(stored(**waits), known(), NOW).failure is None
    assert judge_task(stored(arguments="{}", **waits), known(), NOW).failure is not None


def test_the_limit_of_a_task_is_no_matter_of_its_code() -> None:
    assert judge_task(stored(counted(), complete_by=NOW - 1), known(), NOW).failure is None


def test_tasks_that_no_code_would_run_for_are_skipped_with_the_reason() -> None:
    assert judge_task(stored(app="other"), known(), NOW).skipped == "of another App"
    assert judge_task(stored(state=TaskState.COMPENSATED), known(), NOW).skipped == "compensated"
    assert judge_task(stored(workflow="gone"), known(), NOW).failure is not None


def test_an_undo_needs_the_compensations_that_are_still_to_come() -> None:
    failure = failure_text("person", "cancelled")

    def undone(**changes: Any) -> Loaded:
        row = undo_row(2, counted(), **{"name": "count", "agent": "till", "state": StepState.PLANNED, **changes})
        return stored(counted(), row, state=TaskState.COMPENSATING, failure=failure)

    assert judge_task(undone(), known(), NOW).failure is None
    for renamed in ({"name": "add"}, {"agent": "shelf"}, {"name": "look"}):
        judged = judge_task(undone(**renamed), known(), NOW)
        assert judged.failure is not None
        assert judged.step == renamed.get("name", "count")
        assert "nobody would carry it out" in judged.failure.reason
        assert judge_task(undone(state=StepState.COMPLETED, **renamed), known(), NOW).failure is None


def test_open_means_the_states_in_which_a_process_takes_a_task_up() -> None:
    assert {state for state in TaskState if is_meant(state, OPEN)} == {
        TaskState.PENDING,
        TaskState.PROCESSING,
        TaskState.COMPENSATING,
    }
    assert all(is_meant(TaskState(state), state) and is_meant(TaskState(state), "all") for state in STATES[2:])


def test_what_fails_while_a_task_is_judged_is_the_reason_of_this_task() -> None:
    class Failing(Code):
        def encode_output(self, value: Any) -> str:
            raise RuntimeError("nothing is encoded")

    @workflow(name="fulfil")
    async def ends(number: int) -> int:
        return await count(number)

    code = known()
    failing = KnownCode(code.app, {**code.codes, "fulfil": Failing("fulfil", ends)}, code.definitions, code.agents)
    judged = judge_task(stored(counted()), failing, NOW)
    assert judged.failure is not None
    assert (judged.failure.kind, judged.failure.code) == ("bug", "driving_failed")
    assert "nothing is encoded" in judged.failure.reason
