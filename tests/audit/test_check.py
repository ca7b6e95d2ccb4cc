"""The check of a history: a clean one is clean, and every invariant that is evaluated convicts what breaks it.

Each violation changes one thing of a clean history and chains it anew: its hashes are in order, so that only the
change itself can show.
"""

from collections.abc import Callable
from itertools import chain

import msgspec
import pytest
from core_events import OF_TASKS, whole
from core_history import NOON, SECOND, Change, Story, disagreements, everything

from arriero.audit.check import CHECKED, Violation, check
from arriero.audit.export import encode_export, encode_row, read_export
from arriero.errors import MutilatedExport
from arriero.events.base import link_hash
from arriero.model import HistoryRow, Instant

STORE = ""  # the stream of process starts and leases
OF_THE_STORE = {
    "process.started",
    "process.retired",
    "lease.granted",
    "lease.lost",
    "statuses.dropped",
    "tasks.purged",
    "breaker.opened",
    "breaker.probed",
    "breaker.answered",
    "breaker.probe_begun",
    "breaker.probe_ended",
    "breaker.closed",
    "agent.paused",
    "agent.resumed",
    "limits.declared",
    "schedule.declared",
    "schedule.decided",
    "schedule.asked",
    "schedule.paused",
    "schedule.resumed",
    "schedule.removed",
    "schedule.troubled",
    "schedule.mended",
    "workflow.paused",
    "workflow.resumed",
}
OF_CONVOYS = {"I39", "I40", "I41", "I87"}  # test_fold_convoys
OF_A_RATE = "I71"  # test_fold_redispatch
OF_ROUTING = "I74"  # test_fold_routing
FAR = NOON + 10**6 * SECOND
_VIOLATIONS: list[tuple[tuple[str, ...], Change]] = []


def violates(*invariants: str) -> Callable[[Change], Change]:
    """The invariants that convict, in the order in which they do; the first is the one that is broken."""

    def keep(change: Change) -> Change:
        _VIOLATIONS.append((invariants, change))
        return change

    return keep


def judged(story: Story) -> list[Violation]:
    return check(story.rows(), complete=True)


# --- the clean history
def test_a_history_in_which_everything_happens_is_clean_and_agrees_with_its_tables() -> None:
    rows = list(everything().store.iterate_history())
    found = {event["type"] for row in rows for event in msgspec.json.decode(row.events)}
    assert found == OF_TASKS | OF_THE_STORE
    assert check(rows, complete=True) == []
    assert disagreements() == []


def test_the_clean_history_chained_anew_is_clean_too() -> None:
    assert judged(Story()) == []


# --- ends and submissions
@violates("I1")
def a_task_never_ends(story: Story) -> None:
    terminal = story.commit("lost", "task.terminal")
    story.commits.remove(terminal)


@violates("I1")
def a_task_is_never_claimed(story: Story) -> None:
    first, *rest = story.of("lost")
    story.commits = [commit for commit in story.commits if commit not in rest]
    assert story.of("lost") == [first]


@violates("I2")
def a_task_ends_twice(story: Story) -> None:
    end = story.event("plain", "task.terminal")
    story.append("plain", {**end, "fence": end["fence"] + 1})


@violates("I2", "I26", "I45")
def a_task_ends_again_in_another_way(story: Story) -> None:
    story.append("plain", {"type": "task.terminal", "state": "held", "fence": 99})


@violates("I2", "I10")
def a_task_that_ended_is_claimed(story: Story) -> None:
    story.append("lost", whole({"type": "task.claimed", "fence": 99, "process": 1, "state": "processed"}))


@violates("I2")
def a_task_that_ended_is_freed(story: Story) -> None:
    story.append("plain", {"type": "task.released", "fence": 99, "not_before": None, "why": "put_down"})


@violates("I2")
def a_task_that_ended_passes_its_limit(story: Story) -> None:
    story.event("plain", "task.submitted")["complete_by"] = NOON + SECOND
    story.append("plain", {"type": "task.expired", "term": 1})


@violates("I2")
def a_step_is_recorded_after_its_task_was_processed(story: Story) -> None:
    commit, recorded = story.found("lost", "step.recorded")
    story.remove("lost", "step.report", fence=5)
    story.move(recorded, story.append("lost"))
    story.commits.remove(commit)


@violates("I2")
def a_timer_fires_after_the_end(story: Story) -> None:
    fired = story.event("plain", "timer.fired")
    story.move(fired, story.append("plain"))


@violates("I2", "I1")
def the_undo_of_a_processed_task_begins_without_a_verb(story: Story) -> None:
    story.append("lost", story.event("undone", "undo.begun"))


@violates("I2")
def a_resubmission_skips_an_incarnation(story: Story) -> None:
    story.event("undone", "operator.action")["incarnation"] += 1


@violates("I2")
def a_resubmission_opens_no_incarnation(story: Story) -> None:
    story.event("undone", "operator.action")["incarnation"] -= 1


@violates("I2")
def a_verb_opens_an_incarnation_of_a_task_under_way(story: Story) -> None:
    for action in (event for commit in story.of("patient") for event in commit.events):
        if action["type"] == "operator.action" and action["verb"] != "extend":
            action["incarnation"] += 1


@violates("I2")
def a_claim_is_recorded_as_an_end(story: Story) -> None:
    """Without this a history could do without any end."""
    claimed = story.commit("lost", "task.claimed")
    story.event("lost", "task.claimed")["state"] = "processed"
    for commit in story.of("lost")[2:]:
        story.commits.remove(commit)
    assert story.of("lost")[-1] is claimed


@violates("I3")
def a_task_is_submitted_twice(story: Story) -> None:
    first = story.of("plain")[0]
    story.insert(first, story.event("plain", "task.submitted"))


@violates("I5")
def a_task_was_never_submitted(story: Story) -> None:
    story.commits.remove(story.of("held")[0])


# --- claims and fences
@violates("I6")
def a_claim_does_not_grow_the_fence(story: Story) -> None:
    story.event("plain", "task.claimed", 1)["fence"] -= 1


@violates("I6")
def an_end_does_not_grow_the_fence(story: Story) -> None:
    end = story.event("plain", "task.terminal")
    end["fence"] -= 1


@violates("I6")
def a_verb_does_not_grow_the_fence(story: Story) -> None:
    story.event("patient", "operator.action", verb="pause")["fence"] -= 1


@violates("I6")
def an_expired_attempt_keeps_its_fence(story: Story) -> None:
    story.event("lost", "step.expired")["fence"] -= 1


@violates("I6")
def a_lost_attempt_keeps_its_fence(story: Story) -> None:
    story.event("lost", "step.lost")["fence"] -= 1


@violates("I6")
def a_released_attempt_keeps_its_fence(story: Story) -> None:
    story.event("returned", "attempt.released")["fence"] -= 1


@violates("I6")
def an_answer_does_not_grow_the_fence(story: Story) -> None:
    story.event("patient", "step.answered", happened=True)["fence"] -= 1


@violates("I7")
def a_running_step_is_dispatched_again(story: Story) -> None:
    commit, first = story.found("plain", "step.dispatched", step=1)
    story.insert(commit, {**first, "fence": first["fence"] + 1})
    for nth in (0, 1):
        story.event("plain", "step.report", nth, step=1)["fence"] += 1


