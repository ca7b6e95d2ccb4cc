"""Spreads attempts that come back after they expired, so that thousands of them do not reach a service at once.

Time is divided into slots of ``1 / per_second`` seconds. Each recovered attempt takes the slot of its ``not_before``, or the
next free one. So however many expire at once, at most ``per_second + 1`` of them become due in any second, and one that
expires alone keeps the time that its policy gave it.

The slots are those of one leader. Its successor does not know them, and needs no more than its own: an attempt that was
recovered is no longer expired, so nobody places it again. While slots of both lie ahead, the rate is at most twice the stated
one.
"""

from ..model import MICROSECONDS, Instant


class RedispatchSlots:
    """The slots that one leader gave away.

    Args:
        per_second: slots in a second, 1 or more.
    """

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._next: dict[int, int] = {}  # a taken slot -> one that may be free; never lower than the slot after it

    def take(self, not_before: Instant, *, jitter: float) -> Instant:
        """Take the slot of an instant, or the first free one after it.

        Args:
            not_before: when the attempt may come back by its policy.
            jitter: in [0, 1): where in a later slot it comes back.
        Returns: ``not_before`` if its slot was free; else an instant in a later slot.
        """
        wanted = not_before * self._per_second // MICROSECONDS
        free = self._find_free(wanted)
        self._next[free] = free + 1
        if free == wanted:
            return not_before
        start, end = self._start(free), self._start(free + 1)
        return Instant(start + int((end - start) * jitter))

    def forget_before(self, now: Instant) -> None:
        """Forget the slots that are over."""
        oldest = now * self._per_second // MICROSECONDS
        if any(slot < oldest for slot in self._next):
            self._next = {slot: after for slot, after in self._next.items() if slot >= oldest}

    def _find_free(self, slot: int) -> int:
        """Follow the taken slots to a free one. Each slot passed then points there, so that a mass is placed in linear time."""
        passed = []
        while slot in self._next:
            passed.append(slot)
            slot = self._next[slot]
        for taken in passed:
            self._next[taken] = slot
        return slot

    def _start(self, slot: int) -> int:
        """The first microsecond of a slot."""
        return -(-slot * MICROSECONDS // self._per_second)
