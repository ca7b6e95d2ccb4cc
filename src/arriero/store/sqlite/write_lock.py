"""The file's write lock, for which all processes of the machine ask: a lease renewal that waits has it next.

SQLite hands the lock to nobody: who waits looks again and again, and the one who looks first has it. A process that commits
without a pause is nearly always first, so a renewal could wait longer than the lease it renews, and living processes were
declared lost. So a renewal that waits says so in a file beside the store, and any other process that wants the lock looks there
before. It is a courtesy: nothing is wrong without it.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...system.boot_clock import nanoseconds_since_boot
from . import connection as connections

FILE = "renewal"
SET_SECONDS = 0.5  # each look prolongs it: one whose process was stopped or killed holds nobody up for longer
PAUSE_SECONDS = 0.001  # between two looks, growing
PAUSE_SECONDS_MAX = 0.01
LOOK_SECONDS = 0.02  # a busy store looks no more often: each look lets another thread have the interpreter
_BYTES = 8


class RenewalFlag:
    """A file with the instant until which others leave the write lock to a waiting renewal: microseconds since boot.

    Several renewals that wait share it: who has had the lock clears it, and who still waits sets it again at its next look.

    Args:
        folder: where the processes of the store meet.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._look_at = 0  # microseconds since boot

    def set(self) -> None:
        """Set the flag: a renewal waits."""
        with suppress(OSError):  # a full disk: then the renewal takes its chance
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            self._write(nanoseconds_since_boot() // 1000 + _microseconds(SET_SECONDS))

    def clear(self) -> None:
        """Clear the flag: the renewal waits no more."""
        with suppress(OSError):
            self._write(0)

    def is_set(self, *, has_waited: bool = False) -> bool:
        """Returns True if a renewal waits; as of at most ``LOOK_SECONDS`` ago, unless the caller ``has_waited`` for the lock."""
        now = nanoseconds_since_boot() // 1000
        if now < self._look_at and not has_waited:
            return False
        if self._found_set(now):
            return True
        self._look_at = now + _microseconds(LOOK_SECONDS)
        return False

    def _found_set(self, now: int) -> bool:
        """Read the flag; one of another boot, or a malformed one, counts as not set."""
        try:
            file = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            until = int.from_bytes(os.read(file, _BYTES), "big")
        except OSError:
            return False
        finally:
            os.close(file)
        return 0 < until - now <= _microseconds(SET_SECONDS)

    def _write(self, until: int) -> None:
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.pwrite(file, until.to_bytes(_BYTES, "big"), 0)
        finally:
            os.close(file)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def begin_writing(
    connection: sqlite3.Connection, flag: RenewalFlag, wait: Callable[[float], None], *, is_renewal: bool = False
) -> None:
    """Begin a transaction that holds the write lock, when nobody else does and no renewal of another waits for it.

    Args:
        wait: waits for at most that many seconds. It may use the connection meanwhile, for what comes first here.
    Raises: sqlite3.OperationalError - after ``BUSY_SECONDS``, or immediately if it cannot be waited for.
    """
    give_up_at = time.monotonic() + connections.BUSY_SECONDS
    pause, has_waited = PAUSE_SECONDS, False
    while True:
        if is_renewal:
            flag.set()
        is_over = time.monotonic() >= give_up_at
        if is_renewal or is_over or not flag.is_set(has_waited=has_waited):
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if is_over or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            else:
                return
        wait(pause)
        has_waited = True
        pause = pause if is_renewal else min(2 * pause, PAUSE_SECONDS_MAX)
