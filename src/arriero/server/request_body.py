"""The body of a request, read up to a limit, and work on the JSON in it.

What is larger than its limit is refused before it is in memory. Work on a large text runs in a thread, one text at a time, so that the
event loop continues: it is Python code that runs for seconds over some shapes of 2 MiB. The interpreter takes its lock from the thread
every 5 ms. Callers take turns: the one who sends hundreds of texts delays the text of another caller by one of them.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from ..operations.problems import INVALID_REQUEST
from ..payloads.codec import refuse_doubtful_json
from ..runtime.ports import Ports
from .problems import BODY_TOO_SLOW, TOO_LARGE, UNSUPPORTED_MEDIA, Problem

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
    """Refuse doubtful JSON (``payloads.codec``). Raises InvalidInput."""
    await run_on_text(ports, turn, len(data), functools.partial(refuse_doubtful_json, data, what))


class TurnBudget:
    """Counts the lines, or other small texts, of one turn of the event loop."""

    def __init__(self) -> None:
        self._lines = self._size = 0

    def is_spent(self, size: int) -> bool:
        """Count a text of ``size`` bytes. Returns True, and counts again, if others should have a turn after it."""
        self._lines += 1
        self._size += size
        if self._lines < LINES_PER_TURN and self._size < INLINE_BYTES_MAX:
            return False
        self._lines = self._size = 0
        return True


def _ignore() -> None: ...


JSON = "application/json"
LENGTH_DIGITS_MAX = 18  # of a header Content-Length; Python refuses to read thousands of them


async def read_body(request: Request, limit: int, seconds: float, expected: str = JSON) -> bytes:
    """Read the body.

    Raises: Problem - it is larger than ``limit`` bytes, not declared as the ``expected`` media type, or not there after ``seconds``.
    """
    declared = request.headers.get("content-length")
    if declared is not None:
        if not declared.isdecimal():
            raise Problem(INVALID_REQUEST, "the header Content-Length is not a number")
        if len(declared) > LENGTH_DIGITS_MAX or int(declared) > limit:
            raise _refuse_size(limit)
    require_media(request, expected)
    try:
        async with asyncio.timeout(seconds):
            return await _read_parts(request, limit)
    except TimeoutError:
        # The rest of it would be read as the next request.
        raise Problem(
            BODY_TOO_SLOW, f"the body was not complete after {seconds:g} s", headers={"Connection": "close"}
        ) from None


def require_media(request: Request, expected: str) -> None:
    """Refuse a body of another media type. Raises Problem."""
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media != expected:
        raise Problem(UNSUPPORTED_MEDIA, f"the body is declared as {media or 'nothing'}; send {expected}")


async def _read_parts(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _refuse_size(limit)
        parts.append(part)
    return b"".join(parts)


def _refuse_size(limit: int) -> Problem:
    return Problem(TOO_LARGE, f"the body is larger than {limit:,} bytes", limit=limit)
