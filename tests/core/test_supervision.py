"""What becomes of failed and expired attempts, and of tasks that cannot go forward."""

import msgspec
import pytest
from core_rows import NOW, loaded, step_policy_text, step_row, task_policy_text
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.supervision import (
    DELAY_SECONDS_MAX,
    attempt_delay,
    decode_step_policy,
    decode_task_policy,
    find_pivot,
    grow_complete_within,
    may_have_happened,
    on_attempt_failed,
    on_limit_passed,
    on_overdue,
    on_starved,
    on_task_failed,
    read_step_policy,
)
from arriero.errors import DefinitionError
from arriero.model import StepKind, StepRow, StepState, seconds_between
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import BeginUndo, GaveUp, Hold, RetryAsked
from arriero.model.policies import Retry, StepPolicy, Supervision, TaskPolicy, encode_policy

UNKNOWN = StepFailure("unknown", "boom")
TRANSIENT = StepFailure("transient", "busy")
PERMANENT = StepFailure("permanent", "no", "declined")

policies = st.fixed_dictionaries(
    {"attempts": st.integers(1, 12), "rounds": st.integers(1, 6), "cool_off": st.floats(0, 1e7)}
)
jitters = st.floats(0, 1, exclude_max=True)


def after(step: StepRow, asked: RetryAsked) -> StepRow:
    """The step as it stands when its next attempt runs."""
    return msgspec.structs.replace(
        step, failure_count=step.failure_count + 1, in_doubt=asked.in_doubt, attempt=step.attempt + 1
    )


# --- attempts and rounds
@given(policies, jitters)
def test_a_step_gets_exactly_attempts_times_rounds_attempts(policy: dict[str, float], jitter: float) -> None:
    step = step_row(policy=step_policy_text(**policy))
    attempts = 1
    while isinstance(asked := on_attempt_failed(step, UNKNOWN, NOW, in_doubt=True, jitter=jitter), RetryAsked):
        attempts += 1
        step = after(step, asked)
    assert attempts == policy["attempts"] * policy["rounds"]
    assert asked == GaveUp(UNKNOWN, True)


@given(policies, jitters)
def test_the_cool_off_lies_exactly_between_rounds(policy: dict[str, float], jitter: float) -> None:
    step = step_row(policy=step_policy_text(**policy))
    while isinstance(asked := on_attempt_failed(step, TRANSIENT, NOW, in_doubt=False, jitter=jitter), RetryAsked):
        step = after(step, asked)
        is_between = step.failure_count % policy["attempts"] == 0
        assert asked.cool_off is is_between
        waits = seconds_between(NOW, asked.not_before)
        if is_between:
            assert waits == pytest.approx(policy["cool_off"], abs=1e-6)
        else:
            assert 0 < waits <= DELAY_SECONDS_MAX


@given(policies, jitters)
def test_each_round_begins_again_with_a_short_wait(policy: dict[str, float], jitter: float) -> None:
    step = step_row(policy=step_policy_text(**policy))
    while isinstance(asked := on_attempt_failed(step, TRANSIENT, NOW, in_doubt=False, jitter=jitter), RetryAsked):
        step = after(step, asked)
        in_round = step.failure_count % int(policy["attempts"])
        if in_round:
            wanted = attempt_delay(in_round, jitter=jitter)
            assert seconds_between(NOW, asked.not_before) == pytest.approx(wanted, abs=1e-6)


@given(st.floats(0, 1e7), policies, jitters, st.integers(0, 80))
def test_what_the_service_asked_for_is_the_least_wait(
    retry_after: float, policy: dict[str, float], jitter: float, failure_count: int
) -> None:
    step = step_row(policy=step_policy_text(**policy), failure_count=failure_count)

    def decide(retry_after: float | None) -> object:
        return on_attempt_failed(step, TRANSIENT, NOW, in_doubt=False, jitter=jitter, retry_after=retry_after)

    with_it, without = decide(retry_after), decide(None)
    assert type(with_it) is type(without)
    if isinstance(with_it, RetryAsked) and isinstance(without, RetryAsked):
        assert with_it.cool_off is without.cool_off
        waits = seconds_between(NOW, with_it.not_before)
        assert waits == pytest.approx(max(retry_after, seconds_between(NOW, without.not_before)), abs=1e-5)


