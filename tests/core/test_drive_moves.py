"""What a process does next about a task that it drives: situations and moves, without a loop, a clock or a store."""

import asyncio
from typing import Any

import msgspec
import pytest
from core_rows import NOW, failure_text, loaded, step_policy_text, step_row, undo_row
from hypothesis import given
from hypothesis import strategies as st

import arriero
from arriero import Agent, Attempt, Permanent, StepFailed, workflow
from arriero.core.drive import Came, Surroundings, decide_next_move, list_due_timers, list_pending_timers, sort_inbox
from arriero.core.task_run import TaskRun
from arriero.declare.workflows import Workflow
from arriero.model import Instant, StepKind, StepRow, StepState, TaskState, later
from arriero.model.failures import StepFailure
from arriero.model.moves import (
    BeginUndo,
    Compensate,
    Fired,
    GaveUp,
    Hold,
    Keep,
    NextUndo,
    Outcome,
    PlanUndo,
    Process,
    PutDown,
    Reported,
    RetryAsked,
    Succeeded,
)
from arriero.runtime.code import Code

LINGER_SECONDS = 10.0
PAST, SOON, FAR = later(NOW, -1), later(NOW, 5), later(NOW, 1_000)

till = Agent("till")
elsewhere = Agent("elsewhere")


@till.step
async def count(attempt: Attempt, number: int) -> int: ...


@elsewhere.step
async def unknown(attempt: Attempt) -> None: ...


@workflow
async def twice() -> int:
    return await count(await count(1))


@workflow
async def first_of_two() -> str:
    await asyncio.wait([asyncio.ensure_future(count(n)) for n in (1, 2)], return_when=asyncio.FIRST_COMPLETED)
    return "one came"


@workflow
async def nap() -> str:
    await arriero.sleep(1_000)
    return "rested"


@workflow
async def short_nap() -> None:
    await arriero.sleep(5)


@workflow
async def count_and_nap() -> None:
    await asyncio.gather(count(1), arriero.sleep(1_000))


@workflow
async def refuse() -> None:
    raise Permanent("not today")


@workflow
async def forgive() -> str:
    try:
        await count(1)
    except StepFailed as error:
        return error.code
    return "counted"


@workflow
async def divide() -> float:
    return 1 / (await count(1) - 1)


@workflow
async def strange() -> None:
    await count(1)
    await unknown()


AROUND = Surroundings("store", frozenset({count}), LINGER_SECONDS)


def counted(ordinal: int = 1, number: int | None = None, **changes: Any) -> StepRow:
    """A row of ``count``; its ``number`` is its ordinal, unless it is given."""
    fields: dict[str, Any] = {"name": "count", "key": f"#{ordinal}", "agent": "till"}
    fields["arguments"] = msgspec.json.encode({"number": ordinal if number is None else number}).decode()
    return step_row(ordinal, **(fields | changes))


def with_result(ordinal: int, result: str, **changes: Any) -> StepRow:
    """A row of ``count`` that has a result."""
    ended = {"state": StepState.COMPLETED, "result": result, "result_number": ordinal, "delivered_at": NOW}
    return counted(ordinal, **(ended | changes))


def timer(ordinal: int, not_before: Instant, seconds: float = 1_000, **changes: Any) -> StepRow:
    """A row of a timer that has not fired."""
    text = msgspec.json.encode({"seconds": float(seconds)}).decode()
    fields: dict[str, Any] = {"kind": StepKind.TIMER, "name": "sleep", "key": "#1", "state": StepState.PENDING}
    return step_row(ordinal, **(fields | {"arguments": text, "not_before": not_before} | changes))


def told(ordinal: int, outcome: Outcome, fence: int = 1) -> Reported:
    return Reported(1000 + ordinal, fence, outcome, NOW)


FAILURE = StepFailure("permanent", "declined", "declined")
ONE, TWO = told(1, Succeeded("1")), told(2, Succeeded("2"))
GAVE_UP = told(1, GaveUp(FAILURE, False))
RETRY = told(1, RetryAsked(FAILURE, False, SOON))


