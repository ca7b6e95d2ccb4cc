"""The instants at which a schedule is due. ``cronsim`` reads cron lines; changes of time are treated as Debian's cron does.

``cronsim`` says which times a line names in a calendar without changes of time. This module places them in a zone, because
``cronsim`` knows only changes of a whole hour. A line whose minute or hour begins with ``*`` follows elapsed time: it skips
times that do not exist, and runs both times at those that come twice. Any other line names times of day: one that does not
exist is run when the clock has jumped, and one that comes twice is run the first time. ``cronsim`` and ``zoneinfo`` are loaded
by the first schedule, not with arriero.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice

from ..errors import InvalidInput
from ..model import MICROSECONDS, Instant
from ..model.instants import as_datetime, as_instant
from ..model.schedules import ScheduleDeclaration, Timing, decode_declaration

EVERY_MIN = MICROSECONDS  # a leader that looks more often would do nothing else
COUNTED_MAX = 100  # of what a cron line names in a gap: counting a year of minutes takes longer than it is worth
CRON_LENGTH_MAX = 255
_NOT_OF_A_PLACE = {  # names that zoneinfo loads
    "localtime": "is the zone of each machine",
    "posixrules": "is the zone of each machine",
    "factory": "means that no zone was set",
}
_COPIES = ("posix/", "right/")  # folders of the system's database that other machines lack; right/ counts leap seconds
NEVER = Instant(253_370_764_800 * MICROSECONDS)  # the year 9999, where datetimes end
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@lru_cache(1024)
def load_zone(name: str) -> tzinfo:
    """Load a time zone by its IANA name. Raises InvalidInput."""
    from zoneinfo import ZoneInfo

    if name in ("", "UTC"):
        return UTC  # quicker than the zone of that name
    if wrong := _NOT_OF_A_PLACE.get(name.lower(), "is not on all machines" if name.startswith(_COPIES) else ""):
        raise InvalidInput(f"the time zone {name!r} {wrong}; give an IANA name like 'Europe/Madrid' or 'UTC'")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # what it raises depends on how the name is wrong
        raise InvalidInput(
            f"the time zone {name!r} is not known; give an IANA name like 'Europe/Madrid' or 'UTC'"
        ) from error


def check_timing(timing: Timing, after: Instant) -> None:
    """Check that the timing can be read and that an instant of it comes. Raises InvalidInput.

    Args:
        after: now.
    """
    given = [name for name, value in (("cron", timing.cron), ("every", timing.every), ("at", timing.at)) if value]
    if len(given) != 1:
        what = " and ".join(given) if given else "nothing"
        raise InvalidInput(f"a schedule is due by cron, every or at: give one of them, not {what}")
    if timing.timezone and not timing.cron:
        raise InvalidInput("timezone is given without cron; it says where a cron line's times of day are meant")
    if timing.every and not timing.every >= EVERY_MIN:
        raise InvalidInput(f"every is {timing.every / MICROSECONDS:g} s; it must be at least 1 second")
    if timing.cron:
        load_zone(timing.timezone)
        read_cron(timing.cron, as_datetime(after))
        if find_next(timing, after, after) is None:
            raise InvalidInput(f"the cron line {timing.cron!r} names no day that ever comes")


def decode_usable(text: str) -> ScheduleDeclaration:
    """Decode a declaration whose instants can be computed here. Raises MsgspecError, InvalidInput - zone or line is unknown."""
    declared = decode_declaration(text)
    timing = declared.timing
    if timing.cron:
        load_zone(timing.timezone)
        read_cron(timing.cron, datetime(2026, 1, 1))
    elif not timing.every and timing.at is None:
        raise InvalidInput("it says no time")
    return declared


def read_cron(line: str, after: datetime) -> Iterator[datetime]:
    """Read a cron line: the times that it names after a time, as a calendar without any change of time has them.

    Raises InvalidInput naming what is wrong with the line.
    """
    from cronsim import CronSim

    if len(line) > CRON_LENGTH_MAX:
        raise InvalidInput(f"the cron line has {len(line)} characters; it must have {CRON_LENGTH_MAX} at most")
    try:
        return CronSim(_expand(line), after.replace(tzinfo=None))
    except Exception as error:  # it also asserts
        raise InvalidInput(
            f"the cron line {line!r} cannot be read: {error or 'a field is wrong'}; it has five fields, minute hour"
            " day-of-month month day-of-week, like '0 3 * * *'"
        ) from error


def _expand(line: str) -> str:
    return _ALIASES.get(line.strip().lower(), line)


def follows_elapsed_time(line: str) -> bool:
    """Returns True if a cron line names no times of day: its minute or hour begins with ``*``, or it has seconds."""
    fields = _expand(line).split()
    return len(fields) != 5 or fields[0].startswith("*") or fields[1].startswith("*")


def as_local(instant: Instant, zone: tzinfo) -> datetime:
    """An instant as a datetime in a zone."""
    return as_datetime(instant).astimezone(zone)


def iterate_instants(timing: Timing, anchor: Instant, after: Instant) -> Iterator[Instant]:
    """The instants after an instant, in their order, without end unless there is one.

    Args:
        anchor: ``every`` is counted from here; the first one is due once so long after it.
    """
    if timing.at is not None:
        if timing.at > after:
            yield timing.at
    elif timing.every:
        count = max(0, (after - anchor) // timing.every) + 1
        while (instant := anchor + count * timing.every) < NEVER:
            yield Instant(instant)
            count += 1
    else:
        yield from _iterate_cron(timing, after)


def _iterate_cron(timing: Timing, after: Instant) -> Iterator[Instant]:
    last = after
    try:
        for instant in _place_in_zone(timing.cron, load_zone(timing.timezone), after):
            if instant > last:
                last = instant
                yield instant
    except (OverflowError, ValueError):  # the end of the calendar
        return


def _place_in_zone(line: str, zone: tzinfo, after: Instant) -> Iterator[Instant]:
    """The instants of the times that a line names, in their order; the first ones may lie before ``after``.

    A change of time may be of any length: half an hour on Lord Howe Island, a day where the date line moved.
    """
    local = as_local(after, zone)
    offset, later_offset = _read_offsets(local.replace(tzinfo=None), zone)
    # Times that come twice come again after this one.
    start = local - (offset - later_offset) if later_offset < offset and not local.fold else local
    is_elapsed = follows_elapsed_time(line)
    again: list[Instant] = []  # second times, after all the first ones
    for named in read_cron(line, start):
        before, behind = _read_offsets(named, zone)
        first = _subtract(named, before)
        if behind == before:
            yield from again
            again.clear()
            yield first
        elif behind < before:  # it comes twice
            yield first
            if is_elapsed:
                again.append(_subtract(named, behind))
        elif not is_elapsed:  # it does not exist
            yield from again
            again.clear()
            yield _find_jump(_subtract(named, behind), first, zone)


def _read_offsets(naive: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    """The offsets of a time on the wall from UTC, before and after a change of time; equal where there is none."""
    found = [naive.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)]
    return found[0], found[1]


def _subtract(naive: datetime, offset: timedelta) -> Instant:
    return as_instant((naive - offset).replace(tzinfo=UTC))


def _find_jump(low: Instant, high: Instant, zone: tzinfo) -> Instant:
    """Find the instant in (low, high] at which the clock of a zone jumps ahead."""
    before = as_local(low, zone).utcoffset()
    while high - low > MICROSECONDS:
        middle = Instant((low + high) // 2 // MICROSECONDS * MICROSECONDS)
        if as_local(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def find_next(timing: Timing, anchor: Instant, after: Instant) -> Instant | None:
    """Find the first instant after an instant; None: none comes."""
    return next(iterate_instants(timing, anchor, after), None)


def list_between(timing: Timing, anchor: Instant, after: Instant, until: Instant, limit: int) -> list[Instant]:
    """List the first instants in (after, until], at most that many."""
    found: list[Instant] = []
    for instant in islice(iterate_instants(timing, anchor, after), limit):
        if instant > until:
            break
        found.append(instant)
    return found


def find_last(timing: Timing, anchor: Instant, after: Instant, until: Instant) -> Instant | None:
    """Find the last instant in (after, until]; None: there is none."""
    if until <= after:
        return None
    if timing.every:
        count = (until - anchor) // timing.every
        last = Instant(anchor + count * timing.every)
        return last if count >= 1 and last > after else None
    low, high = find_next(timing, anchor, after), until
    if low is None or low > until:
        return None
    while high - low >= MICROSECONDS:  # instants of a cron line are whole seconds; after ``high`` there is none
        middle = Instant((low + high) // 2)
        following = find_next(timing, anchor, middle)
        if following is None or following > until:
            high = middle
        else:
            low = following
    return low


def count_between(timing: Timing, anchor: Instant, after: Instant, until: Instant) -> int:
    """Count the instants in (after, until]; those of a cron line up to COUNTED_MAX."""
    if until <= after:
        return 0
    if timing.every:
        return max(0, (until - anchor) // timing.every) - max(0, (after - anchor) // timing.every)
    return len(list_between(timing, anchor, after, until, COUNTED_MAX))


def compute_jitter(timing: Timing, anchor: Instant, app: str, name: str, instant: Instant, jitter: int) -> int:
    """Compute by how many microseconds in [0, jitter) a run is late on purpose: always the same for one run.

    It is less than the time until the next instant, so no run overtakes another one.
    """
    if not jitter:
        return 0
    following = find_next(timing, anchor, instant)
    if following is not None:
        jitter = min(jitter, following - instant)
    digest = hashlib.blake2b(f"{app}\0{name}\0{instant}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") * jitter >> 64


def format_instant_of_run(instant: Instant) -> str:
    """Format an instant as it stands in the id of a run: in UTC, with a fraction only where there is one."""
    return as_datetime(instant).replace(tzinfo=None).isoformat() + "Z"


def format_run_id(app: str, name: str, instant: Instant) -> str:
    """Format the id of a run. It names the App, so that schedules of two Apps never meet in one id."""
    return f"{app}/{name}@{format_instant_of_run(instant)}"


def is_run_of(task_id: str, app: str, name: str) -> bool:
    """Returns True if a task's id is that of a run of this schedule, due or asked for by an operator."""
    return task_id.startswith(f"{app}/{name}@") and task_id.endswith("Z")
