"""Why a task is where it is: one sentence for each way to wait, and the verbs that would move it."""

from typing import Any

import msgspec
import pytest
from core_events import whole
from core_rows import NOW, done, failed, failure_text, loaded, step_policy_text, step_row, task_policy_text, undo_row
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.lease import PROBATION_FROM, mark_as_leaving
from arriero.core.verb_guards import list_allowed_verbs, list_possible_verbs
from arriero.explain.available_actions import AvailableAction
from arriero.explain.task import Explanation, explain
from arriero.explain.task_situation import Reason
from arriero.model import (
    FAILED_IN_OUTAGE,
    AlertRow,
    HistoryRow,
    Instant,
    Loaded,
    StepKind,
    StepRow,
    StepState,
    TaskState,
    Verb,
    later,
)
from arriero.model.failures import StepFailure
from arriero.model.processes import ProcessAbout, ProcessRow

PAST, FAR_PAST, FUTURE = later(NOW, -2), later(NOW, -600), later(NOW, 90)
UNDER_WAY = (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING)


def process(number: int = 1, **changes: Any) -> ProcessRow:
    """A process alive that plays all roles, has workflow fulfil and hosts Agent agent."""
    about = ProcessAbout(
        app="shop",
        roles=changes.pop("roles", ("agents", "scheduler", "supervisor")),
        workflows=changes.pop("workflows", ("fulfil",)),
        steps=changes.pop("steps", tuple(("agent", f"step{n}") for n in range(1, 9))),
    )
    row = ProcessRow(number, f"host-{number}-abcdef012345", FUTURE, False, msgspec.json.encode(about).decode())
    return msgspec.structs.replace(row, **changes)


def event_row(at: Instant, **event: Any) -> HistoryRow:
    return HistoryRow(1, 1, "t-1", 1, at, "operator", msgspec.Raw(msgspec.json.encode([event])), "")


def explained(task: Loaded, *processes: ProcessRow, **more: Any) -> Explanation:
    return explain(task, NOW, processes, **more)


def first(explanation: Explanation) -> Reason:
    return explanation.reasons[0]


def kinds(explanation: Explanation) -> list[str]:
    return [reason.kind for reason in explanation.reasons]


def of_kind(explanation: Explanation, kind: str) -> Reason:
    (found,) = [reason for reason in explanation.reasons if reason.kind == kind]
    return found


def moves_of(explanation: Explanation, verb: Verb) -> list[AvailableAction]:
    return [move for move in explanation.actions if move.verb is verb]


def free(*steps: StepRow, **changes: Any) -> Loaded:
    return loaded(*steps, **{"locked_by": None, "not_before": None, **changes})


def pending(ordinal: int = 1, **changes: Any) -> StepRow:
    return step_row(ordinal, **{"state": StepState.PENDING, "locked_by": None, "not_before": PAST, **changes})


def failure(cause: Any = "transient") -> str:
    return msgspec.json.encode(StepFailure(cause, "no line", "busy")).decode()


# --- waiting to be taken up
def test_a_delayed_task_waits_for_its_start() -> None:
    told = explained(free(state=TaskState.PENDING, started_at=None, not_before=FUTURE), process())
    assert (first(told).kind, first(told).until) == ("waits_for_start", FUTURE)
    assert "in 1 min 30 s" in first(told).says


def test_a_due_task_whose_code_nobody_has_names_who_is_alive_and_what_they_run() -> None:
    told = explained(free(not_before=FAR_PAST), process(7, workflows=("other",)))
    assert (first(told).kind, first(told).since) == ("nobody_runs_it", FAR_PAST)
    assert "no process alive runs workflow fulfil" in first(told).says
    assert "process 7 (host-7-abcd) (App shop; workflows other; Agents agent" in first(told).says


def test_a_due_task_with_no_process_at_all_says_how_one_is_started() -> None:
    for processes in ([], [process(lease_until=PAST)], [process(retired=True)]):
        told = explained(free(not_before=FAR_PAST), *processes)
        assert "no process is alive at all" in first(told).says
        assert "arriero run" in first(told).says


def test_an_undo_needs_no_workflow_code() -> None:
    undone = free(not_before=PAST, state=TaskState.COMPENSATING, failure=failure_text(), undoing=True)
    assert "nobody_runs_it" not in kinds(explained(undone, process(workflows=())))
    assert "nobody_runs_it" in kinds(explained(undone, process(roles=("agents",))))


