"""Rows of the store's own history that a purge erased."""

import msgspec

from ..events import ERASED, read_events
from ..events.store import LedgerPurged


class Erasures:
    """Rows of the store's own history that a reader found erased: a later row must report each of them."""

    def __init__(self) -> None:
        self._found: dict[int, str] = {}  # hash, by link

    def add_row(self, stream: int, link: int, digest: str, events: bytes) -> bool:
        """Add a row; returns True if it was erased, so that its hash does not fit its events."""
        if stream != 0:
            return False
        if _TELLS in events:
            self._count_told(events)
        if events != ERASED.encode():
            return False
        self._found[link] = digest
        return True

    def _count_told(self, events: bytes) -> None:
        try:
            told = [event for event in read_events(events) if isinstance(event, LedgerPurged)]
        except (msgspec.MsgspecError, UnicodeError):  # the one who reads the row itself says so
            return
        for link, digest in (row for event in told for row in event.erased):
            if self._found.get(link) == digest:
                del self._found[link]

    def list_untold(self) -> list[int]:
        """List the links of erased rows that no later row reports."""
        return sorted(self._found)


_TELLS = b'"ledger.purged"'
