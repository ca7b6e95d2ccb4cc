"""Checks how a schedule is declared, by code or by a person, and turns it into plain data."""

from datetime import UTC, datetime, timedelta

import msgspec

from ..errors import InvalidInput
from ..model import MICROSECONDS, Instant
from ..model.instants import as_instant
from ..model.policies import SECONDS_MAX, Duration, check_seconds
from ..model.schedules import OF_CODE, Overlap, ScheduleDeclaration, Timing
from ..payloads import codec

# What the id of a run adds to the names of App and schedule: two marks, and an instant with microseconds.
LONGEST_OF_RUN = "/@9999-12-31T23:59:59.999999Z"


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a schedule, as ``App.schedule`` describes them; not checked yet."""

    cron: str | None = None
    timezone: str | None = None
    every: Duration | None = None
    at: datetime | None = None
    overlap: str = Overlap.SKIP
    catch_up: Duration | None = None
    jitter: Duration = 0
    priority: int = 5


def check_schedule_name(name: object, app: str) -> str:
    """Check the name of a schedule: with it and an instant the id of a task is made. Raises InvalidInput."""
    text = codec.check_id(name, "name of a schedule")
    if "/" in text:
        raise InvalidInput(f"name of a schedule {text!r} holds a '/'; it stands between App and schedule in a run's id")
    if len(app) + len(text) + len(LONGEST_OF_RUN) > codec.ID_LENGTH_MAX:
        room = codec.ID_LENGTH_MAX - len(app) - len(LONGEST_OF_RUN)
        raise InvalidInput(f"name of a schedule {text!r} is too long for the id of a run; it must have {room} at most")
    return text


def build_declaration(
    workflow: str, arguments: str, policy: str, options: ScheduleOptions, *, source: str = OF_CODE, by: str = ""
) -> ScheduleDeclaration:
    """Build the declaration of a schedule. Its cron line and zone are not read yet. Raises InvalidInput."""
    priority, overlap = options.priority, options.overlap
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidInput(f"priority is {priority!r}; it must be a whole number from 0 to 9")
    if overlap not in tuple(Overlap):
        raise InvalidInput(f"overlap is {overlap!r}; it must be one of {', '.join(Overlap)}")
    catch_up = None if options.catch_up is None else _check_microseconds(options.catch_up, "catch_up")
    return ScheduleDeclaration(
        workflow=workflow,
        arguments=arguments,
        policy=policy,
        timing=_build_timing(options),
        overlap=Overlap(overlap),
        catch_up=catch_up,
        jitter=_check_microseconds(options.jitter, "jitter"),
        priority=priority,
        source=source,
        by=by,
    )


def _build_timing(options: ScheduleOptions) -> Timing:
    for name, value in (("cron", options.cron), ("timezone", options.timezone)):
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise InvalidInput(f"{name} is {value!r}; it must be a text, like '0 3 * * *' or 'Europe/Madrid'")
    every = 0
    if options.every is not None:
        every = _check_microseconds(options.every, "every")
        if every < MICROSECONDS:
            raise InvalidInput(f"every is {every / MICROSECONDS:g} s; it must be at least 1 second")
    at = None if options.at is None else check_instant(options.at, "at")
    return Timing(cron=options.cron or "", timezone=options.timezone or "", every=every, at=at)


def check_instant(when: object, what: str) -> Instant:
    """Check an aware datetime, and return its instant. Raises InvalidInput."""
    if not isinstance(when, datetime):
        raise InvalidInput(f"{what} is {when!r}; it must be a datetime with a time zone")
    if when.tzinfo is None or when.utcoffset() is None:
        raise InvalidInput(
            f"{what} is {when.isoformat()}, without a time zone; give one, like datetime(..., tzinfo=UTC)"
        )
    if not 1970 <= when.astimezone(UTC).year < 9999:
        raise InvalidInput(f"{what} is {when.isoformat()}; it must lie after 1970 and before 9999")
    return as_instant(when)


def _check_microseconds(duration: Duration, what: str) -> int:
    if isinstance(duration, timedelta):  # exact, where a float may not be
        if not timedelta(0) <= duration <= timedelta(seconds=SECONDS_MAX):
            raise InvalidInput(f"{what} is {duration!r}; it must lie between 0 and {SECONDS_MAX:.0f} seconds")
        return duration // timedelta(microseconds=1)
    return round(check_seconds(duration, what) * MICROSECONDS)
