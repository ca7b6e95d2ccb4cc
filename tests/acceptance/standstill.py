"""An App whose workflow code stands still the first time it runs, in a process of its own.

python standstill.py FOLDER      submit the task under one id, run until it has ended, then end
"""

import asyncio
import sys
from pathlib import Path

from arriero import Agent, App, Attempt, workflow
from arriero.runtime.settings import Settings

folder = Path()
mules = Agent("mules")


@mules.step
async def load(attempt: Attempt) -> str:
    return "salt"


@workflow
async def stand_still() -> str:
    loaded = await load()
    flag = folder / "stood"
    if not flag.exists():
        flag.touch()
        sys.stdout.write("stands\n")
        sys.stdout.flush()
        while True:
            pass
    return loaded


app = App("standstill", agents=[mules], workflows=[stand_still])
app.session.settings = Settings(lease_seconds=0.4, hang_seconds=0.3)


async def main() -> None:
    async with app.running(store=f"sqlite:///{folder}/store.db"):
        task = await app.submit(stand_still(), task_id="t")
        assert await task.result() == "salt"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    asyncio.run(main())