def run_of(code: Workflow[..., Any], *steps: StepRow, **task: Any) -> TaskRun:
    """A task as it is held, its code brought to where its rows end."""
    return TaskRun(loaded(*steps, workflow=code.name, **task), Code(code.name, code))


def moved(run: TaskRun, *came: Came, now: Instant = NOW) -> tuple[Any, ...] | None:
    """What is delivered, what is opened, and the ending; None: nothing is written."""
    move = decide_next_move(run, came, now, AROUND)
    if move is None:
        return None
    assert not any(new.take for new in move.opened)  # places are the runtime's
    return move.delivered, tuple(f"{new.name} {new.key}" for new in move.opened), move.ending


# --- forward
@pytest.mark.parametrize(
    ("code", "steps", "came", "expected"),
    [
        pytest.param(twice, (), (), ((), ("count #1",), Keep()), id="it opens the first step"),
        pytest.param(twice, (counted(),), (), None, id="it waits for an attempt"),
        pytest.param(twice, (counted(),), (ONE,), ((ONE,), ("count #2",), Keep()), id="a result opens the next step"),
        pytest.param(twice, (counted(),), (RETRY,), ((RETRY,), (), Keep()), id="an attempt that failed is recorded"),
        pytest.param(
            twice,
            (with_result(1, "1"), counted(2, 1)),
            (TWO,),
            ((TWO,), (), Process("2")),
            id="the last result ends it",
        ),
        pytest.param(forgive, (counted(),), (GAVE_UP,), ((GAVE_UP,), (), Process('"declined"')), id="it forgives"),
        pytest.param(
            first_of_two, (counted(1), counted(2)), (ONE,), ((ONE,), (), Keep()), id="it has ended, and a step is open"
        ),
        pytest.param(
            first_of_two,
            (counted(1), counted(2)),
            (ONE, told(2, RetryAsked(FAILURE, False, SOON))),
            ((ONE, told(2, RetryAsked(FAILURE, False, SOON))), (), Keep()),
            id="it has ended, and a step is tried again",
        ),
        pytest.param(
            first_of_two, (counted(1), counted(2)), (ONE, TWO), ((ONE, TWO), (), Process('"one came"')), id="both came"
        ),
    ],
)
def test_what_comes_moves_a_task_forward(
    code: Workflow[..., Any], steps: tuple[StepRow, ...], came: tuple[Came, ...], expected: tuple[Any, ...] | None
) -> None:
    assert moved(run_of(code, *steps), *came) == expected


def test_an_empty_move_is_written_only_to_take_the_mark_of_news_off() -> None:
    assert moved(run_of(twice, counted())) is None
    assert moved(run_of(twice, counted(), unseen_since=NOW)) == ((), (), Keep())


# --- timers
@pytest.mark.parametrize(
    ("code", "steps", "came", "ending"),
    [
        pytest.param(nap, (), (), PutDown(FAR), id="it sleeps for long: put down in the commit that opens the timer"),
        pytest.param(short_nap, (), (), Keep(), id="it sleeps for a moment"),
        pytest.param(count_and_nap, (), (), Keep(), id="it also opens a step"),
    ],
)
def test_a_task_that_only_sleeps_is_put_down_with_the_timer_it_opens(
    code: Workflow[..., Any], steps: tuple[StepRow, ...], came: tuple[Came, ...], ending: Any
) -> None:
    result = moved(run_of(code, *steps), *came)
    assert result is not None
    assert result[2] == ending


@workflow
async def nap_after_one() -> None:
    waits = {asyncio.ensure_future(count(n)) for n in (1, 2)}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await arriero.sleep(1_000)