@violates("I7")
def a_step_that_has_a_result_is_dispatched(story: Story) -> None:
    dispatched = story.event("plain", "step.dispatched", step=1)
    recorded = story.commit("plain", "step.recorded", step=1)
    again = story.insert(recorded, {**dispatched, "fence": 2, "complete_by": recorded.at + 1})
    story.insert(again, whole({"type": "step.recorded", "step": 1, "number": 9}))
    story.remove("plain", "step.recorded", step=1)
    story.remove("plain", "step.report", step=1)
    again.events.insert(0, {"type": "step.withdrawn", "step": 1, "in_doubt": False})


@violates("I8")
def a_report_of_a_lost_attempt_counts(story: Story) -> None:
    story.event("lost", "step.report")["fence"] = 1


@violates("I9")
def a_task_is_claimed_while_it_is_held(story: Story) -> None:
    story.remove("lost", "task.released")


@violates("I10")
def a_task_is_claimed_before_its_time(story: Story) -> None:
    story.event("plain", "task.submitted")["not_before"] += SECOND


@violates("I10")
def a_task_that_only_news_wakes_is_claimed_without_any(story: Story) -> None:
    story.event("lost", "task.released")["not_before"] = None


@violates("I10")
def a_paused_task_is_claimed(story: Story) -> None:
    story.event("patient", "operator.action", verb="resume")["paused"] = True
    cancelled = story.event("patient", "operator.action", verb="cancel")
    cancelled["paused"] = True


@violates("I10")
def a_task_is_claimed_between_pause_and_resume(story: Story) -> None:
    paused = story.commit("patient", "operator.action", verb="pause")
    claim = whole({"type": "task.claimed", "fence": 4, "process": 1, "state": "processing"})
    story.insert(paused, claim)
    for commit in story.of("patient")[6:]:
        for event in commit.events:
            if event["type"] in ("operator.action", "task.claimed", "task.terminal"):
                event["fence"] += 1


@violates("I11")
def a_step_is_dispatched_under_an_older_claim(story: Story) -> None:
    story.event("lost", "step.dispatched", 1)["fence"] -= 1


@violates("I12")
def a_process_start_has_a_used_name(story: Story) -> None:
    story.commit(STORE, "process.started", 2).actor = "p1"


# --- reports
@violates("I13")
def a_refused_report_changes_something(story: Story) -> None:
    story.event("plain", "step.report", step=1)["verdict"] = "late"


@violates("I13")
def a_stale_report_comes_with_a_recorded_result(story: Story) -> None:
    story.event("lost", "step.report")["verdict"] = "stale"


@violates("I13")
def a_report_counts_after_its_deadline(story: Story) -> None:
    story.event("plain", "step.dispatched", step=1)["complete_by"] = story.commit("plain", "step.recorded").at


@violates("I14")
def a_result_is_recorded_twice(story: Story) -> None:
    commit, recorded = story.found("plain", "step.recorded", step=1)
    story.insert(commit, {**recorded, "result": "another"})


@violates("I14")
def a_completed_step_is_set_back(story: Story) -> None:
    action = story.commit("held", "operator.action", verb="resubmit")
    action.events.append({"type": "step.set_back", "step": 1, "attempt": 2})


@violates("I14")
def a_withdrawn_step_is_set_back(story: Story) -> None:
    action = story.commit("patient", "operator.action", verb="resubmit")
    action.events.append({"type": "step.set_back", "step": 1, "attempt": 3})


@violates("I14")
def a_completed_step_is_opened_again(story: Story) -> None:
    commit, again = story.found("held", "step.reopened")
    opened = story.event("held", "step.opened", step=1)
    story.insert(commit, {**opened, "type": "step.reopened", "attempt": 1})
    story.insert(story.of("held")[story.of("held").index(commit) + 1], whole({"type": "step.recorded", "step": 1}))
    assert again["step"] == 2


@violates("I14")
def a_completed_step_is_answered(story: Story) -> None:
    story.commit("patient", "operator.action", verb="answer").events.append(
        {"type": "step.answered", "step": 3, "fence": 7, "happened": True, "number": 3, "result": "x"}
    )


@violates("I14")
def a_completed_step_is_said_not_to_have_happened(story: Story) -> None:
    settled = story.event("patient", "step.answered", happened=False)
    story.commit("patient", "step.answered", happened=True).events.append({**settled, "step": 3})


@violates("I15")
def a_report_counts_twice(story: Story) -> None:
    commit, report = story.found("plain", "step.report", step=1)
    story.insert(commit, report)


@violates("I16", "I8")
def a_report_matches_no_attempt(story: Story) -> None:
    story.event("plain", "step.report", step=1)["fence"] = 99


@violates("I16")
def a_report_has_a_verdict_that_nobody_knows(story: Story) -> None:
    story.event("plain", "step.report", verdict="duplicate")["verdict"] = "perhaps"


# --- keys and deadlines
def _rekey(story: Story, task: str, step: int, key: str) -> None:
    for event in chain.from_iterable(commit.events for commit in story.of(task)):
        if event.get("step") == step:
            for name in ("key", "idempotency_key"):
                if name == "idempotency_key" or event["type"].endswith("dispatched"):
                    event[name] = key if name in event else event.get(name)


@violates("I18")
def two_steps_share_a_key(story: Story) -> None:
    _rekey(story, "plain", 2, story.event("plain", "step.opened", step=1)["idempotency_key"])


@violates("I18")
def a_compensation_has_the_key_of_its_step(story: Story) -> None:
    _rekey(story, "undone", 5, story.event("undone", "step.opened", step=3)["idempotency_key"])


@violates("I18")
def a_step_run_anew_has_the_key_of_the_life_before(story: Story) -> None:
    _rekey(story, "undone", 8, story.event("undone", "step.opened", step=1)["idempotency_key"])


@violates("I18")
def the_second_attempt_has_another_key(story: Story) -> None:
    story.event("plain", "step.dispatched", step=2, attempt=2)["key"] = "another"


@violates("I13")
def an_answer_that_counted_is_kept_as_a_late_one_too(story: Story) -> None:
    story.event("plain", "step.report")["kept"] = True


@violates("I18")
def edited_arguments_keep_the_key(story: Story) -> None:
    _rekey(story, "held", 2, story.event("held", "step.opened", step=2)["idempotency_key"])


@violates("I18")
def edited_arguments_are_sent_under_the_old_key(story: Story) -> None:
    old = story.event("held", "step.opened", step=2)["idempotency_key"]
    story.event("held", "step.dispatched", 1, step=2)["key"] = old


@violates("I18")
def edited_arguments_have_the_key_of_another_step(story: Story) -> None:
    other = story.event("held", "step.opened", step=1)["idempotency_key"]
    story.event("held", "step.edited")["idempotency_key"] = other
    story.event("held", "step.reopened")["idempotency_key"] = other
    story.event("held", "step.dispatched", 1, step=2)["key"] = other


@violates("I18")
def a_step_is_opened_again_under_another_key(story: Story) -> None:
    edited = story.remove("held", "step.edited")
    assert story.event("held", "step.reopened")["idempotency_key"] == edited["idempotency_key"]


@violates("I18")
def a_step_is_edited_while_it_is_in_doubt(story: Story) -> None:
    story.event("held", "step.failed", step=2)["in_doubt"] = True


