"""How long a process keeps the keys of convoys to itself while other Schedulers would handle them, too."""

from collections.abc import Callable

from .ports import Ports

KEY_SECONDS = 0.25  # a process keeps the key of a convoy so long, then others may take it
COURTESY_SECONDS = 0.1  # after it let a key go a process claims nothing: they are told of it first, or poll
COURTESY_EVERY = 0.3  # from one such pause to the next


class Courtesy:
    """See the module. ``others``: how many other processes claim tasks."""

    def __init__(self, ports: Ports, others: Callable[[], int]) -> None:
        self._clock = ports.clock
        self._others = others
        self._until = 0.0
        self._is_waiting = False

    def lets_go(self, key_since: float) -> bool:
        """Whether a key that is ours since then is let go after this task, for others to take."""
        now = self._clock.monotonic()
        if not self._others() or now - key_since < KEY_SECONDS:
            return False
        if now >= self._until - COURTESY_SECONDS + COURTESY_EVERY:
            self._until = now + COURTESY_SECONDS
        return True

    def asks_for_patience(self, claim: Callable[[], None]) -> bool:
        """Whether a key was just let go for others; then ``claim`` is called a little later."""
        left = self._until - self._clock.monotonic()
        if left <= 0 or not self._others():
            return False
        if not self._is_waiting:
            self._is_waiting = True
            self._clock.call_later(left, lambda: self._over(claim))
        return True

    def _over(self, claim: Callable[[], None]) -> None:
        self._is_waiting = False
        claim()
