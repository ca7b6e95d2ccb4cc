"""What an operator may do to a task: the whole table of verb and state, and what each verb changes."""

from typing import Any

import msgspec
import pytest
from core_events import as_plain
from core_rows import (
    NOW,
    OneTask,
    done,
    failed,
    failure_text,
    loaded,
    step_policy_text,
    step_row,
    task_policy_text,
    undo_row,
)

from arriero.core.changes import Change, Refused
from arriero.core.placement import open_turn
from arriero.core.starts import find_request_start
from arriero.core.undo import build_idempotency_key, decide_next_undo
from arriero.core.verb_guards import list_allowed_verbs, list_possible_verbs, list_steps_to_redo
from arriero.core.verb_preview import find_verb_refusal
from arriero.core.verbs import operate
from arriero.core.writer import Writer
from arriero.events.base import payload_hash
from arriero.model import (
    ConvoyRow,
    Instant,
    Loaded,
    StepKind,
    StepRow,
    StepState,
    TaskState,
    Turn,
    Verb,
    later,
)
from arriero.model.commands import Operate
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import Compensate
from arriero.model.policies import Retry, StepPolicy, Supervision, TaskPolicy
from arriero.model.verb_rules import VERB_RULES, VERBS

LATER = later(NOW, 100)

# Written out once more, so that a change of the table is a change of this test.
TABLE = {
    Verb.RESUBMIT: "held compensated",
    Verb.COMPENSATE: "pending processing processed held",
    Verb.CANCEL: "pending processing",
    Verb.EXTEND: "pending processing",
    Verb.ADJUST: "pending processing compensating",
    Verb.ANSWER: "pending processing compensating held",
    Verb.PAUSE: "pending processing compensating",
    Verb.RESUME: "pending processing compensating",
    Verb.SNOOZE: "pending processing compensating",
    Verb.TAG: "pending processing processed held compensating compensated",
    Verb.PIN: "pending processing held",
}

_ENDED: dict[str, Any] = {"locked_by": None, "ended_at": NOW}
_PIVOT = done(1, pivot=True)


def _held(*steps: Any, undoing: bool = False, **task: Any) -> Loaded:
    text = failure_text("undo", began_by=TaskFailure("step", "declined")) if undoing else failure_text(redo=(2,))
    fields: dict[str, Any] = {"state": TaskState.HELD, "undoing": undoing, "failure": text, "opened_count": len(steps)}
    return loaded(*steps, **(_ENDED | fields | task))


def _ended(state: TaskState, *steps: Any, **task: Any) -> Loaded:
    return loaded(*steps, state=state, opened_count=len(steps), **(_ENDED | task))


def _undone(**task: Any) -> Loaded:
    first = done(1)
    undo = undo_row(2, first, state=StepState.COMPLETED, result="null", result_number=2, finished_at=NOW)
    fields: dict[str, Any] = {"undoing": True, "failure": failure_text(), "incarnation": 3, "failure_count": 1}
    return _ended(TaskState.COMPENSATED, first, undo, **(fields | task))


def _undoing(**task: Any) -> Loaded:
    first = done(1)
    fields: dict[str, Any] = {"state": TaskState.COMPENSATING, "undoing": True, "failure": failure_text()}
    fields |= {"open_count": 1, "opened_count": 2}
    return loaded(first, undo_row(2, first, state=StepState.RUNNING, locked_by=2), **(fields | task))


def _limited(**task: Any) -> Loaded:
    return loaded(done(1), step_row(2), opened_count=2, open_count=1, complete_by=later(NOW, 200), **task)


# --- every state a task may be in
SITUATIONS: dict[str, Loaded] = {
    "pending": loaded(state=TaskState.PENDING, locked_by=None, not_before=NOW, complete_by=later(NOW, 200)),
    "pending again": loaded(
        done(1),
        failed(2, state=StepState.WITHDRAWN, result_number=None),
        state=TaskState.PENDING,
        locked_by=None,
        not_before=NOW,
        incarnation=2,
        opened_count=2,
        complete_by=later(NOW, 200),
    ),
    "processing": _limited(),
    "processing, put down": _limited(locked_by=None, not_before=None),
    "processing, past a pivot": loaded(_PIVOT, step_row(2), opened_count=2, open_count=1, complete_by=later(NOW, 200)),
    "processing, paused": _limited(locked_by=None, not_before=NOW, paused_at=NOW),
    "processed": _ended(TaskState.PROCESSED, done(1), output="1"),
    "processed, past a pivot": _ended(TaskState.PROCESSED, _PIVOT, output="1"),
    "held": _held(done(1), failed(2)),
    "held, past a pivot": _held(_PIVOT, failed(2)),
    "held in an undo": _held(done(1), undo_row(2, done(1), state=StepState.FAILED), undoing=True),
    "compensating": _undoing(),
    "compensating, paused": _undoing(locked_by=None, not_before=NOW, paused_at=NOW),
    "compensated": _undone(),
}
EXCEPT = {
    (Verb.COMPENSATE, "processing, past a pivot"): "step1 is a pivot",
    (Verb.COMPENSATE, "processed, past a pivot"): "step1 is a pivot",
    (Verb.COMPENSATE, "held, past a pivot"): "step1 is a pivot",
    (Verb.COMPENSATE, "held in an undo"): "resubmit continues it",
    (Verb.ANSWER, "pending"): "no step number 2",
}