@violates("I19")
def the_clock_of_a_task_goes_back(story: Story) -> None:
    story.commit("plain", "step.report", verdict="duplicate").at -= 1000 * SECOND


@violates("I19")
def a_step_is_dispatched_with_a_deadline_that_has_passed(story: Story) -> None:
    commit, dispatched = story.found("undone", "compensation.dispatched", step=6)
    dispatched["complete_by"] = commit.at
    report = story.commit("undone", "compensation.recorded", step=6)
    report.events = [event for event in report.events if event["type"] != "step.report"]  # it would come too late


@violates("I67")
def an_attempt_begins_with_more_time_than_its_policy_gives(story: Story) -> None:
    story.event("plain", "step.dispatched", step=1)["complete_by"] += SECOND


@violates("I19")
def the_deadline_of_an_attempt_moves_back(story: Story) -> None:
    dispatched = story.event("long", "step.dispatched")
    commit, extended = story.found("long", "attempt.extended")
    extended["complete_by"] = dispatched["complete_by"]
    story.commit("long", "step.recorded").at = commit.at  # else its report would come too late
    story.commit("long", "attempt.checkpoint").at = commit.at


@violates("I68")
def an_attempt_is_extended_further_than_its_policy_allows(story: Story) -> None:
    story.event("long", "attempt.extended")["complete_by"] = FAR


@violates("I68")
def an_attempt_is_extended_after_its_deadline(story: Story) -> None:
    dispatched = story.event("long", "step.dispatched")
    story.commit("long", "attempt.extended").at = dispatched["complete_by"]
    story.commit("long", "attempt.checkpoint").at = dispatched["complete_by"]


@violates("I68")
def an_attempt_is_extended_under_a_fence_that_is_not_its_own(story: Story) -> None:
    story.event("long", "attempt.extended")["fence"] = 2


@violates("I69")
def a_checkpoint_is_kept_of_an_attempt_that_has_ended(story: Story) -> None:
    checkpoint = story.remove("long", "attempt.checkpoint")
    commit, terminal = story.found("long", "task.terminal")
    story.move(checkpoint, commit, before=terminal)


@violates("I69")
def a_checkpoint_is_kept_after_the_deadline(story: Story) -> None:
    extended = story.event("long", "attempt.extended")
    later_on = [commit for commit in story.of("long") if commit.at >= story.commit("long", "attempt.checkpoint").at]
    story.commit("long", "attempt.checkpoint").at = extended["complete_by"]
    for commit in later_on[1:]:
        commit.at = extended["complete_by"]
    story.remove("long", "step.report")  # it would come too late


@violates("I19")
def the_limit_of_a_task_moves_back(story: Story) -> None:
    story.event("patient", "operator.action", verb="extend")["complete_by"] = NOON
    story.event("patient", "operator.action", verb="adjust")["complete_by_before"] = NOON


@violates("I20")
def an_error_overrules_a_result(story: Story) -> None:
    failed = story.event("held", "step.failed")
    story.insert(story.commit("plain", "step.recorded", step=1), {**failed, "step": 1})


# --- numbers
@violates("I22")
def the_number_of_a_step_is_left_out(story: Story) -> None:
    for kind in ("step.opened", "timer.fired"):
        story.event("plain", kind, step=3)["step"] = 4


@violates("I22")
def the_number_of_an_attempt_is_left_out(story: Story) -> None:
    story.event("plain", "step.dispatched", step=2, attempt=3)["attempt"] = 4


@violates("I22")
def a_lost_process_costs_an_attempt(story: Story) -> None:
    story.event("lost", "step.dispatched", 1)["attempt"] = 2


@violates("I22")
def a_failure_is_set_back_to_the_attempt_that_failed(story: Story) -> None:
    for kind in ("step.set_back", "step.reopened"):
        story.event("held", kind, step=2)["attempt"] = 1
    story.event("held", "step.dispatched", 1, step=2)["attempt"] = 1


@violates("I22")
def a_step_is_opened_again_for_another_attempt(story: Story) -> None:
    story.event("held", "step.reopened")["attempt"] = 1


@violates("I23")
def a_failure_is_not_counted(story: Story) -> None:
    story.event("plain", "recover.applied", 1)["failure_count"] = 1


@violates("I23")
def the_last_failure_is_not_counted(story: Story) -> None:
    story.event("undone", "step.failed")["failure_count"] = 0


@violates("I23")
def a_loss_of_the_task_is_not_counted(story: Story) -> None:
    story.event("lost", "task.lost")["lost_count"] = 0


@violates("I23")
def a_loss_of_the_step_is_counted_twice(story: Story) -> None:
    story.event("lost", "step.lost")["lost_count"] = 2


@violates("I24")
def an_attempt_is_recovered_before_its_deadline(story: Story) -> None:
    story.commit("lost", "step.expired").at = story.event("lost", "step.dispatched", 1)["complete_by"] - 1


@violates("I24")
def an_attempt_is_recovered_that_nobody_had_taken(story: Story) -> None:
    commit = story.commit("lost", "step.dispatched", 1)
    story.commits.remove(commit)
    story.event("lost", "step.expired")["fence"] = 3


@violates("I24", "I23")
def an_attempt_is_recovered_twice(story: Story) -> None:
    commit, recovered = story.found("lost", "recover.applied")
    story.insert(commit, recovered)
    dispatched = story.event("lost", "step.dispatched", 2)
    dispatched["attempt"] += 1


@violates("I24")
def a_task_is_ended_by_its_limit_before_it(story: Story) -> None:
    story.event("limited", "task.submitted")["complete_by"] += SECOND


@violates("I24")
def a_task_without_a_limit_is_ended_by_it(story: Story) -> None:
    story.event("limited", "task.submitted")["complete_by"] = None


# --- policies
def _supervision(story: Story, task: str, step: int, **changes: int) -> None:
    story.event(task, "step.opened", step=step)["policy"]["supervision"].update(changes)


@violates("I25")
def a_spent_round_is_followed_by_a_plain_retry(story: Story) -> None:
    story.event("plain", "recover.applied", 1)["what"] = "retry"


@violates("I25")
def a_round_that_is_not_spent_is_followed_by_a_cool_off(story: Story) -> None:
    story.event("plain", "recover.applied", 0)["what"] = "cool_off"


@violates("I25")
def a_step_is_tried_again_although_all_is_spent(story: Story) -> None:
    _supervision(story, "plain", 2, rounds=1)


@violates("I25")
def a_step_is_given_up_although_attempts_are_left(story: Story) -> None:
    _supervision(story, "undone", 3, attempts=2)


@violates("I26")
def a_permanent_failure_is_tried_again(story: Story) -> None:
    story.event("plain", "recover.applied")["failure"]["cause"] = "permanent"


@violates("I26")
def nobody_is_told_that_a_task_is_held(story: Story) -> None:
    story.remove("limited", "alert.opened")


@violates("I26")
def two_alerts_are_open_for_one_task(story: Story) -> None:
    commit, alert = story.found("limited", "alert.opened")
    commit.events.append(alert)


@violates("I26")
def an_alert_stays_open_after_its_task_left_the_error(story: Story) -> None:
    story.remove("held", "alert.closed")


