"""Pauses between tries to connect to a server that is away, shared by all connections of a store."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import StoreError

CONNECT_SECONDS = 0.05  # the first pause after a refused connection, by chance shorter; doubled each time, up to
CONNECT_SECONDS_MAX = 1.0  # so that those who poll do not storm a server that comes back


class ConnectPauses:
    """Let one thread try to connect after each pause; until then all others get the last refusal.

    They are shared because some connections live for one question only: such a connection has no pause of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refusal: StoreError | None = None
        self._pause = 0.0
        self._next_try_at = 0.0

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Try to connect in this block, which raises StoreError if that is refused.

        Raises: StoreError - also without a try, as long as the pause lasts.
        """
        is_after_pause = self._begin()
        try:
            yield
        except StoreError as error:
            self._note_refused(error, is_after_pause=is_after_pause)
            raise
        with self._lock:
            self._refusal, self._pause = None, 0.0

    def _begin(self) -> bool:
        """Returns True if the try is the one after a pause."""
        with self._lock:
            if self._refusal is None:
                return False
            if time.monotonic() < self._next_try_at:
                raise StoreError(str(self._refusal)) from self._refusal
            self._next_try_at = time.monotonic() + self._pause  # this thread tries, the others wait
            return True

    def _note_refused(self, error: StoreError, *, is_after_pause: bool) -> None:
        with self._lock:
            if is_after_pause or self._refusal is None:  # what others have tried at the same time is no further failure
                self._pause = min(max(self._pause * 2, CONNECT_SECONDS), CONNECT_SECONDS_MAX)
                self._next_try_at = time.monotonic() + random.uniform(self._pause / 2, self._pause)
            self._refusal = error
