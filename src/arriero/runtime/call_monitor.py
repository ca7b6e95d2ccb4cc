"""The calls of this process to remote services within the last seconds, by which breakers are judged."""

from collections import deque

import msgspec

from ..breakers import FAILED_ENDS, CallCounts
from ..model import Instant, later
from ..policies import Breaker

BUCKETS = 10  # parts of a window: calls leave it so many at a time


class EndedCall(msgspec.Struct, frozen=True):
    """One call that has ended. ``end``: one of ``breakers.CALL_ENDS``; ``seconds``: how long it took."""

    end: str
    seconds: float
    error: str = ""


class _Bucket(msgspec.Struct):
    number: int
    since: Instant
    calls: int = 0
    failed: int = 0
    slow: int = 0


class CallMonitor:
    """Counts calls by what they call. A key is whatever has a breaker of its own."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str, str], deque[_Bucket]] = {}

    def add(self, key: tuple[str, str, str], policy: Breaker, call: EndedCall, now: Instant) -> CallCounts:
        """Count a call. Returns: the calls of its window, this one among them."""
        buckets = self._windows.get(key)
        if buckets is None:
            buckets = self._windows[key] = deque()
        number = int(now / 1_000_000 * BUCKETS / policy.window_seconds)
        while buckets and buckets[0].number <= number - BUCKETS:
            buckets.popleft()
        if not buckets or buckets[-1].number < number:
            buckets.append(_Bucket(number, later(now, -call.seconds)))
        last = buckets[-1]
        last.calls += 1
        last.failed += call.end in FAILED_ENDS
        last.slow += call.seconds > policy.slow_limit
        return CallCounts(
            sum(bucket.calls for bucket in buckets),
            sum(bucket.failed for bucket in buckets),
            sum(bucket.slow for bucket in buckets),
            min(bucket.since for bucket in buckets),
            call.error,
        )

    def forget(self, key: tuple[str, str, str]) -> None:
        """Forget the calls of a key: they were judged, or speak of an outage that is over."""
        self._windows.pop(key, None)
