"""Cursors of lists: opaque texts that say where to go on, and that fit only the list they came from.

A cursor gives no rights: who has one has been shown the page before. So its digest only has to find what was mistyped, cut, or
taken from another list or filter; it needs no secret, and any server of the store reads the cursors of the others.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Any, TypeVar

import msgspec

from .problems import Problem, declare_problem

T = TypeVar("T")
DIGEST_BYTES = 9
CURSOR_INVALID = declare_problem(
    "cursor-invalid",
    422,
    "The cursor is not of this list",
    "Send `next` of the page before with the same filter, or begin again without a cursor.",
)


def write_cursor(store_id: str, listing: Any, position: Any) -> str:
    """Write a cursor.

    Args:
        store_id: of the store that has the list.
        listing: what is listed: its name and its filter, as JSON values.
        position: where to go on, as a JSON value.
    """
    data = msgspec.json.encode(position)
    return base64.urlsafe_b64encode(_compute_digest(store_id, listing, data) + data).decode().rstrip("=")


def read_cursor(cursor: str, store_id: str, listing: Any, of: type[T]) -> T:
    """Read where to go on. Raises Problem - the cursor is none, or of another list or filter."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, data = raw[:DIGEST_BYTES], raw[DIGEST_BYTES:]
        if hmac.compare_digest(digest, _compute_digest(store_id, listing, data)):
            return msgspec.json.decode(data, type=of)
    except (binascii.Error, ValueError):  # msgspec's errors are ValueErrors
        pass
    raise Problem(CURSOR_INVALID, "the cursor is not one of this list with this filter")


def _compute_digest(store_id: str, listing: Any, data: bytes) -> bytes:
    about = msgspec.json.encode([store_id, listing], order="deterministic")
    return hashlib.blake2b(data, key=hashlib.blake2b(about, digest_size=32).digest(), digest_size=DIGEST_BYTES).digest()