def test_a_task_of_one_step_is_taken_up_by_who_may_have_the_step() -> None:
    of_one_step = free(not_before=PAST, workflow="step:charge")
    assert first(explained(of_one_step, process(workflows=("fulfil",)))).kind == "due"
    assert first(explained(of_one_step, process(workflows=("fulfil", "step:charge")))).kind == "due"
    nobody = explained(of_one_step, process(workflows=("fulfil", "step:other")))
    assert "no process alive runs step charge" in first(nobody).says


def test_a_due_task_is_taken_up_soon_or_its_processes_are_full() -> None:
    assert first(explained(free(not_before=PAST), process())).kind == "due"
    full = first(explained(free(not_before=FAR_PAST, priority=3), process()))
    assert full.kind == "no_room"
    assert "tasks that go before one of priority 3" in full.says


def test_a_sleeping_task_tells_until_when_and_that_nobody_would_wake_it() -> None:
    timer = pending(kind=StepKind.TIMER, name="sleep", agent="", not_before=FUTURE)
    assert kinds(explained(free(timer, not_before=FUTURE), process())) == ["sleeps"]
    alone = explained(free(timer, not_before=FUTURE))
    assert kinds(alone) == ["sleeps", "nobody_runs_it"]
    assert first(alone).until == FUTURE


# --- held
def test_a_held_task_names_its_process() -> None:
    told = explained(loaded(locked_by=3), process(3))
    assert first(told).says == "process 3 (host-3-abcd) drives it"


def test_a_holder_that_does_not_look_at_its_news_is_busy_or_stuck() -> None:
    told = explained(loaded(unseen_since=FAR_PAST), process(roles=("scheduler",)))
    assert (first(told).kind, first(told).since) == ("holder_busy", FAR_PAST)
    assert "no process alive runs one" in first(told).says  # a Supervisor


@pytest.mark.parametrize("processes", [[], [process(1, lease_until=PAST)]])
def test_a_lost_holder_is_told_with_who_could_free_its_task(processes: list[ProcessRow]) -> None:
    assert "no process is alive that could free it" in first(explained(loaded(), *processes)).says
    assert "another process frees it" in first(explained(loaded(), *processes, process(2))).says


# --- steps
def test_a_request_that_nobody_hosts_names_the_agent_and_since_when() -> None:
    told = explained(free(pending(agent="payments", not_before=FAR_PAST)), process())
    assert (first(told).kind, first(told).since, first(told).step) == ("untaken", FAR_PAST, "step1")
    assert "no process alive hosts Agent payments" in first(told).says


def test_a_request_whose_code_is_missing_where_its_agent_is_hosted_says_so() -> None:
    told = explained(free(pending()), process(5, steps=(("agent", "another"),)))
    assert (
        "no process alive has its code: process 5 (host-5-abcd) hosts Agent agent, but not this step"
        in first(told).says
    )


def test_a_request_that_waits_long_at_a_hosted_agent_has_no_room() -> None:
    assert "takes it at any moment" in first(explained(free(pending()), process())).says
    told = first(explained(free(pending(not_before=FAR_PAST, wait_by=FUTURE)), process()))
    assert "Agent agent has no room" in told.says
    assert "it fails when nobody takes it by" in told.says
    assert told.until == FUTURE


def test_a_running_attempt_tells_which_it_is_where_since_when_and_until_when() -> None:
    running = step_row(attempt=2, failure_count=1, complete_by=FUTURE, locked_by=4, failure=failure())
    history = [event_row(PAST, **whole({"type": "step.dispatched", "step": 1}))]
    told = explained(free(running), process(4), history=history)
    assert (first(told).kind, first(told).since, first(told).until) == ("running", PAST, FUTURE)
    assert "attempt 2 of 3 runs at process 4 (host-4-abcd) since" in first(told).says
    assert "the attempt before failed: transient: no line [busy]" in first(told).says


def test_attempts_are_counted_in_rounds_and_over_all_resubmissions() -> None:
    policy = step_policy_text(attempts=2, rounds=3)
    running = step_row(attempt=9, failure_count=3, complete_by=FUTURE, policy=policy)
    assert "attempt 2 of 2 in round 2 of 3 (number 9 in all)" in first(explained(free(running), process())).says


def test_an_attempt_whose_time_is_over_waits_for_a_supervisor() -> None:
    overdue = free(step_row(complete_by=PAST))
    assert "the Supervisor decides" in first(explained(overdue, process())).says
    alone = explained(overdue, process(roles=("agents", "scheduler")))
    assert "but no process alive runs one" in first(alone).says


