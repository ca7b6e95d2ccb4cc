"""Shutdown work that runs to its end even if its caller is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# That something has to end once it was cancelled: time enough to give a connection back, or to roll a transaction back.
# What continues after it swallows its cancellation, and might do so indefinitely: it is left behind, and the log names it.
CANCELLED_SECONDS_MAX = 5.0


async def finish(work: Coroutine[Any, Any, T], hurry: Callable[[], None] = lambda: None) -> T:
    """Run ``work`` to its end. A cancellation calls ``hurry``, waits for the end all the same, and then continues."""
    try:
        task = asyncio.get_running_loop().create_task(work)
    except RuntimeError:  # its caller was thrown away with its event loop
        work.close()
        raise
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            hurry()
    if cancelled is None:
        return task.result()
    raise cancelled from (None if task.cancelled() else task.exception())
