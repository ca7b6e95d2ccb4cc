"""Room for work in one process: places of Agents, retries within their budget, adaptive concurrency, shares of workflows."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import sqrt

import msgspec
from msgspec.structs import replace

from ..model.commands import ClaimShare
from ..model.policies import Adaptive

CALLS_MIN = 10  # of a window; a larger limit has windows of as many calls as it allows at the same time
MEASURED_EVERY = 50  # windows: half of the places for one of 50 costs a hundredth of the calls
SMOOTHING = 0.2  # of the way to the new limit in one window: one window of bad luck means little
RATIO_MIN = 0.5  # of latencies: one slow window means no more than that
FALL_MAX = 0.5  # of the limit, if all calls of a window failed
SECONDS_MIN = 1e-6  # of a latency: none is 0
FAILED_SHARE = 0.1  # of a window's calls, from which the limit falls


class Concurrency(msgspec.Struct, frozen=True, gc=False):
    """Number of concurrent calls that a process makes of an Agent with adaptive concurrency, and the window of running calls.

    It is the gradient rule of Netflix's concurrency limits, with the measurements of Envoy's adaptive concurrency. After each
    window of calls:

        limit = limit x (long-term latency / short-term latency) + headroom

    The ratio is 1 while the service answers as fast as always; then the headroom lets the limit grow. If calls wait for one
    another in the service, the short-term latency grows, and the limit falls. If calls fail, it falls as well. Long-term latency
    follows a faster service immediately. It follows a slower one only where that is measured: every 50 windows, one window is made
    with half of the places. So a service under too much load does not become the new normal, and one that stays slower at any
    load does.

    Attributes:
        long_seconds: long-term latency; 0: nothing is known yet.
        calls, failed: of the window; ``seconds``: how long those that did not fail took, added up.
        peak: the most calls at a time in the window. The limit grows only if they reached it.
        windows: since long-term latency was measured.
        limit_before: while it is measured: the limit that comes back after it; 0: it is not measured.
        skipped: calls that are still to end and began before the measurement.
    """

    limit: float
    long_seconds: float = 0.0
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    peak: int = 0
    windows: int = 0
    limit_before: float = 0.0
    skipped: int = 0

    @property
    def places(self) -> int:
        """Number of calls that may run concurrently."""
        return int(self.limit + 1e-9)


def begin_concurrency(policy: Adaptive) -> Concurrency:
    """Return the state of an Agent that has made no call. It begins at its minimum: there nothing waits in the service."""
    return Concurrency(float(policy.minimum))


def add_ended_call(
    state: Concurrency, policy: Adaptive, places_max: int, *, seconds: float, has_failed: bool, in_flight: int
) -> Concurrency:
    """Return the state after a call has ended.

    Args:
        seconds: how long it took. A call that failed says nothing of the latency: it may have failed immediately.
        in_flight: calls running, this one included.
    """
    if state.skipped:
        return replace(state, skipped=state.skipped - 1)
    added = replace(
        state,
        calls=state.calls + 1,
        failed=state.failed + has_failed,
        seconds=state.seconds + (0.0 if has_failed else seconds),
        peak=max(state.peak, in_flight),
    )
    return added if added.calls < max(CALLS_MIN, added.places) else _end_window(added, policy, places_max)


def _end_window(state: Concurrency, policy: Adaptive, places_max: int) -> Concurrency:
    limit, long = state.limit_before or state.limit, state.long_seconds
    if answered := state.calls - state.failed:
        short = max(state.seconds / answered, SECONDS_MIN)
        if state.limit_before or not long:
            long = short
        else:
            long = min(long, (long + short) / 2)
            wanted = limit * min(max(long * policy.tolerance / short, RATIO_MIN), 1.0) + sqrt(limit)
            if wanted < limit or state.peak >= state.places:
                limit += (wanted - limit) * SMOOTHING
    if state.failed >= FAILED_SHARE * state.calls:
        limit = min(limit, state.limit_before or state.limit) * (1 - FALL_MAX * state.failed / state.calls)
    limit = min(max(limit, float(policy.minimum)), float(places_max))
    ended = Concurrency(limit, long, windows=0 if state.limit_before else state.windows + 1)
    half = max(limit / 2, float(policy.minimum))
    if ended.windows < MEASURED_EVERY or half >= limit - 1:
        return ended
    return replace(ended, limit=half, limit_before=limit, skipped=ended.places)


BURST = 10.0  # retries without a wait: a few calls that fail together by chance are retried without a wait
PER_SECOND = 1.0  # of an Agent without other calls: more would keep up a small service's overload
_ROUNDING = 1e-9  # five calls at a share of 0.2 make one retry, whatever their sum is as a float


class RetryBudget(msgspec.Struct, frozen=True, gc=False):
    """Retry budget of an Agent in one process: a bucket of tokens.

    Each call adds ``share`` of a token, each second adds ``PER_SECOND``, and each retry costs one. The bucket never holds more
    than ``BURST``. So in every span of time, wherever it begins:

        retries <= share x calls + BURST + PER_SECOND x seconds

    A window that is counted would promise this only for spans that end at a retry, and would let through in one second what
    quiet seconds have saved. The part without ``share`` is the floor: an Agent with few calls may always retry. If each process
    keeps its retries to a share of its calls, all of them together do. Only the floor is there once for each process.

    Sources: the retry budgets of Finagle and gRPC; Site Reliability Engineering, chapter 21 (retries beyond a tenth of the
    requests multiply an overload).

    Attributes:
        tokens: retries that may be made, as of ``at``.
        at: seconds on a clock that only grows.
    """

    share: float
    at: float
    tokens: float = BURST


def add_calls(budget: RetryBudget, calls: int, now: float) -> RetryBudget:
    """Return the budget after that many calls have begun; retries count as calls.

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
    """Return the budget after that many retries were allowed; at most those that ``count_allowed_retries`` says."""
    filled = _refill(budget, now)
    return replace(filled, tokens=max(filled.tokens - retries, 0.0))


