"""The attempts that this process has begun, so that it begins none of them a second time.

A row that says "running, in your process" cannot tell an attempt that nobody carries out (the answer that told of it
was lost) from one that was carried out and ended in silence. Only the process itself knows. Beginning it again would
send a second request under the same fence, and its answer would hide the doubt that the first one left.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..model import Instant, later

KEPT_SECONDS = 600.0  # after complete_by: longer than a store's clock goes back when another server takes over
SWEEP_FROM = 1_000  # entries; below it the expired ones cost nothing worth looking for


class AttemptRegistry:
    """Attempts by (step_no, fence).

    An entry goes when the store has answered the attempt's report, because from then on no new reading shows the attempt
    as running. A reading that was under way may still show it, so the entry outlives such readings. A submission with which
    a task begins is such a reading, too: its answer names the first attempts, and may come after news of the same commit.
    Answers to all other commands come one after the other, before the answer to the report.

    The entry of an attempt without a report goes some time after its ``complete_by``: past that instant no request is sent.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[int, int], Instant] = {}
        self._readings: dict[int, None] = {}  # those under way, the oldest first
        self._last_reading = 0
        # Attempts that readings under way may still show, each behind the last reading that had begun by then.
        self._settled: deque[tuple[int, tuple[int, int]]] = deque()
        self._sweep_at = SWEEP_FROM

    def __contains__(self, identity: tuple[int, int]) -> bool:
        return identity in self._begun

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, identity: tuple[int, int], complete_by: Instant, now: Instant) -> bool:
        """Register an attempt. Returns False if it began here before. ``now``: the store's clock."""
        if identity in self._begun:
            return False
        if len(self._begun) >= self._sweep_at:
            self._sweep(now)
        self._begun[identity] = complete_by
        return True

    def extend(self, identity: tuple[int, int], latest: Instant) -> None:
        """Keep an attempt for longer: from now on its ``complete_by`` may be moved to ``latest``.

        Called before the store is asked: it may move the deadline although its answer is lost.
        """
        if identity in self._begun:
            self._begun[identity] = latest

    def settle(self, identity: tuple[int, int]) -> None:
        """Note that the store has answered the attempt's report."""
        if self._readings:
            self._settled.append((self._last_reading, identity))
        else:
            self._begun.pop(identity, None)

    def begin_reading(self) -> int:
        """Note that something is asked of the store whose answer may name attempts that run here. Returns its number."""
        self._last_reading += 1
        self._readings[self._last_reading] = None
        return self._last_reading

    def end_reading(self, number: int) -> None:
        """Note that the answer was acted on, or will never come."""
        del self._readings[number]
        oldest = next(iter(self._readings), self._last_reading + 1)
        while self._settled and self._settled[0][0] < oldest:
            _, identity = self._settled.popleft()
            self._begun.pop(identity, None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context in which records are read and acted on: they may show attempts as running that are settled meanwhile."""
        number = self.begin_reading()
        try:
            yield
        finally:
            self.end_reading(number)

    def _sweep(self, now: Instant) -> None:
        kept_from = later(now, -KEPT_SECONDS)
        self._begun = {identity: at for identity, at in self._begun.items() if at > kept_from}
        self._sweep_at = max(SWEEP_FROM, 2 * len(self._begun))  # so a sweep costs each entry a constant amount
