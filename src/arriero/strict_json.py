"""JSON that came from outside, refused when it is doubtful: what one reader takes for this value, another takes for that one."""

import json
from typing import Any, NoReturn

import msgspec

from .codec import refuse_deep
from .errors import InvalidInput


class DuplicateKey(Exception):
    """A key stands twice in one object. ``args``: the key."""


class _NulInText(Exception):
    """A text holds the character NUL."""


def refuse_doubtful_json(data: bytes, what: str) -> None:
    """Refuse JSON that could be read in two ways, or that no store keeps.

    Raises: InvalidInput - it is no JSON; it is nested too deep; a key stands twice in one object; a text holds NUL or a lone
        surrogate; a number is NaN or infinite.
    """
    try:
        refuse_deep(data, what)
        # Only this reader tells doubled keys; what numbers and texts mean is settled by the other one.
        json.loads(
            data,
            object_pairs_hook=_check_pairs,
            parse_int=_keep_nothing,
            parse_float=_keep_nothing,
            parse_constant=_refuse,
        )
        msgspec.json.decode(data)  # it refuses lone surrogates, and numbers that are out of range
        if b"\\u0000" in data:
            _refuse_nul(json.loads(data, object_pairs_hook=_list_texts, parse_int=_keep_nothing))
    except DuplicateKey as error:
        raise InvalidInput(f"{what} has the key {error.args[0]!r} twice; leave one of them out") from None
    except _NulInText:
        raise InvalidInput(f"{what} holds a NUL character, which PostgreSQL refuses: remove it") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} is no JSON: {error}") from error


def _keep_nothing(text: str) -> None:
    """Numbers mean nothing here; a long one would cost much time to read."""


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise DuplicateKey(name)
            seen.add(name)


def _list_texts(pairs: list[tuple[str, Any]]) -> list[Any]:
    return [part for pair in pairs for part in pair]


def _refuse_nul(value: Any) -> None:
    if isinstance(value, str) and "\0" in value:
        raise _NulInText
    if isinstance(value, list):
        for item in value:
            _refuse_nul(item)
