"""The calls of this process to remote services within the last seconds, by which breakers are judged."""

from collections import deque

import msgspec

from ..breakers import FAILED_ENDS, CallCounts
from ..model import MICROSECONDS, Instant, later
from ..policies import Breaker

BUCKETS = 10  # parts of a window: calls leave it so many at a time


class EndedCall(msgspec.Struct, frozen=True):
    """One call that has ended. ``end``: ``succeeded``, ``permanent`` or one of ``FAILED_ENDS``; ``seconds``: how long it took."""

    end: str
    seconds: float
    error: str = ""


class _Bucket(msgspec.Struct):
    number: int
    since: Instant
    calls: int = 0
    failed: int = 0
    slow: int = 0
    failed_seconds: float = 0.0


class CallWindow:
    """The calls to one service, or to one part of it, that has a breaker of its own."""

    def __init__(self, policy: Breaker) -> None:
        self.slow_limit = policy.slow_limit
        self._bucket_length = policy.window_seconds * MICROSECONDS / BUCKETS
        self._buckets: deque[_Bucket] = deque()

    def add(self, call: EndedCall, now: Instant) -> bool:
        """Count a call. Returns True if it speaks against the service: it failed, or it was slow."""
        buckets, number = self._buckets, int(now / self._bucket_length)
        while buckets and buckets[0].number <= number - BUCKETS:
            buckets.popleft()
        if not buckets or buckets[-1].number < number:
            buckets.append(_Bucket(number, later(now, -call.seconds)))
        last, has_failed, is_slow = buckets[-1], call.end in FAILED_ENDS, call.seconds > self.slow_limit
        last.calls += 1
        last.failed += has_failed
        last.slow += is_slow
        last.failed_seconds += call.seconds if has_failed else 0.0
        return has_failed or is_slow

    def is_empty(self, now: Instant) -> bool:
        """Returns True if all its calls have left the window."""
        return not self._buckets or self._buckets[-1].number <= int(now / self._bucket_length) - BUCKETS

    def count(self, last_error: str) -> CallCounts:
        """Count the calls in the window. There is one at least."""
        buckets = self._buckets
        return CallCounts(
            sum(bucket.calls for bucket in buckets),
            sum(bucket.failed for bucket in buckets),
            sum(bucket.slow for bucket in buckets),
            min(bucket.since for bucket in buckets),
            last_error,
            sum(bucket.failed_seconds for bucket in buckets),
        )
