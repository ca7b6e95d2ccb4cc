"""Rate limit of each caller: the rule of a token bucket, and the buckets of this process."""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from .gate_problems import build_rate_problem

BUCKETS_MAX = 10_000  # callers that are remembered; whoever is forgotten has sent nothing for longest


class RatePolicy(msgspec.Struct, frozen=True):
    """Rate limit: requests a second on average, and requests at once after a pause."""

    per_second: float
    burst: float


class Bucket(msgspec.Struct, frozen=True):
    """Token bucket of one caller. ``left``: tokens at the instant ``at``, in seconds of a monotonic clock."""

    left: float
    at: float


def take_one(bucket: Bucket | None, policy: RatePolicy, now: float) -> tuple[Bucket, float]:
    """Take one request out of a bucket; None: a caller who sends the first one.

    Returns: the bucket afterwards, and for how many seconds the caller must wait; 0: the request may go on. Who must wait has
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
