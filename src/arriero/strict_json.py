"""JSON that came from outside, refused when it is doubtful: what one reader takes for this value, another takes for that one.

The time grows with the length alone, and no call into C takes long: a thread may check a large text without stopping the others.
"""

import json
import math
import re

import msgspec

from .codec import PAYLOAD_DEPTH_MAX, refuse_deep
from .errors import InvalidInput

# A text with the colon of a key after it, or a bracket. Each character is looked at once: nothing is given back.
_find_tokens = re.compile(rb'("(?:[^"\\]++|\\.)*+")(\s*+:)?|[\[\]{}]', re.DOTALL).finditer
_find_numbers = re.compile(rb'"(?:[^"\\]++|\\.)*+"|-?[0-9][0-9.]*+(?:[eE][+-]?[0-9]++)?+|,', re.DOTALL).finditer
# Numbers that could be out of range have 300 digits, or three in their exponent. A text may look like one, too.
_find_large_number = re.compile(rb"[0-9.](?:[0-9.]{299}|[eE]\+?[0-9]{3})").search
_find_nul = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000").search
_read = msgspec.json.Decoder(msgspec.Raw).decode
_WINDOW_BYTES = 64 * 1024
_OVERLAP_BYTES = 512  # more than the pattern of a large number needs
_KEY_SHOWN = 100  # characters of a key in a refusal: it is not as long as the text
_WHOLE_LENGTH_MAX = 4_300  # of a whole number with its sign, as msgspec reads it
_QUOTE, _OPEN_LIST, _OPEN_OBJECT = b'"[{'


class DuplicateKey(Exception):
    """A key stands twice in one object. ``args``: the key."""


def refuse_doubtful_json(data: bytes, what: str) -> None:
    """Refuse JSON that could be read in two ways, or that no store keeps.

    Raises: InvalidInput - it is no JSON; it is nested too deep; a key stands twice in one object; a text holds NUL or a lone
        surrogate; a number is NaN or infinite.
    """
    try:
        # It reads the whole text, and refuses lone surrogates. What a text means is not asked: no object is built.
        _read(data)
        data.decode()
        _check_objects(data, what)
        _check_numbers(data)
    except DuplicateKey as error:
        key = error.args[0]
        shown = key if len(key) <= _KEY_SHOWN else f"{key[:_KEY_SHOWN]}..."
        raise InvalidInput(f"{what} has the key {shown!r} twice; leave one of them out") from None
    except (ValueError, RecursionError) as error:
        _refuse_deep(data, what)
        raise InvalidInput(f"{what} is no JSON: {error}") from error
    if b"\\u0000" in data and _find_nul(data):
        raise InvalidInput(f"{what} holds a NUL character, which PostgreSQL refuses: remove it")


def _check_objects(data: bytes, what: str) -> None:
    """Refuse a key that stands twice in an object of a JSON text, and too many levels. Raises DuplicateKey, InvalidInput."""
    outer: list[set[bytes]] = []
    keys: set[bytes] = set()
    for found in _find_tokens(data):
        first = data[found.start()]
        if first == _QUOTE:
            if found.lastindex == 2:
                key = (
                    found[1] if b"\\" not in found[1] else json.dumps(json.loads(found[1]), ensure_ascii=False).encode()
                )
                known = len(keys)
                keys.add(key)
                if len(keys) == known:
                    raise DuplicateKey(json.loads(key))
        elif first in (_OPEN_LIST, _OPEN_OBJECT):
            outer.append(keys)
            keys = set()
            if len(outer) > PAYLOAD_DEPTH_MAX:
                refuse_deep(data[: found.end()], what)
        else:
            keys = outer.pop()


def _refuse_deep(data: bytes, what: str) -> None:
    """Refuse what is no JSON, perhaps because it has too many levels. Only its beginning is measured. Raises InvalidInput."""
    depth = 0
    for found in _find_tokens(data):
        first = data[found.start()]
        if first != _QUOTE:
            depth += 1 if first in (_OPEN_LIST, _OPEN_OBJECT) else -1
        if depth > PAYLOAD_DEPTH_MAX:
            refuse_deep(data[: found.end()], what)
            return


def _check_numbers(data: bytes) -> None:
    """Refuse a number that a store or a program would read as infinite. Raises ValueError."""
    starts = range(0, len(data), _WINDOW_BYTES)
    if not any(_find_large_number(data, start, start + _WINDOW_BYTES + _OVERLAP_BYTES) for start in starts):
        return
    for found in _find_numbers(data):
        text = found[0]
        if text[0] in b'",':
            continue
        is_whole = text.removeprefix(b"-").isdigit()
        if (is_whole and len(text) > _WHOLE_LENGTH_MAX) or (not is_whole and math.isinf(float(text))):
            raise ValueError("a number is out of range")