def give_back(budget: RetryBudget, retries: int, now: float) -> RetryBudget:
    """Return the budget after that many retries were allowed that are not made."""
    return _refill(budget, now, retries)


def _refill(budget: RetryBudget, now: float, more: float = 0.0) -> RetryBudget:
    tokens = budget.tokens + (now - budget.at) * PER_SECOND + more
    return RetryBudget(budget.share, now, min(tokens, BURST))


URGENT_FROM = 8  # the lowest priority that may use reserved places


class Room(msgspec.Struct, frozen=True):
    """Free places of an Agent: ``open`` to any priority; ``urgent``: only to urgent ones, besides those.

    ``URGENT_FROM`` and higher priorities may use every place. Lower ones never use more than the places that are not reserved,
    so what is urgent never waits for all places to be used by others.
    """

    open: int
    urgent: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.open + self.urgent


def is_urgent(priority: int) -> bool:
    """Returns True if work of the priority may use reserved places."""
    return priority >= URGENT_FROM


def compute_room(*, places: int, reserved: int, used: int, used_by_others: int) -> Room:
    """Compute the free places of an Agent.

    Args:
        places: all of them.
        reserved: those that are kept for urgent work, fewer than ``places``.
        used: places in use.
        used_by_others: of these, those in use by work that is not urgent.
    """
    free = max(places - used, 0)
    open_to_all = max(min(free, places - reserved - used_by_others), 0)
    return Room(open_to_all, free - open_to_all)


def divide_room(room: int, weights: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Divide free places by weight, so that what each holds afterwards is as near to its weight as possible.

    Each place goes to the one that holds the least for its weight; of two that hold the same, to the one that comes first.

    Args:
        room: free places.
        weights: of those that want places, each at least 1.
        held: how many places each has already.
    Returns: how many of the free places each gets; all of them are given if anybody wants one.
    """
    granted = dict.fromkeys(weights, 0)
    for _ in range(room if weights else 0):
        poorest = min(weights, key=lambda name: (held.get(name, 0) + granted[name]) / weights[name])
        granted[poorest] += 1
    return granted


def build_shares(weights: Mapping[str, int | None], held: Iterable[str]) -> tuple[ClaimShare, ...]:
    """Build the shares of a claim: one of each workflow with a weight, and one of weight 1 of all others together.

    Args:
        weights: of all workflows with code here; None: it has no share of its own.
        held: the workflow of each task that the process holds.
    Returns: empty if no workflow has a separate share.
    """
    if not any(weights.values()):
        return ()
    counts = Counter(held)
    shares = [ClaimShare((name,), weight, counts.pop(name, 0)) for name, weight in weights.items() if weight]
    others = tuple(name for name, weight in weights.items() if not weight)
    return (*shares, ClaimShare(others, 1, counts.total()))
