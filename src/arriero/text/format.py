"""Formats instants, durations, counts, processes and failures for explanations, timelines and findings."""

from collections.abc import Iterable, Mapping

import msgspec

from ..model import MICROSECONDS, Instant, StepKind, StepRow, seconds_between
from ..model.failures import CapturedError, CapturedTraceback, Frame, StepFailure
from ..model.instants import as_datetime
from ..model.signals import is_wait, split_wait_name
from .escaping import shell_argument, shell_word

_RELATIONS = {
    "raised": "{error}",
    "cause": "raised from {error}",
    "context": "raised while {error} was handled",
    "member": "in the group: {error}",
}


def find_raising_frame(trace: CapturedTraceback) -> Frame | None:
    """Find the user's line by which the exception left; None: no line of the user's is known."""
    return next((frame for one in trace if (frame := _own(one)) is not None), None)


def find_frame_to_fix(trace: CapturedTraceback) -> Frame | None:
    """Find the user's line from which all came: of the cause it was raised from, or of the first in a group.

    What was being handled meanwhile is not a cause: the handler itself raised.
    """
    found = None
    is_settled = False
    for one in trace:
        frame = _own(one)
        if frame is None or (found is not None and (is_settled or one.relation == "context")):
            continue
        is_settled = one.relation == "member"
        found = frame
    return found


def _own(one: CapturedError) -> Frame | None:
    return next((frame for frame in reversed(one.frames) if not frame.library), None)


def format_frame(frame: Frame) -> str:
    """Format ``shop/orders.py:42, in fulfil``."""
    inside = f", in {frame.function}" if frame.function else ""
    return f"{frame.file}:{frame.line}{inside}"


def format_frame_with_source(frame: Frame) -> str:
    """``shop/orders.py:42, in fulfil: `total = prices['nix']` ``, the last part where it is at hand."""
    return f"{format_frame(frame)}: `{frame.source}`" if frame.source else format_frame(frame)


def find_frame_to_show(trace: CapturedTraceback) -> Frame | None:
    """Find the one line to name: for a bug the line to fix, else the line where the failure was raised."""
    return find_raising_frame(trace) if is_expected(trace) else find_frame_to_fix(trace)


def is_expected(trace: CapturedTraceback) -> bool:
    """Returns True if no line must be fixed for it: see ``CapturedError.expected``."""
    return bool(trace) and trace[0].expected


def format_location(trace: CapturedTraceback) -> str:
    """``shop/orders.py:42, in fulfil: `...` ``, the one line to name; empty where none is known."""
    frame = find_frame_to_show(trace)
    return "" if frame is None else format_frame_with_source(frame)


def format_labelled_location(trace: CapturedTraceback) -> str:
    """Format ``the line to fix: ...`` or ``raised at ...``; empty where no line is known."""
    place = format_location(trace)
    if not place:
        return ""
    return f"{'raised at' if is_expected(trace) else 'the line to fix:'} {place}"


def format_traceback(trace: CapturedTraceback) -> Iterable[str]:
    """The trace as operators read one: the outermost call first, each line's text indented below it."""
    for one in trace:
        yield _RELATIONS.get(one.relation, "{error}").format(error=one.error)
        for frame in one.frames:
            times = f" ({format_count(frame.times, 'time')} in a row)" if frame.times > 1 else ""
            yield f"  {format_frame(frame)}{times}"
            if frame.source:
                yield f"    {frame.source}"
        if one.left_out:
            yield f"  ({format_count_with_verb(one.left_out, 'more frame')} left out)"


TOKEN_LENGTH = 12  # of the random end of a process's name
TOKEN_SHOWN = 4
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_HEXADECIMAL = frozenset("0123456789abcdef")


def format_instant(instant: Instant) -> str:
    """Format an instant in UTC, to the second; one outside the calendar, as in a damaged row, as its number."""
    try:
        return f"{as_datetime(instant):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, TypeError):
        return f"instant {instant!r}"


def format_duration(seconds: float) -> str:
    """Format a duration: ``0.012 s``, ``1.5 s``, ``12 s``, ``3 min 2 s``, ``2 d 5 h``."""
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


def format_relative(instant: Instant, now: Instant) -> str:
    """Format ``3 min 2 s ago``, or ``in 5 s``."""
    seconds = seconds_between(instant, now)
    return f"{_whole(seconds)} ago" if seconds >= 0 else f"in {_whole(-seconds)}"


def _whole(seconds: float) -> str:
    return _in_units(int(seconds)) if seconds >= 1 else "less than 1 s"


def format_instant_and_age(instant: Instant, now: Instant) -> str:
    """Format an instant and its distance from now."""
    return f"{format_instant(instant)} ({format_relative(instant, now)})"


def format_count(count: int, what: str) -> str:
    """Format ``1 task``, ``1,500 tasks``, ``2 processes``, ``3 entries``."""
    if count == 1:
        return f"1 {what}"
    if what.endswith("y") and what[-2] not in "aeiou" and what != "standby":  # the one exception that texts use
        return f"{count:,} {what[:-1]}ies"
    return f"{count:,} {what}{'es' if what.endswith('s') else 's'}"


def format_count_with_verb(count: int, what: str) -> str:
    """Format ``1 task is``, ``1,500 tasks are``."""
    return f"{format_count(count, what)} {'is' if count == 1 else 'are'}"


def shorten_process_name(name: str) -> str:
    """Shorten the random end of a process's name; any other name stays as it is."""
    return name[: TOKEN_SHOWN - TOKEN_LENGTH] if is_process_name(name) else name


