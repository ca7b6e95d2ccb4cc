"""Pauses between tries to connect to a server that is away, shared by all connections of a store."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ...errors import StoreError

CONNECT_SECONDS = 0.05  # the first pause after a refused connection, by chance shorter; doubled each time, up to
CONNECT_SECONDS_MAX = 1.0  # so that those who poll do not storm a server that comes back


class NotConnected(StoreError):
    """A try to connect was refused, so nothing was asked.

    Args:
        refused_tries: how many tries were refused so far, one after the other.
        next_try_in: seconds until it is worth asking again; None: the server is silent, and others need not wait for it, too.
    """

    def __init__(self, refusal: StoreError, refused_tries: int, next_try_in: float | None) -> None:
        super().__init__(str(refusal))
        self.refused_tries = refused_tries
        self.next_try_in = next_try_in


class ConnectPauses:
    """Let one thread try to connect after each pause; until then all others get the last refusal.

    They are shared because some connections live for one question only: such a connection has no pause of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refusal: StoreError | None = None
        self._pause = 0.0
        self._next_try_at = 0.0
        self._refused_tries = 0
        self._is_trying = False  # after a pause

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Try to connect in this block, which raises StoreError if that is refused.

        Raises: NotConnected - also without a try, as long as the pause lasts.
        """
        is_after_pause = self._begin()
        try:
            yield
        except StoreError as error:
            raise self._note_refused(error, is_after_pause=is_after_pause) from error
        with self._lock:
            self._refusal, self._pause, self._is_trying = None, 0.0, False

    def _begin(self) -> bool:
        """Returns True if the try is the one after a pause."""
        with self._lock:
            if self._refusal is None:
                return False
            if time.monotonic() < self._next_try_at:
                raise self._build(self._refusal) from self._refusal
            self._next_try_at = time.monotonic() + self._pause  # this thread tries, the others wait
            self._is_trying = True
            return True

    def _note_refused(self, error: StoreError, *, is_after_pause: bool) -> NotConnected:
        with self._lock:
            if (
                is_after_pause or self._refusal is None
            ):  # what others have tried at the same time is not a further failure
                self._pause = min(max(self._pause * 2, CONNECT_SECONDS), CONNECT_SECONDS_MAX)
                self._next_try_at = time.monotonic() + random.uniform(self._pause / 2, self._pause)
                self._refused_tries += 1
                self._is_trying = False
            self._refusal = error
            return self._build(error)

    def _build(self, refusal: StoreError) -> NotConnected:
        if isinstance(refusal.__cause__, psycopg.errors.ConnectionTimeout):
            return NotConnected(refusal, self._refused_tries, None)
        left = CONNECT_SECONDS if self._is_trying else max(self._next_try_at - time.monotonic(), 0.0)
        return NotConnected(refusal, self._refused_tries, left)