@given(policies, st.booleans(), st.booleans(), st.integers(0, 80))
def test_permanent_ends_a_step_at_once_and_keeps_earlier_doubt(
    policy: dict[str, float], earlier: bool, now_in_doubt: bool, failure_count: int
) -> None:
    step = step_row(policy=step_policy_text(**policy), in_doubt=earlier, failure_count=failure_count)
    outcome = on_attempt_failed(step, PERMANENT, NOW, in_doubt=now_in_doubt, jitter=0)
    assert outcome == GaveUp(PERMANENT, earlier or now_in_doubt)


@given(policies, st.booleans(), st.booleans(), st.integers(0, 80), st.sampled_from([UNKNOWN, TRANSIENT, PERMANENT]))
def test_doubt_is_never_lost_by_a_failure(
    policy: dict[str, float], earlier: bool, now_in_doubt: bool, failure_count: int, failure: StepFailure
) -> None:
    step = step_row(policy=step_policy_text(**policy), in_doubt=earlier, failure_count=failure_count)
    outcome = on_attempt_failed(step, failure, NOW, in_doubt=now_in_doubt, jitter=0)
    assert isinstance(outcome, RetryAsked | GaveUp)
    assert outcome.in_doubt is (earlier or now_in_doubt)
    assert outcome.failure == failure


@given(policies, jitters, st.integers(0, 80))
def test_an_expired_attempt_is_spent_like_a_failed_one_and_is_in_doubt(
    policy: dict[str, float], jitter: float, failure_count: int
) -> None:
    step = step_row(policy=step_policy_text(**policy), failure_count=failure_count, attempt=failure_count + 1)
    outcome = on_overdue(step, NOW, jitter=jitter)
    assert isinstance(outcome, RetryAsked | GaveUp)
    assert outcome.in_doubt
    assert outcome.failure.cause == "expired"
    assert f"attempt {failure_count + 1}" in outcome.failure.message
    like = on_attempt_failed(step, outcome.failure, NOW, in_doubt=True, jitter=jitter)
    assert outcome == like


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_request_nobody_took_fails_and_is_in_doubt_only_if_it_was(in_doubt: bool) -> None:
    outcome = on_starved(step_row(state=StepState.PENDING, in_doubt=in_doubt))
    assert isinstance(outcome, GaveUp)
    assert (outcome.failure.cause, outcome.failure.code, outcome.in_doubt) == ("expired", "not_taken", in_doubt)


def test_the_policy_is_read_from_the_row() -> None:
    assert read_step_policy(step_row(policy=step_policy_text(attempts=7, cool_off=60))).supervision.attempts == 7


# --- what may have happened
@pytest.mark.parametrize(
    ("state", "in_doubt", "may"),
    [
        (StepState.PENDING, False, False),
        (StepState.PENDING, True, True),
        (StepState.RUNNING, False, True),
        (StepState.COMPLETED, False, False),  # it did
        (StepState.COMPLETED, True, False),
        (StepState.FAILED, False, False),
        (StepState.FAILED, True, True),
        (StepState.WITHDRAWN, False, False),
        (StepState.WITHDRAWN, True, True),
    ],
)
def test_a_step_may_have_happened_when_it_runs_or_was_left_in_doubt(
    state: StepState, in_doubt: bool, may: bool
) -> None:
    assert may_have_happened(step_row(state=state, in_doubt=in_doubt)) is may


def test_the_first_pivot_that_happened_or_may_have_is_found() -> None:
    steps = (
        step_row(1, state=StepState.COMPLETED),
        step_row(2, pivot=True, state=StepState.PENDING),
        step_row(3, pivot=True, state=StepState.FAILED),
        step_row(4, pivot=True, state=StepState.RUNNING),
        step_row(5, pivot=True, state=StepState.COMPLETED),
    )
    assert find_pivot(steps) == steps[4]
    assert find_pivot(steps[:4]) is None  # one that is being attempted bars nothing yet: the undo waits for its end
    in_doubt = step_row(4, pivot=True, state=StepState.RUNNING, in_doubt=True)
    assert find_pivot((*steps[:3], in_doubt)) == in_doubt
    assert find_pivot((step_row(1, kind=StepKind.COMPENSATION, pivot=True),)) is None


# --- tasks that cannot go forward
FAILED = TaskFailure("step", "no", "charge", "declined")
DONE = step_row(1, state=StepState.COMPLETED)


@pytest.mark.parametrize("step_then", [None, "compensate", "hold"])
@pytest.mark.parametrize("task_then", ["compensate", "hold"])
def test_a_task_is_held_if_the_step_or_the_workflow_says_so_else_undone(step_then: str | None, task_then: str) -> None:
    task = loaded(DONE, policy=task_policy_text(then=task_then))
    decision = on_task_failed(task, FAILED, step_then=step_then)
    wanted = Hold(FAILED) if "hold" in (step_then, task_then) else BeginUndo(FAILED)
    assert decision == wanted


