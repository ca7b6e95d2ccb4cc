"""The fail-over itself: kill the primary in the middle of commits, promote the standby."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from arriero.testing.postgres import Server
from examples.orders.processes import ProcessFailed
from lab.postgres import Pair

TRIES_MAX = 500
PAUSE_SECONDS = 0.004
IN_COMMIT = re.compile(r"\) COMMIT")


@dataclass(frozen=True)
class Kill:
    """The instant of a kill by both clocks, and in how many commits the server was. ``promoting_at``: from when on
    somebody can be answered again."""

    at: float
    at_wall: float
    commits: int
    promoting_at: float
    promoting_at_wall: float
    read_write_at: float


def fail_over(pair: Pair) -> Kill:
    """Kill the primary while it commits and promote the standby; the old primary stays dead.

    It is frozen first, as a kill does it anyway: no process sees another die, and nobody is answered from then on.
    Raises: ProcessFailed - it was never seen to commit.
    """
    commits = _frozen_in_commit(pair.primary)
    at, at_wall = time.monotonic(), time.time()
    pair.kill_primary()
    if not pair.standby.running:  # it was left behind, to break the run on purpose
        pair.standby.restart()
    promoting_at, promoting_at_wall = time.monotonic(), time.time()
    pair.promote()
    return Kill(at, at_wall, commits, promoting_at, promoting_at_wall, time.monotonic())


def _frozen_in_commit(server: Server) -> int:
    for _ in range(TRIES_MAX):
        server.pause()
        commits = sum(IN_COMMIT.search(_title(pid)) is not None for pid in server.back_ends())
        if commits:
            return commits
        server.resume()
        time.sleep(PAUSE_SECONDS)
    raise ProcessFailed("the primary was never seen in the middle of a commit")


def _title(pid: int) -> str:
    """What ``ps`` shows of a back end: it ends with what that does."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