def test_an_attempt_of_a_lost_process_is_freed_by_others() -> None:
    told = first(explained(free(step_row(locked_by=9, complete_by=FUTURE)), process(2)))
    assert "at process 9, which is lost; another process frees it" in told.says


def test_a_failed_attempt_tells_when_the_next_comes_and_a_spent_round_its_cool_off() -> None:
    again = pending(not_before=FUTURE, attempt=2, failure_count=1, failure=failure(), in_doubt=True)
    told = explained(free(again), process())
    assert (first(told).kind, first(told).until) == ("retry", FUTURE)
    assert "attempt 2 of 3 comes not before" in first(told).says
    assert "an earlier attempt may have happened" in first(told).says
    policy = step_policy_text(attempts=1, rounds=2)
    cool_off = pending(not_before=FUTURE, attempt=2, failure_count=1, failure=failure(), policy=policy)
    assert first(explained(free(cool_off), process())).kind == "cool_off"


def test_a_failure_in_an_outage_is_no_spent_round_however_many_failed_before() -> None:
    failed = {"attempt": 2, "failure_count": 1, "failure": failure(), "canary": FAILED_IN_OUTAGE}
    step = pending(not_before=FUTURE, policy=step_policy_text(attempts=1, rounds=2), **failed)
    assert first(explained(free(step), process())).kind == "retry"


def test_a_process_that_drains_is_not_expected_to_begin_anything() -> None:
    leaving = process()
    leaving = msgspec.structs.replace(leaving, about=mark_as_leaving(leaving.about))
    told = explained(free(pending(not_before=PAST)), leaving)
    says = of_kind(told, "untaken").says
    assert "no process alive hosts Agent" in says
    assert "it drains and begins nothing" in says
    due = of_kind(explained(free(not_before=PAST), leaving), "nobody_runs_it").says
    assert "it drains and begins nothing" in due


def test_many_open_steps_are_told_in_part() -> None:
    told = explained(free(*(pending(ordinal) for ordinal in range(1, 31))), process())
    assert len(told.reasons) == 11
    assert told.reasons[-1].says == "and 20 more steps are open"


# --- what else keeps a task
def test_a_paused_task_names_who_paused_it_and_why_and_resume_moves_it() -> None:
    acts = [
        event_row(
            PAST, type="operator.action", verb="pause", by=by, reason=why, before="processing", after="processing"
        )
        for by, why in (("bo", "long ago"), ("ana", "the bank is closed"))
    ]
    told = explained(free(pending(not_before=None), paused_at=PAST), process(), history=acts)
    assert (first(told).kind, first(told).since) == ("paused", PAST)
    assert 'by ana: "the bank is closed"' in first(told).says
    assert [act.by for act in told.acts] == ["bo", "ana"]
    assert moves_of(told, Verb.RESUME) != []
    assert moves_of(told, Verb.PAUSE) == []


def test_a_snoozed_task_names_its_end_who_snoozed_it_and_why_and_what_waits_for_it() -> None:
    act = {"type": "operator.action", "verb": "snooze", "before": "processing", "after": "processing"}
    acts = [event_row(PAST, **act, by="ana", reason="the bank is closed", until=FUTURE)]
    step = pending(not_before=FUTURE, attempt=2, failure_count=1, failure=failure())
    told = explained(free(step, snoozed_until=FUTURE), process(), history=acts)
    assert kinds(told)[:2] == ["snoozed", "waits_for_snooze"]
    assert (first(told).since, first(told).until) == (PAST, FUTURE)
    assert 'by ana: "the bank is closed"; nothing new begins before' in first(told).says
    assert [move.options for move in moves_of(told, Verb.SNOOZE)] == [("--delay", "DURATION")]
    over = explained(free(pending(not_before=PAST), snoozed_until=PAST), process(), history=acts)
    assert "snoozed" not in kinds(over)


def test_a_paused_task_whose_limit_has_passed_is_to_be_extended_first() -> None:
    told = explained(free(paused_at=FAR_PAST, complete_by=PAST), process())
    assert "extend it before you resume it" in of_kind(told, "limit_passed").says


def test_a_limit_is_told_ahead_and_after_it_passed() -> None:
    ahead = explained(loaded(complete_by=FUTURE), process())
    assert "then it is undone" in of_kind(ahead, "limit").says
    held = explained(loaded(complete_by=FUTURE, policy=task_policy_text(then="hold")), process())
    assert "then it is held" in of_kind(held, "limit").says
    passed = explained(loaded(complete_by=PAST), process(roles=("scheduler",)))
    assert (first(passed).kind, first(passed).since) == ("limit_passed", PAST)
    assert "no process alive runs one" in first(passed).says


