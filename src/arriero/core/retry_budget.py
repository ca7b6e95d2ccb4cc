"""Retry budget of an Agent: how many of its calls may be retries. Values and time in, decisions out.

It is a bucket of tokens. Each call adds ``share`` of a token, each second adds ``PER_SECOND``, and each retry costs one.
The bucket never holds more than ``BURST``. So in every span of time, wherever it begins:

    retries <= share x calls + BURST + PER_SECOND x seconds

A window that is counted would promise this only for spans that end at a retry, and would let through in one second what
quiet seconds have saved. The part without ``share`` is the floor: an Agent with few calls may always retry.

Each process has its own bucket. If each keeps its retries to a share of its calls, all of them together do. Only the floor
is there once for each process.

Sources: the retry budgets of Finagle and gRPC; Site Reliability Engineering, chapter 21 (retries beyond a tenth of the
requests multiply an overload).
"""

import msgspec
from msgspec.structs import replace

BURST = 10.0  # retries at once: a few calls that fail together by chance are retried without a wait
PER_SECOND = 1.0  # of an Agent without other calls: more would keep up a small service's overload
_ROUNDING = 1e-9  # five calls at a share of 0.2 make one retry, whatever their sum is as a float


class RetryBudget(msgspec.Struct, frozen=True, gc=False):
    """The bucket. ``tokens``: retries that may be made, as of ``at``; ``at``: seconds on a clock that only grows."""

    share: float
    at: float
    tokens: float = BURST


def add_calls(budget: RetryBudget, calls: int, now: float) -> RetryBudget:
    """Return the budget after so many calls have begun; retries count as calls.

    They may have begun at any time since tokens were last spent: additions give the same sum in any order, capped at ``BURST``.
    """
    return _refill(budget, now, calls * budget.share)


def count_allowed_retries(budget: RetryBudget, now: float) -> int:
    """Return how many retries may be made now."""
    return int(_refill(budget, now).tokens + _ROUNDING)


def seconds_until_allowed(budget: RetryBudget, now: float) -> float:
    """Return the seconds until one retry may be made if no call is made meanwhile; 0: it may be made now."""
    return max(1.0 - _refill(budget, now).tokens, 0.0) / PER_SECOND


def spend(budget: RetryBudget, retries: int, now: float) -> RetryBudget:
    """Return the budget after so many retries were allowed; at most those that ``count_allowed_retries`` says."""
    filled = _refill(budget, now)
    return replace(filled, tokens=max(filled.tokens - retries, 0.0))


def give_back(budget: RetryBudget, retries: int, now: float) -> RetryBudget:
    """Return the budget after so many retries were allowed that are not made."""
    return _refill(budget, now, retries)


def _refill(budget: RetryBudget, now: float, more: float = 0.0) -> RetryBudget:
    tokens = budget.tokens + (now - budget.at) * PER_SECOND + more
    return RetryBudget(budget.share, now, min(tokens, BURST))
