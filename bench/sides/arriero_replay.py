"""arriero with the replay of stored tasks: each has three results and sleeps; from the store, and from an export."""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from arriero_app import app, asleep, three_and_sleep
from arriero_masses import wait_until_asleep
from common import PAYLOAD, assignment

SUBMIT_BATCH = 1_000


async def replay(tasks: int) -> dict[str, float]:
    """Seconds until the code of all tasks was replayed over their records, by where these are read."""
    asleep.extend(bytes(tasks))
    for first in range(0, tasks, SUBMIT_BATCH):
        batch = range(first, min(first + SUBMIT_BATCH, tasks))
        await asyncio.gather(*(app.submit(three_and_sleep(index, PAYLOAD)) for index in batch))
    await wait_until_asleep(range(tasks))
    of_store = await _replay_all(tasks, None)
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder, "export.jsonl")
        await asyncio.to_thread(_write_export, export)
        of_export = await _replay_all(tasks, export)
    return {"store": of_store, "export": of_export}


def _write_export(path: Path) -> None:
    command = (sys.executable, "-m", "arriero", "export", "--payloads", "open", "--store", assignment().url)
    with path.open("wb") as output:
        subprocess.run(command, stdout=output, check=True)


async def _replay_all(tasks: int, export: Path | None) -> float:
    began_at = time.perf_counter()
    report = await app.replay(export=export)
    spent = time.perf_counter() - began_at
    if report.replayed != tasks or report.held or report.skipped:
        raise SystemExit(f"{report.replayed} of {tasks} tasks were replayed, {len(report.held)} would be held")
    return spent