def test_a_task_on_probation_says_what_the_next_loss_does() -> None:
    told = explained(loaded(lost_count=PROBATION_FROM), process())
    assert "2 processes in a row died or froze with it" in of_kind(told, "probation").says


def test_an_undo_tells_why_since_when_how_far_it_is_and_what_is_at_work() -> None:
    one, two, three = done(1), done(2), done(3)
    undo = (
        undo_row(4, three, state=StepState.COMPLETED),
        undo_row(5, two, state=StepState.RUNNING, locked_by=1, complete_by=FUTURE),
        undo_row(6, one),
    )
    task = free(one, two, three, *undo, state=TaskState.COMPENSATING, failure=failure_text(), undoing=True)
    told = explained(task, process(), history=[event_row(PAST, type="undo.begun", failure={})])
    assert (first(told).kind, first(told).since) == ("undo", PAST)
    assert "charge: declined; 1 of 3 compensations done; then to be undone: step1" in first(told).says
    assert "the undo of step2: attempt 1 of 3 runs at process 1" in of_kind(told, "running").says


def test_an_undo_waits_for_the_attempts_that_began_before_it() -> None:
    task = free(step_row(complete_by=FUTURE), state=TaskState.COMPENSATING, failure=failure_text(), undoing=True)
    assert "begun before the undo, which waits for its end" in of_kind(explained(task, process()), "running").says


# --- held
def held_task(*steps: StepRow, **changes: Any) -> Loaded:
    return free(*steps, **{"state": TaskState.HELD, "ended_at": PAST, "failure": failure_text(), **changes})


def test_a_failed_step_tells_what_a_resubmission_does_again_and_that_its_arguments_may_be_edited() -> None:
    told = explained(held_task(done(1), failed(2), failure=failure_text(redo=(2,), code="declined")), process())
    assert "it waits for an operator: charge: declined [declined]" in first(told).says
    says = of_kind(told, "failed_step").says
    assert "step step2 failed after 1 attempt (permanent: declined [declined]); it definitely did not happen" in says
    assert "its arguments may be edited" in says
    plain, edited = moves_of(told, Verb.RESUBMIT)
    assert plain.does == "does again: step2; recorded results stay"
    assert edited.options == ("--arguments", "JSON")


def test_the_arguments_of_a_step_in_doubt_may_not_be_edited_before_it_is_answered() -> None:
    told = explained(held_task(failed(1, in_doubt=True), failure=failure_text(redo=(1,))), process())
    says = of_kind(told, "failed_step").says
    assert "it is in doubt: it may have happened" in says
    assert "its arguments may not be edited until you answer it" in says
    assert [move.options for move in moves_of(told, Verb.RESUBMIT)] == [()]
    answers = moves_of(told, Verb.ANSWER)
    assert {move.options for move in answers} == {("--result", "JSON"), ("--did-not-happen",)}
    assert {move.step for move in answers} == {"step1"}


def test_where_several_failed_the_edited_step_is_named() -> None:
    told = explained(held_task(failed(1), failed(2), failure=failure_text(redo=(1, 2))), process())
    options = [move.options for move in moves_of(told, Verb.RESUBMIT)]
    assert ("--arguments", "JSON", "--at-step", "step2") in options


def test_a_failed_undo_names_what_is_still_open_and_both_ways_out() -> None:
    one, two = done(1), done(2)
    undo = (undo_row(3, two, state=StepState.FAILED, failure=failure("permanent"), failure_count=1), undo_row(4, one))
    told = explained(held_task(one, two, *undo, undoing=True, failure=failure_text("undo")), process())
    open_ones = [reason.says for reason in told.reasons if reason.kind == "open_compensation"]
    assert open_ones == ["the undo of step2 failed (permanent: no line [busy])", "the undo of step1 is still open"]
    assert "answer undo:step2, undo:step1" in of_kind(told, "repair").says
    assert [move.step for move in moves_of(told, Verb.ANSWER)] == ["undo:step2", "undo:step1"]
    assert moves_of(told, Verb.RESUBMIT)[0].does == "continues the undo: step2, step1"
    (compensate,) = moves_of(told, Verb.COMPENSATE)
    assert "resubmit continues it" in compensate.refused


