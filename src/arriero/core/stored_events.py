"""Events of the history as they stand in the store, for those who show them to people."""

from typing import Any

import msgspec

from ..model import HistoryRow

UNREADABLE_EVENT = "unreadable"  # in place of the events of a commit; no commit holds an event of that name
_read = msgspec.json.Decoder(list[dict[str, Any]]).decode


def events_of(row: HistoryRow) -> list[dict[str, Any]]:
    """The events of one commit; a single ``unreadable`` one that names the link, if the row is damaged."""
    try:
        return _read(row.events)
    except (msgspec.MsgspecError, UnicodeError):
        return [{"type": UNREADABLE_EVENT, "link": row.link}]
