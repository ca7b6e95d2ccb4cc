"""The body of a request, read up to a limit: what is larger is refused before it is in memory."""

import asyncio

from starlette.requests import Request

from .gate_problems import BODY_TOO_SLOW
from .problems import INVALID_REQUEST, TOO_LARGE, UNSUPPORTED_MEDIA, Problem

JSON = "application/json"
LENGTH_DIGITS_MAX = 18  # of a header Content-Length; Python refuses to read thousands of them


async def read_body(request: Request, limit: int, seconds: float, expected: str = JSON) -> bytes:
    """Read the body.

    Raises: Problem - it is larger than ``limit`` bytes, not declared as the ``expected`` media type, or not there after ``seconds``.
    """
    declared = request.headers.get("content-length")
    if declared is not None:
        if not declared.isdecimal():
            raise Problem(INVALID_REQUEST, "the header Content-Length is no number")
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
