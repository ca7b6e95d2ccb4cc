"""What is said of a trace: which line is to be mended, where it was raised, and the lines one below the other."""

from collections.abc import Iterable

from ..model import Frame, Trace, TracedError

_RELATIONS = {
    "raised": "{error}",
    "cause": "raised from {error}",
    "context": "raised while {error} was handled",
    "member": "in the group: {error}",
}


def raised_at(trace: Trace) -> Frame | None:
    """The user's line by which the exception left; None: no line of the user's is known."""
    return next((frame for one in trace if (frame := _own(one)) is not None), None)


def line_to_mend(trace: Trace) -> Frame | None:
    """The user's line from which all came: of the cause it was raised from, or of the first in a group.

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


def _own(one: TracedError) -> Frame | None:
    return next((frame for frame in reversed(one.frames) if not frame.library), None)


def spot(frame: Frame) -> str:
    """``shop/orders.py:42, in fulfil``."""
    inside = f", in {frame.function}" if frame.function else ""
    return f"{frame.file}:{frame.line}{inside}"


def spot_with_source(frame: Frame) -> str:
    """``shop/orders.py:42, in fulfil: `total = prices['nix']` ``, the last part where it is at hand."""
    return f"{spot(frame)}: `{frame.source}`" if frame.source else spot(frame)


def place_of(trace: Trace) -> Frame | None:
    """The one line to name: of what is no bug where it was raised, else the line to mend."""
    return raised_at(trace) if is_expected(trace) else line_to_mend(trace)


def is_expected(trace: Trace) -> bool:
    """Whether no line has to be mended for it: see ``TracedError.expected``."""
    return bool(trace) and trace[0].expected


def place_named(trace: Trace) -> str:
    """``shop/orders.py:42, in fulfil: `...` ``, the one line to name; empty where none is known."""
    frame = place_of(trace)
    return "" if frame is None else spot_with_source(frame)


def place_told(trace: Trace) -> str:
    """``the line to mend: ...`` or ``raised at ...``; empty where no line is known."""
    place = place_named(trace)
    if not place:
        return ""
    return f"{'raised at' if is_expected(trace) else 'the line to mend:'} {place}"


def traceback_lines(trace: Trace) -> Iterable[str]:
    """The trace as people read one: the outermost call first, each line's text indented below it."""
    for one in trace:
        yield _RELATIONS.get(one.relation, "{error}").format(error=one.error)
        for frame in one.frames:
            times = f" ({frame.times:,} times in a row)" if frame.times > 1 else ""
            yield f"  {spot(frame)}{times}"
            if frame.source:
                yield f"    {frame.source}"
        if one.left_out:
            yield f"  ({one.left_out:,} more frames are left out)"