def _command(verb: Verb, of: Loaded, **changes: Any) -> Operate:
    fields: dict[str, Any] = {"actor": "operator", "by": "ana", "reason": "she says so", "store_id": "store"}
    fields |= {"verb": verb, "task_no": of.task.task_no, "incarnation": of.task.incarnation}
    if verb is Verb.EXTEND:
        fields["within"] = 1_000.0
    if verb is Verb.ADJUST and of.task.state is TaskState.COMPENSATING:
        fields["limits"] = '{"attempts":10}'
    elif verb is Verb.ADJUST:
        fields["within"] = 1_000.0
    if verb is Verb.ANSWER:
        fields |= {"step": 2, "result": "7"}
    if verb is Verb.SNOOZE:
        fields["within"] = 60.0
    if verb is Verb.TAG:
        fields["tags"] = '{"old":null,"tenant":"acme"}'
    if verb is Verb.PIN:
        fields["to"] = "2@blue"
    return Operate(**(fields | changes))


def _operated(verb: Verb, of: Loaded, **changes: Any) -> Change:
    result = operate(_command(verb, of, **changes), OneTask(of), LATER)
    assert isinstance(result, Change), result
    assert find_verb_refusal(_command(verb, of, **changes), of, LATER) is None
    return result


def _refused(verb: Verb, of: Loaded, **changes: Any) -> str:
    """Refused, for a reason that names the task; with its state and what is allowed; nothing is written."""
    command = _command(verb, of, **changes)
    result = operate(command, OneTask(of), LATER)
    assert isinstance(result, Refused), result
    refusal = result.refusal
    assert (result.task_no, result.events) == (0, ())
    assert (refusal.verdict, refusal.state, refusal.allowed) == (
        "not_allowed",
        of.task.state,
        list_allowed_verbs(of.task, of.life),
    )
    assert find_verb_refusal(command, of, LATER) == refusal
    assert repr(of.task.task_id) in refusal.detail
    return refusal.detail


def _after(of: Loaded, change: Change) -> Loaded:
    """The rows once a change was written."""
    changed = {step.step_no: step for step in change.steps}
    steps = tuple(changed.get(step.step_no, step) for step in of.steps)
    return Loaded(change.task, change.arguments or of.arguments, (*steps, *change.opened))


def _kinds(change: Change) -> list[str]:
    return [event.type for event in change.events]


# --- the table
def test_the_table_is_as_it_is_written_down_here() -> None:
    wanted = {(verb, TaskState(state)) for verb, states in TABLE.items() for state in states.split()}
    assert set(VERB_RULES) == wanted
    assert all(rule.effect and rule.running for rule in VERB_RULES.values())


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("verb", Verb)
def test_a_verb_is_carried_out_exactly_where_the_table_allows_it(verb: Verb, situation: str) -> None:
    of = SITUATIONS[situation]
    task = of.task
    fits = (task.paused_at is not None) == (verb is Verb.RESUME) or verb not in (Verb.PAUSE, Verb.RESUME)
    in_table = task.state in TABLE[verb].split()
    assert (verb in list_possible_verbs(task)) == (in_table and fits)
    if not (in_table and fits) or (verb, situation) in EXCEPT:
        assert EXCEPT.get((verb, situation), "") in _refused(verb, of)
        return
    change = _operated(verb, of)
    after = change.task
    assert (after.task_id, after.locked_by, after.unseen_since) == (task.task_id, None, None)
    assert after.fence > task.fence
    assert after.revision > task.revision
    opens = task.ended_at is not None and verb in (Verb.RESUBMIT, Verb.COMPENSATE)
    assert after.incarnation == task.incarnation + opens
    event = as_plain(change.events)[0]
    assert {name: event[name] for name in ("type", "verb", "by", "reason", "before", "after", "incarnation")} == {
        "type": "operator.action",
        "verb": verb,
        "by": "ana",
        "reason": "she says so",
        "before": task.state,
        "after": after.state,
        "incarnation": after.incarnation,
    }
    assert task.fence < event["fence"] <= after.fence
    assert "operator.action" not in _kinds(change)[1:]
    assert change.rewrites
    assert change.closes_alert == ("alert.closed" in _kinds(change)) == (opens and task.state is TaskState.HELD)
    assert (change.alert is not None) == ("alert.opened" in _kinds(change))
    assert all(
        after_step.fence >= step.fence for step, after_step in zip(of.steps, _after(of, change).steps, strict=False)
    )
    completed = {step.step_no: step for step in of.steps if step.state is StepState.COMPLETED}
    assert all(step == completed.get(step.step_no, step) for step in _after(of, change).steps)  # a result never changes


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("verb", Verb)
def test_whoever_saw_another_incarnation_came_too_late_and_is_told_what_the_task_is(verb: Verb, situation: str) -> None:
    of = SITUATIONS[situation]
    result = operate(_command(verb, of, incarnation=of.task.incarnation + 1), OneTask(of), LATER)
    assert isinstance(result, Refused)
    refusal = result.refusal
    assert (refusal.verdict, refusal.state, refusal.allowed) == (
        "came_first",
        of.task.state,
        list_allowed_verbs(of.task, of.life),
    )
    assert f"is {of.task.state} in incarnation {of.task.incarnation}" in refusal.detail


@pytest.mark.parametrize("verb", Verb)
def test_a_task_that_is_not_there_is_unknown(verb: Verb) -> None:
    of = SITUATIONS["processing"]
    result = operate(_command(verb, of, task_no=99), OneTask(of), LATER)
    assert isinstance(result, Refused)
    assert result.refusal.verdict == "unknown"


