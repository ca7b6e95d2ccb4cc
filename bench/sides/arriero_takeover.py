"""arriero's Supervisors in processes of their own: how long nobody leads after the leading one froze, was killed or has left."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial

from common import percentile
from take_overs import Contender, Held, measure_take_overs

from arriero import App
from arriero.config import load_configuration


async def takeover(count: int, url: str) -> dict[str, float]:
    """Figures of the Supervisors' lease: seconds from a SIGSTOP, a SIGKILL and a SIGTERM until another one leads."""
    app = App("takeover", store=url)
    async with app.running(roles=["scheduler"]):  # makes the store
        pass
    async with app:

        async def find_leader() -> Held | None:
            view = await app.leader()
            return None if view is None else Held(int(view.process.split("-")[-2]), view.term)

        def supervise() -> Contender:
            command = [sys.executable, "-m", "arriero", "supervise", "--store", url]
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)

        losses: dict[str, Callable[[Contender], None]] = {
            "freeze": partial(freeze, url=url),
            "kill": Contender.kill,
            "stop": Contender.terminate,
        }
        seconds = {kind: await measure_take_overs(supervise, find_leader, count, lose) for kind, lose in losses.items()}
    settings = load_configuration().node_settings()
    figures = {"bound": settings.leader_seconds + settings.supervise_seconds}
    for kind, of_kind in seconds.items():
        figures |= {f"{kind} p50": percentile(of_kind, 0.5), f"{kind} p100": max(of_kind)}
    return figures


def freeze(leader: Contender, url: str) -> None:
    """Stop a process; on SQLite not in the middle of a commit, because the operating system would keep the file locked for it."""
    while True:
        leader.send_signal(signal.SIGSTOP)
        os.waitpid(leader.pid, os.WUNTRACED)  # until every thread of it stands
        if not url.startswith("sqlite:") or not _is_locked(url.removeprefix("sqlite:///")):
            return
        leader.send_signal(signal.SIGCONT)


def _is_locked(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
        return False
