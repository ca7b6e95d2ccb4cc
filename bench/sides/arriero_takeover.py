"""arriero's Supervisors in processes of their own: how long nobody leads after the leading one was killed, or has left."""

import os
import signal
import subprocess
import sys

from common import percentile
from take_overs import Contender, Held, measure_take_overs

from arriero import App
from arriero.config import load_configuration


async def takeover(kills: int, url: str) -> dict[str, float]:
    """Figures of the Supervisors' lease: seconds from a SIGKILL, and from a SIGTERM, until another one leads."""
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

        killed = await measure_take_overs(supervise, find_leader, kills, signal.SIGKILL)
        left = await measure_take_overs(supervise, find_leader, kills, signal.SIGTERM)
    settings = load_configuration().node_settings()
    return {
        "kill p50": percentile(killed, 0.5),
        "kill p100": max(killed),
        "stop p50": percentile(left, 0.5),
        "stop p100": max(left),
        "bound": settings.leader_seconds + settings.supervise_seconds,
    }
