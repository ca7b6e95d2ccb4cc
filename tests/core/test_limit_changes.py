"""Changes of the limits of a live task and its steps, and how a failure is judged whose limits have changed meanwhile."""

from typing import Any

import msgspec
import pytest
from core_events import as_plain
from core_rows import NOW, OneTask, done, failed, failure_text, loaded, step_row, undo_row

from arriero.core.changes import Change, Refused
from arriero.core.supervision import compute_complete_within, judge_again, on_attempt_failed, read_step_policy
from arriero.core.transitions import advance, report
from arriero.core.verbs import operate
from arriero.model import Instant, Loaded, StepKind, StepRow, StepState, TaskState, Verb, later
from arriero.model.agents import BreakerRow
from arriero.model.commands import Advance, Operate, Report
from arriero.model.failures import StepFailure
from arriero.model.moves import GaveUp, Keep, Reported, RetryAsked
from arriero.model.policies import Retry, StepPolicy, Supervision, encode_policy, read_limit

LATER = later(NOW, 100)
POLICY = encode_policy(StepPolicy(30.0, 60.0, Retry(), Supervision(attempts=3, rounds=2, cool_off=900.0)))
UNSURE = StepFailure("unknown", "no answer")
_DAY = later(LATER, 86_400)


def _waiting(ordinal: int = 1, **fields: Any) -> StepRow:
    return step_row(ordinal, **({"state": StepState.PENDING, "locked_by": None, "policy": POLICY} | fields))


def _running(ordinal: int = 1, **fields: Any) -> StepRow:
    return step_row(ordinal, **({"policy": POLICY, "complete_by": later(NOW, 200)} | fields))


def _of(*steps: StepRow, **task: Any) -> Loaded:
    return loaded(*steps, **({"opened_count": len(steps), "open_count": 1} | task))


def _asked(of: Loaded, limits: str | None = None, **fields: Any) -> Change | Refused:
    command = Operate(
        actor="operator", verb=Verb.ADJUST, task_no=of.task.task_no, incarnation=of.task.incarnation,
        by="ana", reason="the bank is slow", limits=limits, **fields,
    )  # fmt: skip
    result = operate(command, OneTask(of), LATER)
    assert isinstance(result, Change | Refused)
    return result


def _adjusted(of: Loaded, limits: str | None = None, **fields: Any) -> Change:
    change = _asked(of, limits, **fields)
    assert isinstance(change, Change), change
    return change


def _refused(of: Loaded, limits: str | None = None, **fields: Any) -> str:
    refused = _asked(of, limits, **fields)
    assert isinstance(refused, Refused), refused
    assert (refused.task_no, refused.events) == (0, ())
    assert repr(of.task.task_id) in refused.refusal.detail
    return refused.refusal.detail


# --- the task's deadline
@pytest.mark.parametrize("before", [None, later(LATER, 10), later(LATER, 5_000)], ids=["none", "earlier", "later"])
def test_a_deadline_is_so_long_from_now_whatever_it_was_and_the_old_one_is_kept(before: Instant | None) -> None:
    change = _adjusted(_of(_waiting(), complete_by=before), within=600.0)
    event = as_plain(change.events)[0]
    assert change.task.complete_by == event["complete_by"] == later(LATER, 600)
    assert event["complete_by_before"] == before
    assert change.steps == []


def test_an_undo_has_no_deadline() -> None:
    first = done(1)
    of = _of(first, undo_row(2, first), state=TaskState.COMPENSATING, undoing=True, failure=failure_text())
    assert "an undo has no deadline" in _refused(of, within=60.0)


def test_a_deadline_does_not_lie_before_the_end_of_a_snooze() -> None:
    assert "its snooze ends after that" in _refused(_of(_waiting(), snoozed_until=later(LATER, 60)), within=60.0)
    _adjusted(_of(_waiting(), snoozed_until=later(LATER, 60)), within=61.0)