def test_a_step_in_doubt_without_compensation_is_to_be_answered_before_anything_else() -> None:
    doubtful = failed(1, in_doubt=True)
    told = explained(held_task(doubtful, undoing=True, failure=failure_text("in_doubt")), process())
    assert "may have happened and has no compensation" in of_kind(told, "in_doubt").says
    assert moves_of(told, Verb.RESUBMIT)[0].refused
    assert ("--did-not-happen",) in [move.options for move in moves_of(told, Verb.ANSWER)]


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("bug", "fix the code"),
        ("replay", "disagrees with what is recorded"),
        ("unawaited", "never awaited it"),
        ("lost", "logs"),
        ("refused", "Permanent"),
        ("limit", "begins its limit again"),
    ],
)
def test_what_no_step_failed_by_has_its_hint(kind: str, part: str) -> None:
    assert part in of_kind(explained(held_task(failure=failure_text(kind)), process()), "cause").says


def alert(**changes: Any) -> AlertRow:
    row = AlertRow(1, 1, "t-1", "fulfil", 1, "step", "declined", "", "", PAST, None, (), 0, NOW, "")
    return msgspec.structs.replace(row, **changes)


def test_an_alert_is_told_or_it_is_told_why_not() -> None:
    task = held_task(failed(1))
    assert (
        "was delivered to log, webhook"
        in of_kind(explained(task, alert=alert(told=("log", "webhook"), next_at=None)), "alert").says
    )
    failing = explained(task, process(), alert=alert(told=("log",), attempts=3, error="webhook: 500", next_at=FUTURE))
    says = of_kind(failing, "alert_untold").says
    assert "delivered to log, but not delivered to all yet: tried 3 times: webhook: 500; again at" in says
    nobody = of_kind(explained(task, alert=alert()), "alert_untold").says
    assert "no process alive runs the role supervisor" in nobody


# --- ended, and pivots
def test_a_processed_task_is_moved_by_compensate_alone() -> None:
    told = explained(free(done(1), done(2), state=TaskState.PROCESSED, ended_at=PAST))
    assert "except compensate" in first(told).says
    (move,) = told.actions
    assert (move.verb, move.does, move.refused) == (Verb.COMPENSATE, "undoes what it did: step2, step1", "")


def test_past_a_pivot_compensate_is_refused_and_cancel_holds_it() -> None:
    ended = explained(free(done(1, pivot=True), state=TaskState.PROCESSED, ended_at=PAST))
    assert "step step1 has happened" in of_kind(ended, "pivot").says
    assert "step1 is a pivot" in moves_of(ended, Verb.COMPENSATE)[0].refused
    under_way = explained(loaded(done(1, pivot=True)), process())
    assert "step1 is a pivot" in moves_of(under_way, Verb.COMPENSATE)[0].refused
    (cancel,) = moves_of(under_way, Verb.CANCEL)
    assert (cancel.refused, "held" in cancel.does) == ("", True)
    assert under_way.actions[-1].verb is Verb.COMPENSATE  # what is refused stands last


def test_an_undone_task_is_moved_by_resubmit_alone_which_begins_anew() -> None:
    told = explained(free(state=TaskState.COMPENSATED, ended_at=PAST, failure=failure_text(nothing_to_undo=("ship",))))
    assert "everything is undone: charge: declined; completed with nothing to undo: ship" in first(told).says
    assert {move.verb for move in told.actions} == {Verb.RESUBMIT}
    assert "from the beginning" in told.actions[0].does


def test_an_undo_that_would_stop_at_a_step_in_doubt_says_so_beforehand() -> None:
    for policy, does in (
        ("stop", "it undoes nothing and is held"),
        ("continue", "it undoes the rest and is held then"),
    ):
        rows = free(done(1), pending(2, in_doubt=True), policy=task_policy_text(undo_on_doubt=policy))
        (move,) = moves_of(explained(rows, process()), Verb.CANCEL)
        assert move.does.startswith(f"undoes what it did: step1; {does} if step2 may have happened")


def test_a_task_held_in_doubt_says_what_its_undo_does_with_and_without_the_answer() -> None:
    first, stuck = done(1), failed(2, in_doubt=True)
    for policy, state, does in (
        ("continue", StepState.COMPLETED, "nothing else is left to undo; then resubmit ends it as compensated"),
        ("continue", StepState.FAILED, "resubmit undoes the rest also without the answer"),
        ("stop", StepState.PLANNED, "nothing is undone before (its workflow says undo_on_doubt='stop')"),
    ):
        rows = free(
            first,
            stuck,
            undo_row(3, first, state=state),
            state=TaskState.HELD,
            undoing=True,
            ended_at=NOW,
            failure=failure_text("in_doubt"),
            policy=task_policy_text(undo_on_doubt=policy),
        )
        (reason,) = [reason for reason in explained(rows, process()).reasons if reason.kind == "in_doubt"]
        assert f"find out whether it did, then answer it; {does}" in reason.says


