"""One of several processes that all work, and of which one leads: it gathers what the workers have computed.

    python -m examples.leader.contender FILE LEASE_URL DURATION guarded|unguarded

It prints a line when it begins to lead, when it stands between a read and a write, and when a write was accepted or refused.
"""

import asyncio
import sqlite3
import sys
import time
from pathlib import Path

from arriero import DistributedMutex, Leadership, LeadershipLost
from arriero.leases import open_lease
from examples.leader import table

WORK_SECONDS = 0.02  # that a worker needs for a part
PAUSE = "pause"  # a file in the folder: the leader stops between its read and its write while it exists


class Contender:
    """The worker and the leader of one process."""

    def __init__(self, path: Path, *, is_guarded: bool) -> None:
        self._path = path
        self._is_guarded = is_guarded

    async def work(self) -> None:
        """Compute parts, whoever leads."""
        while await table.add_part(self._path):
            await asyncio.sleep(WORK_SECONDS)
            await self._rest()

    async def _rest(self) -> None:
        """Write nothing while the leader stands still: a process that froze in a transaction would bar all who write a file."""
        pause = self._path.with_name(PAUSE)
        if pause.exists():
            tell("rests")
            while pause.exists():  # noqa: ASYNC110  # another process removes it
                await asyncio.sleep(WORK_SECONDS)

    def lead(self, leadership: Leadership) -> None:
        """Gather parts while this process leads, until all are in the sum. It runs in a thread, and cannot be cancelled."""
        connection = table.connect(self._path)
        try:
            table.begin_term(connection, leadership)
            tell(f"leads {leadership.term}")
            while leadership.is_held() and not table.is_done(connection):
                parts = table.read_parts(connection)
                self._stand_still()
                self._gather(connection, leadership, parts)
                leadership.beat()
                time.sleep(WORK_SECONDS)
            leadership.raise_if_lost()
        finally:
            connection.close()

    def _gather(self, connection: sqlite3.Connection, leadership: Leadership, parts: list[tuple[int, int]]) -> None:
        try:
            table.gather(connection, leadership, parts, is_guarded=self._is_guarded)
        except LeadershipLost:
            tell(f"refused {leadership.term}")
            raise
        tell(f"gathered {leadership.term}")

    def _stand_still(self) -> None:
        """Where a process may freeze at any time: it has read, and has not written yet."""
        pause = self._path.with_name(PAUSE)
        if pause.exists():
            tell("read")
            while pause.exists():
                time.sleep(0.01)


def tell(line: str) -> None:
    """Tell the program that started this one."""
    print(line, flush=True)


async def main(path: Path, url: str, duration: float, *, is_guarded: bool) -> None:
    """Work and contend until all parts are in the sum."""
    contender = Contender(path, is_guarded=is_guarded)
    mutex = DistributedMutex(open_lease(url, "aggregator"), duration=duration, progress_within=2 * duration)
    async with asyncio.TaskGroup() as group:
        group.create_task(contender.work())
        group.create_task(mutex.run_once(contender.lead))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), is_guarded=sys.argv[4] == "guarded"))