# --- a step
LIMITS = {"attempts": 10, "rounds": 3, "cool_off": 60.0, "complete_within": 300.0, "wait_within": 5.0}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("step", [_waiting(), _running(2)], ids=["waiting", "running"])
def test_a_limit_stands_in_the_steps_row_and_the_old_value_in_the_history(step: StepRow, name: str) -> None:
    value = LIMITS[name]
    change = _adjusted(_of(step), msgspec.json.encode({name: value}).decode(), step=step.ordinal)
    (adjusted,) = change.steps
    policy = read_step_policy(adjusted)
    assert {each: read_limit(policy, each) for each in LIMITS} == {
        each: value if each == name else read_limit(read_step_policy(step), each) for each in LIMITS
    }
    event = as_plain(change.events)[1]
    assert event == {
        "type": "step.adjusted",
        "step": step.ordinal,
        "limits": {name: value},
        "before": {name: read_limit(read_step_policy(step), name)},
    }
    assert (adjusted.state, adjusted.fence, adjusted.complete_by) == (step.state, step.fence, step.complete_by)


def test_a_running_attempt_keeps_the_time_that_it_began_with() -> None:
    of = _of(_running())
    (adjusted,) = _adjusted(of, '{"complete_within":300.0}').steps
    assert compute_complete_within(adjusted) == 30.0
    again = Loaded(of.task, of.arguments, (adjusted,))
    (twice,) = _adjusted(again, '{"complete_within":400.0}').steps
    assert compute_complete_within(twice) == 30.0
    waiting = msgspec.structs.replace(twice, state=StepState.PENDING)
    assert compute_complete_within(waiting) == 400.0
    assert compute_complete_within(msgspec.structs.replace(twice, fence=twice.fence + 1)) == 400.0


@pytest.mark.parametrize("delay", [0.0, 3_600.0])
def test_the_next_attempt_begins_so_long_from_now(delay: float) -> None:
    change = _adjusted(_of(_waiting(not_before=_DAY, attempt=2, taken=True)), f'{{"delay":{delay}}}')
    (adjusted,) = change.steps
    assert (adjusted.not_before, adjusted.wait_by) == (later(LATER, delay), None)
    assert as_plain(change.events)[1]["before"] == {"not_before": _DAY}


def test_a_request_that_nobody_took_waits_by_its_new_limit_from_now_or_from_its_new_start() -> None:
    of = _of(_waiting(wait_by=later(NOW, 60), taken=False))
    assert _adjusted(of, '{"wait_within":600.0}').steps[0].wait_by == later(LATER, 600)
    assert _adjusted(of, '{"wait_within":600.0,"delay":50.0}').steps[0].wait_by == later(LATER, 650)
    assert _adjusted(of, '{"attempts":9}').steps[0].wait_by == later(NOW, 60)


def test_without_a_step_each_open_one_changes_that_takes_the_limits() -> None:
    of = _of(done(1), _waiting(2), _running(3), failed(4), step_row(5, kind=StepKind.TIMER, state=StepState.PENDING))
    assert [step.ordinal for step in _adjusted(of, '{"attempts":9}').steps] == [2, 3]
    assert [step.ordinal for step in _adjusted(of, '{"delay":0}').steps] == [2]


def test_of_an_undo_the_compensations_change_that_are_not_done_and_no_forward_step() -> None:
    first, second = done(1), done(2)
    undo = undo_row(3, second, state=StepState.PENDING, policy=POLICY)
    planned = undo_row(4, first, state=StepState.PLANNED, policy=POLICY)
    of = _of(
        first, second, undo, planned, _running(5), state=TaskState.COMPENSATING, undoing=True, failure=failure_text()
    )
    assert [step.ordinal for step in _adjusted(of, '{"attempts":9}').steps] == [3, 4]
    assert "the task is being undone" in _refused(of, '{"attempts":9}', step=5)
    assert "waits for its turn" in _refused(of, '{"delay":0}', step=4)


