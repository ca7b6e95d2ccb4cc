"""Finds and formats the lines of a trace: the line to fix, the line that raised, the whole traceback."""

from collections.abc import Iterable

from .failures import CapturedError, CapturedTraceback, Frame

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

    What was being handled meanwhile is no cause: the handler itself raised.
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
    """The trace as people read one: the outermost call first, each line's text indented below it."""
    for one in trace:
        yield _RELATIONS.get(one.relation, "{error}").format(error=one.error)
        for frame in one.frames:
            times = f" ({frame.times:,} times in a row)" if frame.times > 1 else ""
            yield f"  {format_frame(frame)}{times}"
            if frame.source:
                yield f"    {frame.source}"
        if one.left_out:
            yield f"  ({one.left_out:,} more frames are left out)"
