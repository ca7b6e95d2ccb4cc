"""Hints for a replay that disagrees: values that two runs of the same code never make alike.

``datetime.now()``, ``uuid4()`` and ``random()`` in workflow code work until the task is replayed: then they give something
else than was recorded. The values themselves say which of them it was. A guess, so it is worded as one.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

_DIGITS_MIN = 10  # of a float that nobody typed
_UNIX_SECONDS = (1_000_000_000, 4_000_000_000)  # from 2001 to 2096
_UNIX_UNITS = (1, 1_000, 1_000_000, 1_000_000_000)
_UUID = re.compile(r"\b[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}\b", re.IGNORECASE)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
)
_read = msgspec.json.decode


class Source(NamedTuple):
    """A source of values that differ from run to run."""

    what: str
    take: str  # what a replay sees again
    instead_of: str


_NOW = Source("a time", "arriero.now()", "datetime.now() or time.time()")
_UUID4 = Source("a UUID", "arriero.uuid()", "uuid.uuid4()")
_RANDOM = Source("a random number", "arriero.random()", "the module random")


def suggest_source(recorded: str, asked: str) -> str:
    """Suggest what to look for when code asks with other arguments than before; empty if they show nothing.

    Args:
        recorded: arguments as JSON text, as they were recorded.
        asked: what the code asks with now.
    Returns: a part of a sentence, without any of the values: they may be secret.
    """
    try:
        before, now = _read(recorded), _read(asked)
    except msgspec.MsgspecError:
        return ""
    told: dict[Source, str] = {}
    for path, one, other in _list_differences(before, now, ""):
        if (source := _guess_source(one, other)) is not None:
            told.setdefault(source, path)
    if not told:
        return ""
    found = "; ".join(_format_sentence(source, path) for source, path in told.items())
    return f"{found}; then compensate this task, since no code repeats its record"


def _format_sentence(source: Source, path: str) -> str:
    return (
        f"if {path or 'it'} is {source.what} that each run makes again, as it looks, take it from {source.take}, which a"
        f" replay sees again, not from {source.instead_of}"
    )


def _list_differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """List the differences of two values, from the left, as far as they have the same shape."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one:
            if name in other:
                yield from _list_differences(one[name], other[name], f"{path}.{name}" if path else name)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from _list_differences(*pair, f"{path}[{at}]")
    elif one != other:
        yield path, one, other


def _guess_source(one: Any, other: Any) -> Source | None:
    if isinstance(one, str) and isinstance(other, str):
        return next(
            (source for pattern, source in ((_UUID, _UUID4), (_TIME, _NOW)) if _is_alike(pattern, one, other)), None
        )
    if _is_number(one) and _is_number(other):
        if _is_unix_time(one) and _is_unix_time(other):
            return _NOW
        if _is_long_float(one) and _is_long_float(other):
            return _RANDOM
    return None


def _is_alike(pattern: re.Pattern[str], one: str, other: str) -> bool:
    """Returns True if two texts are the same except for what the pattern finds in both."""
    return pattern.search(one) is not None and pattern.sub("", one) == pattern.sub("", other)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_unix_time(value: float) -> bool:
    least, most = _UNIX_SECONDS
    return any(least * unit <= value <= most * unit for unit in _UNIX_UNITS)


def _is_long_float(value: float) -> bool:
    return isinstance(value, float) and sum(letter.isdigit() for letter in repr(value)) >= _DIGITS_MIN