@violates("I26")
def an_alert_is_closed_only_after_the_next_error(story: Story) -> None:
    closed = story.event("held", "alert.closed")
    story.move(closed, story.commit("held", "operator.action", 2))


@violates("I26")
def an_alert_is_closed_while_its_task_is_held(story: Story) -> None:
    story.append("limited", {"type": "alert.closed"})


@violates("I26")
def an_alert_is_closed_that_was_never_opened(story: Story) -> None:
    story.append("plain", {"type": "alert.closed"})


@violates("I26")
def an_alert_is_opened_for_a_task_that_goes_well(story: Story) -> None:
    story.commit("plain", "task.claimed").events.append({"type": "alert.opened", "cause": "bug"})


# --- undo
@violates("I27")
def the_undo_acts_before_its_plan(story: Story) -> None:
    commit, planned = story.found("undone", "undo.planned")
    story.move(planned, commit)


@violates("I27")
def the_undo_is_never_planned(story: Story) -> None:
    story.remove("held", "undo.planned")


@violates("I28")
def the_undo_goes_forward(story: Story) -> None:
    story.event("patient", "undo.planned")["steps"].reverse()
    story.remove("patient", "compensation.reached")
    for step, undoes in ((4, 2), (5, 3)):
        story.event("patient", "step.opened", step=step)["undoes"] = undoes
    story.event("patient", "undo.planned")["steps"].reverse()


@violates("I28")
def steps_in_doubt_come_last_in_the_plan(story: Story) -> None:
    for step, undoes in ((5, 2), (6, 1), (7, 3)):
        story.event("undone", "step.opened", step=step)["undoes"] = undoes


@violates("I28")
def two_compensations_go_on_at_once(story: Story) -> None:
    commit, recorded = story.found("undone", "compensation.recorded", step=5)
    story.move(recorded, commit)


@violates("I28")
def a_compensation_goes_ahead_of_its_turn(story: Story) -> None:
    story.event("undone", "undo.planned")["steps"] = [5, 7, 6]
    for step, undoes in ((6, 1), (7, 2)):
        story.event("undone", "step.opened", step=step)["undoes"] = undoes


@violates("I28")
def the_undo_is_planned_while_an_attempt_runs(story: Story) -> None:
    story.remove("undone", "step.recorded", step=4)


@violates("I30", "I27")
def the_plan_leaves_out_a_step(story: Story) -> None:
    story.event("undone", "undo.planned")["steps"] = [5, 6]


@violates("I30", "I27")
def the_plan_leaves_out_the_step_in_doubt(story: Story) -> None:
    story.event("undone", "undo.planned")["steps"] = [6, 7]


@violates("I30")
def the_doubt_about_a_withdrawn_step_is_forgotten(story: Story) -> None:
    story.commits.remove(story.commit("patient", "step.answered", happened=False))
    assert story.event("patient", "step.withdrawn")["in_doubt"] is False


@violates("I79")
def a_signal_is_taken_twice(story: Story) -> None:
    taken = story.event("waiting", "signal.taken", signal=1)
    story.event("waiting", "signal.taken", signal=3).update(signal=1, step=taken["step"])
    story.remove("waiting", "signal.answered")


@violates("I79")
def a_wait_takes_a_signal_that_nobody_sent(story: Story) -> None:
    story.event("waiting", "signal.taken", signal=1)["signal"] = 9


@violates("I79")
def a_wait_takes_a_signal_of_another_name(story: Story) -> None:
    story.event("waiting", "signal.sent", number=1)["name"] = "signal:other"


@violates("I79")
def a_signal_is_kept_twice_under_its_id(story: Story) -> None:
    story.event("waiting", "signal.sent", number=2)["signal_id"] = "early"


@violates("I79")
def a_signal_is_taken_before_an_earlier_one_of_its_name(story: Story) -> None:
    story.remove("waiting", "signal.set_aside")
    story.event("waiting", "signal.taken", signal=1)["signal"] = 2


@violates("I79")
def a_request_gets_two_replies(story: Story) -> None:
    answered = story.commit("waiting", "signal.answered")
    answered.events.append({**story.event("waiting", "signal.answered"), "reply": "another"})


@violates("I79")
def a_request_is_answered_that_was_not_taken(story: Story) -> None:
    story.event("waiting", "signal.answered")["signal"] = 1


@violates("I85")
def a_patch_is_marked_twice(story: Story) -> None:
    story.event("waiting", "step.opened", name="patch:new-text")["name"] = "patch:new-bank"


@violates("I88")
def a_task_is_continued_by_a_process_with_another_version_of_its_code(story: Story) -> None:
    story.event("upgraded", "task.claimed", process=4)["process"] = 3


@violates("I88")
def a_second_claim_begins_a_task_with_another_version_of_its_code(story: Story) -> None:
    story.event("upgraded", "task.claimed", process=4)["code_version"] = "2@blue"


@violates("I59")
def a_task_is_moved_from_a_version_that_it_did_not_have(story: Story) -> None:
    story.event("upgraded", "task.claimed", process=3)["code_version"] = "2"


@violates("I59", "I88")
def a_pin_does_not_say_which_version_it_chose(story: Story) -> None:
    del story.event("upgraded", "operator.action", verb="pin")["code_version"]


@violates("I89")
def a_signal_that_went_along_is_another_one_in_the_next_run(story: Story) -> None:
    story.event("continuing", "signal.sent", signal_id="second")["value"] = "of another"


@violates("I89")
def a_run_continues_in_one_of_another_workflow(story: Story) -> None:
    story.event("continuing", "task.submitted")["workflow"] = "another"


@violates("I81", "I79")
def a_callback_is_completed_twice(story: Story) -> None:
    story.remove("called", "signal.set_aside")


@violates("I81")
def a_callback_is_kept_for_a_wait_that_is_not_there(story: Story) -> None:
    story.event("called", "signal.sent", number=1)["name"] = "callback:bank#1@9"


@violates("I78")
def a_process_that_is_lost_takes_the_attempt_from_its_program(story: Story) -> None:
    story.event("delivered", "attempt.revoked").update(type="step.lost", lost_count=1)


@violates("I78")
def a_person_ends_an_attempt_that_a_process_carries_out(story: Story) -> None:
    story.remove("delivered", "attempt.delivered")


@violates("I78")
def a_request_is_delivered_whose_attempt_is_over(story: Story) -> None:
    delivered = story.event("delivered", "attempt.delivered")
    story.insert(story.commit("delivered", "attempt.revoked"), {**delivered})


@violates("I30")
def the_doubt_about_a_call_is_forgotten_when_its_attempt_goes_back(story: Story) -> None:
    failed = story.event("doubted", "step.failed")
    assert failed["in_doubt"] is True
    failed["in_doubt"] = False


@violates("I30")
def a_task_is_compensated_with_a_step_in_doubt_that_cannot_be_undone(story: Story) -> None:
    failed = story.event("undone", "step.failed")
    commit, recorded = story.found("undone", "step.recorded", step=4)
    del story.event("undone", "step.opened", step=4)["effect_free"]
    commit.events[commit.events.index(recorded)] = {**failed, "step": 4}


@violates("I30", "I32")
def a_task_is_compensated_although_one_undo_was_not_carried_out(story: Story) -> None:
    story.remove("undone", "compensation.recorded", step=7)


