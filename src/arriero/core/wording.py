"""Words that explanations, stories and findings share: instants, spans of time, counts, processes, failures."""

import msgspec

from ..attempt import as_datetime
from ..model import Instant, StepFailure, StepKind, StepRow, seconds_between
from .tracing import is_expected, line_to_mend, spot

TOKEN_LENGTH = 12  # of the random end of a process's name
TOKEN_SHOWN = 4
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_HEXADECIMAL = frozenset("0123456789abcdef")


def when(instant: Instant) -> str:
    """An instant in UTC, to the second; one that no calendar has, as a damaged row may hold it, as its number."""
    try:
        return f"{as_datetime(instant):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, TypeError):
        return f"instant {instant!r}"


def span(seconds: float) -> str:
    """A length of time: ``0.012 s``, ``1.5 s``, ``12 s``, ``3 min 2 s``, ``2 d 5 h``."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.3f} s"
    return f"{seconds:.1f} s" if seconds < 10 else _in_units(int(seconds))


def _in_units(seconds: int) -> str:
    """Whole seconds in the two largest units that matter."""
    parts: list[str] = []
    for unit, length in _UNITS:
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count} {unit}")
        if parts and (not count or len(parts) == 2):
            break
    return " ".join(parts)


def relative(instant: Instant, now: Instant) -> str:
    """``3 min 2 s ago``, or ``in 5 s``."""
    seconds = seconds_between(instant, now)
    return f"{_whole(seconds)} ago" if seconds >= 0 else f"in {_whole(-seconds)}"


def _whole(seconds: float) -> str:
    return _in_units(int(seconds)) if seconds >= 1 else "less than 1 s"


def told(instant: Instant, now: Instant) -> str:
    """An instant, and how far it lies from now."""
    return f"{when(instant)} ({relative(instant, now)})"


def counted(count: int, what: str) -> str:
    """``1 task``, ``1,500 tasks``, ``2 processes``."""
    ending = "" if count == 1 else "es" if what.endswith("s") else "s"
    return f"{count:,} {what}{ending}"


def so_many_are(count: int, what: str) -> str:
    """``1 task is``, ``1,500 tasks are``."""
    return f"{counted(count, what)} {'is' if count == 1 else 'are'}"


def shortened(name: str) -> str:
    """A process's name with only the beginning of its random end; any other name as it is."""
    return name[: TOKEN_SHOWN - TOKEN_LENGTH] if is_process_name(name) else name


def is_process_name(name: str) -> bool:
    """Whether a name is of a process start: its host, its number there and a random end."""
    _, dash, token = name.rpartition("-")
    return bool(dash) and len(token) == TOKEN_LENGTH and _HEXADECIMAL.issuperset(token)


def named(step: StepRow) -> str:
    """A row of the step table as people speak of it."""
    prefix = {StepKind.STEP: "step", StepKind.COMPENSATION: "the undo of", StepKind.TIMER: "timer"}[step.kind]
    return f"{prefix} {step.label}"


def reason(failure: StepFailure) -> str:
    """Why an attempt has no result: ``permanent: card declined [declined]``."""
    message = f": {failure.message}" if failure.message else ""
    code = f" [{failure.code}]" if failure.code else ""
    return f"{failure.cause}{message}{code}"


def failed(failure: StepFailure) -> str:
    """Why an attempt has no result, and of a bug the line to mend."""
    frame = None if is_expected(failure.trace) else line_to_mend(failure.trace)
    return f"{reason(failure)}{'' if frame is None else f', at {spot(frame)}'}"


def step_failure(step: StepRow) -> str:
    """Why the last attempt of a step has no result; empty when nothing failed."""
    return "" if step.failure is None else failed(msgspec.json.decode(step.failure, type=StepFailure))


def answered_late(attempt: int, answered_at: Instant, complete_by: Instant) -> str:
    """``attempt 1 answered at 2026-01-01 12:00:07Z, 2.0 s late: kept, not counted``.

    An answer within its time came when its attempt no longer counted, as where a person had answered for it.
    """
    seconds = seconds_between(complete_by, answered_at)
    late = f"{span(seconds)} late" if seconds >= 0 else "when it no longer counted"
    return f"attempt {attempt} answered at {when(answered_at)}, {late}: kept, not counted"


def size(count: int) -> str:
    """Bytes in the largest unit that fits: ``812 bytes``, ``40 kB``, ``1.2 MB``."""
    if count < 1_000:
        return f"{count} bytes"
    amount = float(count)
    for unit in ("kB", "MB", "GB"):
        amount /= 1_000
        if amount < 1_000:
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{amount / 1_000:,.1f} TB"
