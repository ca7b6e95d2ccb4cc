"""What a schedule owes: instants that a pass had no room for, and none that were decided before its clock went back."""

from msgspec.structs import replace
from test_schedules import MINUTE, after, applied, declared, minutes_of

from arriero.core.schedule_changes import ScheduleChange, change_schedule
from arriero.core.schedules import decide_due
from arriero.model.schedules import OperateSchedule, Overlap, ScheduleState, ScheduleVerb


def test_runs_that_a_pass_has_no_room_for_are_made_up_however_old_they_are_by_then() -> None:
    row = declared(overlap=Overlap.ALL, catch_up=60 * MINUTE)
    first = decide_due(row, after(65), is_open=False, runs_max=2)
    assert (minutes_of(first), first.owed_until) == ([10, 20], after(60))
    row = applied(row, first)
    second = decide_due(row, after(300), is_open=False, runs_max=2)
    assert (minutes_of(second), second.owed_until, second.passed_over) == ([30, 40], after(60), 0)
    row = applied(row, second)
    third = decide_due(row, after(300), is_open=False, runs_max=20)
    # The last two that are owed, and of the others those of the last hour.
    assert (minutes_of(third), third.owed_until) == ([50, 60, 240, 250, 260, 270, 280, 290, 300], None)
    assert third.passed_over == 17


def test_a_schedule_that_is_resumed_by_a_clock_that_went_back_runs_no_instant_again() -> None:
    row = replace(declared(overlap=Overlap.ALL), decided_until=after(60), state=ScheduleState.PAUSED)
    resume = OperateSchedule(
        actor="cli", app="shop", name="nightly", verb=ScheduleVerb.RESUME, by="ana", reason="it is over"
    )
    resumed = change_schedule(resume, row, after(30), 1, ())
    assert isinstance(resumed, ScheduleChange)
    assert resumed.row is not None
    assert resumed.row.decided_until == after(60)
    assert minutes_of(decide_due(resumed.row, after(65), is_open=False)) == []
