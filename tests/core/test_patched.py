"""``arriero.patched``: which branch a task takes when its code was changed below it."""

import asyncio
from typing import Any

import pytest
from core_rows import NOW, step_row, task_row
from core_runs import Run, result_of

import arriero
from arriero import Agent, InvalidInput, workflow
from arriero.core.replay import replay
from arriero.core.task_run import find_new_results
from arriero.declare.workflows import Workflow
from arriero.errors import ArrieroError
from arriero.model import Loaded, StepKind, StepState, later

bank = Agent("bank")
MARK = "patch:new-bank"


@bank.step
def charge(attempt: arriero.Attempt, number: int = 0) -> int: ...


@bank.step
def send(attempt: arriero.Attempt, number: int = 0) -> int: ...


@workflow
async def before() -> list[int]:
    return [await charge(1), await charge(2)]


@workflow
async def after() -> list[int]:
    """The second call is the one that the release changes."""
    first = await charge(1)
    if arriero.patched("new-bank"):
        return [first, await send(2)]
    return [first, await charge(2)]


@workflow
async def at_the_end() -> list[int]:
    """The old branch was dropped, and the call with it."""
    return [await charge(1), await send(2)]


def marks(run: Run) -> int:
    return sum(row.name == MARK for row in run.rows)


def test_a_new_task_takes_the_new_branch_and_is_marked_in_the_commit_that_opens_it() -> None:
    run = Run(after).deliver("charge", 1)
    assert [(row.label, row.state) for row in run.rows[1:]] == [
        (MARK, StepState.COMPLETED),
        ("send", StepState.PENDING),
    ]
    assert run.deliver("send", 2).output == [1, 2]
    assert run.replayed()[0].end == run.end


def test_a_task_whose_record_continues_beyond_the_call_keeps_the_old_branch() -> None:
    run = Run(before).deliver("charge", 1)
    assert run.upgrade(after).open == ["charge[#2]"]
    assert (run.deliver("charge[#2]", 2).output, marks(run)) == ([1, 2], 0)


def test_a_task_whose_first_step_is_open_takes_the_new_branch_when_it_comes_by() -> None:
    run = Run(before).upgrade(after).deliver("charge", 1)
    assert (run.open, marks(run)) == (["send"], 1)


def test_the_call_may_be_deleted_from_the_code_of_a_task_that_is_marked() -> None:
    run = Run(after).deliver("charge", 1).upgrade(at_the_end)
    assert run.deliver("send", 2).output == [1, 2]


def test_a_task_that_is_not_marked_disagrees_with_code_whose_old_branch_was_deleted() -> None:
    run = Run(before).deliver("charge", 1)
    _, _, why = Run(at_the_end).replayed(run.rows)
    assert why is not None
    assert "charge[#2]" in why.reason


@pytest.mark.parametrize("knows", [False, True])
def test_the_first_call_of_a_task_decides_for_all_later_ones(knows: bool) -> None:
    @workflow
    async def in_a_loop() -> list[bool]:
        answers = []
        for number in range(3):
            answers.append(arriero.patched("new-bank"))
            await charge(number)
        return answers

    @workflow
    async def without() -> None:
        for number in range(3):
            await charge(number)

    run = Run(in_a_loop if knows else without)
    run.upgrade(in_a_loop).deliver("charge", 0).deliver("charge[#2]", 0).deliver("charge[#3]", 0)
    assert (run.output, marks(run)) == ([knows] * 3, int(knows))


def test_each_name_is_answered_by_itself() -> None:
    @workflow
    async def with_one() -> None:
        arriero.patched("one")
        await charge(1)

    @workflow
    async def with_two() -> dict[str, bool]:
        two = arriero.patched("two")
        one = arriero.patched("one")
        await charge(1)
        return {"one": one, "two": two, "three": arriero.patched("three")}

    run = Run(with_one).upgrade(with_two).deliver("charge", 0)
    assert run.output == {"one": True, "two": False, "three": True}


