"""Circuit breakers of Agents: when one opens, who may call meanwhile, and when it closes. Values in, values out.

A breaker is a row that all processes share. While it is open, requests wait: nothing is taken and no attempt is spent.
After ``cool_off`` one attempt is let through, the canary. If the service answers, waves of 1, 2, 4, ... attempts follow over
``ramp`` seconds; then the breaker closes. If too many of a wave fail, it is open again. A canary is granted in the commit
that takes its request, with the breaker's row locked. So two processes never both have the same one.

Sources: Release It! (circuit breaker), the cloud design patterns' Circuit Breaker.
"""

from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from ..errors import IllegalTransition
from ..model import Instant, later
from ..model.agents import BreakerRow, BreakerState, CallCounts
from ..model.policies import Breaker

SILENT_CALLS_MIN = 5  # of a service that hangs: fewer may be bad luck
STEPS_IN_A_ROW_MIN = (
    10  # of calls that failed one after the other: fewer may be orders that fail, and not their service
)
SAMPLE_MIN = 2  # canaries of a larger wave that say something: one of them alone may have bad luck
WAVES = 5  # over the ramp, each twice as large as the one before; then the breaker closes
RETRY_AFTER_MAX = 3_600.0  # seconds that a service's word keeps a breaker open; then a canary asks again
RETRY_SECONDS = 1.0  # until a step that failed in an outage may be tried again, if the breaker lets it
REMEMBERED_SECONDS = 3_600.0  # after an outage: until then what it burnt is given back
POLICIES_KEPT = 256
PROBE_PATIENCE = 30.0  # seconds: then a canary goes if no process has probed, because none with the probe may live

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


class BreakerEvent(StrEnum):
    """Events that move a breaker to another state."""

    TRIPPED = "tripped"  # too many calls failed, or the service said that it is unavailable
    OPENED = "opened"  # by an operator
    PROBED = "probed"  # the first canary goes
    FAILED = "failed"  # too many canaries of a wave failed
    RECOVERED = "recovered"  # the ramp is over
    CLOSED = "closed"  # by an operator


BREAKER_MOVES: dict[tuple[BreakerState, BreakerEvent], BreakerState] = {
    (CLOSED, BreakerEvent.TRIPPED): OPEN,
    (CLOSED, BreakerEvent.OPENED): OPEN,
    (OPEN, BreakerEvent.OPENED): OPEN,  # it no longer closes by itself
    (OPEN, BreakerEvent.PROBED): HALF_OPEN,
    (OPEN, BreakerEvent.CLOSED): CLOSED,
    (HALF_OPEN, BreakerEvent.OPENED): OPEN,
    (HALF_OPEN, BreakerEvent.FAILED): OPEN,
    (HALF_OPEN, BreakerEvent.RECOVERED): CLOSED,
    (HALF_OPEN, BreakerEvent.CLOSED): CLOSED,
}


def advance_breaker(state: BreakerState, event: BreakerEvent) -> BreakerState:
    """Return the state after ``event``. Raises IllegalTransition when the table has no such move."""
    try:
        return BREAKER_MOVES[state, event]
    except KeyError:
        raise IllegalTransition(f"a breaker that is {state} cannot be {event}") from None


@lru_cache(POLICIES_KEPT)
def decode_breaker_policy(text: str) -> Breaker:
    """Decode a breaker's policy from its text."""
    return msgspec.json.decode(text, type=Breaker)


class _ProbeMark(msgspec.Struct, frozen=True):
    has_probe: bool = False


@lru_cache(POLICIES_KEPT)
def has_probe(text: str) -> bool:
    """Returns True if the policy of a breaker says that its Agent has a probe."""
    return msgspec.json.decode(text, type=_ProbeMark).has_probe


# --- opening
def judge_calls(policy: Breaker, counts: CallCounts, places: int) -> str | None:
    """Decide if a closed breaker opens by the calls of its window.

    It opens by the share of failed calls. It also opens if the last ``minimum`` calls, of many steps, all failed. Calls that
    succeeded before an outage must not keep it closed when a retry budget lets only few calls through.

    One request that fails again and again does not open it while calls of others succeed, whatever ``minimum`` is.

    Args:
        places: of the Agent in the process that made the calls.
    Returns: the reason for operators; None: it stays closed.
    """
    if counts.calls < policy.minimum and not _is_silent(policy, counts, places):
        return None
    if counts.is_one_request and counts.has_other_success:
        return None
    last = f": {counts.last_error}" if counts.last_error else ""
    if counts.failed >= policy.failure_rate * counts.calls:
        return f"{counts.failed} of {counts.calls} calls failed in {policy.window_seconds:g} s{last}"
    if counts.failed_in_a_row >= policy.minimum and counts.steps_in_a_row >= STEPS_IN_A_ROW_MIN:
        return f"the last {counts.failed_in_a_row} calls all failed{last}"
    if policy.slow_rate is not None and counts.slow >= policy.slow_rate * counts.calls:
        return f"{counts.slow} of {counts.calls} calls took longer than {policy.slow_limit:g} s in {policy.window_seconds:g} s"
    return None


