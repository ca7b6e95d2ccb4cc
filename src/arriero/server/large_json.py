"""Work on JSON that callers send: for a large text it runs in a thread, one text at a time, so that the event loop goes on.

It is Python code that runs for seconds over some shapes of 2 MiB. The interpreter takes its lock from the thread every 5 ms. Callers
take turns: whoever sends hundreds of texts delays the text of another caller by one of them.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import TypeVar

from ..runtime.ports import Ports
from ..strict_json import refuse_doubtful_json

T = TypeVar("T")
POOL = "json\t"  # no Agent has a name with a tab, so none shares the thread
INLINE_BYTES_MAX = 16 * 1024  # about 20 ms for the worst shapes
LINES_PER_TURN = 100  # of the event loop; about 5 ms


async def run_on_text(ports: Ports, turn: asyncio.Lock, size: int, function: Callable[[], T]) -> T:
    """Call a function that works on a text of ``size`` bytes: here, or in the thread if the text is large. Raises what it raises.

    ``turn``: of the caller who sent it; see ``RequestPlace``.
    """
    if size <= INLINE_BYTES_MAX:
        return function()
    async with turn:
        return await ports.run_in_thread(POOL, 1, function, _ignore)


async def refuse_doubtful_text(ports: Ports, turn: asyncio.Lock, data: bytes, what: str) -> None:
    """Refuse doubtful JSON (``strict_json``). Raises InvalidInput."""
    await run_on_text(ports, turn, len(data), functools.partial(refuse_doubtful_json, data, what))


class TurnBudget:
    """Counts the lines, or other small texts, of one turn of the event loop."""

    def __init__(self) -> None:
        self._lines = self._size = 0

    def is_spent(self, size: int) -> bool:
        """Count a text of ``size`` bytes. Returns True, and counts anew, if others should have a turn after it."""
        self._lines += 1
        self._size += size
        if self._lines < LINES_PER_TURN and self._size < INLINE_BYTES_MAX:
            return False
        self._lines = self._size = 0
        return True


def _ignore() -> None: ...
