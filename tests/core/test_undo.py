"""The undo plan and its progress."""

from typing import Any

import msgspec
import pytest
from core_rows import loaded, step_policy_text, step_row, task_policy_text
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.supervision import may_have_happened
from arriero.core.undo import (
    build_idempotency_key,
    decide_next_undo,
    is_forward_open,
    list_open_compensations,
    list_stuck_steps,
    may_undo_go_on,
    plan_undo,
)
from arriero.model import Loaded, StepKind, StepRow, StepState, TaskState
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import Compensate, Hold, NewStep, NextUndo, PlanUndo, UndoContext

WHY = TaskFailure("step", "no", "charge", "declined")
FAILURE = msgspec.json.encode(WHY).decode()
UNDO_POLICY = step_policy_text(attempts=9)
STORE = "store-1"

settled = st.sampled_from([StepState.COMPLETED, StepState.FAILED, StepState.WITHDRAWN])

policies = st.sampled_from([task_policy_text(), task_policy_text(undo_on_doubt="continue")])


@st.composite
def tasks(draw: st.DrawFn, *, pivots: bool = False) -> Loaded:
    """A task whose undo began and none of whose forward steps is open any more."""
    rows: list[StepRow] = []
    for ordinal in range(1, draw(st.integers(0, 8)) + 1):
        state = draw(settled)
        timer = draw(st.integers(0, 6)) == 0
        row = step_row(
            ordinal,
            kind=StepKind.TIMER if timer else StepKind.STEP,
            state=state,
            in_doubt=draw(st.booleans()),
            effect_free=draw(st.booleans()),
            pivot=pivots and draw(st.booleans()),
            compensation=UNDO_POLICY if draw(st.booleans()) and not timer else None,
            result=f'"r{ordinal}"' if state is StepState.COMPLETED else None,
        )
        rows.append(row)
    return loaded(*rows, state=TaskState.COMPENSATING, failure=FAILURE, policy=draw(policies))


def undone(plan: PlanUndo | Hold) -> list[int | None]:
    return [new.undoes for new in plan.planned]


def of(*steps: StepRow, **changes: Any) -> Loaded:
    return loaded(*steps, state=TaskState.COMPENSATING, failure=FAILURE, **changes)


# --- time and checkpoints
def test_a_compensation_that_has_its_turn_again_gets_the_time_of_its_attempt() -> None:
    policy = step_policy_text(complete_within_factor=2.0)
    done = step_row(1, state=StepState.COMPLETED, compensation=policy)
    again = step_row(2, kind=StepKind.COMPENSATION, state=StepState.PLANNED, attempt=3, policy=policy, undoes=1001)
    assert decide_next_undo(of(done, again), STORE) == NextUndo(again.step_no, False, 120.0)


def test_a_compensation_is_planned_with_what_its_step_kept_whether_or_not_that_is_in_doubt() -> None:
    kept = {"compensation": UNDO_POLICY, "checkpoint": '{"page":3}'}
    completed = step_row(1, state=StepState.COMPLETED, result="1", **kept)
    in_doubt = step_row(2, state=StepState.FAILED, in_doubt=True, **kept)
    plan = plan_undo(of(completed, in_doubt), WHY, STORE)
    assert isinstance(plan, PlanUndo)
    contexts = [msgspec.json.decode(new.undo or "", type=UndoContext) for new in plan.planned]
    assert [(context.outcome, context.checkpoint) for context in contexts] == [
        ("unknown", '{"page":3}'),
        ("completed", '{"page":3}'),
    ]


def test_the_context_of_a_step_that_kept_nothing_has_the_text_that_it_had_before_there_were_checkpoints() -> None:
    assert (
        msgspec.json.encode(UndoContext("unknown", "k", None))
        == b'{"outcome":"unknown","forward_key":"k","result":null}'
    )


# --- the plan
@given(tasks())
def test_a_plan_undoes_all_that_happened_or_may_have_in_doubt_first_then_in_reverse(task: Loaded) -> None:
    plan = plan_undo(task, WHY, STORE)
    steps = [step for step in reversed(task.steps) if step.kind is StepKind.STEP and step.compensation is not None]
    in_doubt = [step.step_no for step in steps if may_have_happened(step)]
    completed = [step.step_no for step in steps if step.state is StepState.COMPLETED]
    if isinstance(plan, Compensate):
        assert in_doubt + completed == []
    else:
        assert undone(plan) == in_doubt + completed


@given(tasks())
def test_a_plan_says_of_each_step_what_is_known(task: Loaded) -> None:
    plan = plan_undo(task, WHY, STORE)
    rows = {step.step_no: step for step in task.steps}
    for new in () if isinstance(plan, Compensate) else plan.planned:
        step = rows[new.undoes or 0]
        assert new.undo is not None
        context = msgspec.json.decode(new.undo, type=UndoContext)
        assert context.forward_key == step.idempotency_key
        assert context.outcome == ("completed" if step.state is StepState.COMPLETED else "unknown")
        assert context.result == step.result
        assert (new.kind, new.name, new.key, new.agent) == (StepKind.COMPENSATION, step.name, step.key, step.agent)
        assert (new.arguments, new.policy, new.complete_within) == (step.arguments, UNDO_POLICY, 30.0)
        assert new.idempotency_key != step.idempotency_key