@violates("I31")
def a_step_is_opened_after_the_undo_began(story: Story) -> None:
    opened = story.event("plain", "step.opened", step=1)
    story.insert(story.commit("held", "undo.planned"), {**opened, "step": 4})


@violates("I31")
def a_step_is_dispatched_after_the_undo_began(story: Story) -> None:
    commit, dispatched = story.found("undone", "step.dispatched", step=4)
    commit.events.remove(dispatched)
    story.commit("undone", "undo.begun").events.append(dispatched)


@violates("I31")
def a_step_is_opened_again_after_the_undo_began(story: Story) -> None:
    again = {**story.event("patient", "step.opened", step=1), "type": "step.reopened", "attempt": 2}
    plan = story.commit("patient", "undo.planned")
    story.insert(plan, again)
    story.insert(story.of("patient")[story.of("patient").index(plan) + 1], {**_WITHDRAWN, "step": 1})


_WITHDRAWN = {"type": "step.withdrawn", "in_doubt": False}


@violates("I31", "I30")
def a_step_that_did_not_happen_gets_a_result_after_the_undo_began(story: Story) -> None:
    answer = story.commit("patient", "step.answered", step=4)
    answer.events.append({"type": "step.answered", "step": 1, "fence": 9, "happened": True, "number": 9, "result": "x"})


@violates("I31")
def a_task_is_undone_past_a_pivot(story: Story) -> None:
    story.event("undone", "step.opened", step=1)["pivot"] = True


@violates("I31")
def a_task_is_undone_past_a_pivot_in_doubt(story: Story) -> None:
    story.event("undone", "step.opened", step=3)["pivot"] = True


@violates("I31")
def a_processed_task_is_compensated_past_a_pivot(story: Story) -> None:
    story.event("held", "step.reopened")["pivot"] = True


@violates("I31", "I45")
def a_task_is_processed_although_its_undo_began(story: Story) -> None:
    story.event("held", "task.terminal", 3)["state"] = "processed"
    story.remove("held", "status.published", kind="compensated")


@violates("I32")
def a_task_is_compensated_although_a_compensation_is_left(story: Story) -> None:
    planned = story.event("undone", "step.opened", step=7)
    story.insert(story.commit("undone", "undo.planned"), {**planned, "step": 8, "idempotency_key": "k"})
    for commit in story.of("undone")[-2:]:
        for event in commit.events:
            if event.get("step") == 8:
                event["step"] = 9


@violates("I32")
def a_task_is_compensated_although_no_undo_began(story: Story) -> None:
    story.event("plain", "task.terminal")["state"] = "compensated"
    story.event("plain", "status.published", kind="completed")["kind"] = "compensated"


# --- leases
@violates("I33")
def a_term_is_given_twice(story: Story) -> None:
    story.event(STORE, "lease.granted", 1)["term"] = 1
    story.event("limited", "task.expired")["term"] = 1
    story.event("lost", "step.expired")["term"] = 1


@violates("I33")
def a_term_goes_below_the_first(story: Story) -> None:
    story.commits[0].events.insert(0, {"type": "lease.granted", "lease": "another", "term": 0, "process": 1})


@violates("I34")
def a_former_leader_ends_a_task(story: Story) -> None:
    story.event("limited", "task.expired")["term"] = 1


@violates("I34")
def a_former_leader_recovers_a_step(story: Story) -> None:
    story.event("lost", "step.expired")["term"] = 1


@violates("I34")
def somebody_leads_before_the_lease_was_granted(story: Story) -> None:
    granted = story.commit(STORE, "lease.granted", 1)
    story.commits.remove(granted)
    expired = story.commit("lost", "step.expired")
    granted.at = expired.at
    story.commits.insert(story.commits.index(expired) + 1, granted)


@violates("I34")
def a_leader_is_refused_although_its_term_is_the_current_one(story: Story) -> None:
    story.append(STORE, {"type": "leader.refused", "term": 2, "current": 2, "task": 1})


@violates("I34")
def a_former_leader_is_refused_for_a_term_that_was_never_given(story: Story) -> None:
    story.append(STORE, {"type": "leader.refused", "term": 2, "current": 3, "task": 1})


@violates("I35")
def a_lease_is_given_back_by_another_process(story: Story) -> None:
    story.event(STORE, "lease.lost")["process"] = 3


@violates("I35")
def a_lease_is_given_back_under_another_term(story: Story) -> None:
    story.event(STORE, "lease.lost")["term"] = 2


@violates("I35")
def a_lease_is_given_back_that_nobody_held(story: Story) -> None:
    story.event(STORE, "lease.lost")["lease"] = "another"


# --- statuses
@violates("I43")
def the_number_of_a_status_is_left_out(story: Story) -> None:
    story.event("plain", "status.published", 2)["number"] = 4


@violates("I43")
def a_status_is_missing_in_the_middle(story: Story) -> None:
    story.remove("plain", "status.published", kind="started")


@violates("I43")
def a_status_has_the_number_of_the_one_before(story: Story) -> None:
    story.event("plain", "status.published", kind="started")["number"] = 1
    story.event("plain", "status.published", kind="completed")["number"] = 2


@violates("I44")
def an_undo_is_told_before_it_began(story: Story) -> None:
    story.event("plain", "status.published", kind="started")["kind"] = "failed"


@violates("I44")
def a_task_under_way_is_told_to_be_received(story: Story) -> None:
    story.event("plain", "status.published", kind="started")["kind"] = "received"


@violates("I44", "I45")
def a_processed_task_is_told_to_be_compensated(story: Story) -> None:
    story.event("plain", "status.published", kind="completed")["kind"] = "compensated"


@violates("I44")
def a_status_has_a_kind_that_nobody_knows(story: Story) -> None:
    story.event("plain", "status.published", kind="started")["kind"] = "well"


@violates("I44")
def an_end_is_told_before_it_is_there(story: Story) -> None:
    commit, told = story.found("plain", "status.published", kind="completed")
    story.move(told, commit, before=story.event("plain", "task.terminal"))


@violates("I45")
def a_status_goes_to_another_queue(story: Story) -> None:
    story.event("plain", "status.published", kind="started")["queue"] = "another"


@violates("I45")
def nobody_asked_for_statuses(story: Story) -> None:
    del story.event("plain", "task.submitted")["reply_to"]


@violates("I45")
def a_status_follows_the_last_one(story: Story) -> None:
    told = story.event("undone", "status.published", kind="failed")
    story.insert(story.commit("undone", "task.terminal"), {**told, "number": 5})
    for nth in (-1, -2):
        story.event("undone", "status.published", nth)["number"] += 1


@violates("I45")
def the_end_of_a_task_is_not_told(story: Story) -> None:
    story.remove("plain", "status.published", kind="completed")


@violates("I45")
def the_end_of_an_incarnation_is_not_told(story: Story) -> None:
    story.remove("held", "status.published", kind="completed")
    for event in chain.from_iterable(commit.events for commit in story.of("held")):
        if event["type"] == "status.published" and event["number"] > 5:
            event["number"] -= 1


# --- people
@violates("I59")
def an_edit_names_other_arguments_as_replaced_than_were_sent(story: Story) -> None:
    story.event("held", "step.edited")["replaces"] = "another"


