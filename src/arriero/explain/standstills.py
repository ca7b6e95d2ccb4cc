"""Standstills of an event loop: the code that ran, how it is reported, and its effect on an attempt's time."""

from collections.abc import Iterable

import msgspec

from ..core.supervision import compute_complete_within
from ..model import Instant, StepRow, later, seconds_between
from ..model.failures import CapturedTraceback, StepFailure
from ..payloads.codec import recordable_text
from ..text.format import find_frame_to_fix, format_duration, format_frame_with_source

REMEDY = "make the step a plain function (def), or await asyncio.to_thread(...)"
REMEDY_OF_CODE = "move what takes long into a step that is a plain function (def)"
SAID_SECONDS = 0.5
STOOD_STILL = "the event loop was blocked"  # in the place of an exception's name, over the lines that ran


class Standstill(msgspec.Struct, frozen=True):
    """A time in which a process's event loop did nothing else than one thing. Instants are the store's.

    ``until``: so far, while it lasts. ``doing``: what ran, as ``step charge of task order-1``; empty: nobody knows.
    ``code_of_workflow``: whether workflow code ran. ``trace``: the lines that ran; empty when they were not seen.
    """

    since: Instant
    until: Instant
    doing: str = ""
    code_of_workflow: bool = False
    trace: CapturedTraceback = ()

    @property
    def seconds(self) -> float:
        """The duration so far, in seconds."""
        return seconds_between(self.since, self.until)


class _Said(msgspec.Struct, frozen=True):
    """A standstill as the row of a process reports it. ``lasts``: then ``until`` means nothing."""

    standstill: Standstill
    lasts: bool


class _About(msgspec.Struct, frozen=True):
    """The part of a process's row that is read here."""

    loop: _Said | None = None


_read_about = msgspec.json.Decoder(_About).decode


def is_worth_saying(standstill: Standstill) -> bool:
    """Returns True if it is long enough to cost an attempt its time, and the code that ran is known."""
    return standstill.seconds >= SAID_SECONDS and bool(format_code_that_ran(standstill))


def add_standstill(about: str, standstill: Standstill, *, lasts: bool) -> str:
    """Add the last standstill to what a process reports (``ProcessRow.about``); the same text while it lasts."""
    said = msgspec.structs.replace(standstill, until=standstill.since) if lasts else standstill
    return msgspec.json.encode({**msgspec.json.decode(about), "loop": _Said(said, lasts)}).decode()


def read_standstill(about: str, now: Instant) -> Standstill | None:
    """Read the last standstill that a process reports; None: it reports none, or it cannot be read."""
    if '"loop"' not in about:
        return None
    try:
        said = _read_about(about).loop
    except msgspec.MsgspecError:
        return None
    if said is None or not said.lasts:
        return None if said is None else said.standstill
    return msgspec.structs.replace(said.standstill, until=now)


def format_code_that_ran(standstill: Standstill) -> str:
    """``at shop/steps.py:12, in charge: `time.sleep(5)` (step charge of task order-1)``, as far as it is known."""
    frame = find_frame_to_fix(standstill.trace)
    at = "" if frame is None else f"at {format_frame_with_source(frame)}"
    doing = f"({standstill.doing})" if standstill.doing else ""
    return " ".join(part for part in (at, doing) if part)


def suggest_remedy(standstill: Standstill) -> str:
    """Suggest the remedy."""
    return REMEDY_OF_CODE if standstill.code_of_workflow else REMEDY


def format_begun_line(standstill: Standstill) -> str:
    """Format the line of the log while it lasts."""
    ran = format_code_that_ran(standstill)
    return (
        f"the event loop has been blocked for {format_duration(standstill.seconds)}{f', {ran}' if ran else ''}: all else in this"
        f" process waits for that; {suggest_remedy(standstill)}"
    )


def format_ended_line(standstill: Standstill) -> str:
    """Format the line of the log once the loop continues."""
    ran = format_code_that_ran(standstill)
    return f"the event loop is running again after being blocked for {format_duration(standstill.seconds)}{f', {ran}' if ran else ''}"


def find_standstill_in_the_way(step: StepRow, standstills: Iterable[Standstill]) -> Standstill | None:
    """Find the longest standstill in the time of an attempt, if it may be why that gave no answer in time; else None.

    So it is when the loop was blocked as the time ran out, or for half of it.

    Args:
        step: in RUNNING.
        standstills: of the process that runs it.
    """
    if step.complete_by is None:
        return None
    within = compute_complete_within(step)
    meanwhile = [
        (overlap, one)
        for one in standstills
        if (overlap := _seconds_within(one, later(step.complete_by, -within), step.complete_by)) > 0
    ]
    at_the_end = any(one.until >= step.complete_by for _, one in meanwhile)
    if not at_the_end and sum(overlap for overlap, _ in meanwhile) < within / 2:
        return None
    return max((one for _, one in meanwhile), key=lambda one: one.seconds, default=None)


def _seconds_within(standstill: Standstill, start: Instant, end: Instant) -> float:
    """Return how many seconds of a standstill lie in a time; 0 or less: none."""
    return seconds_between(max(standstill.since, start), min(standstill.until, end))


def build_expiry_failure(step: StepRow, standstill: Standstill) -> StepFailure:
    """Build the failure of an attempt that gave no answer in time while its event loop was blocked."""
    ran = format_code_that_ran(standstill)
    within = compute_complete_within(step)
    says = (
        f"no answer within its {within:g} s; the event loop of its process was blocked for"
        f" {format_duration(standstill.seconds)} meanwhile{f', {ran}' if ran else ''}: {suggest_remedy(standstill)}"
    )
    return StepFailure("expired", recordable_text(says), "expired", trace=standstill.trace)
