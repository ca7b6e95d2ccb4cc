"""Cursors of lists and plans of verbs: opaque texts that say where to go on, and that fit only the list they came from.

Each carries a digest under a secret of the store, so that nobody can write one: any server of the store reads those of the others.
A new epoch replaces the secret, and then the texts from before are refused. A position is read with its bounds all the same.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Annotated, Any, TypeVar

import msgspec

from ..model import NUMBER_MAX
from ..store.contract import CURSOR_SECRET, SECRET_BYTES, MissingRight
from ..store.state_store import StateStore
from .problems import Problem, declare_problem
from .task_pages import TaskRange

T = TypeVar("T")
DIGEST_BYTES = 16
PURPOSE = b"arriero-cursor"
CURSOR_INVALID = declare_problem(
    "cursor-invalid",
    422,
    "The cursor is not of this list",
    "Send `next` of the page before with the same filter, or begin again without a cursor.",
)
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]  # of the last row of a page
# A server that may only read its store keeps no secret there: its cursors are of its own process.
_secret_of_process = secrets.token_bytes(SECRET_BYTES)


class Cursors(msgspec.Struct, frozen=True):
    """Writes and reads the cursors of a store. ``secret``: that its servers share."""

    store_id: str
    secret: bytes

    def __repr__(self) -> str:  # a secret is in no log, nor in a traceback
        return f"<cursors of {self.store_id}>"

    def write(self, listing: Any, position: Any) -> str:
        """Write a cursor.

        Args:
            listing: what is listed: its name and its filter, as JSON values.
            position: where to go on, as a JSON value.
        """
        data = msgspec.json.encode(position)
        return base64.urlsafe_b64encode(self._compute_digest(listing, data) + data).decode().rstrip("=")

    def read(self, cursor: str, listing: Any, of: Any) -> Any:
        """Read where to go on, as a value of a type. Raises Problem - the cursor is none, or of another list or filter."""
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            digest, data = raw[:DIGEST_BYTES], raw[DIGEST_BYTES:]
            if hmac.compare_digest(digest, self._compute_digest(listing, data)):
                return msgspec.json.decode(data, type=of)
        except (binascii.Error, ValueError):  # msgspec's errors are ValueErrors
            pass
        raise Problem(
            CURSOR_INVALID,
            "the cursor or plan is not one of this list with this filter, or is from before a new epoch: begin again without it",
        )

    def read_number(self, cursor: str | None, listing: Any) -> int:
        """Read after which row to go on; 0: from the beginning, because there is no cursor. Raises Problem."""
        return 0 if cursor is None else int(self.read(cursor, listing, Number))

    def read_range(self, cursor: str | None, listing: Any) -> TaskRange:
        """Read what is left of a list of tasks; all of it, if there is no cursor. Raises Problem."""
        if cursor is None:
            return TaskRange()
        return TaskRange(*self.read(cursor, listing, tuple[Number, Number | None]))

    def _compute_digest(self, listing: Any, data: bytes) -> bytes:
        about = msgspec.json.encode([self.store_id, listing], order="deterministic")
        signed = hashlib.blake2b(about + b"\0", key=self.secret, person=PURPOSE, digest_size=DIGEST_BYTES)
        signed.update(data)
        return signed.digest()


async def open_cursors(store: StateStore) -> Cursors:
    """Read the secret of a store's cursors. Raises StoreError."""
    try:
        return Cursors(store.store_id, await store.read_secret(CURSOR_SECRET))
    except MissingRight:
        return Cursors(store.store_id, _secret_of_process)
