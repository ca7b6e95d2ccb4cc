"""JSON that people and programs give: refused when it is doubtful, and read as the types that the code declares."""

from typing import Any

import msgspec

from ..declare.signature import Signature
from ..errors import InvalidArguments
from ..plain_values import fill_in_defaults
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
    fill_in_defaults(typed)
    return typed


def decode_result(signature: Signature, text: str) -> Any:
    """A JSON value as the type of the result. Raises InvalidInput when it does not fit."""
    value = signature.result(text)
    fill_in_defaults(value)
    return value
