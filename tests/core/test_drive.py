"""What the Scheduler decides about a task it holds."""

import msgspec
import pytest
from core_rows import NOW, loaded, step_policy_text, step_row, task_policy_text, task_row
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arriero import Agent, Attempt, Retry, Supervision, Undo
from arriero.core.call_policy import resolve_call_policy
from arriero.core.code_end import Raised, Returned
from arriero.core.drive import build_new_step, decide_put_down, on_code_ended
from arriero.core.replay import RequestedStep
from arriero.core.task_run import build_no_code_failure
from arriero.core.undo import build_idempotency_key
from arriero.model import Instant, StepKind, StepRow, StepState, later
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Hold, Process, PutDown
from arriero.model.policies import StepPolicy

remote = Agent("remote")
STRICT = Supervision(attempts=7, rounds=2, then="hold")


@remote.step
def plain(attempt: Attempt, number: int = 0) -> int: ...


@remote.step(complete_within=5, wait_within=60, supervision=STRICT, retry=Retry(tries=9), pivot=True, effect_free=True)
def strict(attempt: Attempt, number: int = 0) -> int: ...


@plain.compensation(complete_within=4)
def undo_plain(undo: Undo[int], number: int = 0) -> None: ...


def asked(call: object, key: str = "#1") -> RequestedStep:
    step = call.step  # type: ignore[attr-defined]
    return RequestedStep((StepKind.STEP, step.name, key), call.arguments, call, definition=step)  # type: ignore[attr-defined]


# --- opening
def test_a_new_step_carries_all_the_supervisor_and_an_agent_must_know() -> None:
    task = task_row(task_id="o-1", incarnation=2, policy=task_policy_text(attempts=5))
    new = build_new_step(asked(plain(3), "k"), task, "store")
    policy = msgspec.json.decode(new.policy, type=StepPolicy)
    assert (new.kind, new.name, new.key, new.agent) == (StepKind.STEP, "plain", "k", "remote")
    assert new.arguments == '{"number":3}'
    assert new.idempotency_key == build_idempotency_key("store", 1, 2, StepKind.STEP, "plain", "k")
    assert (new.pivot, new.effect_free, new.take, new.wait_within) == (False, False, False, None)
    assert new.complete_within == policy.complete_within == 30
    assert policy.supervision.attempts == 5
    assert new.compensation is not None
    assert msgspec.json.decode(new.compensation, type=StepPolicy).complete_within == 4


def test_a_steps_own_policy_comes_before_the_workflows() -> None:
    new = build_new_step(asked(strict(3)), task_row(policy=task_policy_text(attempts=5)), "store")
    policy = msgspec.json.decode(new.policy, type=StepPolicy)
    assert policy == StepPolicy(5.0, 60.0, Retry(tries=9), STRICT)
    assert (new.pivot, new.effect_free, new.complete_within, new.wait_within) == (True, True, 5.0, 60.0)
    assert new.compensation is None


def test_options_of_a_call_come_before_all() -> None:
    options = {"complete_within": 1, "wait_within": 2, "retry": Retry(tries=1), "supervision": Supervision(attempts=1)}
    call = strict(3).options(**options, pivot=False)  # type: ignore[arg-type]
    assert resolve_call_policy(call, Supervision()) == StepPolicy(1.0, 2.0, Retry(tries=1), Supervision(attempts=1))
    assert build_new_step(asked(call), task_row(), "store").pivot is False
    assert build_new_step(asked(plain().options(pivot=True)), task_row(), "store").pivot is True


def test_the_workflows_then_is_not_handed_down_to_its_steps() -> None:
    """``hold`` of the workflow is asked for when the task fails; as a step's own word it would hold twice over."""
    workflows = Supervision(attempts=2, rounds=3, cool_off=4, then="hold")
    assert resolve_call_policy(plain(), workflows).supervision == Supervision(
        attempts=2, rounds=3, cool_off=4, then="compensate"
    )


def test_a_timer_is_opened_with_the_time_it_fires_and_nothing_else() -> None:
    new = build_new_step(
        RequestedStep((StepKind.TIMER, "sleep", "#1"), '{"seconds":1.0}', None, NOW), task_row(), "store"
    )
    assert (new.kind, new.fire_at, new.agent, new.idempotency_key) == (StepKind.TIMER, NOW, "", "")