@given(tasks())
def test_what_may_have_happened_without_a_compensation_stops_the_plan_if_the_policy_says_so(task: Loaded) -> None:
    plan = plan_undo(task, WHY, STORE)
    to_undo = any(
        step.compensation is not None and (step.state is StepState.COMPLETED or step.in_doubt) for step in task.steps
    )
    stuck = [
        step
        for step in reversed(task.steps)
        if step.kind is StepKind.STEP
        and step.state is not StepState.COMPLETED
        and step.in_doubt
        and step.compensation is None
        and not step.effect_free
    ]
    stops = "continue" not in task.task.policy
    assert isinstance(plan, Hold) is (bool(stuck) and (stops or not to_undo))
    if isinstance(plan, Hold):
        assert bool(plan.planned) is to_undo
        assert plan.failure.kind == "in_doubt"
        assert plan.failure.step == stuck[0].name
        assert ", ".join(step.name for step in stuck) in plan.failure.reason
        then = "then the undo stopped:" if to_undo else "nothing else is to be undone, but"
        assert plan.failure.reason.startswith(f"no; {then} {stuck[0].label}")


@given(tasks())
def test_what_completed_without_a_compensation_is_listed_as_nothing_to_undo(task: Loaded) -> None:
    plan = plan_undo(task, WHY, STORE)
    assert plan.failure.nothing_to_undo == tuple(
        step.label
        for step in reversed(task.steps)
        if step.kind is StepKind.STEP and step.state is StepState.COMPLETED and step.compensation is None
    )


@given(tasks(pivots=True))
def test_a_plan_is_the_same_each_time(task: Loaded) -> None:
    assert plan_undo(task, WHY, STORE) == plan_undo(task, WHY, STORE)


def test_nothing_to_undo_ends_compensated_at_once() -> None:
    assert plan_undo(of(), WHY, STORE) == Compensate(WHY)
    surely_not = step_row(1, state=StepState.FAILED, compensation=UNDO_POLICY)
    never_taken = step_row(2, state=StepState.WITHDRAWN, compensation=UNDO_POLICY)
    assert plan_undo(of(surely_not, never_taken), WHY, STORE) == Compensate(WHY)


def test_a_pivot_taken_while_the_undo_began_holds_the_task_with_nothing_planned() -> None:
    done = step_row(1, state=StepState.COMPLETED, compensation=UNDO_POLICY)
    pivot = step_row(2, name="dispatch", pivot=True, state=StepState.COMPLETED, compensation=UNDO_POLICY)
    plan = plan_undo(of(done, pivot), WHY, STORE)
    assert isinstance(plan, Hold)
    assert plan.planned == ()
    assert "step dispatch is a pivot" in plan.failure.reason


def test_an_effect_free_step_with_a_compensation_is_undone_all_the_same() -> None:
    step = step_row(1, state=StepState.FAILED, in_doubt=True, effect_free=True, compensation=UNDO_POLICY)
    plan = plan_undo(of(step), WHY, STORE)
    assert isinstance(plan, PlanUndo)
    assert undone(plan) == [step.step_no]


def test_a_step_that_a_person_answered_as_done_is_named_as_nothing_to_undo_at_the_end() -> None:
    answered = step_row(1, state=StepState.COMPLETED, result='"by hand"')
    undone_already = step_row(2, kind=StepKind.COMPENSATION, state=StepState.COMPLETED)
    end = decide_next_undo(of(answered, undone_already), STORE)
    assert isinstance(end, Compensate)
    assert end.failure.nothing_to_undo == (answered.label,)


def test_a_row_of_an_earlier_release_keeps_its_meaning_and_stops() -> None:
    written_by_0_4 = (
        '{"complete_within":null,"supervision":{"attempts":3,"rounds":1,"cool_off":900.0,"then":"compensate"}}'
    )
    done = step_row(1, state=StepState.COMPLETED, compensation=UNDO_POLICY)
    stuck = step_row(2, state=StepState.FAILED, in_doubt=True)
    assert isinstance(plan_undo(of(done, stuck, policy=written_by_0_4), WHY, STORE), Hold)


# --- keys
@given(st.lists(st.tuples(*[st.sampled_from(["a", "b", "a\x1e"])] * 4, st.integers(1, 3)), min_size=2, unique=True))
def test_every_step_and_compensation_has_a_key_of_its_own(parts: list[tuple[str, str, str, str, int]]) -> None:
    keys = {
        build_idempotency_key(store, task, life, kind, name, key)
        for store, task, name, key, life in parts
        for kind in (StepKind.STEP, StepKind.COMPENSATION)
    }
    assert len(keys) == 2 * len(parts)