@pytest.mark.parametrize(
    ("came", "ending"),
    [
        pytest.param((ONE,), Keep(), id="a step is still open"),
        pytest.param((ONE, TWO), PutDown(FAR), id="the last open step ends with it"),
    ],
)
def test_a_task_is_not_put_down_to_sleep_while_a_step_is_open(came: tuple[Came, ...], ending: Any) -> None:
    result = moved(run_of(nap_after_one, counted(1), counted(2)), *came)
    assert result is not None
    assert result[1:] == (("sleep #1",), ending)


def test_a_timer_fires_once_its_time_has_come() -> None:
    run = run_of(nap, timer(1, FAR))
    assert list_due_timers(list_pending_timers(run), NOW) == []
    (fired,) = list_due_timers(list_pending_timers(run), FAR)
    assert moved(run, fired, now=FAR) == ((fired,), (), Process('"rested"'))


def test_timers_fire_in_the_order_of_their_times() -> None:
    rows = [timer(1, SOON), timer(2, PAST), timer(3, FAR), timer(4, PAST)]
    assert [one.step_no for one in list_due_timers(rows, SOON)] == [1002, 1004, 1001]


@pytest.mark.parametrize("state", [TaskState.COMPENSATING, TaskState.HELD])
def test_no_timer_fires_once_the_task_goes_forward_no_more(state: TaskState) -> None:
    assert list_pending_timers(TaskRun(loaded(timer(1, PAST), state=state), None)) == []


# --- the end that is a failure
def test_results_are_recorded_before_the_task_ends_in_a_failure() -> None:
    run = run_of(divide, counted())
    assert moved(run, ONE) == ((ONE,), (), Keep())
    run.steps[1001] = with_result(1, "1")
    result = moved(run)
    assert result is not None
    assert isinstance(result[2], Hold)
    assert result[2].failure.kind == "bug"


def test_a_refusal_begins_the_undo() -> None:
    refused = moved(run_of(refuse))
    assert refused is not None
    assert isinstance(refused[2], BeginUndo)
    assert refused[2].failure.kind == "refused"


@pytest.mark.parametrize("then", ["compensate", "hold"])
def test_a_step_that_gave_up_takes_its_task_along_as_its_policy_says(then: str) -> None:
    run = run_of(twice, counted(policy=step_policy_text(then=then)))
    assert moved(run, GAVE_UP) == ((GAVE_UP,), (), Keep())
    text = msgspec.json.encode(FAILURE).decode()
    ended = {"state": StepState.FAILED, "failure": text, "result_number": 1, "delivered_at": NOW}
    run.steps[1001] = msgspec.structs.replace(run.steps[1001], **ended)
    result = moved(run)
    assert result is not None
    assert isinstance(result[2], Hold if then == "hold" else BeginUndo)


def test_a_step_that_is_not_in_the_app_holds_the_task_after_what_came_is_recorded() -> None:
    run = run_of(strange, counted())
    assert moved(run, ONE) == ((ONE,), (), Keep())
    run.steps[1001] = with_result(1, "1")
    result = moved(run)
    assert result is not None
    assert isinstance(result[2], Hold)
    assert result[2].failure.code == "unknown_step"


def test_code_that_is_not_here_holds_the_task() -> None:
    result = moved(TaskRun(loaded(), None))
    assert result is not None
    assert isinstance(result[2], Hold)
    assert result[2].failure.code == "no_code"


def test_what_a_broken_code_would_not_see_is_recorded_all_the_same() -> None:
    assert moved(TaskRun(loaded(counted()), None), ONE) == ((ONE,), (), Keep())


# --- the limit
def test_a_task_past_its_limit_records_what_came_opens_nothing_and_begins_its_undo() -> None:
    run = run_of(twice, counted(), complete_by=NOW)
    assert moved(run, ONE) == ((ONE,), (), Keep())
    result = moved(run)
    assert result is not None
    assert isinstance(result[2], BeginUndo)
    assert result[2].failure.kind == "limit"