@pytest.mark.parametrize("situation", [name for name, of in SITUATIONS.items() if of.task.paused_at is None])
@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.PAUSE])
def test_what_is_allowed_while_paused_leaves_it_paused_unless_it_ends_the_pause(verb: Verb, situation: str) -> None:
    of = SITUATIONS[situation]
    if of.task.state.value not in TABLE[Verb.PAUSE].split():
        return
    paused = _after(of, _operated(Verb.PAUSE, of))
    if verb not in list_possible_verbs(paused.task) or (verb, situation) in EXCEPT:
        _refused(verb, paused)
        return
    after = _operated(verb, paused).task
    still = verb in (Verb.EXTEND, Verb.ADJUST, Verb.ANSWER, Verb.SNOOZE, Verb.TAG, Verb.PIN)
    assert (after.paused_at is not None) == still
    if not still and after.ended_at is None:
        assert after.not_before is not None or situation == "processing, put down"


# --- resubmit: what failed is done again
def test_only_what_failed_is_set_back_and_results_stay() -> None:
    of = _held(done(1), failed(2), failed(3), lost_count=2, revision=4)
    change = _operated(Verb.RESUBMIT, of)
    (again,) = change.steps
    assert (again.ordinal, again.state, again.attempt, again.failure_count) == (2, StepState.WITHDRAWN, 2, 0)
    assert (again.result_number, again.delivered_at, again.failure) == (None, None, None)
    assert again.idempotency_key == of.steps[1].idempotency_key
    task = change.task
    assert (task.state, task.not_before, task.ended_at, task.failure) == (TaskState.PENDING, LATER, None, None)
    assert (task.lost_count, task.undoing, task.branched_at, task.seed) == (0, False, NOW, of.task.seed)
    assert _kinds(change) == ["operator.action", "alert.closed", "step.set_back"]
    assert change.closes_alert


def test_a_step_that_nobody_took_in_time_is_set_back_to_the_same_attempt() -> None:
    text = msgspec.json.encode(StepFailure("expired", "nobody took it", "not_taken")).decode()
    (again,) = _operated(Verb.RESUBMIT, _held(done(1), failed(2, failure=text, taken=False))).steps
    assert (again.attempt, again.taken) == (1, False)


def test_a_failure_that_was_recorded_after_the_end_is_done_again_too() -> None:
    """By the order of the record, not by the clock: both may bear the same instant."""
    of = _held(failed(1, result_number=4), failed(2), failed(3), failure=failure_text(redo=(2,), results=3))
    assert [step.ordinal for step in list_steps_to_redo(of.task, of.life)] == [1, 2]
    change = _operated(Verb.RESUBMIT, of)
    assert [step.ordinal for step in change.steps] == [1, 2]
    assert change.task.branched_at == NOW


def test_of_a_task_held_by_a_release_that_kept_only_name_and_reason_what_fits_both_is_done_again() -> None:
    """And what failed after it: the code had ended by then, and never saw it."""

    def refused(ordinal: int, name: str, why: str) -> StepRow:
        text = msgspec.json.encode(StepFailure("permanent", why)).decode()
        return failed(ordinal, name=name, failure=text, result_number=ordinal)

    of = _held(
        refused(1, "a", "caught"), refused(2, "a", "p A2"), refused(3, "a", "p A3"),
        failure=msgspec.json.encode(TaskFailure("step", "p A2", "a")).decode(),
    )  # fmt: skip
    assert [step.ordinal for step in list_steps_to_redo(of.task, of.life)] == [2, 3]


def test_the_earliest_branch_of_all_incarnations_is_kept() -> None:
    of = _held(done(1), failed(2, finished_at=later(NOW, 50)), branched_at=NOW)
    assert _operated(Verb.RESUBMIT, of).task.branched_at == NOW
    of = _held(done(1), failed(2), branched_at=later(NOW, 50))
    assert _operated(Verb.RESUBMIT, of).task.branched_at == NOW


def test_nothing_branches_where_nothing_is_done_again() -> None:
    of = _held(done(1), failure=failure_text("bug"))
    change = _operated(Verb.RESUBMIT, of)
    assert (change.steps, change.task.branched_at) == ([], None)


def test_a_resubmitted_task_has_its_whole_limit_again() -> None:
    policy = msgspec.json.encode(TaskPolicy(60.0, Supervision())).decode()
    change = _operated(Verb.RESUBMIT, _held(done(1), failed(2), policy=policy, complete_by=NOW))
    assert change.task.complete_by == later(LATER, 60) == as_plain(change.events)[0]["complete_by"]


def test_doubts_stay_over_a_resubmission() -> None:
    (again,) = _operated(Verb.RESUBMIT, _held(done(1), failed(2, in_doubt=True))).steps
    assert again.in_doubt


@pytest.mark.parametrize("started_at", [None, NOW])
def test_the_submitter_is_told_that_a_task_it_knows_to_have_started_goes_on(started_at: Instant | None) -> None:
    of = _held(done(1), failed(2), reply_to="web", status_count=3, started_at=started_at)
    change = _operated(Verb.RESUBMIT, of)
    wanted = [] if started_at is None else [("started", 4, 2)]  # else the claim tells it
    assert [(s.kind, s.number, s.incarnation) for s in change.statuses] == wanted


