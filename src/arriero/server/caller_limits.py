"""Limits of what one caller may have under way at once: requests, and among them those that wait for news."""

import asyncio
from collections import Counter
from weakref import WeakValueDictionary

import msgspec

from .gate_problems import build_at_once_problem


class CallerLimits(msgspec.Struct, frozen=True):
    """Maximum numbers for one caller at once: of ``requests``, and of ``waits``, which are requests that wait for news."""

    requests: int = 200
    waits: int = 100


def limit_caller(requests_max: int, waits_max: int, served: int) -> CallerLimits:
    """Choose the limits so that one caller leaves half of the requests that are ``served`` at once to others."""
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
                f"this caller may have {self._places.limits.waits} requests at once that wait (http.token_waits_max)"
            )

    def leave(self) -> None:
        """End the request; called once."""
        self._places.leave(self._key, is_waiting=self._is_waiting)


class CallerPlaces:
    """Requests under way in this process, by their callers."""

    def __init__(self, limits: CallerLimits) -> None:
        self.limits = limits
        self._requests: Counter[str] = Counter()
        self._waits: Counter[str] = Counter()
        self._thread_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def enter(self, key: str) -> RequestPlace:
        """Begin a request of a caller. Raises Problem (too-many-at-once)."""
        if self._requests[key] >= self.limits.requests:
            raise build_at_once_problem(
                f"this caller may have {self.limits.requests} requests at once (http.token_requests_max)"
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
