"""Transport that closes in two steps while the caller may still send: after the answer, its input is discarded for a moment.

A socket that is closed with unread input resets the connection, and the caller may lose the answer that says why.
"""

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_SECONDS = 10.0  # a caller who has read the answer closes before; others are kept from coming again
LINGER_BYTES_MAX = 8 * 1024 * 1024  # four times the largest body
PAUSE_SECONDS = 0.01  # after the first read; twice as long after each further one, so that a flood costs 10 reads


class LingeringTransport(asyncio.Transport):
    """Transport of a connection. ``is_lingering``: it was closed, and what still comes must be given to ``discard``.

    Args:
        raw: what asyncio made.
        may_send: returns True while the caller may still send what belongs to its request.
        on_lingering: called when it is closed and the caller may still send.
        call_later: starts a timer.
    """

    def __init__(
        self,
        raw: asyncio.Transport,
        may_send: Callable[[], bool],
        on_lingering: Callable[[], None],
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
    ) -> None:
        super().__init__()
        self._raw = raw
        self._may_send = may_send
        self._on_lingering = on_lingering
        self._call_later = call_later
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._pause_seconds = PAUSE_SECONDS
        self._discarded = 0
        self.is_lingering = False

    def close(self) -> None:
        """Close now, or once the caller has read the answer."""
        if self.is_lingering:
            return
        if self._raw.is_closing() or not self._may_send():
            self._raw.close()
            return
        self.is_lingering = True
        self._on_lingering()
        if self._raw.can_write_eof():
            self._raw.write_eof()
        self._raw.resume_reading()
        self._timer = self._call_later(LINGER_SECONDS, self._raw.close)

    def discard(self, size: int) -> None:
        """Count input that came after the answer; too much of it closes the connection. The next is read after a pause."""
        self._discarded += size
        if self._discarded > LINGER_BYTES_MAX:
            self._raw.close()
        else:
            self._raw.pause_reading()
            self._pause = self._call_later(self._pause_seconds, self._raw.resume_reading)
            self._pause_seconds *= 2

    def stop(self) -> None:
        """End the timer of a connection that is closed."""
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_lingering:
            self._raw.write(data)

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self.is_lingering or self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def pause_reading(self) -> None:
        if not self.is_lingering:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_lingering:
            self._raw.resume_reading()
