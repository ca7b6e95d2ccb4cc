"""An App with three schedules of a second each, run by the kill tests in processes of their own.

    python timetable.py FOLDER RUNS     run the App until each schedule has had so many runs, then end

Missed runs are made up, so that none may be missing. The state store is FOLDER/store.db.
"""

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta

from arriero import Agent, App, Attempt, VerbRefused, workflow
from arriero.runtime.settings import Settings

NAMES = ("first", "second", "third")
press = Agent("press")


@press.step(effect_free=True)
async def write(attempt: Attempt, name: str) -> str:
    return name


@workflow
async def report(name: str) -> str:
    return await write(name)


def build_app(folder: str) -> App:
    """The App on a folder's store."""
    app = App("timetable", agents=[press], workflows=[report], store=f"sqlite:///{folder}/store.db")
    for name in NAMES:
        app.schedule(name, report(name), every=1, overlap="all", catch_up=timedelta(hours=1))
    app.session.settings = Settings(lease_seconds=1.2, leader_seconds=1.2, supervise_seconds=0.05, poll_seconds=0.02)
    return app


async def run(folder: str, runs: int) -> None:
    """Run until each schedule has had so many runs, and all of them have ended."""
    app = build_app(folder)
    async with app.running():
        while min(view.runs for view in await app.schedules.list()) < runs:
            await asyncio.sleep(0.05)
        for view in await app.schedules.list():
            with suppress(VerbRefused):  # another process has done it
                await app.schedules.pause(view.name, by="test", reason="it has had enough")
        for view in await app.schedules.list():
            await app.task(view.last_task).result()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