def is_process_name(name: str) -> bool:
    """Returns True for the name of a process: its host, its number there and a random end."""
    _, dash, token = name.rpartition("-")
    return bool(dash) and len(token) == TOKEN_LENGTH and _HEXADECIMAL.issuperset(token)


def format_step(step: StepRow) -> str:
    """Format a step, compensation, timer or wait: ``step charge``, ``the undo of charge``, ``the wait for signal approved``."""
    if is_wait(step):
        return f"the wait for {format_awaited(step)}"
    prefix = {
        StepKind.STEP: "step",
        StepKind.COMPENSATION: "the undo of",
        StepKind.TIMER: "timer",
        StepKind.CHILD: "child",
    }[step.kind]
    return f"{prefix} {step.label}"


def format_awaited(wait: StepRow) -> str:
    """Format what a wait is for: ``signal approved``; the second one of the name: ``signal approved[#2]``."""
    return wait.label.replace(":", " ", 1)


def format_send_command(task_id: str, wait: StepRow) -> str:
    """Format the command that sends what a wait is for; empty: no command of the terminal does."""
    kind, name = split_wait_name(wait.name) or ("", "")
    if kind == "question":
        return format_answer_command(task_id, wait.label)
    verb = {"signal": "send", "request": "request", "callback": "complete-callback"}.get(kind)
    if kind == "callback" and wait.key != "#1":
        name = f"{name}{wait.key}"
    return f"arriero task {verb} {shell_argument(task_id)} {shell_argument(name)} JSON" if verb else ""


def format_answer_command(task_id: str, question: str) -> str:
    """Format the command that answers a question. ``question``: the name to answer it by, like ``question:finance``."""
    words, options = f"{shell_argument(task_id)} {shell_word(question)}", "--result JSON --reason TEXT"
    if task_id.startswith("-"):  # no option may follow the dashes before it
        words, options = options, words
    return f"arriero task answer {words} {options}"


def format_failure(failure: StepFailure) -> str:
    """Format a failure: ``permanent: card declined [declined]``."""
    message = f": {failure.message}" if failure.message else ""
    code = f" [{failure.code}]" if failure.code else ""
    return f"{failure.cause}{message}{code}"


def format_failure_with_line(failure: StepFailure) -> str:
    """Format a failure; for a bug, with the line to fix."""
    frame = None if is_expected(failure.trace) else find_frame_to_fix(failure.trace)
    return f"{format_failure(failure)}{'' if frame is None else f', at {format_frame(frame)}'}"


def format_step_failure(step: StepRow) -> str:
    """Format the failure of a step's last attempt; empty if it has none."""
    return "" if step.failure is None else format_failure_with_line(msgspec.json.decode(step.failure, type=StepFailure))


def format_late_answer(attempt: int, answered_at: Instant, complete_by: Instant) -> str:
    """Format ``attempt 1 answered at 2026-01-01 12:00:07Z, 2.0 s late: kept, not counted``.

    An answer within its time came when its attempt no longer counted, as where an operator had answered for it.
    """
    seconds = seconds_between(complete_by, answered_at)
    late = f"{format_duration(seconds)} late" if seconds >= 0 else "when it no longer counted"
    return f"attempt {attempt} answered at {format_instant(answered_at)}, {late}: kept, not counted"


def format_bytes(count: int) -> str:
    """Format bytes in the largest unit that fits: ``812 bytes``, ``40 kB``, ``1.2 MB``."""
    if count < 1_000:
        return format_count(count, "byte")
    amount = float(count)
    for unit in ("kB", "MB", "GB"):
        amount /= 1_000
        if amount < 1_000:
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{amount / 1_000:,.1f} TB"


def format_seconds(value: float) -> str:
    """Format ``90.0`` as ``90 s``, and ``1.5`` as ``1.5 s``."""
    return repr(value).removesuffix(".0") + " s"


UNCHANGED = "unchanged: "  # begins, among the changes of a verb, what it leaves as it was
CARRIED_OUT = "carried out"  # the same of who approved it


def format_limit_changes(limits: Mapping[str, int | float | None], before: Mapping[str, int | float | None]) -> str:
    """Format changed limits of a step with their old values: ``attempts 10 (3 before), cool_off 60 s (900 s before)``."""
    return ", ".join(
        f"{_LIMIT_WORDS.get(name, name)} {_format_limit(name, value)} ({_format_limit(name, before.get(name))} before)"
        for name, value in limits.items()
    )


_LIMIT_WORDS = {"not_before": "next attempt not before"}


def _format_limit(name: str, value: int | float | None) -> str:
    if value is None:
        return "none"
    if name == "not_before":
        return format_instant(Instant(int(value)))
    return str(value) if name in ("attempts", "rounds") else format_seconds(float(value))


def format_period(microseconds: int) -> str:
    """Format the period of a schedule in the largest units that fit: ``1 d``, ``1 h 30 min``, ``1.5 s``."""
    seconds, fraction = divmod(microseconds, MICROSECONDS)
    parts = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    if seconds or fraction or not parts:
        parts.append(f"{seconds + fraction / MICROSECONDS:g} s")
    return " ".join(parts)


def format_timing(cron: str, timezone: str, every: int, at: Instant | None) -> str:
    """Format when a schedule is due, in one phrase. ``every``: microseconds, 0 if it has no period."""
    if cron:
        return f"cron {cron} in {timezone or 'UTC'}"
    if every:
        return f"every {format_period(every)}"
    return "unknown" if at is None else f"once at {format_instant(at)}"