# --- resubmit with edited arguments
def test_edited_arguments_are_sent_under_a_new_key_and_what_the_code_asks_stays() -> None:
    of = _held(done(1), failed(2, name="charge", arguments='{"card":"old"}'))
    change = _operated(Verb.RESUBMIT, of, step=2, arguments='{"card":"new"}')
    (edited,) = change.steps
    assert (edited.arguments, edited.asked) == ('{"card":"new"}', '{"card":"old"}')
    of_its_name = build_idempotency_key(
        "store", 1, 2, StepKind.STEP, "charge", "#1"
    )  # which the code may yet ask for anew
    assert edited.idempotency_key not in (of.steps[1].idempotency_key, of_its_name)
    assert _operated(Verb.RESUBMIT, of, step=2, arguments='{"card":"new"}').steps == [edited]
    assert [e["idempotency_key"] for e in as_plain(change.events) if e["type"] == "step.edited"] == [
        edited.idempotency_key
    ]


def test_arguments_edited_twice_still_remember_what_the_code_asks() -> None:
    of = _held(done(1), failed(2, arguments="2", asked="1"))
    (edited,) = _operated(Verb.RESUBMIT, of, step=2, arguments="3").steps
    assert (edited.arguments, edited.asked) == ("3", "1")


def test_a_withdrawn_request_may_be_edited_too() -> None:
    of = _held(done(1), failed(2), step_row(3, state=StepState.WITHDRAWN, locked_by=None, finished_at=NOW))
    change = _operated(Verb.RESUBMIT, of, step=3, arguments='{"n":2}')
    assert [(step.ordinal, step.arguments) for step in change.steps] == [(2, "{}"), (3, '{"n":2}')]


@pytest.mark.parametrize("state", [StepState.FAILED, StepState.WITHDRAWN])
def test_arguments_of_a_step_in_doubt_are_not_edited(state: StepState) -> None:
    of = _held(done(1), failed(2, state=state, in_doubt=True))
    assert "may have happened with its old arguments" in _refused(Verb.RESUBMIT, of, step=2, arguments="{}")


@pytest.mark.parametrize("ordinal", [None, 1, 3, 4, 9])
def test_only_what_is_done_again_can_be_edited(ordinal: int | None) -> None:
    of = _held(done(1), failed(2), failed(3), step_row(4))
    assert "step2" in _refused(Verb.RESUBMIT, of, step=ordinal, arguments="{}")


# --- resubmit of an undo that failed
def _stopped(*more: Any, **undo: Any) -> Loaded:
    first, second = done(1), done(2)
    fields: dict[str, Any] = {"state": StepState.FAILED, "failure": failed().failure, "failure_count": 1, "taken": True}
    return _held(first, second, undo_row(3, second, **(fields | undo)), undo_row(4, first), *more, undoing=True)


def test_an_undo_that_failed_goes_on_with_what_is_open_and_with_its_first_reason() -> None:
    change = _operated(Verb.RESUBMIT, _stopped())
    assert (change.task.state, change.task.undoing, change.task.incarnation) == (TaskState.COMPENSATING, True, 2)
    (parked,) = change.steps
    assert (parked.ordinal, parked.state, parked.attempt, parked.failure_count) == (3, StepState.PLANNED, 2, 0)
    assert msgspec.json.decode(change.task.failure or "", type=TaskFailure) == TaskFailure("step", "declined")


def test_an_undo_that_goes_on_takes_no_edited_arguments() -> None:
    assert "arguments cannot be edited" in _refused(Verb.RESUBMIT, _stopped(), step=3, arguments="{}")


@pytest.mark.parametrize("state", [StepState.FAILED, StepState.WITHDRAWN, StepState.RUNNING])
def test_an_undo_stuck_in_doubt_goes_on_only_when_the_doubt_is_answered(state: StepState) -> None:
    doubtful = failed(5, name="post", state=state, in_doubt=True, locked_by=1 if state is StepState.RUNNING else None)
    of = _stopped(doubtful)
    assert "post may have happened" in _refused(Verb.RESUBMIT, of)
    settled = _after(of, _operated(Verb.ANSWER, of, step=5, result="1"))
    assert _operated(Verb.RESUBMIT, settled).task.state is TaskState.COMPENSATING


CONTINUE = task_policy_text(undo_on_doubt="continue")


def _stuck_beside(state: StepState) -> Loaded:
    """A step may have happened and has no compensation; ``state`` is that of the only compensation."""
    first, stuck = done(1), failed(2, name="post", in_doubt=True)
    undo = undo_row(3, first, state=state)
    text = failure_text("in_doubt", began_by=TaskFailure("step", "declined"))
    return _held(first, stuck, undo, undoing=True, policy=CONTINUE, failure=text)


@pytest.mark.parametrize("happened", [True, False])
def test_a_task_held_after_the_rest_was_undone_ends_once_the_doubt_is_answered(happened: bool) -> None:
    of = _stuck_beside(StepState.COMPLETED)
    assert "post may have happened" in _refused(Verb.RESUBMIT, of)
    answered = _after(of, _operated(Verb.ANSWER, of, result="1" if happened else None, did_not_happen=not happened))
    assert answered.task.state is TaskState.HELD  # two verbs on purpose: people look in between
    end = decide_next_undo(_after(answered, _operated(Verb.RESUBMIT, answered)), "store")
    assert end == Compensate(TaskFailure("step", "declined", nothing_to_undo=("post",) if happened else ()))


