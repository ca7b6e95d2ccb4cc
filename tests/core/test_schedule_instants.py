"""The instants of schedules: cron lines in their zones, periods, and what a change of time does to them."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.core.schedule_instants import (
    COUNTED_MAX,
    check_timing,
    compute_jitter,
    count_between,
    find_last,
    find_next,
    format_run_id,
    iterate_instants,
    list_between,
)
from arriero.errors import InvalidInput
from arriero.model import MICROSECONDS, Instant
from arriero.model.instants import as_datetime, as_instant
from arriero.model.schedules import Timing

NOON = as_instant(datetime(2026, 11, 24, 12, tzinfo=UTC))
HOUR = 3_600 * MICROSECONDS
MADRID = "Europe/Madrid"


def at(text: str) -> Instant:
    return as_instant(datetime.fromisoformat(text))


def cron(line: str, zone: str = MADRID) -> Timing:
    return Timing(cron=line, timezone=zone)


def shown(timing: Timing, after: str, count: int) -> list[str]:
    """The next instants, each as the people of its zone see it."""
    zone = ZoneInfo(timing.timezone or "UTC")
    found = islice(iterate_instants(timing, Instant(0), at(after)), count)
    return [f"{as_datetime(instant).astimezone(zone):%m-%d %H:%M %Z}" for instant in found]


# In Madrid the clock goes from 02:00 to 03:00 on 2027-03-28, and from 03:00 back to 02:00 on 2027-10-31.
CHANGES = [
    ("0 3 * * *", "2027-03-26T12:00+01:00", ["03-27 03:00 CET", "03-28 03:00 CEST", "03-29 03:00 CEST"]),
    ("30 2 * * *", "2027-03-26T12:00+01:00", ["03-27 02:30 CET", "03-28 03:00 CEST", "03-29 02:30 CEST"]),
    ("0,30 2 * * *", "2027-03-27T12:00+01:00", ["03-28 03:00 CEST", "03-29 02:00 CEST", "03-29 02:30 CEST"]),
    ("30 2,3 * * *", "2027-03-27T12:00+01:00", ["03-28 03:00 CEST", "03-28 03:30 CEST", "03-29 02:30 CEST"]),
    ("30 2 * * *", "2027-10-30T12:00+02:00", ["10-31 02:30 CEST", "11-01 02:30 CET"]),
    ("30 * * * *", "2027-03-28T01:00+01:00", ["03-28 01:30 CET", "03-28 03:30 CEST", "03-28 04:30 CEST"]),
    ("30 * * * *", "2027-10-31T02:00+02:00", ["10-31 02:30 CEST", "10-31 02:30 CET", "10-31 03:30 CET"]),
    ("*/30 2 * * *", "2027-03-27T12:00+01:00", ["03-29 02:00 CEST", "03-29 02:30 CEST"]),
    ("*/30 2 * * *", "2027-10-30T12:00+02:00", ["10-31 02:00 CEST", "10-31 02:30 CEST", "10-31 02:00 CET"]),
    ("0 3 * * *", "2027-10-30T12:00+02:00", ["10-31 03:00 CET", "11-01 03:00 CET"]),
]

# On Lord Howe Island it goes from 02:00 back to 01:30 on 2026-04-05, and from 02:00 to 02:30 on 2026-10-04.
LORD_HOWE = "Australia/Lord_Howe"
HALF_HOURS = [
    ("0 */2 * * *", "2026-04-04T13:00+00:00", ["04-05 02:00 +1030", "04-05 04:00 +1030"]),
    ("30 * * * *", "2026-04-04T14:00+00:00", ["04-05 01:30 +11", "04-05 01:30 +1030", "04-05 02:30 +1030"]),
    ("45 * * * *", "2026-04-04T14:46+00:00", ["04-05 01:45 +1030", "04-05 02:45 +1030"]),
    ("45 1 * * *", "2026-04-04T12:00+00:00", ["04-05 01:45 +11", "04-06 01:45 +1030"]),
    ("30 * * * *", "2026-10-03T15:00+00:00", ["10-04 02:30 +11", "10-04 03:30 +11"]),
    ("0 */2 * * *", "2026-10-03T13:30+00:00", ["10-04 04:00 +11", "10-04 06:00 +11"]),
    ("15 2 * * *", "2026-10-03T13:30+00:00", ["10-04 02:30 +11", "10-05 02:15 +11"]),
]


@pytest.mark.parametrize(("line", "after", "expected"), CHANGES)
def test_at_a_change_of_time_a_cron_line_is_due_as_cron_of_debian_would_run_it(
    line: str, after: str, expected: list[str]
) -> None:
    assert shown(cron(line), after, len(expected)) == expected


@pytest.mark.parametrize(("line", "after", "expected"), HALF_HOURS)
def test_a_change_of_time_of_half_an_hour_loses_and_doubles_no_instant(
    line: str, after: str, expected: list[str]
) -> None:
    assert shown(cron(line, LORD_HOWE), after, len(expected)) == expected


def test_a_day_that_does_not_exist_is_run_when_the_clock_has_jumped() -> None:
    """Samoa had no 30 December 2011."""
    found = shown(cron("0 3 * * *", "Pacific/Apia"), "2011-12-29T12:00+00:00", 3)
    assert found == ["12-29 03:00 -10", "12-31 00:00 +14", "12-31 03:00 +14"]


CHANGING_ZONES = (
    "Europe/Madrid",
    "America/St_Johns",
    LORD_HOWE,
    "Africa/Cairo",
    "Pacific/Chatham",
    "America/Santiago",
    "UTC",
)
CHANGING_LINES = ("*/15 * * * *", "30 * * * *", "0 */2 * * *", "15 2 * * *", "0,45 1 * * *", "30 23 * * 6", "0 0 1 * *")


@pytest.mark.parametrize("zone", CHANGING_ZONES)
@pytest.mark.parametrize("line", CHANGING_LINES)
def test_at_each_change_of_time_the_instants_are_what_arithmetic_in_utc_finds(line: str, zone: str) -> None:
    """Each minute in UTC around each change of the year, read on the wall of the zone, against the calendar of the line."""
    known, day = ZoneInfo(zone), timedelta(days=1)
    days = [datetime(2026, 1, 1, tzinfo=UTC) + number * day for number in range(365)]
    changes = [one for one in days if one.astimezone(known).utcoffset() != (one + day).astimezone(known).utcoffset()]
    for change in changes or days[:1]:
        start, minutes = as_instant(change - day), 3 * 24 * 60
        until = Instant(start + minutes * 60 * MICROSECONDS)
        around = Instant(start - 24 * HOUR), Instant(until + 24 * HOUR)
        calendar = list_between(Timing(cron=line), Instant(0), *around, 100_000)
        named = {as_datetime(instant).replace(tzinfo=None) for instant in calendar}
        assert list_between(cron(line, zone), Instant(0), start, until, 100_000) == _find_by_minutes(
            named, start, minutes, known, is_elapsed=line.startswith("*") or line.split()[1].startswith("*")
        )


def _find_by_minutes(
    named: set[datetime], start: Instant, minutes: int, zone: ZoneInfo, *, is_elapsed: bool
) -> list[Instant]:
    expected: list[Instant] = []
    last = as_datetime(start).astimezone(zone).replace(tzinfo=None)
    seen: set[datetime] = set()
    for minute in range(1, minutes + 1):
        instant = Instant(start + minute * 60 * MICROSECONDS)
        wall = as_datetime(instant).astimezone(zone).replace(tzinfo=None)
        skipped = [last + timedelta(minutes=one) for one in range(1, round((wall - last).total_seconds() / 60))]
        is_named = wall in named and (is_elapsed or wall not in seen)
        if is_named or (not is_elapsed and not named.isdisjoint(skipped)):
            expected.append(instant)
        seen.add(wall)
        last = wall
    return expected


def test_from_within_an_hour_that_comes_twice_no_instant_of_the_past_is_named() -> None:
    assert shown(cron("30 2 * * *"), "2027-10-31T02:10+01:00", 1) == ["11-01 02:30 CET"]


def test_a_period_counts_elapsed_time_from_its_anchor_whatever_the_clock_on_the_wall_does() -> None:
    anchor = at("2027-03-27T12:00+01:00")
    days = list(islice(iterate_instants(Timing(every=24 * HOUR), anchor, anchor), 2))
    assert [as_datetime(day).astimezone(ZoneInfo(MADRID)).hour for day in days] == [13, 13]


def test_a_period_is_due_first_once_so_long_after_its_anchor() -> None:
    assert find_next(Timing(every=HOUR), NOON, Instant(NOON - 5 * HOUR)) == NOON + HOUR
    assert find_next(Timing(every=HOUR), NOON, Instant(NOON + HOUR)) == NOON + 2 * HOUR


def test_an_instant_comes_once() -> None:
    timing = Timing(at=NOON)
    assert list(iterate_instants(timing, Instant(0), Instant(NOON - 1))) == [NOON]
    assert list(iterate_instants(timing, Instant(0), NOON)) == []


LINES = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "15,45 1-3 * * *",
    "0 0 1 * *",
    "0 12 * * MON#2",
    "59 23 L * *",
    "0 9-17 * * 1-5",
    "0 0 29 2 *",
    "*/10 30 2 * * *",
    "@daily",
]
ZONES = ["UTC", MADRID, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo", "Pacific/Apia"]
starts = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(lambda when: as_instant(when.replace(tzinfo=UTC)))
timings = st.builds(cron, st.sampled_from(LINES), st.sampled_from(ZONES)) | st.builds(
    lambda every: Timing(every=every), st.integers(MICROSECONDS, 400 * HOUR)
)


@given(timings, starts)
def test_instants_strictly_increase(timing: Timing, after: Instant) -> None:
    found = [after, *islice(iterate_instants(timing, Instant(0), after), 20)]
    assert all(one < following for one, following in pairwise(found))


@given(timings, st.integers(1, 48 * HOUR), starts)
def test_no_run_overtakes_another_one_however_long_its_jitter_is(timing: Timing, jitter: int, after: Instant) -> None:
    found = list(islice(iterate_instants(timing, NOON, after), 10))
    late = [Instant(one + compute_jitter(timing, NOON, "shop", "report", one, jitter)) for one in found]
    assert all(before <= one < behind for before, one, behind in zip(found, late, found[1:], strict=False))


@given(timings, starts, st.integers(0, 19))
def test_it_does_not_matter_from_where_one_looks(timing: Timing, after: Instant, cut: int) -> None:
    found = list(islice(iterate_instants(timing, Instant(0), after), 20))
    assert list(islice(iterate_instants(timing, Instant(0), found[cut]), 20 - cut - 1)) == found[cut + 1 :]


slow = st.builds(cron, st.sampled_from(LINES[2:8]), st.sampled_from(ZONES)) | st.builds(
    lambda every: Timing(every=every), st.integers(HOUR // 4, 400 * HOUR)
)


@given(slow, starts, st.integers(1, 20 * 24))
def test_the_last_instant_and_the_count_are_those_of_the_list(timing: Timing, after: Instant, hours: int) -> None:
    until = Instant(after + hours * HOUR)
    found = list_between(timing, Instant(0), after, until, 4 * 20 * 24 + 1)
    assert find_last(timing, Instant(0), after, until) == (found[-1] if found else None)
    counted = count_between(timing, Instant(0), after, until)
    assert counted == (len(found) if timing.every else min(len(found), COUNTED_MAX))


def test_the_last_instant_is_found_at_once_however_long_the_gap_is() -> None:
    year = Instant(NOON + 366 * 24 * HOUR)
    assert find_last(cron("* * * * *"), Instant(0), NOON, year) == year
    assert find_last(Timing(every=MICROSECONDS), NOON, NOON, year) == year
    assert count_between(Timing(every=MICROSECONDS), NOON, NOON, year) == 366 * 86_400


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("* * * 5 *", "2026-05-31T23:59+02:00"),
        ("0 0 29 2 *", "2024-02-29T00:00+01:00"),
        ("59 23 24 11 *", "2025-11-24T23:59+01:00"),
        ("0 13 24 11 *", "2026-11-24T13:00+01:00"),
    ],
)
def test_the_last_instant_of_a_line_that_is_seldom_due_is_found_too(line: str, expected: str) -> None:
    assert find_last(cron(line), Instant(0), at("2020-01-01T00:00Z"), NOON) == at(expected)


def test_before_the_first_instant_there_is_no_last_one() -> None:
    assert find_last(cron("0 3 * * *"), Instant(0), NOON, Instant(NOON + HOUR)) is None
    assert find_last(cron("0 3 * * *"), Instant(0), NOON, NOON) is None


@given(starts, st.integers(1, 24 * HOUR))
def test_jitter_is_the_same_for_one_run_and_less_than_was_asked_for(instant: Instant, jitter: int) -> None:
    found = compute_jitter(Timing(at=instant), Instant(0), "shop", "report", instant, jitter)
    assert 0 <= found < jitter
    assert found == compute_jitter(Timing(at=instant), Instant(0), "shop", "report", instant, jitter)


def test_schedules_of_one_instant_are_spread_by_their_jitter() -> None:
    once = Timing(at=NOON)
    late = sorted(
        compute_jitter(once, Instant(0), "shop", f"report-{number}", NOON, 60_000_000) for number in range(1_000)
    )
    assert late[250] < 20_000_000
    assert late[750] > 40_000_000


def test_the_id_of_a_run_names_app_schedule_and_instant_in_utc() -> None:
    assert format_run_id("shop", "report", at("2026-11-24T03:00+01:00")) == "shop/report@2026-11-24T02:00:00Z"
    assert format_run_id("shop", "report", Instant(NOON + 250_000)) == "shop/report@2026-11-24T12:00:00.250000Z"


names = st.text(st.characters(exclude_characters="/", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
apps = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)


@given(st.tuples(apps, names, starts), st.tuples(apps, names, starts))
def test_two_runs_never_have_the_same_id(one: tuple[str, str, Instant], other: tuple[str, str, Instant]) -> None:
    assert (format_run_id(*one) == format_run_id(*other)) == (one == other)


WRONG = [
    (Timing(), "give one of them, not nothing"),
    (Timing(cron="* * * * *", every=HOUR), "not cron and every"),
    (Timing(every=HOUR, timezone=MADRID), "timezone is given without cron"),
    (Timing(every=MICROSECONDS // 2), "every is 0.5 s; it must be at least 1 second"),
    (Timing(every=-HOUR), "at least 1 second"),
    (cron("61 * * * *"), "cannot be read: Bad minute"),
    (cron("* * * *"), "cannot be read: Wrong number of fields"),
    (cron("nonsense"), "it has five fields"),
    (cron("1#1/2 * * * *"), "cannot be read"),
    (cron("0 0 30 2 *"), "cannot be read: Bad day-of-month"),
    (cron("0 " * 300), "must have 255 at most"),
    (cron("0 3 * * *", "Europe/Madird"), "the time zone 'Europe/Madird' is not known"),
    (cron("0 3 * * *", "Europe"), "the time zone 'Europe' is not known"),
    (cron("0 3 * * *", "localtime"), "'localtime' is the zone of each machine; give an IANA name like 'Europe/Madrid'"),
    (cron("0 3 * * *", "Localtime"), "is the zone of each machine"),
    (cron("0 3 * * *", "posixrules"), "is the zone of each machine"),
    (cron("0 3 * * *", "Factory"), "'Factory' means that no zone was set; give an IANA name"),
    (cron("0 3 * * *", "posix/Europe/Madrid"), "is not on all machines; give an IANA name"),
    (cron("0 3 * * *", "right/Europe/Madrid"), "is not on all machines"),
    (cron("0 3 * * *", "../etc/passwd"), "is not known"),
    (cron("0 3 * * *", "/etc/localtime"), "is not known"),
    (cron("0 3 * * *", "\0"), "is not known"),
]


@pytest.mark.parametrize(("timing", "told"), WRONG)
def test_what_cannot_be_a_schedule_is_refused_with_the_reason(timing: Timing, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_timing(timing, NOON)
    assert told in str(refused.value)


def test_a_line_that_names_one_day_in_many_years_is_taken() -> None:
    check_timing(cron("0 0 29 2 *"), NOON)


def test_a_zone_is_known_on_a_machine_without_zone_files() -> None:
    ZoneInfo.clear_cache()
    from zoneinfo import reset_tzpath

    try:
        reset_tzpath(to=())
        assert as_datetime(NOON).astimezone(ZoneInfo(MADRID)).utcoffset() == timedelta(hours=1)
    finally:
        reset_tzpath()
        ZoneInfo.clear_cache()
