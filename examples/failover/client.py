"""A client of the shop: submits orders without a pause, and each again under its id until it is acknowledged.

    python -m examples.failover.client NAME JOURNAL

The store is the one that the environment names. SIGTERM: it begins no further order, sees to it that those begun are
acknowledged, and ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from itertools import count
from pathlib import Path

from arriero import OutcomeUnknown, StoreError

from .journal import Journal, What
from .orders import call_of, order_of
from .shop import app

LANES = 4
"""Orders on their way at once."""
AGAIN_SECONDS = 0.05


async def submit_until_stopped(name: str, journal: Journal) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app, asyncio.TaskGroup() as lanes:
        for lane in range(LANES):
            lanes.create_task(_lane(f"{name}-{lane}", journal, stop))


async def _lane(name: str, journal: Journal, stop: asyncio.Event) -> None:
    for number in count():
        if stop.is_set():
            return
        await _until_acknowledged(f"{name}-{number}", journal)


async def _until_acknowledged(order_id: str, journal: Journal) -> None:
    order = order_of(order_id)
    while True:
        journal.note(What.SENT, order_id)
        try:
            await app.submit(call_of(order), task_id=order_id)
        except OutcomeUnknown:
            journal.note(What.UNKNOWN, order_id)
        except StoreError as error:
            journal.note(What.FAILED, order_id)
            print(f"{order_id}: {error}", file=sys.stderr, flush=True)
        else:
            journal.note(What.ACKNOWLEDGED, order_id)
            return
        await asyncio.sleep(AGAIN_SECONDS)


def main(arguments: list[str]) -> int:
    name, path = arguments
    journal = Journal(Path(path))
    try:
        asyncio.run(submit_until_stopped(name, journal))
    finally:
        journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