def test_a_compensation_that_failed_beside_a_step_in_doubt_is_resubmitted_without_an_answer() -> None:
    of = _stuck_beside(StepState.FAILED)
    assert _operated(Verb.RESUBMIT, of).task.state is TaskState.COMPENSATING
    assert "its undo has begun and failed; resubmit continues it" in _refused(Verb.COMPENSATE, of)


# --- resubmit of what was undone
def test_what_was_undone_runs_anew_under_another_seed_and_leaves_its_steps_behind() -> None:
    of = _undone()
    change = _operated(Verb.RESUBMIT, of)
    task = change.task
    assert (task.state, task.incarnation, task.past_count, change.steps) == (TaskState.PENDING, 4, 2, [])
    assert (task.started_at, task.failure, task.failure_count, task.undoing) == (None, None, 0, False)
    assert (task.branched_at, task.output, task.ended_at) == (None, None, None)
    assert task.seed != of.task.seed
    assert task.body_hash == of.task.body_hash
    assert not change.closes_alert
    again = _operated(Verb.RESUBMIT, _undone(incarnation=5, seed=task.seed))
    assert again.task.seed not in (task.seed, of.task.seed)


STUCK = _held(done(1), failed(2, in_doubt=True, compensation=None), undoing=True)


def _forms(verb: Verb, of: Loaded) -> list[Operate]:
    """Ways to ask for a verb, of which one is carried out if any is."""
    if verb is not Verb.ANSWER:
        return [_command(verb, of)]
    given: tuple[dict[str, Any], ...] = ({}, {"did_not_happen": True, "result": None})
    return [_command(verb, of, step=step.ordinal, **what) for step in of.steps for what in given]


@pytest.mark.parametrize("situation", [*SITUATIONS, "a step stops the undo"])
def test_what_is_said_to_be_allowed_is_just_what_would_be_carried_out(situation: str) -> None:
    of = SITUATIONS.get(situation, STUCK)
    for verb in (verb for verb in Verb if VERBS[verb].is_listed):
        is_carried_out = any(find_verb_refusal(form, of, LATER) is None for form in _forms(verb, of))
        assert (verb in list_allowed_verbs(of.task, of.life)) == is_carried_out, verb


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_change_of_tags_is_always_allowed_and_so_never_listed(situation: str) -> None:
    of = SITUATIONS[situation]
    assert Verb.TAG not in list_allowed_verbs(of.task, of.life)
    change = _operated(Verb.TAG, of)
    assert (change.task.tags, change.task.submitted_tags, change.task.state) == (
        '{"tenant":"acme"}',
        "{}",
        of.task.state,
    )
    assert (change.steps, change.opened, change.statuses, change.alert, _kinds(change)) == (
        [],
        [],
        [],
        None,
        ["operator.action"],
    )


def test_of_a_stuck_undo_every_verb_says_the_same_remedy() -> None:
    assert list_allowed_verbs(STUCK.task, STUCK.life) == (Verb.ANSWER,)
    assert "step2 may have happened and has no compensation: answer it first" in _refused(Verb.RESUBMIT, STUCK)
    assert "answer step2 first" in _refused(Verb.COMPENSATE, STUCK)
    assert "then resubmit continues it" in _refused(Verb.COMPENSATE, STUCK)


def test_arguments_of_the_workflow_are_edited_as_long_as_its_code_has_asked_for_no_step() -> None:
    change = _operated(Verb.RESUBMIT, _held(), arguments='{"n":2}')
    assert (change.arguments, change.task.state) == ('{"n":2}', TaskState.PENDING)
    (event,) = (event for event in as_plain(change.events) if event["type"] == "operator.action")
    assert event["arguments"] == payload_hash('{"n":2}')
    assert _operated(Verb.RESUBMIT, _held()).arguments is None
    assert "only the arguments of a step" in _refused(Verb.RESUBMIT, _held(done(1)), arguments='{"n":2}')
    assert "only the arguments of a step" in _refused(Verb.RESUBMIT, _held(), step=1, arguments='{"n":2}')


def test_what_was_undone_runs_anew_with_edited_arguments_of_the_workflow_only() -> None:
    assert _operated(Verb.RESUBMIT, _undone(), arguments='{"n":2}').arguments == '{"n":2}'
    assert "workflow's arguments" in _refused(Verb.RESUBMIT, _undone(), step=1, arguments='{"n":2}')


# --- compensate and cancel
@pytest.mark.parametrize("verb", [Verb.COMPENSATE, Verb.CANCEL])
@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.PROCESSING])
def test_of_an_open_task_requests_and_timers_are_withdrawn_and_attempts_waited_for(
    verb: Verb, state: TaskState
) -> None:
    request = step_row(2, state=StepState.PENDING, locked_by=None, taken=False)
    timer = step_row(3, kind=StepKind.TIMER, state=StepState.PENDING, locked_by=None)
    of = loaded(step_row(1), request, timer, state=state, open_count=2, opened_count=3, reply_to="web", status_count=2)
    change = _operated(verb, of)
    assert (change.task.state, change.task.undoing, change.task.open_count) == (TaskState.COMPENSATING, True, 1)
    states = [step.state for step in _after(of, change).steps]
    assert states == [StepState.RUNNING, StepState.WITHDRAWN, StepState.WITHDRAWN]
    failure = msgspec.json.decode(change.task.failure or "", type=TaskFailure)
    assert (failure.kind, "ana: she says so" in failure.reason) == ("person", True)
    assert [(s.kind, s.number) for s in change.statuses] == [("failed", 3)]


