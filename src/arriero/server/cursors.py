"""Cursors of lists and plans of verbs: opaque texts that say where to continue, and that fit only the list they came from.

Each carries a digest under a secret of the store, so that nobody can write one: any server of the store reads those of the others.
A new epoch replaces the secret, and then the texts from before are refused. A position is read with its bounds all the same.

A page of a list of tasks costs a bounded part of the store, whatever its filter finds.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ..model import NUMBER_MAX, TaskRow, TaskState
from ..operations.problems import declare_problem
from ..store.contract import CURSOR_SECRET, SECRET_BYTES, MissingRight
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from .problems import Problem

Order = Literal["oldest", "newest"]
SCANNED_MAX = 20_000  # task numbers that one page looks through, where no index finds what the filter names


class TaskRange(msgspec.Struct, frozen=True):
    """Tasks between two numbers, neither included; ``before`` None: up to the newest."""

    after: int = 0
    before: int | None = None


class TaskRows(msgspec.Struct, frozen=True):
    """Rows of one page. ``rest``: what was not looked through yet; None: nothing is left."""

    rows: list[TaskRow]
    rest: TaskRange | None


async def load_page(store: StateStore, which: TaskFilter, within: TaskRange, limit: int, order: Order) -> TaskRows:
    """Load the next tasks that a filter names. A page may be empty although something is left.

    Args:
        within: what is left of the list.
        order: of submission, or the newest first.
    """
    newest_first = order == "newest"
    part = await _bound_range(store, which, within, newest_first)
    if part is None:
        return TaskRows([], None)
    rows = await store.list_tasks(
        which, after=part.after, before=part.before, newest_first=newest_first, limit=limit + 1
    )
    if len(rows) > limit:
        rows = rows[:limit]
        return TaskRows(rows, _cut_range(within, rows[-1].task_no, newest_first))
    if part == within:
        return TaskRows(rows, None)
    if newest_first:
        return TaskRows(rows, TaskRange(within.after, part.after + 1))
    return TaskRows(rows, None if part.before is None else TaskRange(part.before - 1, within.before))


def _cut_range(within: TaskRange, last: int, newest_first: bool) -> TaskRange:
    return TaskRange(within.after, last) if newest_first else TaskRange(last, within.before)


async def _bound_range(store: StateStore, which: TaskFilter, within: TaskRange, newest_first: bool) -> TaskRange | None:
    """Bound what a page looks through; None: there is nothing."""
    is_held = which.state == TaskState.HELD and which == TaskFilter(state=which.state)
    if which.parent is not None or is_held or which == TaskFilter(ledger=which.ledger):
        return within  # an index finds them, and nothing else is read
    among = TaskFilter(ledger=which.ledger)
    newest = await store.list_tasks(among, newest_first=True, limit=1, before=within.before)
    if not newest or newest[0].task_no <= within.after:
        return None
    last = newest[0].task_no
    if newest_first:
        return TaskRange(max(within.after, last - SCANNED_MAX), within.before)
    oldest = await store.list_tasks(among, limit=1, after=within.after, before=within.before)
    end = oldest[0].task_no + SCANNED_MAX if oldest else last + 1
    return within if end > last else TaskRange(within.after, end)


def write_position(rest: TaskRange) -> Any:
    """The position of a cursor."""
    return [rest.after, rest.before]


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
            position: where to continue, as a JSON value.
        """
        data = msgspec.json.encode(position)
        return base64.urlsafe_b64encode(self._compute_digest(listing, data) + data).decode().rstrip("=")

    def read(self, cursor: str, listing: Any, of: Any) -> Any:
        """Read where to continue, as a value of a type. Raises Problem - the cursor is none, or of another list or filter."""
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
        """Read after which row to continue; 0: from the beginning, because there is no cursor. Raises Problem."""
        return 0 if cursor is None else int(self.read(cursor, listing, Number))

    def read_range(self, cursor: str | None, listing: Any) -> TaskRange:
        """Read what is left of a list of tasks; all of it, if there is no cursor. Raises Problem."""
        if cursor is None:
            return TaskRange()
        return TaskRange(*self.read(cursor, listing, tuple[Number, Number | None]))

    def _compute_digest(self, listing: Any, data: bytes) -> bytes:
        about = msgspec.json.encode([self.store_id, listing], order="sorted")
        signed = hashlib.blake2b(about + b"\0", key=self.secret, person=PURPOSE, digest_size=DIGEST_BYTES)
        signed.update(data)
        return signed.digest()


class ListedRows(msgspec.Struct, frozen=True):
    """Rows of one page of a list, with the cursors of the pages beside it; None: there is none on that side."""

    rows: list[TaskRow]
    next: str | None
    previous: str | None


async def load_listed(
    store: StateStore, which: TaskFilter, cursors: "Cursors", cursor: str | None, listing: Any, limit: int, order: Order
) -> ListedRows:
    """Load a page of a list of tasks that is read in both directions. Raises Problem - the cursor is of another list.

    Args:
        cursor: of the page; None: the first one.
        listing: its name, filter and order, as JSON values.
    """
    within, is_back = TaskRange(), False
    if cursor is not None:
        after, before, is_back = cursors.read(cursor, listing, tuple[Number, Number | None, bool])
        within = TaskRange(after, before)
    newest_first = (order == "newest") != is_back
    page = await load_page(store, which, within, limit, "newest" if newest_first else "oldest")
    other = _find_other_side(within, newest_first)
    following, preceding = (other, page.rest) if is_back else (page.rest, other)
    return ListedRows(
        page.rows[::-1] if is_back else page.rows,
        None if following is None else cursors.write(listing, [following.after, following.before, False]),
        None if preceding is None else cursors.write(listing, [preceding.after, preceding.before, True]),
    )


def _find_other_side(within: TaskRange, newest_first: bool) -> TaskRange | None:
    """Find what lies on the other side of where a page begins; None: it is an end of the list."""
    if newest_first:
        return None if within.before is None else TaskRange(max(within.before - 1, 0), None)
    return None if within.after == 0 else TaskRange(0, within.after + 1)


async def open_cursors(store: StateStore) -> Cursors:
    """Read the secret of a store's cursors. Raises StoreError."""
    try:
        return Cursors(store.store_id, await store.read_secret(CURSOR_SECRET))
    except MissingRight:
        return Cursors(store.store_id, _secret_of_process)