@violates("I59")
def a_verb_is_by_nobody(story: Story) -> None:
    story.event("held", "operator.action")["by"] = ""


@violates("I59")
def a_verb_is_recorded_from_another_state(story: Story) -> None:
    story.event("held", "operator.action")["before"] = "compensated"


@violates("I59")
def a_verb_is_recorded_to_lead_to_another_state(story: Story) -> None:
    story.event("patient", "operator.action", verb="pause")["after"] = "error"


@violates("I59")
def a_verb_is_recorded_to_have_begun_an_undo_that_did_not_begin(story: Story) -> None:
    story.event("patient", "operator.action", verb="extend")["after"] = "compensating"


@violates("I59")
def a_change_of_limits_found_others_than_the_step_had(story: Story) -> None:
    story.event("patient", "step.adjusted")["before"]["attempts"] = 3


@violates("I59")
def a_change_of_limits_keeps_no_old_value(story: Story) -> None:
    del story.event("patient", "step.adjusted")["before"]["cool_off"]


@violates("I59")
def a_change_of_a_deadline_found_another_than_the_task_had(story: Story) -> None:
    story.event("patient", "operator.action", verb="adjust")["complete_by_before"] = None


@violates("I59")
def limits_of_a_step_that_is_done_were_changed(story: Story) -> None:
    adjusted = story.event("patient", "step.adjusted")
    story.insert(
        story.commit("patient", "step.recorded", step=3), {**adjusted, "step": 3, "before": adjusted["limits"]}
    )


@violates("I25")
def an_operator_gave_more_attempts_and_the_step_failed_all_the_same(story: Story) -> None:
    story.event("patient", "step.adjusted")["limits"]["attempts"] = 1


@violates("I59")
def a_change_of_tags_found_others_than_the_task_had(story: Story) -> None:
    story.event("patient", "operator.action", verb="tag")["tags_before"] = {"tenant": "globex"}


@violates("I59")
def a_change_of_tags_does_not_say_what_it_changed(story: Story) -> None:
    del story.event("patient", "operator.action", verb="tag")["tags"]


@violates("I59")
def a_task_under_way_is_resubmitted(story: Story) -> None:
    story.event("patient", "operator.action", verb="pause")["verb"] = "resubmit"


@violates("I59")
def a_processed_task_is_cancelled(story: Story) -> None:
    action = {"type": "operator.action", "verb": "cancel", "by": "ana", "before": "processed", "after": "processed"}
    story.append("lost", whole({**action, "incarnation": 1, "fence": 99, "not_before": None}))


# --- Apps
@violates("I61")
def a_task_is_claimed_by_a_process_of_another_app(story: Story) -> None:
    story.event("ours", "task.submitted")["app"] = "travel"


@violates("I61")
def a_step_is_dispatched_by_a_process_of_another_app(story: Story) -> None:
    story.event(STORE, "process.started")["app"] = "travel"
    story.remove("ours", "task.claimed")


@violates("I59")
def a_task_is_assigned_by_nobody(story: Story) -> None:
    story.event("unsaid", "task.assigned")["by"] = ""


@violates("I59")
def a_task_is_assigned_that_was_of_another_app(story: Story) -> None:
    story.event("unsaid", "task.assigned")["from"] = "travel"


@violates("I77")
def a_verb_names_an_approver_who_did_not_approve(story: Story) -> None:
    story.event("held", "operator.action")["approved_by"] = ["eve"]


@violates("I77")
def a_verb_counts_its_own_person_as_an_approver(story: Story) -> None:
    act = story.event("held", "operator.action")
    act["approved_by"] = [act["by"]]


@violates("I77")
def a_verb_counts_a_name_in_letters_of_another_script_as_a_second_person(story: Story) -> None:
    act = story.event("held", "operator.action")
    act["by"], act["approved_by"] = "ace", ["\u0430\u0441\u0435"]


# --- schedules
@violates("I75")
def a_schedule_runs_an_instant_twice(story: Story) -> None:
    decided = story.event(STORE, "schedule.decided", 1)
    decided["runs"], decided["tasks"] = decided["runs"] * 2, decided["tasks"] * 2
    decided["passed_over"] -= 1


@violates("I75")
def a_run_has_an_id_that_does_not_say_its_instant(story: Story) -> None:
    story.event(STORE, "schedule.decided")["tasks"] = ["shop/nightly@1"]


@violates("I76")
def a_schedule_decides_again_about_what_it_has_decided(story: Story) -> None:
    decided = story.event(STORE, "schedule.decided")
    story.append(STORE, {**story.event(STORE, "schedule.declared"), "decided_until": decided["until"]})
    story.append(STORE, {**story.event(STORE, "schedule.declared"), "revision": 99})


@violates("I76")
def instants_of_a_schedule_are_left_out_silently(story: Story) -> None:
    del story.event(STORE, "schedule.decided", 1)["passed_over"]


@violates("I76")
def instants_of_a_schedule_are_passed_over_without_a_reason(story: Story) -> None:
    del story.event(STORE, "schedule.decided", 1)["why"]


@violates("I76")
def a_schedule_passes_instants_over_because_of_a_run_although_it_runs_all(story: Story) -> None:
    story.event(STORE, "schedule.decided", 1)["why"] = "overlap"


@violates("I76")
def a_decision_about_a_schedule_is_lost(story: Story) -> None:
    story.remove(STORE, "schedule.decided")


@violates("I76")
def a_paused_schedule_runs(story: Story) -> None:
    paused = story.event(STORE, "schedule.paused")
    story.move(story.event(STORE, "schedule.decided", 2), story.commit(STORE, "schedule.paused"))
    decided = story.event(STORE, "schedule.decided", 2)
    assert decided["revision"] > paused["revision"]


@violates("I59")
def a_schedule_is_paused_by_nobody(story: Story) -> None:
    story.event(STORE, "schedule.paused")["by"] = ""


# --- children
@violates("I83")
def a_child_is_submitted_before_its_parent_asks_for_it(story: Story) -> None:
    submitted = story.commit("hotel", "task.submitted")
    story.commits.remove(submitted)
    story.commits.insert(story.commits.index(story.commit("trip", "step.opened")), submitted)


@violates("I83")
def a_child_is_submitted_for_a_step_that_has_ended(story: Story) -> None:
    """As one whose parent has seen that there is none."""
    story.event("trip", "step.recorded", step=3)["step"] = 2
    story.event("trip", "step.failed", step=2)["step"] = 3


@violates("I83")
def a_step_is_two_tasks(story: Story) -> None:
    story.event("postcard", "task.submitted").update(workflow="hotel", parent_step=1)


@violates("I83")
def a_child_has_a_parent_that_nobody_submitted(story: Story) -> None:
    story.remove(STORE, "tasks.purged")  # else it may be one of those
    story.event("plain", "task.submitted").update(parent=999, parent_step=1)


@violates("I83")
def a_child_is_another_workflow_than_its_parent_asked_for(story: Story) -> None:
    story.event("postcard", "task.submitted")["workflow"] = "letter"


@violates("I83")
def the_end_of_a_child_is_recorded_before_the_child_has_ended(story: Story) -> None:
    """As by a process that speaks of a commit before it is made."""
    ended = story.commit("hotel", "task.terminal")
    story.commits.remove(ended)
    story.commits.insert(story.commits.index(story.commit("trip", "step.recorded", step=1)) + 1, ended)