def test_a_key_is_the_same_each_time() -> None:
    key = build_idempotency_key("s", 1, 1, StepKind.STEP, "charge", "#1")
    assert key == build_idempotency_key("s", 1, 1, StepKind.STEP, "charge", "#1")
    assert len(key) == 32


# --- progress
def compensation_rows(task: Loaded, plan: PlanUndo) -> Loaded:
    """The plan as recorded: the first one may be taken, the others wait their turn."""

    def row(position: int, new: NewStep) -> StepRow:
        return step_row(
            100 + position,
            kind=StepKind.COMPENSATION,
            name=new.name,
            key=new.key,
            policy=new.policy,
            undoes=new.undoes,
            state=StepState.PLANNED if position else StepState.PENDING,
        )

    rows = tuple(row(position, new) for position, new in enumerate(plan.planned))
    return msgspec.structs.replace(task, steps=task.steps + rows)


def with_step(task: Loaded, step_no: int, **changes: object) -> Loaded:
    steps = tuple(msgspec.structs.replace(s, **changes) if s.step_no == step_no else s for s in task.steps)
    return msgspec.structs.replace(task, steps=steps)


@given(tasks(), st.integers(-1, 8))
def test_an_undo_goes_one_by_one_in_the_order_of_the_plan_and_always_reaches_its_end(
    task: Loaded, fails_at: int
) -> None:
    plan = decide_next_undo(task, STORE)
    if not isinstance(plan, PlanUndo):
        assert isinstance(plan, Compensate | Hold)
        return
    task = compensation_rows(task, plan)
    carried_out: list[int | None] = []
    while True:
        open_rows = [s for s in task.steps if s.state in (StepState.PENDING, StepState.RUNNING)]
        assert len(open_rows) == 1
        (current,) = open_rows
        assert decide_next_undo(task, STORE) is None  # its report moves the task
        task = with_step(task, current.step_no, state=StepState.RUNNING)
        assert decide_next_undo(task, STORE) is None
        if fails_at == len(carried_out):
            failure = msgspec.json.encode(StepFailure("permanent", "gone")).decode()
            task = with_step(task, current.step_no, state=StepState.FAILED, failure=failure)
            break
        task = with_step(task, current.step_no, state=StepState.COMPLETED)
        carried_out.append(current.undoes)
        move = decide_next_undo(task, STORE)
        if isinstance(move, Compensate | Hold):
            break
        assert isinstance(move, NextUndo)
        assert move.complete_within == 30.0
        task = with_step(task, move.step_no, state=StepState.PENDING)
    end = decide_next_undo(task, STORE)
    stuck = list_stuck_steps(task.steps)
    if len(carried_out) == len(plan.planned):
        assert carried_out == undone(plan)
        assert list_open_compensations(task.steps) == ()
        if stuck:
            assert isinstance(end, Hold)
            assert (end.failure.kind, end.failure.step, end.planned) == ("in_doubt", stuck[0].name, ())
            assert end.failure.reason.startswith(f"no; everything else was undone, but {stuck[0].label}")
            assert end.failure.began_by == msgspec.structs.replace(WHY, nothing_to_undo=end.failure.nothing_to_undo)
            assert not may_undo_go_on(task.task, task.steps)
        else:
            assert end == Compensate(plan.failure)
    else:
        assert may_undo_go_on(task.task, task.steps)
        assert isinstance(end, Hold)
        assert carried_out == undone(plan)[: len(carried_out)]
        assert (end.failure.kind, end.failure.code, end.failure.step) == ("undo", "undo_failed", current.name)
        assert end.failure.reason == f"no; then the undo of {current.label} failed: gone"
        assert len(list_open_compensations(task.steps)) == len(plan.planned) - len(carried_out)
        assert list_open_compensations(task.steps)[0] == current.label


@pytest.mark.parametrize("state", [StepState.PENDING, StepState.RUNNING])
def test_no_plan_is_made_while_a_forward_step_is_open(state: StepState) -> None:
    step = step_row(1, state=state, compensation=UNDO_POLICY)
    assert is_forward_open(step)
    assert decide_next_undo(of(step), STORE) is None


def test_an_open_timer_keeps_no_undo_waiting() -> None:
    timer = step_row(1, kind=StepKind.TIMER, state=StepState.PENDING)
    assert not is_forward_open(timer)
    assert decide_next_undo(of(timer), STORE) == Compensate(WHY)


def test_a_withdrawn_compensation_holds_the_task() -> None:
    rows = step_row(9, kind=StepKind.COMPENSATION, state=StepState.WITHDRAWN)
    move = decide_next_undo(of(rows), STORE)
    assert isinstance(move, Hold)
    assert "it was withdrawn" in move.failure.reason
