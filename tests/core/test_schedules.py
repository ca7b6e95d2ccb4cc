"""What becomes of the instants of a schedule that are due."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arriero.core.schedules import LATE_SECONDS, DueDecision, build_run, decide_due
from arriero.model import MICROSECONDS, Instant
from arriero.model.policies import Supervision, TaskPolicy
from arriero.model.schedules import (
    Overlap,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleState,
    Timing,
    encode_declaration,
)

NOON = Instant(1_795_521_600 * MICROSECONDS)  # 2026-11-24 12:00 UTC
MINUTE = 60 * MICROSECONDS
POLICY = msgspec.json.encode(TaskPolicy(90.0, Supervision())).decode()


def declared(**changes: Any) -> ScheduleRow:
    """A schedule that was declared at noon, every ten minutes if nothing else is said."""
    fields: dict[str, Any] = {"workflow": "report", "arguments": "{}", "policy": POLICY}
    declaration = ScheduleDeclaration(**({"timing": Timing(every=10 * MINUTE)} | fields | changes))
    return ScheduleRow(
        app="shop",
        name="nightly",
        declaration=encode_declaration(declaration),
        state=ScheduleState.ACTIVE,
        anchor=NOON,
        next_at=None,
        look_at=None,
        decided_until=NOON,
    )


def after(minutes: float) -> Instant:
    return Instant(NOON + round(minutes * MINUTE))


def minutes_of(decision: DueDecision) -> list[float]:
    return [(run - NOON) / MINUTE for run in decision.runs]


def applied(row: ScheduleRow, decision: DueDecision) -> ScheduleRow:
    return replace(row, decided_until=decision.until, owed_until=decision.owed_until)


def test_an_instant_is_run_when_it_has_come_and_not_before() -> None:
    row = declared()
    early = decide_due(row, after(9.99), is_open=False)
    assert (early.runs, early.until, early.look_at) == ((), NOON, after(10))
    due = decide_due(row, after(10), is_open=False)
    assert (minutes_of(due), due.until, due.next_at, due.passed_over) == ([10], after(10), after(20), 0)


def test_of_missed_runs_only_the_last_is_made_up_and_the_others_are_counted() -> None:
    decision = decide_due(declared(), after(65), is_open=False)
    assert minutes_of(decision) == [60]
    assert (decision.passed_over, decision.why, decision.next_at) == (5, "catch_up", after(70))


def test_a_clock_that_jumps_a_year_ahead_brings_one_run() -> None:
    row = declared(timing=Timing(every=MICROSECONDS))
    decision = decide_due(row, after(366 * 24 * 60), is_open=False)
    assert len(decision.runs) == 1
    assert decision.passed_over == 366 * 86_400 - 1


def test_a_clock_that_goes_back_brings_nothing_twice() -> None:
    row = applied(declared(), decide_due(declared(), after(65), is_open=False))
    back = decide_due(row, after(15), is_open=False)
    assert (back.runs, back.next_at) == ((), after(70))


def test_with_catch_up_runs_are_made_up_so_far_back() -> None:
    row = declared(catch_up=25 * MINUTE, overlap=Overlap.ALL)
    decision = decide_due(row, after(65), is_open=True)
    assert minutes_of(decision) == [40, 50, 60]
    assert (decision.passed_over, decision.why) == (3, "catch_up")


def test_instants_of_a_cron_line_that_are_dropped_are_reported_however_many_are_run() -> None:
    row = declared(timing=Timing(cron="* * * * *", timezone="UTC"), catch_up=150 * MINUTE, overlap=Overlap.ALL)
    decision = decide_due(row, after(5_000), is_open=False)
    assert (len(decision.runs), decision.passed_over, decision.why) == (151, 100, "catch_up")  # counted up to 100
    last = decide_due(declared(timing=Timing(cron="* * * * *", timezone="UTC")), after(5_000), is_open=False)
    assert (len(last.runs), last.passed_over, last.why) == (1, 100, "catch_up")


def test_without_any_catch_up_a_run_that_is_a_little_late_is_not_missed() -> None:
    row = declared(catch_up=0, overlap=Overlap.ALL)
    late = 10 + LATE_SECONDS / 60
    assert minutes_of(decide_due(row, after(late), is_open=False)) == [10]
    missed = decide_due(row, after(late + 0.01), is_open=False)
    assert (missed.runs, missed.passed_over, missed.why) == ((), 1, "catch_up")


def test_skip_passes_an_instant_over_while_the_last_run_is_open() -> None:
    decision = decide_due(declared(overlap=Overlap.SKIP), after(10), is_open=True)
    assert (decision.runs, decision.passed_over, decision.why) == ((), 1, "overlap")
    assert (decision.until, decision.next_at) == (after(10), after(20))


def test_skip_makes_up_one_run_at_most_because_two_would_overlap() -> None:
    row = declared(overlap=Overlap.SKIP, catch_up=60 * MINUTE)
    assert minutes_of(decide_due(row, after(65), is_open=False)) == [60]


def test_all_and_queue_run_beside_an_open_one() -> None:
    for overlap in (Overlap.ALL, Overlap.QUEUE):
        decision = decide_due(declared(overlap=overlap), after(10), is_open=True)
        assert (minutes_of(decision), decision.cancels) == ([10], False)


def test_cancel_running_cancels_an_open_run_and_only_for_a_new_one() -> None:
    row = declared(overlap=Overlap.CANCEL_RUNNING)
    assert decide_due(row, after(10), is_open=True).cancels
    assert not decide_due(row, after(10), is_open=False).cancels
    assert not decide_due(row, after(9), is_open=True).cancels


def test_a_schedule_that_is_due_once_ends_with_its_run() -> None:
    row = declared(timing=Timing(at=after(3)))
    decision = decide_due(row, after(500), is_open=False)
    assert (minutes_of(decision), decision.next_at, decision.look_at) == ([3], None, None)


def test_a_run_waits_for_its_jitter_and_keeps_its_instant() -> None:
    row = declared(jitter=10 * MINUTE)
    look_at = decide_due(row, NOON, is_open=False).look_at
    assert look_at is not None
    assert after(10) <= look_at < after(20)
    assert decide_due(row, Instant(look_at - 1), is_open=False).runs == ()
    assert minutes_of(decide_due(row, look_at, is_open=False)) == [10]


overlaps = st.sampled_from([Overlap.ALL, Overlap.QUEUE])
catch_ups = st.none() | st.integers(0, 3 * 24 * 60).map(lambda minutes: minutes * MINUTE)
timings = st.sampled_from(
    [Timing(every=7 * MINUTE), Timing(cron="*/15 * * * *"), Timing(cron="30 2 * * *", timezone="Europe/Madrid")]
)


def all_passes(row: ScheduleRow, now: Instant, runs_max: int) -> tuple[list[Instant], int, ScheduleRow]:
    """What the passes at one moment run and pass over together, each with room for so many runs."""
    runs: list[Instant] = []
    passed_over = 0
    while True:
        decision = decide_due(row, now, is_open=False, runs_max=runs_max)
        if decision.until == decision.since:
            return runs, passed_over, row
        runs += decision.runs
        passed_over += decision.passed_over
        row = applied(row, decision)


@given(timings, overlaps, catch_ups, st.integers(0, 30 * 60), st.integers(1, 60), st.integers(1, 9))
def test_the_union_of_passes_is_the_same_however_they_are_cut(
    timing: Timing, overlap: Overlap, catch_up: int | None, jitter: int, hours: int, runs_max: int
) -> None:
    row = declared(timing=timing, overlap=overlap, catch_up=catch_up, jitter=jitter * MICROSECONDS)
    now = after(hours * 60)
    at_once, few = all_passes(row, now, 10_000), all_passes(row, now, runs_max)
    assert few[0] == at_once[0]
    assert few[2].decided_until == at_once[2].decided_until
    if timing.every:
        assert few[1] == at_once[1]


@given(timings, st.lists(st.integers(1, 600), min_size=1, max_size=12), st.integers(0, 600))
def test_a_leader_that_looks_at_odd_moments_runs_each_instant_once_with_enough_catch_up(
    timing: Timing, looks: list[int], jitter: int
) -> None:
    row = declared(timing=timing, overlap=Overlap.ALL, catch_up=30 * 24 * 60 * MINUTE, jitter=jitter * MICROSECONDS)
    minute, runs = 0, []
    for pause in looks:
        minute += pause
        found, passed_over, row = all_passes(row, after(minute), 3)
        runs += found
        assert passed_over == 0
    assert (
        runs == all_passes(declared(timing=timing, overlap=Overlap.ALL, catch_up=10**15), row.decided_until, 10**6)[0]
    )


def test_what_a_pass_had_no_room_for_follows_even_if_it_grows_too_old_meanwhile() -> None:
    row = declared(overlap=Overlap.ALL, catch_up=60 * MINUTE)
    first = decide_due(row, after(65), is_open=False, runs_max=2)
    assert (minutes_of(first), first.owed_until) == ([10, 20], after(60))
    late = decide_due(applied(row, first), after(65 + 120), is_open=False)
    assert minutes_of(late) == [30, 40, 50, 60, 130, 140, 150, 160, 170, 180]
    assert late.owed_until is None


def test_a_run_is_a_submission_under_the_id_of_its_instant() -> None:
    run = build_run(declared(priority=8), after(10), POLICY, seed=3)
    assert (run.task_id, run.workflow, run.app) == ("shop/nightly@2026-11-24T12:10:00Z", "report", "shop")
    assert (run.priority, run.complete_within, run.convoy, run.policy) == (8, 90.0, None, POLICY)


def test_queued_runs_are_a_convoy_that_goes_on_past_a_failed_one() -> None:
    run = build_run(declared(overlap=Overlap.QUEUE), after(10), POLICY, seed=3)
    assert run.convoy == "schedule shop/nightly"
    assert msgspec.json.decode(run.policy, type=TaskPolicy).convoy.head == "skip"