# --- the end
def test_code_that_returned_ends_the_task_once_no_step_is_open() -> None:
    assert on_code_ended(Returned(1), "1", loaded(), []) == Process("1")
    assert on_code_ended(Returned(1), "1", loaded(), [step_row()]) is None


@pytest.mark.parametrize(
    ("first", "second", "held"),
    [("compensate", "compensate", False), ("hold", "compensate", True), ("compensate", "hold", True)],
)
def test_a_task_is_held_if_any_of_the_steps_it_failed_by_says_so(first: str, second: str, held: bool) -> None:
    rows = [
        step_row(number, state=StepState.FAILED, policy=step_policy_text(then=then))
        for number, then in enumerate((first, second), 1)
    ]
    failure = TaskFailure("step", "no", "step1")
    end = Raised(failure, tuple((row.kind, row.name, row.key) for row in rows))
    decided = on_code_ended(end, None, loaded(*rows), [])
    with_both = replace(failure, redo=(1, 2))
    assert decided == (Hold(with_both) if held else BeginUndo(with_both))


def test_a_resubmission_does_again_what_the_code_left_by_and_what_it_never_saw() -> None:
    rows = [step_row(number, state=StepState.FAILED) for number in (1, 2, 3, 4)]
    left_by, behind, unseen, _caught = [(row.kind, row.name, row.key) for row in rows]
    end = Raised(TaskFailure("refused", "no"), (left_by,), (behind,))
    decided = on_code_ended(end, None, loaded(*rows), [], [unseen])
    assert decided == BeginUndo(TaskFailure("refused", "no", redo=(1, 2, 3)))


def test_the_policy_of_a_step_that_was_caught_does_not_count() -> None:
    caught = step_row(1, state=StepState.FAILED, policy=step_policy_text(then="hold"))
    failure = TaskFailure("refused", "no")
    assert on_code_ended(Raised(failure), None, loaded(caught), []) == BeginUndo(failure)


def test_a_bug_holds_the_task() -> None:
    failure = TaskFailure("bug", "ValueError")
    assert on_code_ended(Raised(failure), None, loaded(), [step_row()]) == Hold(failure)


# --- putting down
@st.composite
def open_rows(draw: st.DrawFn) -> StepRow:
    kind = draw(st.sampled_from([StepKind.STEP, StepKind.TIMER]))
    state = draw(st.sampled_from([StepState.PENDING, StepState.COMPLETED, StepState.FAILED]))
    waits = draw(st.integers(-100, 100) if kind is StepKind.TIMER else st.none() | st.integers(-100, 100))
    return step_row(kind=kind, state=state, not_before=None if waits is None else later(NOW, waits))


@given(st.lists(open_rows(), max_size=5), st.floats(0, 50))
def test_an_idle_task_is_put_down_when_its_next_timer_is_further_off_than_it_may_linger(
    rows: list[StepRow], linger: float
) -> None:
    decision = decide_put_down(rows, NOW, linger)
    pending = [row for row in rows if row.state is StepState.PENDING and row.kind is StepKind.TIMER]
    timers = [row.not_before for row in pending if row.not_before is not None]
    if any(at <= later(NOW, linger) for at in timers):
        assert decision is None
    else:
        assert decision == PutDown(min(timers, default=None))


def test_a_task_with_a_running_step_is_kept() -> None:
    far = step_row(2, kind=StepKind.TIMER, state=StepState.PENDING, not_before=later(NOW, 10_000))
    assert decide_put_down([far, step_row(1)], NOW, 1) is None
    assert decide_put_down([far], NOW, 1) == PutDown(far.not_before)


def test_a_step_that_waits_for_an_agent_wakes_its_task_by_its_report() -> None:
    for seconds in (-5, 0, 900):  # also one that is due: tasks that wait for a full Agent must not keep others out
        waiting = step_row(state=StepState.PENDING, not_before=Instant(later(NOW, seconds)))
        assert decide_put_down([waiting], NOW, 1) == PutDown(None)


# --- the rest
def test_a_workflow_that_is_not_here_is_named_with_the_remedy() -> None:
    failure = build_no_code_failure(task_row(workflow="old"))
    assert (failure.kind, failure.code) == ("bug", "no_code")
    assert "workflow old is not in this App" in failure.reason
    assert "name=" in failure.reason