@pytest.mark.parametrize("kind", ["bug", "replay", "unawaited", "lost", "in_doubt", "undo"])
def test_nothing_is_undone_unasked(kind: str) -> None:
    failure = TaskFailure(kind, "why")  # type: ignore[arg-type]
    assert on_task_failed(loaded(DONE), failure, step_then="compensate") == Hold(failure)


@pytest.mark.parametrize("kind", ["step", "refused", "limit"])
@pytest.mark.parametrize(
    ("state", "in_doubt"), [(StepState.COMPLETED, False), (StepState.FAILED, True), (StepState.RUNNING, True)]
)
def test_a_pivot_always_holds_and_is_named(kind: str, state: StepState, in_doubt: bool) -> None:
    pivot = step_row(2, name="dispatch", key="p-1", pivot=True, state=state, in_doubt=in_doubt)
    decision = on_task_failed(loaded(DONE, pivot), TaskFailure(kind, "why"), step_then="compensate")  # type: ignore[arg-type]
    assert isinstance(decision, Hold)
    assert decision.failure.reason == "why (not undone: step dispatch[p-1] is a pivot and has or may have happened)"
    assert decision.failure.kind == kind


def test_a_pivot_that_surely_did_not_happen_holds_nothing() -> None:
    pivots = (step_row(2, pivot=True, state=StepState.PENDING), step_row(3, pivot=True, state=StepState.FAILED))
    assert isinstance(on_task_failed(loaded(DONE, *pivots), FAILED, step_then=None), BeginUndo)


def test_a_task_past_its_limit_is_undone_or_held_by_the_workflows_policy() -> None:
    decision = on_limit_passed(loaded(DONE))
    assert isinstance(decision, BeginUndo)
    assert (decision.failure.kind, decision.failure.code) == ("limit", "limit")
    assert isinstance(on_limit_passed(loaded(DONE, policy=task_policy_text(then="hold"))), Hold)
    assert isinstance(on_limit_passed(loaded(step_row(pivot=True, state=StepState.COMPLETED))), Hold)


# --- more time for later attempts
@given(st.floats(0.001, 3e9), st.floats(1, 10), st.integers(1, 1_000_000))
def test_later_attempts_never_get_less_time_and_never_more_than_a_day_unless_the_first_gets_more(
    within: float, factor: float, attempt: int
) -> None:
    policy = StepPolicy(within, None, Retry(), Supervision(complete_within_factor=factor))
    assert grow_complete_within(policy, 1) == within
    assert within <= grow_complete_within(policy, attempt) <= grow_complete_within(policy, attempt + 1)
    assert grow_complete_within(policy, attempt) <= max(within, 86_400)


def test_the_time_of_each_attempt_is_that_of_the_one_before_times_the_factor() -> None:
    policy = StepPolicy(10.0, None, Retry(), Supervision(complete_within_factor=2.5))
    assert [grow_complete_within(policy, attempt) for attempt in (1, 2, 3)] == [10.0, 25.0, 62.5]


def test_a_policy_without_a_factor_has_the_text_that_it_had_before_there_was_one() -> None:
    text = (
        '{"complete_within":30.0,"wait_within":null,"retry":{"tries":3,"delay":0.2,"factor":2.0,"delay_max":5.0},'
        '"supervision":{"attempts":3,"rounds":1,"cool_off":900.0,"then":"compensate"}}'
    )
    policy = StepPolicy(30.0, None, Retry(), Supervision())
    assert encode_policy(policy) == text
    assert decode_step_policy(text) == policy


def test_a_policy_with_a_factor_is_read_back_as_it_was() -> None:
    policy = StepPolicy(30.0, None, Retry(), Supervision(complete_within_factor=2))
    assert decode_step_policy(encode_policy(policy)) == policy
    task_policy = TaskPolicy(None, Supervision(complete_within_factor=1.5))
    assert decode_task_policy(encode_policy(task_policy)) == task_policy


@pytest.mark.parametrize("factor", [0.9, 10.1, True, "2", float("nan"), None])
def test_a_factor_that_cannot_work_is_refused_by_its_name(factor: object) -> None:
    with pytest.raises(DefinitionError, match="complete_within_factor"):
        Supervision(complete_within_factor=factor)  # type: ignore[arg-type]