def _is_silent(policy: Breaker, counts: CallCounts, places: int) -> bool:
    """Returns True if no call succeeded, and failed ones held the places for half of the window.

    A service that hangs lets so few calls end that their ``minimum`` would never be reached.
    """
    has_no_success = counts.failed == counts.calls >= SILENT_CALLS_MIN
    return has_no_success and counts.failed_seconds >= places * policy.window_seconds / 2


def trip(
    row: BreakerRow, policy: Breaker, now: Instant, *, reason: str, failing_since: Instant, retry_after: float | None
) -> BreakerRow:
    """Open a closed breaker.

    Args:
        failing_since: start of the window that was judged; never later than now.
        retry_after: seconds that the service asked for, if it did; at most ``RETRY_AFTER_MAX`` count.
    """
    wait = max(policy.cool_off_seconds, min(retry_after or 0.0, RETRY_AFTER_MAX))
    return replace(
        _move(row, BreakerEvent.TRIPPED, now),
        policy=msgspec.json.encode(policy).decode(),
        opened_at=now,
        closed_at=None,
        failing_since=_join_outages(row, policy, min(failing_since, now)),
        probe_at=later(now, wait),
        reason=reason,
        opened_by="",
    )


def _join_outages(row: BreakerRow, policy: Breaker, failing_since: Instant) -> Instant:
    """Return when an outage began. One that follows the last one within a window continues with it: what both burnt is given back."""
    if row.closed_at is None or row.failing_since is None:
        return failing_since
    return row.failing_since if failing_since <= later(row.closed_at, policy.window_seconds) else failing_since


def open_by_hand(row: BreakerRow, now: Instant, *, by: str, reason: str) -> BreakerRow:
    """Open a breaker until an operator closes it."""
    goes_on = row.opened_at is not None and row.closed_at is None  # else what the last outage burnt is not of this one
    return replace(
        _move(row, BreakerEvent.OPENED, now),
        opened_at=row.opened_at if goes_on else now,
        failing_since=row.failing_since if goes_on else now,
        closed_at=None,
        probe_at=None,
        reason=reason,
        opened_by=by,
    )


def close_by_hand(row: BreakerRow, now: Instant) -> BreakerRow:
    """Close a breaker immediately: an operator knows that the service is healthy."""
    return _close(row, BreakerEvent.CLOSED, now)


# --- canaries
def is_barred(row: BreakerRow, now: Instant) -> bool:
    """Returns True if no attempt may begin now. Of a half-open breaker and one whose time has come ``grant_canary`` decides."""
    if row.paused_at is not None:
        return True
    if row.state is not OPEN:
        return False
    if row.probe_at is None or row.probe_at > now:
        return True
    return has_probe(row.policy) and later(row.probe_at, PROBE_PATIENCE) > now


def grant_canary(row: BreakerRow, now: Instant) -> BreakerRow | None:
    """Let one attempt through a breaker that is not closed, if one may go now.

    Args:
        row: locked; neither closed nor barred.
    Returns: the row to keep, with the attempt counted under its fence; None: none may go now.
    """
    policy = decode_breaker_policy(row.policy)
    if row.state is OPEN:
        return replace(_begin_wave(_move(row, BreakerEvent.PROBED, now), 1), granted=1)
    if _is_ramp_over(row, policy, now) and row.granted == row.succeeded + row.failed:
        return None  # it is closed by the one who looks next: see ``close_after_ramp``
    if row.granted < row.wave:
        return replace(row, granted=row.granted + 1)
    if row.succeeded + row.failed < row.granted or not _may_grow(row, policy, now):
        return None
    return replace(_begin_wave(row, row.wave * 2), granted=1)


def may_let_through(row: BreakerRow, now: Instant) -> bool:
    """Returns True if an attempt may begin now, as the row stands. Who begins one asks again with the row locked."""
    if is_barred(row, now):
        return False
    after = close_after_ramp(row, now)
    return after.state is CLOSED or grant_canary(after, now) is not None


def close_after_ramp(row: BreakerRow, now: Instant) -> BreakerRow:
    """Close a half-open breaker whose ramp is over and whose canaries have all ended; else return it as it is."""
    if row.state is not HALF_OPEN or row.granted != row.succeeded + row.failed:
        return row
    if not _is_ramp_over(row, decode_breaker_policy(row.policy), now):
        return row
    return _close(row, BreakerEvent.RECOVERED, now)


