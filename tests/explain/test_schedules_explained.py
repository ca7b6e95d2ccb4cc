"""When a schedule is due next and why, in words for people; and one sentence for each event."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from core_history import everything
from msgspec.structs import replace

from arriero.events import HistoryNames, read_events
from arriero.events.store import EventOfSchedule, ScheduleDecided
from arriero.explain.schedules import (
    describe_run,
    diagnose_schedules,
    find_remedy,
    format_catch_up,
    list_next_runs,
)
from arriero.model import MICROSECONDS, Instant, later
from arriero.model.instants import as_instant
from arriero.model.schedules import Overlap, ScheduleDeclaration, ScheduleRow, ScheduleState, Timing, encode_declaration
from arriero.text.format import format_period, format_timing

MADRID = "Europe/Madrid"


def scheduled(after: str, **changes: Any) -> ScheduleRow:
    at = as_instant(datetime.fromisoformat(after))
    declaration = ScheduleDeclaration(**({"workflow": "report", "arguments": "{}", "policy": "{}"} | changes))
    return ScheduleRow(
        app="shop",
        name="nightly",
        declaration=encode_declaration(declaration),
        state=ScheduleState.ACTIVE,
        anchor=at,
        next_at=None,
        look_at=None,
        decided_until=at,
    )


def next_runs(line: str, after: str, zone: str = MADRID, count: int = 3) -> list[str]:
    row = scheduled(after, timing=Timing(cron=line, timezone=zone))
    return [f"{one.at:%m-%d %H:%M} {one.why}".strip() for one in list_next_runs(row, count)]


CHANGES = [
    ("0 3 * * *", "2027-03-27T12:00+01:00", ["03-28 03:00", "03-29 03:00", "03-30 03:00"]),
    (
        "30 2 * * *",
        "2027-03-27T12:00+01:00",
        ["03-28 03:00 02:30 does not exist on 2027-03-28: it runs at 03:00 CEST", "03-29 02:30", "03-30 02:30"],
    ),
    (
        "30 2 * * *",
        "2027-10-30T12:00+02:00",
        ["10-31 02:30 02:30 comes twice on 2027-10-31: it runs the first time, CEST", "11-01 02:30", "11-02 02:30"],
    ),
    (
        "30 * * * *",
        "2027-10-31T01:40+02:00",
        [
            "10-31 02:30 02:30 comes twice on 2027-10-31: this is the first, CEST; it runs in both",
            "10-31 02:30 02:30 comes twice on 2027-10-31: this is the second, CET; it runs in both",
            "10-31 03:30",
        ],
    ),
    ("30 2 * * *", "2027-07-01T12:00+02:00", ["07-02 02:30", "07-03 02:30", "07-04 02:30"]),
]


@pytest.mark.parametrize(("line", "after", "expected"), CHANGES)
def test_a_change_of_time_is_told_where_it_changes_a_run(line: str, after: str, expected: list[str]) -> None:
    assert next_runs(line, after) == expected


def test_in_utc_there_is_nothing_to_tell() -> None:
    assert next_runs("30 2 * * *", "2027-03-27T12:00+01:00", "") == ["03-28 02:30", "03-29 02:30", "03-30 02:30"]


def test_jitter_is_told_with_the_instant_that_it_delays() -> None:
    timing = Timing(cron="0 3 * * *", timezone=MADRID)
    row = scheduled("2027-03-01T12:00+01:00", timing=timing, jitter=600 * MICROSECONDS)
    (one,) = list_next_runs(row, 1)
    late = (one.runs_at - one.at).total_seconds()
    assert 0 < late < 600
    assert one.why == f"jitter +{late:.3g} s"


def test_a_schedule_that_has_been_due_has_no_next_run() -> None:
    row = scheduled("2027-03-01T12:00+01:00", timing=Timing(at=Instant(1)))
    assert list_next_runs(row, 5) == []


@pytest.mark.parametrize(
    ("timing", "said"),
    [
        (Timing(cron="0 3 * * *", timezone=MADRID), "cron 0 3 * * * in Europe/Madrid"),
        (Timing(cron="0 3 * * *"), "cron 0 3 * * * in UTC"),
        (Timing(every=90_061 * MICROSECONDS), "every 1 d 1 h 1 min 1 s"),
        (Timing(every=MICROSECONDS * 3 // 2), "every 1.5 s"),
        (Timing(at=as_instant(datetime(2026, 11, 24, 12, tzinfo=UTC))), "once at 2026-11-24 12:00:00Z"),
    ],
)
def test_when_it_is_due_is_one_phrase(timing: Timing, said: str) -> None:
    assert format_timing(timing.cron, timing.timezone, timing.every, timing.at) == said


def test_no_time_at_all_is_zero_seconds() -> None:
    assert format_period(0) == "0 s"


def test_what_becomes_of_missed_runs_is_said_as_it_holds_with_the_overlap() -> None:
    hour = timedelta(hours=1) // timedelta(microseconds=1)
    declared = ScheduleDeclaration(workflow="report", arguments="{}", policy="{}", timing=Timing(every=hour))
    everywhere = replace(declared, overlap=Overlap.ALL)
    assert format_catch_up(declared) == "of missed runs only the last one is run late"
    assert "the last one is run late, if it is not older than 1 h" in format_catch_up(replace(declared, catch_up=hour))
    assert format_catch_up(replace(everywhere, catch_up=hour)) == "missed runs are run late for 1 h"
    assert format_catch_up(replace(everywhere, catch_up=0)) == "missed runs are not run late"


def test_each_problem_has_its_remedy() -> None:
    row = scheduled("2027-03-01T12:00+01:00", timing=Timing(at=Instant(1)))
    assert "arriero run" in find_remedy(replace(row, problem_cause="code"))
    assert "arguments that fit" in find_remedy(replace(row, problem_cause="arguments"))


def test_each_event_has_its_sentence() -> None:
    events = [
        event
        for row in everything().store.log
        for event in read_events(row.events)
        if isinstance(event, EventOfSchedule)
    ]
    assert [event.describe(HistoryNames()) for event in events] == [
        "code declared it: fulfil, every 1 h, overlap all",
        "it submitted shop/nightly@2023-11-14T23:25:46Z",
        "it submitted shop/nightly@2023-11-15T02:25:46Z; 2 instants passed over: missed",
        'ana paused it: "the report was wrong"',
        'ana resumed it: "the report was wrong"',
        "it submits nothing: nobody has it",
        "it submits again",
        "it submitted shop/nightly@2023-11-15T04:25:46Z",
        'ana asked for a run now: "the report was wrong"; 1 new run',
        'ana removed it: "the report was wrong"',
    ]


def test_what_happened_to_the_run_before_and_to_an_id_is_told_with_the_decision() -> None:
    decided = ScheduleDecided("nightly", "shop", 3, since=Instant(1), until=Instant(9))
    passed = msgspec.structs.replace(decided, passed_over=1, why="overlap")
    assert passed.describe(HistoryNames()) == "nothing was submitted; 1 instant passed over: the last run was open"
    cancelled = msgspec.structs.replace(decided, runs=(Instant(9),), tasks=("b",), cancelled=("a", "c"))
    assert cancelled.describe(HistoryNames()) == "it submitted b; cancelled for it: a, c"
    refused = msgspec.structs.replace(decided, runs=(Instant(9),), tasks=("b",), refused=("b",))
    assert "another task has the id b" in refused.describe(HistoryNames())


# --- the doctor and the explanation of a run
NOW = as_instant(datetime(2027, 3, 1, 12, tzinfo=UTC))


def hourly(**changes: Any) -> ScheduleRow:
    row = scheduled("2027-03-01T11:30+00:00", timing=Timing(every=3_600 * MICROSECONDS))
    return replace(row, **({"next_at": later(NOW, 1_800), "look_at": later(NOW, 1_800)} | changes))


def found(*rows: ScheduleRow, wall_clock: Instant = NOW) -> list[tuple[str, str]]:
    return [(finding.level, finding.says) for finding in diagnose_schedules(rows, NOW, wall_clock)]


def test_the_doctor_has_nothing_to_say_of_no_schedules_and_is_content_with_those_in_time() -> None:
    assert found() == []
    assert found(hourly(), hourly(name="b")) == [("fine", "2 schedules, none of them late")]


def test_the_doctor_names_a_schedule_that_submits_nothing_since_when_and_why() -> None:
    troubled = hourly(problem="nobody has it", problem_cause="code", problem_since=later(NOW, -60))
    ((level, says),) = found(troubled, replace(troubled, name="b"))
    assert level == "care"
    assert says == (
        "schedule nightly of App shop submits nothing since 2027-03-01 11:59:00Z: nobody has it; so it is with 1 more"
    )


def test_the_doctor_names_schedules_that_nobody_submits_and_those_that_code_does_not_declare() -> None:
    late = hourly(look_at=later(NOW, -61), next_at=later(NOW, -61))
    assert [level for level, _ in found(late)] == ["care"]
    assert "1 schedule is due and not submitted, nightly of App shop since 2027-03-01 11:58:59Z" in found(late)[0][1]
    assert found(hourly(look_at=later(NOW, -59)))[0][0] == "fine"
    ((level, says),) = found(hourly(undeclared_at=NOW))
    assert (level, says) == ("information", "1 schedule is no longer declared by code; it continues: nightly")


def test_the_doctor_tells_of_a_store_whose_clock_is_not_that_of_the_machine() -> None:
    assert found(hourly(), wall_clock=later(NOW, 59))[0][0] == "fine"
    ((level, says),) = found(hourly(), wall_clock=later(NOW, 7_200))
    assert level == "care"
    assert "the store's clock is 2 h behind the clock of this machine" in says
    assert "ahead of the clock of this machine" in found(hourly(), wall_clock=later(NOW, -7_200))[0][1]


def test_a_run_says_which_schedule_submitted_it_and_another_task_does_not() -> None:
    store = everything().store
    run = next(task for task in store.tasks.values() if task.task_id.startswith("shop/nightly@"))
    said = describe_run(run, "schedule")
    assert said == (
        "schedule nightly of App shop submitted it, as its run of 2023-11-14T23:25:46Z; see: arriero schedule show nightly"
        " --app-name shop"
    )
    assert describe_run(run, "client") == ""
    assert describe_run(replace(run, task_id="order-1"), "schedule") == ""
