"""Identity of the open file: if it is still the one that the path names.

Who removes or replaces a file leaves it open to those that have it: they would go on writing, and acknowledging, into a file
that nobody finds again. So device and inode are looked at before a commit and before a read, though not before each of a
busy store: a look lets another thread have the interpreter, and with one at each commit a task took a tenth longer.
"""

import os

from ...boot_clock import seconds_since_boot
from ..contract import Unwritten

FileIdentity = tuple[int, int]
LOOK_SECONDS = 0.02  # for so long a busy store takes its file for the one that it has just seen


class OpenFile:
    """The file at ``path`` and its log, as they were when they were opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: dict[str, FileIdentity] = {}
        self._is_lost = False
        self._look_at = 0.0

    def remember(self) -> None:
        """The file has just been opened, and its log with it."""
        self._is_lost, self._look_at = False, 0.0
        found = {path: _identity(path) for path in (self._path, f"{self._path}-wal")}
        self._opened = {path: identity for path, identity in found.items() if identity is not None}

    def refuse_another_when_due(self) -> None:
        """``refuse_another``, unless the last look was less than ``LOOK_SECONDS`` ago."""
        if self._is_lost or seconds_since_boot() >= self._look_at:
            self.refuse_another()

    def refuse_another(self) -> None:
        """Raises Unwritten - another file is there, or none, or was since: even if it came back, others may have changed it."""
        if not self._is_lost:
            self._look_at = seconds_since_boot() + LOOK_SECONDS
            self._is_lost = any(_identity(path) != identity for path, identity in self._opened.items())
        if self._is_lost:
            raise Unwritten(
                f"store {self._path}: the file was removed or replaced while this process had it open; nothing more is"
                " written to it: put the right file there, with nothing of the old one beside it, and start the process again"
            )


def _identity(path: str) -> FileIdentity | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # before each commit: a Path would cost as much again
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino)
