"""Durations as people type them: seconds, or a number with its unit."""

import re
from datetime import UTC, datetime

import click

from ..errors import DefinitionError
from ..policies import seconds

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_read = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII).fullmatch


def duration(text: str) -> float:
    """The type of an option: ``90`` or ``90s``, ``15m``, ``2h``, ``3d``, in seconds.

    Raises: BadParameter - naming what was typed, and how to write it.
    """
    found = _read(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no duration; write seconds, or a unit too, like 90, 15m, 2h or 3d")
    number, unit = found.groups()
    try:
        return seconds(float(number) * UNITS[unit], f"{text!r}")
    except DefinitionError as error:
        raise click.BadParameter(str(error)) from error


def duration_or_instant(text: str) -> float | datetime:
    """The type of an option: a duration, or an instant as lists print it or in ISO 8601; UTC where no zone is given.

    Raises: BadParameter - naming what was typed, and how to write it.
    """
    try:
        when = None if _read(text.strip()) else datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a duration like 90, 15m, 2h or 3d nor an instant like 2026-11-20 14:15:17Z"
        ) from None
    if when is None:
        return duration(text)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


def shown_seconds(value: float) -> str:
    """Seconds as a person would write them: a whole number without its fraction."""
    return repr(value).removesuffix(".0") + " s"