@violates("I83")
def another_result_is_recorded_than_the_child_ended_with(story: Story) -> None:
    story.event("trip", "step.recorded", step=1)["result"] = "another"


@violates("I83")
def the_end_of_another_incarnation_of_the_child_is_recorded(story: Story) -> None:
    story.event("trip", "compensation.recorded", step=5)["fence"] = 1


@violates("I83")
def another_failure_is_recorded_than_the_child_ended_with(story: Story) -> None:
    story.event("trip", "step.failed", step=2)["failure"]["code"] = "sold_out"


@violates("I84")
def a_child_runs_again_after_its_parent_was_undone(story: Story) -> None:
    action = story.event("hotel", "operator.action")
    ended = story.event("hotel", "task.terminal", state="compensated")
    told = {"verb": "resubmit", "before": "compensated", "after": "pending", "incarnation": 3, "anew": True}
    fence = ended["fence"]
    claimed = story.event("hotel", "task.claimed")
    end = story.event("hotel", "task.terminal", state="processed")
    at = story.of("hotel")[-1].at
    resubmitted = {**action, **told, "fence": fence + 1, "not_before": at}
    for event in (resubmitted, {**claimed, "fence": fence + 2}, {**end, "fence": fence + 3}):
        commit = story.append("hotel", event)
        story.commits.remove(commit)
        story.commits.append(commit)


# --- forks
@violates("I86")
def a_copy_has_another_result_than_the_first_task(story: Story) -> None:
    story.event("second", "step.copied", step=1)["result"] = "another"


@violates("I86")
def a_copy_is_of_a_step_that_is_not_completed(story: Story) -> None:
    story.event("second", "step.copied", step=2)["failed"] = False


@violates("I86")
def a_copy_is_of_another_step(story: Story) -> None:
    story.event("second", "step.copied", step=1)["from_step"] = 3


@violates("I86")
def a_fork_is_of_a_step_that_is_not_there(story: Story) -> None:
    story.event("second", "task.forked")["step"] = 9


@violates("I86", "I30")
def a_copy_is_undone_by_the_fork(story: Story) -> None:
    story.event("second", "step.copied", step=1)["undoable"] = True
    story.event("second", "step.opened", kind="compensation")["undoes"] = 1


# --- questions
@violates("I82")
def a_sleep_is_answered(story: Story) -> None:
    commit, fired = story.found("plain", "timer.fired")
    commit.events.insert(
        commit.events.index(fired),
        {
            "type": "step.answered",
            "step": fired["step"],
            "fence": 1,
            "happened": True,
            "number": fired["number"],
            "result": "x",
        },
    )
    commit.events.remove(fired)


# --- paused workflows
@violates("I80")
def a_task_begins_while_its_workflow_is_paused(story: Story) -> None:
    story.commits.remove(story.commit(STORE, "workflow.resumed"))


@violates("I80")
def a_workflow_is_paused_twice(story: Story) -> None:
    story.event(STORE, "workflow.paused", 1)["refuses"] = True


@violates("I80")
def a_workflow_is_resumed_that_is_not_paused(story: Story) -> None:
    story.append(STORE, {**story.event(STORE, "workflow.resumed")})


@violates("I59")
def a_workflow_is_paused_by_nobody(story: Story) -> None:
    story.event(STORE, "workflow.paused")["by"] = ""


# --- the chain
@violates("I53")
def an_event_is_unknown(story: Story) -> None:
    story.append("plain", {"type": "task.blessed"})


@violates("I53")
def an_event_has_no_type(story: Story) -> None:
    story.append("plain", {"fence": 1})


@violates("I62")
def a_breaker_is_opened_under_an_old_fence(story: Story) -> None:
    opened = story.event(STORE, "breaker.opened")
    story.append(STORE, {**opened, "fence": opened["fence"]})


@violates("I62")
def a_breaker_opens_by_itself_and_no_canary_will_ever_go(story: Story) -> None:
    del story.event(STORE, "breaker.opened")["probe_at"]


@violates("I62")
def an_agent_is_paused_twice(story: Story) -> None:
    paused = story.event(STORE, "agent.paused")
    story.insert(story.commit(STORE, "agent.paused"), {**paused})


@violates("I63")
def two_canaries_go_at_once(story: Story) -> None:
    probed = story.event(STORE, "breaker.probed")
    story.insert(story.commit(STORE, "breaker.probed"), {**probed, "step": probed["step"] + 1})


@violates("I63")
def a_canary_ends_that_never_went(story: Story) -> None:
    story.event(STORE, "breaker.answered")["task"] += 1


@violates("I63")
def a_canary_goes_although_its_agent_is_paused(story: Story) -> None:
    story.remove(STORE, "agent.resumed")


@violates("I72")
def more_attempts_of_an_agent_run_than_its_limit_allows(story: Story) -> None:
    story.event(STORE, "limits.declared")["limits"][0]["most"] = 0


@violates("I73")
def more_calls_of_an_agent_begin_than_its_rate_allows(story: Story) -> None:
    story.event(STORE, "limits.declared")["limits"][1]["most"] = 1


@violates("I63")
def a_second_process_probes_within_the_time_of_the_first_one(story: Story) -> None:
    story.event(STORE, "breaker.probe_begun")["until"] += 3600 * SECOND
    story.remove(STORE, "breaker.probe_ended")


@violates("I63")
def a_probe_ends_that_never_began(story: Story) -> None:
    story.event(STORE, "breaker.probe_ended")["probe_fence"] += 7


@violates("I62")
def a_probe_fails_and_no_other_one_will_ever_go(story: Story) -> None:
    del story.event(STORE, "breaker.probe_ended")["probe_at"]


@violates("I63")
def a_probe_begins_before_the_cool_off_after_a_failed_one(story: Story) -> None:
    story.event(STORE, "breaker.probe_ended")["probe_at"] += 3600 * SECOND


@violates("I64")
def more_failures_are_given_back_than_were_counted(story: Story) -> None:
    story.event("burnt", "step.attempts_returned")["failure_count"] = 7


@violates("I23")
def an_uncharged_failure_is_counted(story: Story) -> None:
    event = next(
        event
        for commit in story.commits
        if commit.task == "later"
        for event in commit.events
        if event["type"] == "recover.applied"
    )
    event["failure_count"] = 1


@violates("I53")
def an_event_of_the_store_is_unknown(story: Story) -> None:
    story.append(STORE, {"type": "lease.blessed"})


@violates("I53")
def an_event_lacks_what_it_must_say(story: Story) -> None:
    del story.event("lost", "task.lost")["lost_count"]


@violates("I53")
def an_event_names_a_step_that_is_not_there(story: Story) -> None:
    story.append("plain", {"type": "step.parked", "step": 77})


@violates("I53")
def a_verb_is_unknown(story: Story) -> None:
    story.append("limited", {**story.event("held", "operator.action"), "verb": "bless", "after": "error"})


@violates("I53")
def the_type_of_an_event_is_no_text(story: Story) -> None:
    story.append("plain", {"type": ["task.claimed"]})


@violates("I53")
def an_event_of_the_store_lacks_what_it_must_say(story: Story) -> None:
    story.append(STORE, {"type": "lease.granted", "lease": "supervisor"})


