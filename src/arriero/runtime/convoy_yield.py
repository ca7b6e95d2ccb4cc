"""Limits how long a process keeps the key of a convoy while other Schedulers wait for work."""

from collections.abc import Callable

from .ports import Ports

KEY_SECONDS = 0.25  # a process keeps the key of a convoy so long, then others may take it
COURTESY_SECONDS = 0.1  # after it let a key go a process claims nothing: they are told of it first, or poll
COURTESY_EVERY = 0.3  # from one such pause to the next


class ConvoyYield:
    """Lets the key of a convoy go in time. ``others``: how many other processes claim tasks."""

    def __init__(self, ports: Ports, others: Callable[[], int]) -> None:
        self._clock = ports.clock
        self._others = others
        self._until = 0.0
        self._is_waiting = False

    def should_release_key(self, key_since: float) -> bool:
        """Returns True if a key held since then must be released after this task, for other processes to take."""
        now = self._clock.monotonic()
        if not self._others() or now - key_since < KEY_SECONDS:
            return False
        if now >= self._until - COURTESY_SECONDS + COURTESY_EVERY:
            self._until = now + COURTESY_SECONDS
        return True

    def should_delay_claim(self, claim: Callable[[], None]) -> bool:
        """Returns True if a key was just released for others; then ``claim`` is called a little later."""
        left = self._until - self._clock.monotonic()
        if left <= 0 or not self._others():
            return False
        if not self._is_waiting:
            self._is_waiting = True
            self._clock.call_later(left, lambda: self._end_delay(claim))
        return True

    def _end_delay(self, claim: Callable[[], None]) -> None:
        self._is_waiting = False
        claim()
