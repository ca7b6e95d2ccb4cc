"""JSON that people and programs give: refused when it is doubtful, and read as the types that the code declares."""

import dataclasses
import functools
from typing import Any

import msgspec

from ..declare.signature import Signature
from ..errors import InvalidArguments
from ..strict_json import refuse_doubtful_json


def check_json(text: str, option: str) -> Any:
    """Any JSON value. Which of two values under one key was meant nobody can tell, so a doubled key is refused.

    Raises: InvalidInput - it is no JSON, is nested too deep, or a key stands twice in one object.
    """
    refuse_doubtful_json(text.encode("utf-8", "surrogatepass"), option)  # a lone surrogate is refused there
    return msgspec.json.decode(text)


def check_object(text: str, option: str) -> str:
    """The text of a JSON object without doubled keys. Raises InvalidInput."""
    check_json(text, option)
    return require_object(text, option)


def require_object(text: str, option: str) -> str:
    """The text of JSON, which must be an object. Raises InvalidArguments."""
    if not text.lstrip(" \t\r\n").startswith("{"):
        raise InvalidArguments(f"{option} must be a JSON object, by parameter name, like '{{\"amount\": 5}}'")
    return text


def decode_arguments(signature: Signature, text: str) -> dict[str, Any]:
    """The arguments that a JSON object names, each as its parameter's type. Raises InvalidInput when one does not fit."""
    typed = signature.arguments(text, are_all=False)
    _fill_in_defaults(list(typed.values()))
    return typed


def decode_result(signature: Signature, text: str) -> Any:
    """A JSON value as the type of the result. Raises InvalidInput when it does not fit."""
    value = signature.result(text)
    _fill_in_defaults(value)
    return value


_PLAIN = frozenset((str, int, float, bool, type(None)))  # most values: they have no fields


@functools.cache
def _list_dataclass_fields(of: type) -> tuple[str, ...]:
    """The names of the fields of a dataclass; empty: it is none, or has none."""
    return tuple(field.name for field in dataclasses.fields(of)) if dataclasses.is_dataclass(of) else ()


def _fill_in_defaults(value: Any) -> None:
    """Give decoded dataclasses the defaults that msgspec leaves to their class, and would not encode again.

    Without them the same order submitted from Python would have another body, and be refused under the same id.
    """
    if type(value) in _PLAIN:
        return
    if names := _list_dataclass_fields(type(value)):  # type: ignore[arg-type]  # every type is hashable
        for name in names:
            object.__setattr__(value, name, getattr(value, name))  # a frozen one too: it compares as before
        _fill_in_defaults([getattr(value, name) for name in names])
    elif isinstance(value, msgspec.Struct):
        _fill_in_defaults([getattr(value, name) for name in value.__struct_fields__])
    elif isinstance(value, dict):
        _fill_in_defaults(list(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _fill_in_defaults(item)
