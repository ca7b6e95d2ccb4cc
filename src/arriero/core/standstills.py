"""An event loop that stood still: what ran meanwhile, how that is told, and what it means for an attempt's time."""

from collections.abc import Iterable

import msgspec

from ..codec import recordable_text
from ..model import Instant, StepFailure, StepRow, Trace, later, seconds_between
from . import wording
from .supervision import step_policy
from .tracing import line_to_mend, spot_with_source

REMEDY = "make the step a plain function (def), or await asyncio.to_thread(...)"
REMEDY_OF_CODE = "move what takes long into a step that is a plain function (def)"
SAID_SECONDS = 0.5
STOOD_STILL = "the event loop stood still"  # in the place of an exception's name, over the lines that ran


class Standstill(msgspec.Struct, frozen=True):
    """A time in which a process's event loop did nothing else than one thing. Instants are the store's.

    ``until``: so far, while it lasts. ``doing``: what ran, as ``step charge of task order-1``; empty: nobody knows.
    ``code_of_workflow``: whether workflow code ran. ``trace``: the lines that ran; empty when they were not seen.
    """

    since: Instant
    until: Instant
    doing: str = ""
    code_of_workflow: bool = False
    trace: Trace = ()

    @property
    def seconds(self) -> float:
        """How long it lasted so far."""
        return seconds_between(self.since, self.until)


class _Said(msgspec.Struct, frozen=True):
    """What a process says of it, in its row. ``lasts``: then ``until`` means nothing."""

    standstill: Standstill
    lasts: bool


class _About(msgspec.Struct, frozen=True):
    """What of a process's row is read here."""

    loop: _Said | None = None


_read_about = msgspec.json.Decoder(_About).decode


def is_worth_saying(standstill: Standstill) -> bool:
    """Whether others are told: it is long enough to cost an attempt its time, and it is known what ran."""
    return standstill.seconds >= SAID_SECONDS and bool(what_ran(standstill))


def said_of(about: str, standstill: Standstill, *, lasts: bool) -> str:
    """What a process says of itself (``ProcessRow.about``), with its last standstill; the same text while it lasts."""
    said = msgspec.structs.replace(standstill, until=standstill.since) if lasts else standstill
    return msgspec.json.encode({**msgspec.json.decode(about), "loop": _Said(said, lasts)}).decode()


def standstill_in(about: str, now: Instant) -> Standstill | None:
    """The last standstill that a process tells of; None: it tells of none, or it cannot be read."""
    if '"loop"' not in about:
        return None
    try:
        said = _read_about(about).loop
    except msgspec.MsgspecError:
        return None
    if said is None or not said.lasts:
        return None if said is None else said.standstill
    return msgspec.structs.replace(said.standstill, until=now)


def what_ran(standstill: Standstill) -> str:
    """``at shop/steps.py:12, in charge: `time.sleep(5)` (step charge of task order-1)``, as far as it is known."""
    frame = line_to_mend(standstill.trace)
    at = "" if frame is None else f"at {spot_with_source(frame)}"
    doing = f"({standstill.doing})" if standstill.doing else ""
    return " ".join(part for part in (at, doing) if part)


def remedy(standstill: Standstill) -> str:
    """What to do about it."""
    return REMEDY_OF_CODE if standstill.code_of_workflow else REMEDY


def begun_line(standstill: Standstill) -> str:
    """The line of the log while it lasts."""
    ran = what_ran(standstill)
    return (
        f"the event loop has stood still for {wording.span(standstill.seconds)}{f', {ran}' if ran else ''}: all else in this"
        f" process waits for that; {remedy(standstill)}"
    )


def ended_line(standstill: Standstill) -> str:
    """The line of the log once the loop goes on."""
    ran = what_ran(standstill)
    return f"the event loop goes on; it stood still for {wording.span(standstill.seconds)}{f', {ran}' if ran else ''}"


def in_the_way(step: StepRow, standstills: Iterable[Standstill]) -> Standstill | None:
    """The longest standstill in the time of an attempt, if it may be why that gave no answer in time; else None.

    So it is when the loop stood still as the time ran out, or for half of it.

    Args:
        step: in RUNNING.
        standstills: of the process that runs it.
    """
    if step.complete_by is None:
        return None
    within = step_policy(step).complete_within
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
    """How much of a standstill lies in a time; not above 0: nothing."""
    return seconds_between(max(standstill.since, start), min(standstill.until, end))


def expired(step: StepRow, standstill: Standstill) -> StepFailure:
    """Why an attempt gave no answer in time whose process's event loop stood still meanwhile."""
    ran = what_ran(standstill)
    says = (
        f"no answer within its {step_policy(step).complete_within:g} s; the event loop of its process stood still for"
        f" {wording.span(standstill.seconds)} meanwhile{f', {ran}' if ran else ''}: {remedy(standstill)}"
    )
    return StepFailure("expired", recordable_text(says), "expired", trace=standstill.trace)
