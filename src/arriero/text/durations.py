"""Durations and instants as operators type them, in commands and in forms."""

import re
from datetime import UTC, datetime

from ..errors import InvalidInput
from ..model.policies import check_seconds

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_match_duration = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII).fullmatch


def read_duration(text: str) -> float:
    """Read ``90`` or ``90s``, ``15m``, ``2h``, ``3d`` as seconds.

    Raises: InvalidInput - names what was typed and how to write it.
    """
    found = _match_duration(text.strip())
    if found is None:
        raise InvalidInput(f"{text!r} is not a duration; write seconds, or a unit too, like 90, 15m, 2h or 3d")
    number, unit = found.groups()
    return check_seconds(float(number) * UNITS[unit], f"{text!r}")


def read_duration_or_instant(text: str) -> float | datetime:
    """Read a duration, or an instant as lists show it or in ISO 8601, in UTC unless it names a zone.

    Raises: InvalidInput - names what was typed and how to write it.
    """
    try:
        when = None if _match_duration(text.strip()) else datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            f"{text!r} is neither a duration like 90, 15m, 2h or 3d nor an instant like 2026-11-20 14:15:17Z"
        ) from None
    if when is None:
        return read_duration(text)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when