@pytest.mark.parametrize("doubt", [{"state": StepState.COMPLETED}, {"in_doubt": True}], ids=["done", "in doubt"])
def test_past_a_pivot_a_cancelled_task_is_held_and_compensate_is_refused(doubt: dict[str, Any]) -> None:
    pivot = done(1, **({"state": StepState.FAILED} | doubt), pivot=True)
    of = loaded(pivot, step_row(2), open_count=1, opened_count=2)
    assert "step1 is a pivot" in _refused(Verb.COMPENSATE, of)
    change = _operated(Verb.CANCEL, of)
    assert (change.task.state, change.task.undoing, change.task.incarnation) == (TaskState.HELD, False, 1)
    assert change.alert is not None
    assert (change.alert.cause, "step1 is a pivot" in change.alert.reason) == ("person", True)
    assert _kinds(change) == ["operator.action", "task.terminal", "alert.opened"]
    assert change.task.fence == of.task.fence + 2


def test_a_pivot_that_is_being_attempted_bars_nothing_yet() -> None:
    of = loaded(step_row(1, pivot=True), open_count=1, opened_count=1)
    assert _operated(Verb.CANCEL, of).task.state is TaskState.COMPENSATING
    assert _operated(Verb.COMPENSATE, of).task.state is TaskState.COMPENSATING


def test_a_pivot_of_a_life_that_was_undone_bars_nothing() -> None:
    of = _ended(TaskState.PROCESSED, _PIVOT, done(2), past_count=1, output="1")
    assert _operated(Verb.COMPENSATE, of).task.state is TaskState.COMPENSATING


@pytest.mark.parametrize("situation", ["processed", "held"])
def test_what_had_ended_is_undone_in_a_new_incarnation(situation: str) -> None:
    of = SITUATIONS[situation]
    change = _operated(Verb.COMPENSATE, of)
    task = change.task
    assert (task.state, task.incarnation, task.ended_at) == (TaskState.COMPENSATING, 2, None)
    assert (task.not_before, task.undoing) == (LATER, True)
    assert change.closes_alert == (of.task.state is TaskState.HELD)


# --- extend
@pytest.mark.parametrize(("complete_by", "said"), [(None, "no limit of its own"), (later(LATER, 50), "lies later")])
def test_a_limit_only_moves_later(complete_by: Instant | None, said: str) -> None:
    of = loaded(step_row(1), complete_by=complete_by, open_count=1)
    assert said in _refused(Verb.EXTEND, of, within=50.0)


def test_a_limit_moves_to_so_long_from_now() -> None:
    change = _operated(Verb.EXTEND, _limited(), within=100.5)
    assert change.task.complete_by == later(LATER, 100.5) == as_plain(change.events)[0]["complete_by"]
    assert change.steps == []


# --- answer
@pytest.mark.parametrize("state", [StepState.PENDING, StepState.RUNNING, StepState.WITHDRAWN])
def test_a_step_is_given_its_result_and_the_attempt_under_way_no_longer_counts(state: StepState) -> None:
    is_open = state is not StepState.WITHDRAWN
    row = step_row(2, state=state, in_doubt=True, locked_by=1 if state is StepState.RUNNING else None)
    of = loaded(done(1), row, open_count=int(is_open), opened_count=2, result_count=1, lost_count=2)
    change = _operated(Verb.ANSWER, of)
    (answered,) = change.steps
    assert (answered.state, answered.result, answered.result_number) == (StepState.COMPLETED, "7", 2)
    assert (answered.fence, answered.in_doubt, answered.locked_by, answered.complete_by) == (2, False, None, None)
    assert (change.task.open_count, change.task.result_count, change.task.lost_count) == (0, 2, 0)
    assert change.task.not_before == LATER


def test_a_failed_step_of_a_task_in_error_is_answered_and_not_done_again() -> None:
    of = _held(done(1), failed(2), result_count=2)
    answered = _after(of, _operated(Verb.ANSWER, of))
    assert (answered.steps[1].state, answered.steps[1].failure) == (StepState.COMPLETED, None)
    assert (answered.task.state, answered.task.not_before, answered.task.branched_at) == (TaskState.HELD, None, NOW)
    change = _operated(Verb.RESUBMIT, answered)
    assert (change.steps, change.task.state) == ([], TaskState.PENDING)


@pytest.mark.parametrize(
    ("of", "ordinal", "said"),
    [
        (_held(done(1), failed(2)), 1, "has a result already"),
        (_held(done(1), failed(2), failed(3)), 3, "gone another way"),
        (loaded(done(1), failed(2)), 2, "gone another way"),
        (loaded(step_row(2, kind=StepKind.TIMER)), 2, "no step number 2"),
        (_ended(TaskState.HELD, done(1), done(2), past_count=2), 2, "no step number 2"),
    ],
    ids=["completed", "caught", "caught by a task that goes on", "timer", "of a past life"],
)
def test_what_has_its_result_or_was_left_behind_cannot_be_answered(of: Loaded, ordinal: int, said: str) -> None:
    assert said in _refused(Verb.ANSWER, of, step=ordinal)