@pytest.mark.parametrize(
    ("of", "limits", "fields", "said"),
    [
        (_of(done(1)), '{"attempts":9}', {"step": 1}, "step1 is completed"),
        (_of(failed(1)), '{"attempts":9}', {"step": 1}, "step1 is failed"),
        (_of(done(1)), '{"attempts":9}', {}, "has no open step"),
        (_of(done(1)), '{"attempts":9}', {"step": 7}, "has no step number 7"),
        (_of(_waiting(past := 1), past_count=past), '{"attempts":9}', {"step": 1}, "has no step number 1"),
        (_of(_waiting(failure_count=4)), '{"attempts":2}', {}, "give it at least 5 attempts in all"),
        (_of(_waiting()), '{"attempts":3}', {}, "has these limits already"),
        (_of(_running()), '{"delay":0}', {}, "is being attempted now"),
        (_of(_waiting(not_before=None), paused_at=NOW), '{"delay":0}', {}, "resume it"),
        (_of(_waiting(), snoozed_until=_DAY), '{"delay":0}', {}, "snooze it again"),
    ],
    ids=[
        "completed", "failed", "none is open", "no such step", "of a past life", "too few attempts", "nothing changes", "running",
        "paused", "snoozed",
    ],
)  # fmt: skip
def test_a_limit_that_would_change_nothing_is_refused_by_name(
    of: Loaded, limits: str, fields: dict[str, Any], said: str
) -> None:
    assert said in _refused(of, limits, **fields)


def test_a_deadline_and_limits_of_a_named_step_are_changed_together_or_not_at_all() -> None:
    of = _of(_waiting(), complete_by=None)
    change = _adjusted(of, '{"attempts":9}', within=60.0, step=1)
    assert (change.task.complete_by, len(change.steps)) == (later(LATER, 60), 1)
    assert "has these limits already" in _refused(of, '{"attempts":3}', within=60.0, step=1)


def test_of_all_open_steps_only_the_delay_is_left_that_a_running_one_does_not_take() -> None:
    change = _adjusted(_of(_waiting(1), _running(2)), '{"attempts":9,"delay":0.0}')
    events = as_plain(change.events)
    assert [event["limits"] for event in events[1:]] == [{"attempts": 9, "not_before": LATER}, {"attempts": 9}]
    assert events[0]["unchanged"] == [
        "delay: step step2 is being attempted now: its next attempt is not due yet",
    ]
    assert "is being attempted now" in _refused(_of(_running(1)), '{"attempts":9,"delay":0.0}', step=1)


@pytest.mark.parametrize(
    ("steps", "limits", "unchanged"),
    [
        ((_waiting(),), '{"attempts":3}', ["step step1 has these limits already"]),
        ((_running(),), '{"delay":0}', ["step step1 is being attempted now: its next attempt is not due yet"]),
        ((done(1),), '{"attempts":3}', ["there is no open step"]),
        (
            tuple(map(_waiting, range(1, 9))),
            '{"attempts":3}',
            [*(f"step step{n} has these limits already" for n in range(1, 6)), "and limits of 3 more steps"],
        ),
    ],
    ids=["it has them", "it is running", "none is open", "many"],
)
def test_a_deadline_is_not_refused_because_no_step_has_anything_to_change(
    steps: tuple[StepRow, ...], limits: str, unchanged: list[str]
) -> None:
    change = _adjusted(_of(*steps), limits, within=60.0)
    assert (change.task.complete_by, change.steps) == (later(LATER, 60), [])
    assert as_plain(change.events)[0]["unchanged"] == unchanged


def test_a_deadline_is_refused_with_limits_that_no_open_step_may_have() -> None:
    of = _of(_waiting(1, failure_count=4), _running(2, failure_count=5))
    assert "give it at least 5 attempts" in _refused(of, '{"attempts":1,"rounds":1}', within=60.0)


# --- a failure whose limits have changed meanwhile
def _changed(step: StepRow, limits: str) -> StepRow:
    (adjusted,) = _adjusted(_of(step), limits).steps
    return adjusted