@violates("I53")
def a_policy_cannot_be_a_policy(story: Story) -> None:
    opened = story.event("undone", "step.opened", step=8)
    opened["policy"]["supervision"]["attempts"] = 0
    commit = story.commit("undone", "step.opened", step=8)
    story.commits = [
        one for one in story.commits if one.task != "undone" or story.commits.index(one) <= story.commits.index(commit)
    ]
    commit.events = [opened]
    story.append("undone", {"type": "task.terminal", "state": "processed", "fence": 99})
    story.append("undone", {**story.event("undone", "status.published", 0), "kind": "completed", "number": 6})


@violates("I53")
def the_events_of_a_commit_are_no_list(story: Story) -> None:
    story.append("plain").events = {"type": "task.claimed"}  # type: ignore[assignment]  # that is the point


@pytest.mark.parametrize(("invariants", "change"), _VIOLATIONS, ids=[change.__name__ for _, change in _VIOLATIONS])
def test_a_violation_is_convicted_by_its_invariant_and_by_no_other(invariants: tuple[str, ...], change: Change) -> None:
    story = Story()
    change(story)
    found = judged(story)
    assert list(dict.fromkeys(violation.invariant for violation in found)) == list(invariants), found
    assert len({violation.task for violation in found}) == 1, found


def test_every_invariant_that_is_evaluated_has_a_violation() -> None:
    assert {invariants[0] for invariants, _ in _VIOLATIONS} == CHECKED.keys() - OF_CONVOYS - {OF_A_RATE, OF_ROUTING}


def test_each_task_is_judged_by_what_is_its_own() -> None:
    """The order in which the commits of two tasks meet says nothing about either."""
    story = Story()
    a_task_ends_twice(story)
    an_alert_is_closed_that_was_never_opened(story)
    a_verb_is_by_nobody(story)
    assert {(violation.task, violation.invariant) for violation in judged(story)} == {
        ("plain", "I2"),
        ("plain", "I26"),
        ("held", "I59"),
    }


# --- the chain, as somebody leaves it who changes a file
def _changed(rows: list[HistoryRow], at: int, /, **fields: object) -> list[HistoryRow]:
    return [*rows[:at], msgspec.structs.replace(rows[at], **fields), *rows[at + 1 :]]


def _position(rows: list[HistoryRow], task: str, link: int) -> int:
    return next(at for at, row in enumerate(rows) if (row.task_id, row.link) == (task, link))


@pytest.mark.parametrize(
    "fields",
    [
        {"events": msgspec.Raw(b'[{"type":"task.released","fence":2,"not_before":null}]')},
        {"at": Instant(NOON)},
        {"actor": "somebody"},
        {"hash": "0" * 32},
        {"link": 6},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_row_that_was_changed_breaks_its_chain(fields: dict[str, object]) -> None:
    rows = list(everything().store.iterate_history())
    found = check(_changed(rows, _position(rows, "plain", 5), **fields), complete=True)
    assert {(one.task, one.invariant) for one in found if one.invariant == "I53"} == {("plain", "I53")}


@pytest.mark.parametrize("task", ["plain", "undone", "held", "patient", "lost"])
def test_a_row_that_was_taken_out_breaks_its_chain_and_no_other(task: str) -> None:
    rows = list(everything().store.iterate_history())
    at = _position(rows, task, 3)
    found = check([*rows[:at], *rows[at + 1 :]])
    assert {one.task for one in found if one.invariant == "I53"} == {task}


def test_a_row_that_was_put_in_breaks_its_chain_even_with_a_hash_of_its_own() -> None:
    rows = list(everything().store.iterate_history())
    at = _position(rows, "plain", 3)
    made_up = msgspec.structs.replace(rows[at], link=4)
    text = bytes(made_up.events).decode()
    made_up = msgspec.structs.replace(made_up, hash=link_hash(rows[at].hash, 2, 4, made_up.at, made_up.actor, text))
    found = check([*rows[: at + 1], made_up, *rows[at + 1 :]])
    assert "link 4 follows 4" in {one.detail for one in found if one.invariant == "I53"}


# --- the export, mutilated
def _lines() -> list[bytes]:
    return list(encode_export(list(everything().store.iterate_history()), "town"))


def test_the_export_of_everything_is_read_back_and_clean() -> None:
    assert read_export(_lines()) == list(everything().store.iterate_history())
    assert check(read_export(_lines()), complete=True) == []


def test_an_export_without_any_one_of_its_lines_is_refused() -> None:
    lines = _lines()
    for at in range(len(lines)):
        with pytest.raises(MutilatedExport):
            read_export(lines[:at] + lines[at + 1 :])


def test_an_export_with_any_one_of_its_lines_doubled_is_refused() -> None:
    lines = _lines()
    for at, line in enumerate(lines):
        with pytest.raises(MutilatedExport):
            read_export([*lines[:at], line, *lines[at:]])


def test_an_export_with_any_two_of_its_lines_exchanged_is_refused() -> None:
    lines = _lines()
    for at in range(len(lines) - 1):
        exchanged = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
        with pytest.raises(MutilatedExport):
            read_export(exchanged)


def test_an_export_cut_anywhere_in_a_line_is_refused() -> None:
    lines = _lines()
    for at, line in enumerate(lines):
        for left in (1, len(line) // 2, len(line) - 2):
            with pytest.raises(MutilatedExport):
                read_export([*lines[:at], line[:left]])
            with pytest.raises(MutilatedExport):
                read_export([*lines[:at], line[:left], *lines[at + 1 :]])


def test_a_history_with_the_words_of_releases_to_0_4_is_clean() -> None:
    story, changed = Story(), set()
    words = {"state": "error", "before": "error", "after": "error", "kind": "needs_attention"}
    for event in (event for commit in story.commits for event in commit.events):
        old = {name: word for name, word in words.items() if event.get(name) == "held"}
        event.update(old)
        changed |= old.keys()
    assert changed == words.keys()
    assert check(story.rows()) == []


@pytest.mark.parametrize("trailer", [b"", b'{"trailer":', b'{"trailer":{"rows":0,"tasks":0,"heads":"","store_id":""}}'])
def test_an_export_whose_trailer_is_cut_or_another_s_is_refused(trailer: bytes) -> None:
    with pytest.raises(MutilatedExport):
        read_export([*_lines()[:-1], trailer])


@pytest.mark.parametrize(("before", "after"), [(b'"ana"', b'"bob"'), (b'"held"', b'"processed"'), (b'"p1"', b'"p3"')])
def test_an_export_in_which_a_word_was_exchanged_is_refused(before: bytes, after: bytes) -> None:
    lines = _lines()
    at = next(at for at, line in enumerate(lines) if before in line)
    with pytest.raises(MutilatedExport) as caught:
        read_export([*lines[:at], lines[at].replace(before, after), *lines[at + 1 :]])
    assert caught.value.line == at + 1


def test_whoever_chains_a_changed_export_anew_is_convicted_by_what_it_tells() -> None:
    story = Story()
    a_verb_is_by_nobody(story)
    rows = read_export(encode_export(story.rows(), "town"))
    assert [violation.invariant for violation in check(rows)] == ["I59"]
    assert b"".join(map(encode_row, rows)) != b"".join(_lines()[:-1])