@pytest.mark.parametrize("state", [StepState.PENDING, StepState.WITHDRAWN, StepState.FAILED])
def test_a_doubt_is_settled_and_nothing_else_changes(state: StepState) -> None:
    row = step_row(2, state=state, in_doubt=True, locked_by=None)
    of = loaded(done(1), row, open_count=int(state is StepState.PENDING), opened_count=2)
    change = _operated(Verb.ANSWER, of, did_not_happen=True, result=None)
    assert change.steps == [msgspec.structs.replace(row, in_doubt=False)]
    assert (change.task.result_count, change.task.open_count) == (of.task.result_count, of.task.open_count)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": StepState.RUNNING, "in_doubt": True}, "being attempted now"),
        ({"state": StepState.WITHDRAWN, "locked_by": None}, "not in doubt"),
    ],
    ids=["running", "not in doubt"],
)
def test_a_doubt_that_cannot_be_settled_is_refused(changes: dict[str, Any], said: str) -> None:
    of = loaded(step_row(2, **changes), opened_count=1)
    assert said in _refused(Verb.ANSWER, of, did_not_happen=True, result=None)


@pytest.mark.parametrize("state", [StepState.PLANNED, StepState.RUNNING, StepState.FAILED])
def test_a_compensation_is_answered_without_a_result(state: StepState) -> None:
    first = done(1)
    undo = undo_row(2, first, state=state, locked_by=1 if state is StepState.RUNNING else None)
    of = msgspec.structs.replace(_undoing(open_count=int(state is StepState.RUNNING)), steps=(first, undo))
    (answered,) = _operated(Verb.ANSWER, of, result="null").steps
    assert (answered.state, answered.result) == (StepState.COMPLETED, "null")


@pytest.mark.parametrize("held", [True, False], ids=["held", "compensating"])
@pytest.mark.parametrize("pivot", [True, False], ids=["pivot", "step"])
def test_once_the_undo_is_planned_nothing_forward_is_given_a_result_that_it_would_not_undo(
    held: bool, pivot: bool
) -> None:
    """A request that was surely never sent is not part of the plan: as completed it would be left standing."""
    first = done(1)
    withdrawn = step_row(
        2, state=StepState.WITHDRAWN, locked_by=None, taken=False, compensation=step_policy_text(), pivot=pivot
    )
    undo = undo_row(3, first, state=StepState.FAILED if held else StepState.RUNNING)
    if held:
        of = _held(first, withdrawn, undo, undoing=True)
    else:
        of = msgspec.structs.replace(_undoing(opened_count=3), steps=(first, withdrawn, undo))
    _refused(Verb.ANSWER, of, step=2)


# --- pause and resume
def test_a_paused_task_keeps_its_attempts_and_its_requests_wait() -> None:
    asked = {"state": StepState.PENDING, "locked_by": None, "not_before": NOW, "wait_by": LATER, "taken": False}
    timer = step_row(3, kind=StepKind.TIMER, state=StepState.PENDING, locked_by=None, not_before=LATER)
    of = loaded(step_row(1), step_row(2, **asked), timer, open_count=2, opened_count=3, complete_by=LATER)
    change = _operated(Verb.PAUSE, of)
    assert (change.task.paused_at, change.task.not_before, change.task.complete_by) == (LATER, LATER, LATER)
    (waiting,) = change.steps
    assert (waiting.ordinal, waiting.not_before, waiting.wait_by) == (2, None, None)


def test_what_waited_for_its_next_attempt_begins_at_once_when_the_task_is_resumed() -> None:
    policy = msgspec.json.encode(StepPolicy(30.0, 60.0, Retry(), Supervision())).decode()
    fresh = step_row(1, state=StepState.PENDING, locked_by=None, taken=False, policy=policy)
    cooling = step_row(2, state=StepState.PENDING, locked_by=None, policy=policy)
    of = loaded(fresh, cooling, open_count=2, opened_count=2, paused_at=NOW, locked_by=None, not_before=NOW)
    change = _operated(Verb.RESUME, of)
    assert change.task.paused_at is None
    assert [(s.not_before, s.wait_by) for s in change.steps] == [(LATER, later(LATER, 60)), (LATER, None)]


def test_a_task_that_was_answered_while_paused_is_due_when_it_is_resumed() -> None:
    """Put down for a step, it had no time of its own; its answer is the news that wakes it."""
    row = step_row(2, state=StepState.PENDING, locked_by=None)
    of = loaded(done(1), row, open_count=1, opened_count=2, locked_by=None, not_before=None)
    for verb in (Verb.PAUSE, Verb.ANSWER, Verb.RESUME):
        of = _after(of, _operated(verb, of))
    assert of.task.not_before is not None


# --- snooze
PENDING: dict[str, Any] = {"state": StepState.PENDING, "locked_by": None}
WAITS_AN_HOUR = msgspec.json.encode(StepPolicy(30.0, 3_600.0, Retry(), Supervision())).decode()


def _snoozed(of: Loaded, *seconds: float) -> Loaded:
    for within in seconds:
        of = _after(of, _operated(Verb.SNOOZE, of, within=within))
    return of


