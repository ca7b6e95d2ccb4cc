"""Numbers as one short text: ``5-9,12`` are 5, 6, 7, 8, 9 and 12."""

import re
from collections.abc import Iterable

from .problems import INVALID_REQUEST, Problem

_match_run = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII).fullmatch


def format_runs(numbers: Iterable[int]) -> str:
    """Format numbers. The largest one stands last."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read_runs(text: str, count_max: int) -> list[int]:
    """Read numbers. Raises Problem - the text is not so written, or there are too many."""
    found: list[int] = []
    for part in text.split(","):
        run = _match_run(part.strip())
        if run is None:
            raise Problem(INVALID_REQUEST, "Last-Event-ID is not the id of an event of this stream")
        first, last = int(run[1]), int(run[2] or run[1])
        if last < first or last - first + len(found) >= count_max:
            raise Problem(
                INVALID_REQUEST, f"Last-Event-ID is no id of an event: it names more than {count_max:,} messages"
            )
        found += range(first, last + 1)
    return found
