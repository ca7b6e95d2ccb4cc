"""What a proxy shall do to a connection once, at a chosen message."""

import threading
from collections.abc import Callable
from typing import Literal

from .messages import Message, Predicate

Action = Literal["cut_before", "cut_within", "cut_after", "hold"]
WAIT_SECONDS = 10.0
LOOK_SECONDS = 0.02  # how soon what is held notices that its connection was cut


class Fault:
    """Armed by one of the proxy's methods; tests ``wait`` for it and ``release`` what it holds."""

    def __init__(self, action: Action, when: Predicate, nth: int, keep_server: bool) -> None:
        self.action: Action = action
        self.keep_server = keep_server
        self.answers: tuple[Message, ...] = ()
        """Of ``cut_after``: what the server said and nobody was told."""
        self._when = when
        self._left = nth
        self._message: Message | None = None
        self._happened = threading.Event()
        self._released = threading.Event()

    @property
    def happened(self) -> bool:
        """Whether it has happened; of a hold, whether it has begun."""
        return self._happened.is_set()

    def wait(self, seconds_max: float = WAIT_SECONDS) -> Message:
        """Wait until it has happened; of a hold, until it has begun.

        Returns: the message at which it happened.
        Raises: TimeoutError - no such message came in time.
        """
        if not self._happened.wait(seconds_max) or self._message is None:
            raise TimeoutError(f"no message came for {self.action} within {seconds_max:.0f} s")
        return self._message

    def release(self) -> None:
        """Let what it holds continue; set beforehand, it will hold nothing."""
        self._released.set()

    # The rest is for the proxy.

    def takes(self, message: Message) -> bool:
        """Count a message. Returns: whether it is the one, or one after it (if another fault came first there)."""
        if not self._when(message):
            return False
        self._left -= 1
        return self._left <= 0

    def hold_while(self, is_connected: Callable[[], bool]) -> None:
        """Wait for ``release``, or until the connection was cut."""
        while is_connected() and not self._released.wait(LOOK_SECONDS):
            pass

    def note(self, message: Message, answers: tuple[Message, ...] = ()) -> None:
        """It has happened: wake who waits for that."""
        self._message = message
        self.answers = answers
        self._happened.set()