def end_canary(
    row: BreakerRow, fence: int, now: Instant, *, has_answered: bool | None, not_before: Instant | None = None
) -> BreakerRow:
    """Take in the end of an attempt that was let through.

    Args:
        row: locked, as it now stands.
        fence: of the breaker when the attempt was let through. If the breaker has moved on, nothing changes.
        has_answered: True: the service answered, also if it refused. False: the call failed. None: nobody knows, because
            the process was lost; another canary may go instead.
        not_before: instant before which the service does not want to be called.
    """
    if row.fence != fence or row.state is not HALF_OPEN:
        return row
    policy = decode_breaker_policy(row.policy)
    if has_answered is None:
        return replace(row, granted=row.granted - 1)
    if not has_answered:
        row = replace(row, failed=row.failed + 1)
        ended = row.failed + row.succeeded
        is_sample = ended == row.granted and ended >= min(row.wave, SAMPLE_MIN)  # of a wave that nobody fills
        if row.failed >= policy.failure_rate * (ended if is_sample else row.wave):
            cool_off_end = later(now, policy.cool_off_seconds)
            latest = later(now, RETRY_AFTER_MAX)
            wanted = cool_off_end if not_before is None else min(max(cool_off_end, not_before), latest)
            return replace(_move(row, BreakerEvent.FAILED, now), probe_at=wanted, ramp_from=None)
        return row
    return close_after_ramp(replace(row, succeeded=row.succeeded + 1, ramp_from=row.ramp_from or now), now)


def is_request_to_blame(row: BreakerRow, fence: int) -> bool:
    """Returns True if a canary that fails now is charged: the request fails, and not the service.

    The service has answered another request, or the probe, since the last cool-off. Of each wave only the first failure is
    charged: if more fail, the service may be down again.

    Args:
        row: before it takes in the end of the canary.
        fence: of the breaker when the canary was let through.
    """
    return row.state is HALF_OPEN and row.fence == fence and row.ramp_from is not None and not row.failed


def _begin_wave(row: BreakerRow, size: int) -> BreakerRow:
    return replace(row, fence=row.fence + 1, wave=size, granted=0, succeeded=0, failed=0)


def _may_grow(row: BreakerRow, policy: Breaker, now: Instant) -> bool:
    """Returns True if the next wave may begin: waves are spread evenly over the ramp."""
    if row.ramp_from is None:
        return False
    begun = row.wave.bit_length()  # waves so far: 1, 2, 4, ... attempts
    return now >= later(row.ramp_from, policy.ramp_seconds * (begun - 1) / WAVES)


def _is_ramp_over(row: BreakerRow, policy: Breaker, now: Instant) -> bool:
    return row.ramp_from is not None and now >= later(row.ramp_from, policy.ramp_seconds)


def compute_next_look(row: BreakerRow, now: Instant) -> Instant | None:
    """Return when requests that wait behind a breaker may be let through next; None: only an event changes that."""
    if row.paused_at is not None or row.state is CLOSED:
        return None
    if row.state is OPEN:
        return row.probe_at
    policy = decode_breaker_policy(row.policy)
    if row.ramp_from is None:
        return None
    steps = max(1, row.wave.bit_length())
    return min(
        later(row.ramp_from, policy.ramp_seconds),
        max(now, later(row.ramp_from, policy.ramp_seconds * (steps - 1) / WAVES)),
    )


def _move(row: BreakerRow, event: BreakerEvent, now: Instant) -> BreakerRow:
    return replace(row, state=advance_breaker(row.state, event), fence=row.fence + 1, changed_at=now)


def _close(row: BreakerRow, event: BreakerEvent, now: Instant) -> BreakerRow:
    closed = _move(row, event, now)
    return replace(closed, closed_at=now, probe_at=None, ramp_from=None, wave=0, granted=0, succeeded=0, failed=0)


# --- attempts that the outage burnt
def is_remembered(row: BreakerRow, now: Instant) -> bool:
    """Returns True if a breaker matters to attempts: it is not closed, is paused, or was closed a short time ago."""
    is_recent = row.closed_at is not None and row.closed_at > later(now, -REMEMBERED_SECONDS)
    return row.state is not CLOSED or row.paused_at is not None or is_recent


def drop_burnt(row: BreakerRow, charged_at: tuple[Instant, ...]) -> tuple[Instant, ...]:
    """Drop the charged failures of a step that fell into the last outage, from the window that opened the breaker on.

    Args:
        charged_at: when failures of the step were charged, oldest first.
    Returns: those that still count. An attempt that was running when the breaker closed may have failed later.
    """
    if row.failing_since is None:
        return charged_at
    since, until = row.failing_since, row.closed_at
    return tuple(at for at in charged_at if at < since or (until is not None and at > until))


def compute_retry_at(now: Instant) -> Instant:
    """Return when a step is due again whose attempt failed in an outage. The breaker decides when it is really taken.

    It is not ``probe_at``: if an operator closes the breaker, the step continues immediately.
    """
    return later(now, RETRY_SECONDS)
