"""Adaptive concurrency: how many calls of an Agent a process makes at once, by how fast its service answers.

It is the gradient rule of Netflix's concurrency limits, with the measurements of Envoy's adaptive concurrency. After each window of calls:

    limit = limit x (long-term latency / short-term latency) + headroom

The ratio is 1 while the service answers as fast as always; then the headroom lets the limit grow. If calls wait for one another in
the service, the short-term latency grows, and the limit falls. If calls fail, it falls as well. Long-term latency follows
a faster service at once. It follows a slower one only where that is measured: every 50 windows, one window is made with half of
the places. So a service under too much load does not become the new normal, and one that stays slower at any load does.

Values in, values out: a state and the end of one call.
"""

from math import sqrt

import msgspec
from msgspec.structs import replace

from ..policies import Adaptive

CALLS_MIN = 10  # of a window; a larger limit has windows of as many calls as it allows at once
MEASURED_EVERY = 50  # windows: half of the places for one of 50 costs a hundredth of the calls
SMOOTHING = 0.2  # of the way to the new limit in one window: one window of bad luck means little
RATIO_MIN = 0.5  # of latencies: one slow window means no more than that
FALL_MAX = 0.5  # of the limit, if all calls of a window failed
SECONDS_MIN = 1e-6  # of a latency: none is 0
FAILED_SHARE = 0.1  # of a window's calls, from which the limit falls


class Concurrency(msgspec.Struct, frozen=True, gc=False):
    """The limit of one Agent, and the window under way.

    Attributes:
        long_seconds: long-term latency; 0: nothing is known yet.
        calls, failed: of the window; ``seconds``: how long those that did not fail took, added up.
        peak: the most calls at once in the window. The limit grows only if they reached it.
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
        """Number of calls that may be made at once."""
        return int(self.limit + 1e-9)


def begin_concurrency(policy: Adaptive) -> Concurrency:
    """Return the state of an Agent that has made no call. It begins at its minimum: there nothing waits in the service."""
    return Concurrency(float(policy.minimum))


def add_ended_call(
    state: Concurrency, policy: Adaptive, places_max: int, *, seconds: float, has_failed: bool, in_flight: int
) -> Concurrency:
    """Return the state after a call has ended.

    Args:
        seconds: how long it took. A call that failed says nothing of the latency: it may have failed at once.
        in_flight: calls under way, this one included.
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
