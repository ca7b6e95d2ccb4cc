"""Limits of each caller: what may run concurrently, and a rate by the rule of a token bucket."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec

from .problems import build_at_once_problem, build_rate_problem

BUCKETS_MAX = 10_000  # callers that are remembered; the one who is forgotten has sent nothing for longest


class RatePolicy(msgspec.Struct, frozen=True):
    """Rate limit: requests a second on average, and a burst after a pause."""

    per_second: float
    burst: float


class Bucket(msgspec.Struct, frozen=True):
    """Token bucket of one caller. ``left``: tokens at the instant ``at``, in seconds of a monotonic clock."""

    left: float
    at: float


def take_one(bucket: Bucket | None, policy: RatePolicy, now: float) -> tuple[Bucket, float]:
    """Take one request out of a bucket; None: a caller who sends the first one.

    Returns: the bucket afterwards, and for how many seconds the caller must wait; 0: the request may continue. Who must wait has
        taken nothing, so asking too often delays nobody further.
    """
    before = Bucket(policy.burst, now) if bucket is None else bucket
    left = min(policy.burst, before.left + max(0.0, now - before.at) * policy.per_second)
    if left < 1:
        return Bucket(left, now), (1 - left) / policy.per_second
    return Bucket(left - 1, now), 0.0


class RateLimits:
    """The buckets of all callers of this process."""

    def __init__(self, policy: RatePolicy, monotonic: Callable[[], float]) -> None:
        self._policy = policy
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def admit(self, key: str) -> None:
        """Count a request of a caller. Raises Problem (too-many-requests)."""
        bucket, seconds = take_one(self._buckets.get(key), self._policy, self._monotonic())
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        while len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        if seconds > 0:
            raise build_rate_problem(f"this caller may send {self._policy.per_second:g} requests in a second", seconds)


class CallerLimits(msgspec.Struct, frozen=True):
    """Maximum numbers for one caller at a time: of ``requests``, and of ``waits``, which are requests that wait for news."""

    requests: int = 200
    waits: int = 100


def limit_caller(requests_max: int, waits_max: int, served: int) -> CallerLimits:
    """Choose the limits so that one caller leaves half of the requests that are ``served`` concurrently to others."""
    requests = max(1, min(requests_max, served // 2))
    return CallerLimits(requests, max(1, min(waits_max, requests // 2)))


class RequestPlace:
    """Place of one request among those of its caller, until ``leave``.

    ``thread_turn``: held by one request of the caller, while it waits for the thread that all callers share or works there.
    """

    def __init__(self, places: "CallerPlaces", key: str, thread_turn: asyncio.Lock) -> None:
        self.thread_turn = thread_turn
        self._places = places
        self._key = key
        self._is_waiting = False

    def may_wait(self) -> bool:
        """Returns True, and counts the request as one that waits, if its caller has not too many of them."""
        self._is_waiting = self._is_waiting or self._places.take_wait(self._key)
        return self._is_waiting

    def begin_wait(self) -> None:
        """Count the request as one that waits. Raises Problem (too-many-at-once)."""
        if not self.may_wait():
            raise build_at_once_problem(
                f"this caller may have {self._places.limits.waits} requests at a time that wait (http.token_waits_max)"
            )

    def leave(self) -> None:
        """End the request; called once."""
        self._places.leave(self._key, is_waiting=self._is_waiting)


class CallerPlaces:
    """Requests running in this process, by their callers."""

    def __init__(self, limits: CallerLimits) -> None:
        self.limits = limits
        self._requests: Counter[str] = Counter()
        self._waits: Counter[str] = Counter()
        self._thread_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def enter(self, key: str) -> RequestPlace:
        """Begin a request of a caller. Raises Problem (too-many-at-once)."""
        if self._requests[key] >= self.limits.requests:
            raise build_at_once_problem(
                f"this caller may have {self.limits.requests} requests at a time (http.token_requests_max)"
            )
        self._requests[key] += 1
        return RequestPlace(self, key, self._thread_turns.setdefault(key, asyncio.Lock()))

    def take_wait(self, key: str) -> bool:
        """Returns True if one more request of a caller may wait; it is counted then."""
        if self._waits[key] >= self.limits.waits:
            return False
        self._waits[key] += 1
        return True

    def leave(self, key: str, *, is_waiting: bool) -> None:
        """End a request of a caller."""
        for counts in (self._requests, self._waits) if is_waiting else (self._requests,):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