def test_extend_is_offered_only_to_a_task_that_has_a_limit() -> None:
    assert moves_of(explained(loaded(), process()), Verb.EXTEND) == []
    (move,) = moves_of(explained(loaded(complete_by=FUTURE), process()), Verb.EXTEND)
    assert (move.options, move.refused) == (("--within", "DURATION"), "")


instants = st.sampled_from([None, FAR_PAST, PAST, NOW, FUTURE])


@st.composite
def tasks(draw: st.DrawFn) -> Loaded:
    """Rows in any state, whether or not the core would ever write them so."""
    steps: list[StepRow] = []
    for ordinal in range(1, draw(st.integers(0, 5)) + 1):
        kind = draw(st.sampled_from(StepKind))
        steps.append(
            step_row(
                ordinal,
                kind=kind,
                state=draw(st.sampled_from(StepState)),
                locked_by=draw(st.sampled_from([None, 1, 2])),
                not_before=draw(instants),
                complete_by=draw(instants),
                wait_by=draw(instants),
                finished_at=draw(instants),
                failure_count=draw(st.integers(0, 3)),
                failure=draw(st.sampled_from([None, failure()])),
                in_doubt=draw(st.booleans()),
                pivot=draw(st.booleans()),
                compensation=draw(st.sampled_from([None, step_policy_text()])),
            )
        )
    state = draw(st.sampled_from(TaskState))
    ended = state not in UNDER_WAY
    return loaded(
        *steps,
        state=state,
        locked_by=None if ended else draw(st.sampled_from([None, 1, 2])),
        not_before=draw(instants),
        started_at=draw(instants),
        ended_at=PAST if ended else None,
        complete_by=draw(instants),
        paused_at=None if ended else draw(instants),
        unseen_since=draw(instants),
        lost_count=draw(st.integers(0, 3)),
        undoing=draw(st.booleans()),
        failure=failure_text(draw(st.sampled_from(["step", "bug", "undo", "in_doubt", "person"]))),
    )


@given(tasks(), st.lists(st.sampled_from([process(1), process(2, lease_until=PAST), process(3, workflows=())])))
def test_however_a_task_stands_there_is_an_answer_and_only_verbs_of_its_state(
    task: Loaded, processes: list[ProcessRow]
) -> None:
    told = explained(task, *processes)
    assert told.reasons
    assert all(reason.says for reason in told.reasons)
    assert {move.verb for move in told.actions} <= set(list_possible_verbs(task.task))
    assert {move.verb for move in told.actions if not move.refused} <= set(list_allowed_verbs(task.task, task.life))


# --- Apps
REMEDY = (
    "start App 'web' here; App 'shop' has code of that name: if they are one system, give both one name, App('shop', ...),"
    " and run `arriero store assign --from web --to shop --reason WHY`"
)


@pytest.mark.parametrize(
    ("state", "what"),
    [(TaskState.PROCESSING, "runs workflow fulfil"), (TaskState.COMPENSATING, "plays the role scheduler")],
)
def test_a_task_of_an_app_that_does_not_run_here_names_the_one_that_has_its_code(state: TaskState, what: str) -> None:
    task = loaded(state=state, app="web", locked_by=None, not_before=FAR_PAST)
    (reason,) = [one for one in explained(task, process()).reasons if one.kind == "nobody_runs_it"]
    assert reason.says.endswith(f"but no process alive of App 'web' {what}; {REMEDY}")
    ours = loaded(state=state, app="shop", locked_by=None, not_before=FAR_PAST)
    assert "nobody_runs_it" not in kinds(explained(ours, process()))


def test_a_request_of_an_app_that_has_no_agents_here_names_the_one_that_has_its_code() -> None:
    waits = step_row(state=StepState.PENDING, locked_by=None, complete_by=None, not_before=FAR_PAST, app="web")
    (reason,) = [r for r in explained(loaded(waits, app="web"), process()).reasons if r.kind == "untaken"]
    assert reason.says.endswith(f"no process alive of App 'web' hosts Agent agent; {REMEDY}")
