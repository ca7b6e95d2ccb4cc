"""A client's own file: what it sent, and how each was answered. It is what the store is held against in the end.

One line each: when, by the machine's monotonic clock, which all processes share; what; the order's id. An
acknowledgement is on the disk before the client goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class What(StrEnum):
    """What happened to a submission."""

    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    """The client was told that the outcome is unknown; it sends the same again."""
    FAILED = "failed"
    """The store could not answer; it sends the same again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line."""

    at: float
    what: What
    order_id: str


class Journal:
    """The open file, for its one client."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def note(self, what: What, order_id: str) -> None:
        self._file.write(f"{time.monotonic():.6f} {what} {order_id}\n")
        self._file.flush()
        if what is What.ACKNOWLEDGED:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[Entry]:
    """What a client has noted so far; it may be writing its last line just now."""
    if not path.exists():
        return []
    whole_lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [_entry(line) for line in whole_lines]


def _entry(line: str) -> Entry:
    at, what, order_id = line.split(" ", 2)
    return Entry(float(at), What(what), order_id)


def acknowledged(entries: Iterable[Entry], *, after: float = 0.0) -> Iterator[Entry]:
    """The acknowledgements, in order."""
    return (entry for entry in entries if entry.what is What.ACKNOWLEDGED and entry.at > after)


def in_flight(entries: Iterable[Entry], at: float) -> int:
    """How many submissions of one client were sent and not answered at that instant."""
    open_now = {entry.order_id: entry.what is What.SENT for entry in entries if entry.at <= at}
    return sum(open_now.values())