def test_a_task_whose_limit_was_extended_opens_what_its_code_asked_for_before() -> None:
    run = run_of(twice, counted(), complete_by=NOW)
    moved(run, ONE)
    run.task = msgspec.structs.replace(run.task, complete_by=FAR)
    assert moved(run) == ((), ("count #2",), Keep())


def test_a_failure_comes_before_the_limit() -> None:
    result = moved(run_of(refuse, complete_by=PAST))
    assert result is not None
    assert result[2].failure.kind == "refused"


# --- undo
UNDOING: dict[str, Any] = {"state": TaskState.COMPENSATING, "failure": failure_text(), "undoing": True}
DONE = with_result(1, "1", compensation=step_policy_text())


def undoing(*steps: StepRow) -> TaskRun:
    return TaskRun(loaded(*steps, **UNDOING), None)


def test_the_undo_waits_for_forward_attempts_and_records_what_they_bring() -> None:
    run = undoing(DONE, counted(2))
    assert moved(run) is None
    assert moved(run, TWO) == ((TWO,), (), Keep())


@pytest.mark.parametrize(
    ("steps", "ending"),
    [
        pytest.param((DONE,), PlanUndo, id="first the plan"),
        pytest.param((DONE, undo_row(2, DONE)), NextUndo, id="then one compensation"),
        pytest.param(
            (DONE, undo_row(2, DONE, state=StepState.COMPLETED)), Compensate, id="after the last it is undone"
        ),
        pytest.param((DONE, undo_row(2, DONE, state=StepState.FAILED)), Hold, id="one failed: an operator is asked"),
    ],
)
def test_an_undo_goes_one_compensation_after_the_other(steps: tuple[StepRow, ...], ending: type) -> None:
    result = moved(undoing(*steps))
    assert result is not None
    assert isinstance(result[2], ending)


# --- the inbox
STATES = [StepState.PENDING, StepState.RUNNING, StepState.COMPLETED, StepState.FAILED, StepState.WITHDRAWN]
items = st.one_of(
    st.builds(
        told, st.integers(1, 3), st.sampled_from([Succeeded("1"), GAVE_UP.outcome, RETRY.outcome]), st.integers(1, 3)
    ),
    st.builds(lambda ordinal: Fired(1000 + ordinal, NOW), st.integers(4, 5)),
)


@given(st.lists(items, max_size=8), st.lists(st.sampled_from(STATES), min_size=5, max_size=5), st.integers(1, 3))
def test_of_what_came_in_each_step_counts_once_and_no_report_is_lost(
    inbox: list[Came], states: list[StepState], fence: int
) -> None:
    steps = {1000 + n: counted(n, state=state, fence=fence) for n, state in enumerate(states[:3], 1)}
    steps |= {1000 + n: timer(n, PAST, state=state) for n, state in enumerate(states[3:], 4)}
    counts, others = sort_inbox(steps, inbox)
    assert len({item.step_no for item in counts}) == len(counts)
    for item in counts:
        row = steps[item.step_no]
        if isinstance(item, Fired):
            assert row.state is StepState.PENDING
        else:
            assert (row.state, row.fence) == (StepState.RUNNING, item.fence)
    reports = [item for item in inbox if isinstance(item, Reported)]
    assert sorted(map(repr, reports)) == sorted(map(repr, [*(c for c in counts if isinstance(c, Reported)), *others]))
    order = [inbox.index(item) for item in counts]
    assert order == sorted(order)


# --- a task that waits
@given(st.sampled_from([twice, nap, first_of_two, count_and_nap, divide]), st.data())
def test_a_task_that_waits_has_no_move_without_news(code: Workflow[..., Any], data: st.DataObject) -> None:
    """The driver asks no further then; it must miss nothing by that."""
    run = run_of(
        code,
        unseen_since=data.draw(st.sampled_from([None, NOW])),
        complete_by=data.draw(st.sampled_from([None, FAR, PAST])),
    )
    if data.draw(st.booleans()):
        run.take_requests()
    if run.is_waiting():
        assert moved(run) is None