class _Rows(OneTask):
    """One task whose Agent has no breaker."""

    def breakers(self, agent: str) -> tuple[BreakerRow, ...]:
        return ()


GAVE_UP, RETRIED = GaveUp(UNSURE, True), RetryAsked(UNSURE, True, later(LATER, 1))


def test_who_knows_only_the_old_limits_neither_ends_a_step_nor_tries_it_again() -> None:
    last = _running(failure_count=5)
    more, fewer = _changed(last, '{"attempts":9}'), _changed(_running(failure_count=1), '{"attempts":1}')
    assert judge_again(last, GAVE_UP, LATER) is GAVE_UP
    again = judge_again(more, GAVE_UP, LATER)
    assert isinstance(again, RetryAsked)
    assert again.not_before > LATER
    assert judge_again(more, RETRIED, LATER) is RETRIED
    assert judge_again(fewer, RETRIED, LATER) == GAVE_UP


def test_a_cool_off_is_as_long_as_the_row_says() -> None:
    asked = RetryAsked(UNSURE, True, later(LATER, 900), cool_off=True)
    step = _changed(_running(failure_count=2), '{"cool_off":5.0}')
    assert judge_again(step, asked, LATER) == msgspec.structs.replace(asked, not_before=later(LATER, 5))


@pytest.mark.parametrize("rounds", [2, 3], ids=["none is left", "a cool-off"])
def test_a_cool_off_is_at_least_as_long_as_the_service_asked_for(rounds: int) -> None:
    """By what who reports knew, no attempt was left, or a round was."""
    policy = StepPolicy(30.0, None, Retry(), Supervision(attempts=1, rounds=rounds, cool_off=60.0))
    knew = _running(failure_count=1, policy=encode_policy(policy))
    outcome = on_attempt_failed(knew, UNSURE, LATER, in_doubt=True, jitter=0.0, retry_after=7_200.0)
    again = judge_again(_changed(knew, '{"rounds":4}'), outcome, LATER)
    assert isinstance(again, RetryAsked)
    assert (again.not_before, again.cool_off) == (later(LATER, 7_200), True)
    longer = judge_again(_changed(knew, '{"rounds":4,"cool_off":9000.0}'), outcome, LATER)
    assert isinstance(longer, RetryAsked)
    assert longer.not_before == later(LATER, 9_000)


@pytest.mark.parametrize(
    "failure", [StepFailure("permanent", "declined"), StepFailure("unknown", "too large", "unrecordable_result")]
)
def test_a_failure_that_no_attempt_would_mend_stays_one_under_any_limits(failure: StepFailure) -> None:
    outcome = GaveUp(failure, False)
    assert judge_again(_changed(_running(), '{"attempts":9}'), outcome, LATER) is outcome


def test_a_report_is_taken_by_the_new_limits_and_an_advance_by_the_old_ones_is_refused() -> None:
    """The code must not go on from a failure that is none: the report comes again alone, and is a retry."""
    step = _changed(_running(failure_count=5), '{"attempts":9}')
    of = _of(step)
    reported = Reported(step.step_no, step.fence, GAVE_UP, LATER)
    task = of.task
    assert task.locked_by is not None
    refused = advance(
        Advance(
            actor="p1", process_no=task.locked_by, task_no=task.task_no, fence=task.fence, revision=task.revision,
            state=task.state, delivered=(reported,), opened=(), ending=Keep(), unseen_since=task.unseen_since,
        ),
        OneTask(of), LATER,
    )  # fmt: skip
    assert isinstance(refused, Refused)
    assert (refused.refusal.verdict, refused.events) == ("adjusted", ())
    change = report(Report(actor="p1", process_no=1, report=reported), _Rows(of), LATER)
    assert isinstance(change, Change)
    assert (change.steps[0].state, change.steps[0].failure_count) == (StepState.PENDING, 6)
