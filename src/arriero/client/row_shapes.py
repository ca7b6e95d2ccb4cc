"""Builds what programs read as JSON from rows: instants become datetimes, payloads stay the JSON text that they are."""

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from ..model import Instant
from ..model.instants import as_datetime

S = TypeVar("S", bound=msgspec.Struct)


def to_datetime(instant: Instant | None) -> datetime | None:
    """An instant for JSON."""
    return None if instant is None else as_datetime(instant)


def build_output(output_type: type[S], row: object, **computed: Any) -> S:
    """Build a value for programs from a row.

    Fields that are not ``computed`` are copied from the row's attributes of the same name: instants as datetimes,
    payloads as raw JSON, words as plain texts.
    """
    for name, convert in _list_converters(output_type).items():
        if name not in computed and hasattr(row, name):
            value = getattr(row, name)
            computed[name] = value if value is None or convert is None else convert(value)
    return output_type(**computed)


@functools.cache
def _list_converters(output_type: type[msgspec.Struct]) -> dict[str, Callable[[Any], Any] | None]:
    """Find the converter of each field of a type from the value of a row; None: the value stays the same."""
    return {field.name: _find_converter(field.type) for field in msgspec.structs.fields(output_type)}


def _find_converter(declared: Any) -> Callable[[Any], Any] | None:
    if declared in (datetime, datetime | None):
        return as_datetime
    if declared in (msgspec.Raw, msgspec.Raw | None, msgspec.Raw | msgspec.UnsetType | None):
        return lambda text: msgspec.Raw(text.encode())
    return str if declared is str else None
