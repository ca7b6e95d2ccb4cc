"""Comparison of submitted arguments: one rule for all ways to submit, however the JSON is spelled.

The SQL function ``is_same_body`` is the same rule for who submits by SQL or in a transaction of their own.
"""

import math
from collections.abc import Callable

import msgspec

from ..commands import Submit

EXACT_BELOW = 2**53  # from here on a float may stand for several whole numbers


def _canonicalize_number(text: str) -> float | int:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond what a float holds")
    return int(value) if value.is_integer() and abs(value) < EXACT_BELOW else value


_read = msgspec.json.Decoder(float_hook=_canonicalize_number).decode
_write = msgspec.json.Encoder(order="sorted").encode


def canonicalize_body(body: str) -> bytes | None:
    """Return the one form of all bodies with the same meaning; None: it has none, so it equals only itself.

    The order of fields, spaces and escapes mean nothing, and a whole number may be written as a float: 100, 100.0, 1e2.
    """
    try:
        return _write(_read(body))
    except (ValueError, RecursionError):  # as only SQL took them before release 0.5.0
        return None


def is_same_body(body_hash: str, submitted: Callable[[], str | None], command: Submit) -> bool:
    """Returns True if a known task was submitted with the arguments of the command.

    Args:
        body_hash: of the known task; those of equal texts are equal, others tell nothing.
        submitted: reads the arguments that it was submitted with, whatever a person has sent in their place; None: the
            row that held them is gone.
    """
    if body_hash == command.body_hash:
        return True
    known = submitted()
    if known is None:
        return False
    if known == command.arguments:
        return True
    form = canonicalize_body(command.arguments)
    return form is not None and form == canonicalize_body(known)
