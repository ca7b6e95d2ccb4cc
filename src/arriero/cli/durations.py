"""Durations as people type them: seconds, or a number with its unit."""

import re

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


def shown_seconds(value: float) -> str:
    """Seconds as a person would write them: a whole number without its fraction."""
    return repr(value).removesuffix(".0") + " s"