def test_a_request_begins_at_the_end_of_the_snooze_and_then_waits_for_an_agent_like_a_new_one() -> None:
    fresh = step_row(1, **PENDING, taken=False, policy=WAITS_AN_HOUR, wait_by=LATER, not_before=NOW)
    cooling = step_row(2, **PENDING, policy=WAITS_AN_HOUR, not_before=later(LATER, 30))
    longer = step_row(3, **PENDING, policy=WAITS_AN_HOUR, not_before=later(LATER, 9_000))
    of = loaded(fresh, cooling, longer, locked_by=None, not_before=None, open_count=3, opened_count=3)
    change = _operated(Verb.SNOOZE, of, within=600.0)
    until = later(LATER, 600)
    assert [(s.not_before, s.wait_by) for s in change.steps] == [
        (until, later(until, 3_600)),
        (until, None),
        (later(LATER, 9_000), None),
    ]
    assert change.task.not_before is None  # only the result of a request wakes it
    assert (change.task.snoozed_until, as_plain(change.events)[0]["until"]) == (until, until)


def test_attempts_under_way_go_on_in_a_snoozed_task_and_what_they_lead_to_begins_at_its_end() -> None:
    before = loaded(done(1), step_row(2), opened_count=2, open_count=1)
    of = _snoozed(before, 600.0)
    assert of.steps == before.steps
    writer = Writer(of.task, OneTask(of), LATER, None)
    writer.wake_task()
    assert writer.task.not_before == later(LATER, 600)
    assert find_request_start(writer.task, LATER) == later(LATER, 600)
    assert find_request_start(writer.task, later(LATER, 900)) == later(LATER, 900)


@pytest.mark.parametrize("task", [{"locked_by": 1}, {"locked_by": None, "not_before": NOW}], ids=["driven", "due"])
def test_the_code_of_a_snoozed_task_does_not_run_before_the_end(task: dict[str, Any]) -> None:
    timer = step_row(1, **PENDING, kind=StepKind.TIMER, not_before=later(LATER, 5))
    change = _operated(Verb.SNOOZE, loaded(timer, open_count=1, opened_count=1, **task), within=600.0)
    assert change.task.not_before == later(LATER, 600)
    assert change.steps == []  # its timer fires when the task wakes


def test_a_shorter_snooze_replaces_a_longer_one() -> None:
    of = loaded(step_row(1, **PENDING, not_before=NOW), locked_by=None, not_before=NOW, open_count=1, started_at=NOW)
    of = _snoozed(of, 9_000.0, 10.0)
    assert (of.task.not_before, of.steps[0].not_before) == (later(LATER, 10), later(LATER, 10))


def test_a_task_never_starts_before_the_time_that_it_was_submitted_for() -> None:
    delayed = {"state": TaskState.PENDING, "locked_by": None, "started_at": None}
    for seconds, start in (((60.0,), 600), ((9_000.0,), 9_000), ((9_000.0, 60.0), 600), ((9_000.0, 60.0, 900.0), 900)):
        of = _snoozed(loaded(**delayed, not_before=later(LATER, 600)), *seconds)
        assert of.task.not_before == later(LATER, start), seconds


def test_a_snooze_ends_before_the_task_s_own_limit_unless_that_no_longer_counts() -> None:
    of = loaded(step_row(1, **PENDING), complete_by=later(LATER, 50), open_count=1, locked_by=None, not_before=None)
    assert "extend it first" in _refused(Verb.SNOOZE, of, within=50.0)
    assert _operated(Verb.SNOOZE, of, within=49.0).task.complete_by == later(LATER, 50)
    undoing = _undoing(complete_by=later(LATER, 50))
    assert _operated(Verb.SNOOZE, undoing, within=50.0).task.snoozed_until == later(LATER, 50)


def test_a_snoozed_task_that_waits_for_its_turn_begins_at_the_end_when_its_turn_comes_before() -> None:
    waiting = {
        "state": TaskState.PENDING,
        "locked_by": None,
        "turn": Turn.WAITING,
        "convoy_no": 1,
        "place": 1,
        "rank": 1,
    }
    of = _snoozed(loaded(**waiting, not_before=None), 600.0)
    assert of.task.not_before is None
    opened, _, event = open_turn(of.task, ConvoyRow(convoy_no=1, key="k", ordering="place"), LATER)
    assert (opened.not_before, event.not_before) == (later(LATER, 600), later(LATER, 600))


def test_a_task_that_is_paused_and_snoozed_begins_nothing_before_both_are_over() -> None:
    of = loaded(step_row(1, **PENDING, not_before=NOW), locked_by=None, not_before=NOW, open_count=1)
    of = _after(of, _operated(Verb.PAUSE, of))
    of = _snoozed(of, 600.0)
    assert (of.task.paused_at, of.steps[0].not_before, of.steps[0].wait_by) == (LATER, None, None)
    of = _after(of, _operated(Verb.RESUME, of))
    assert (of.task.not_before, of.steps[0].not_before) == (later(LATER, 600), later(LATER, 600))


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.COMPENSATE])
def test_an_undo_ends_a_snooze_and_an_answer_does_not(verb: Verb) -> None:
    of = _snoozed(
        loaded(done(1), step_row(2, **PENDING), locked_by=None, not_before=None, open_count=1, opened_count=2), 60.0
    )
    after = _operated(verb, of).task
    assert (after.snoozed_until, after.not_before) == (None, LATER)
    answered = _operated(Verb.ANSWER, of).task
    assert (answered.snoozed_until, answered.not_before) == (later(LATER, 60), later(LATER, 60))


def test_a_task_that_is_reopened_forgets_the_start_that_a_snooze_has_kept() -> None:
    of = _ended(TaskState.COMPENSATED, undoing=True, failure=failure_text(), due_at=later(LATER, 600))
    assert _operated(Verb.RESUBMIT, of).task.due_at is None