def test_a_branch_beside_others_is_answered_by_what_the_record_still_brings() -> None:
    async def branch(number: int, *, knows: bool) -> int:
        await charge(number)
        return await (send(number) if knows and arriero.patched(f"send-{number}") else charge(number + 10))

    @workflow
    async def side_by_side(knows: bool) -> list[int]:
        return await asyncio.gather(branch(1, knows=knows), branch(2, knows=knows))

    run = Run(side_by_side, False).deliver("charge[#2]", 0)  # the second branch is beyond the call
    run._arguments = (True,)
    run.upgrade(side_by_side).deliver("charge", 0)
    assert run.open == ["charge[#3]", "send"]


def test_a_step_that_was_withdrawn_or_left_says_nothing_of_the_branch() -> None:
    run = Run(before).deliver("charge", 1)
    run.rows[1] = step_row(2, name="charge", key="#2", arguments=run.rows[1].arguments, state=StepState.WITHDRAWN)
    assert run.upgrade(after).open == ["send"]


def test_code_that_ends_behind_the_call_has_awaited_all_it_asked_for() -> None:
    @workflow
    async def ends() -> bool:
        await charge(1)
        return arriero.patched("new-bank")

    assert Run(ends).deliver("charge", 0).output is True


def test_results_of_others_are_delivered_without_a_replay_where_a_mark_stands() -> None:
    @workflow
    async def two() -> None:
        arriero.patched("new-bank")
        await asyncio.gather(charge(1), charge(2))

    run = Run(two)
    known = {row.step_no: row for row in run.rows}
    run.deliver("charge", 1)
    found = find_new_results(task_row(), known, Loaded(task_row(), "{}", tuple(run.rows)))
    assert found is not None
    assert [row.label for row in found] == ["charge"]


def test_a_step_of_the_user_with_the_name_of_a_mark_is_a_step() -> None:
    @bank.step(name=MARK)
    def odd(attempt: arriero.Attempt) -> int: ...

    @workflow
    async def code() -> tuple[bool, int]:
        return arriero.patched("new-bank"), await odd()

    run = Run(code)
    assert run.rows[1].kind is StepKind.STEP
    assert run.deliver(MARK, 7).output == (True, 7)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", None, 7])
def test_a_name_that_cannot_be_kept_is_refused(name: Any) -> None:
    @workflow
    async def code() -> None:
        with pytest.raises(InvalidInput, match=r"arriero\.patched"):
            arriero.patched(name)

    assert Run(code).output is None


def test_outside_of_a_workflow_it_says_that_none_runs() -> None:
    with pytest.raises(ArrieroError, match=r"arriero\.patched works only inside a workflow"):
        arriero.patched("new-bank")


def test_code_that_is_dropped_leaves_no_mark() -> None:
    @workflow
    async def code() -> None:
        try:
            await charge(1)
        finally:
            arriero.patched("new-bank")

    run = Run(code)
    run.execution.close()
    assert run.execution._new == []


def declared(function: Any) -> Workflow[..., Any]:
    return workflow(function)


def test_a_task_that_was_resubmitted_is_answered_by_the_steps_that_still_count() -> None:
    """What followed a failure that is done again need not be asked for: it says nothing of the branch."""
    run = Run(before).fail("charge")
    branched = later(NOW, 50)
    rows = [
        step_row(1, name="charge", state=StepState.WITHDRAWN, arguments=run.rows[0].arguments, opened_at=NOW),
        step_row(
            2, name="send", key="#1", state=StepState.COMPLETED, arguments='{"number":9}', opened_at=later(NOW, 60)
        ),
    ]
    execution = Run(after).fresh_execution()
    fresh, why = replay(execution, rows, lambda row: result_of(execution, row), branched)
    assert why is None
    assert [one.identity[1] for one in fresh] == ["charge"]
    assert execution.patched("new-bank")
