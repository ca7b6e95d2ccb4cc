"""Commands on one breaker: it opens by what calls showed, a process probes, or an operator acts on it. Values in, values out."""

from msgspec.structs import replace

from ..events import Event
from ..events.store import (
    AgentPaused,
    AgentResumed,
    BreakerClosed,
    BreakerOpened,
    BreakerProbeBegun,
    BreakerProbeEnded,
)
from ..model import Instant, later
from ..model.agents import AgentVerb, BreakerRow, BreakerState
from ..model.answers import Refusal
from ..model.commands import BeginProbe, EndProbe, OperateAgent, TripBreaker
from .alert_rows import build_breaker_alert
from .breaker import BreakerEvent, advance_breaker, close_by_hand, decode_breaker_policy, open_by_hand, trip
from .breaker_book import name_breaker
from .changes import BreakerChange
from .stand_ins import is_stand_in

ANSWER_SECONDS = 5.0  # beyond the time of a probe, until its end is written: else another process would probe as well


def begin_probe(command: BeginProbe, row: BreakerRow, now: Instant) -> BreakerChange | Refusal:
    """Let a process probe. Guard: the breaker is open by itself, not paused, and its time for a probe has come.

    A probe is a function of the user that does no harm if it is called often, and needs no request. Who begins it moves
    ``probe_at`` to the end of the probe's time, under a new fence. So until then nobody else probes, and no canary goes. If the
    process dies, that time passes, and the next one probes.
    """
    if row.state is not BreakerState.OPEN or row.probe_at is None or row.paused_at is not None:
        return Refusal("moved_on", f"breaker {row.label} waits for no probe", state=row.state)
    if row.probe_at > now:
        return Refusal(
            "moved_on", f"breaker {row.label} is not to be probed yet, or another process does", state=row.state
        )
    until = later(now, command.complete_within + ANSWER_SECONDS)
    begun = replace(row, fence=row.fence + 1, probe_at=until)
    return BreakerChange(begun, [BreakerProbeBegun(*name_breaker(begun), began_at=now, until=until)])


def end_probe(command: EndProbe, row: BreakerRow, now: Instant) -> BreakerChange | Refusal:
    """Take in the end of a probe. Guard: the breaker is as the probe began it, and the time of the probe is not over.

    If the service is healthy, the breaker is half open as after the first canary, and waves of requests follow. If not, it stays
    open for another cool-off.
    """
    is_open = row.state is BreakerState.OPEN and row.probe_at is not None
    if row.fence != command.fence or not is_open:
        return Refusal("moved_on", f"breaker {row.label} is no longer at this probe", state=row.state)
    assert row.probe_at is not None
    if row.probe_at <= now:
        return Refusal(
            "late", f"the probe of breaker {row.label} took too long; another one may be made", state=row.state
        )
    policy = decode_breaker_policy(row.policy)
    fence = row.fence + 1
    event: Event
    if command.failure is not None:
        ended = replace(row, fence=fence, probe_at=later(now, policy.cool_off_seconds))
        event = BreakerProbeEnded(
            *name_breaker(ended), probe_fence=row.fence, failure=command.failure, probe_at=ended.probe_at
        )
        return BreakerChange(ended, [event])
    ended = replace(
        row,
        state=advance_breaker(row.state, BreakerEvent.PROBED),
        fence=fence,
        changed_at=now,
        ramp_from=now,
        wave=1,
        granted=1,
        succeeded=1,
        failed=0,
    )
    return BreakerChange(ended, [BreakerProbeEnded(*name_breaker(ended), probe_fence=row.fence)])


def trip_breaker(command: TripBreaker, row: BreakerRow, now: Instant) -> BreakerChange | Refusal:
    """Open a breaker for a process that saw too many calls fail. Guard: it was closed in the whole window that was judged.

    One request alone does not open it again within a window after it was closed, because others were answered then.

    Returns: the change, with an alert for operators; a Refusal if another process came first.
    """
    if row.state is not BreakerState.CLOSED:
        return Refusal("moved_on", f"breaker {row.label} is {row.state} already", state=row.state)
    if row.closed_at is not None and command.failing_since < row.closed_at:
        return Refusal("moved_on", f"breaker {row.label} was closed after these calls began", state=row.state)
    policy = decode_breaker_policy(command.policy)
    if command.is_one_request and row.closed_at is not None and row.closed_at > later(now, -policy.window_seconds):
        text = f"breaker {row.label} was closed a short time ago, and only one request fails since"
        return Refusal("moved_on", text, state=row.state)
    opened = trip(
        row,
        policy,
        now,
        reason=command.reason,
        failing_since=command.failing_since,
        retry_after=command.retry_after,
    )
    opened = replace(opened, policy=command.policy)  # as it was said: with the mark of a probe
    event = BreakerOpened(
        *name_breaker(opened), reason=opened.reason, failing_since=opened.failing_since, probe_at=opened.probe_at
    )
    return BreakerChange(opened, [event], build_breaker_alert(opened, now))


def operate_agent(command: OperateAgent, row: BreakerRow, now: Instant) -> BreakerChange | Refusal:
    """Apply an operator's verb to an Agent or a target of it.

    Returns: the change; a Refusal if there is nothing to do, with the state.
    """
    event: Event
    match command.verb:
        case AgentVerb.OPEN:
            if row.state is BreakerState.OPEN and row.probe_at is None and not is_stand_in(row):
                return _refuse(row, "is open already, until an operator closes it")
            row = open_by_hand(row, now, by=command.by, reason=command.reason)
            event = BreakerOpened(
                *name_breaker(row), reason=command.reason, failing_since=row.failing_since, by=command.by
            )
        case AgentVerb.CLOSE:
            if row.state is BreakerState.CLOSED:
                return _refuse(row, "is closed already")
            if is_stand_in(row):
                return _replace_unreadable(command, row, now)
            row = close_by_hand(row, now)
            event = BreakerClosed(*name_breaker(row), by=command.by, reason=command.reason)
        case AgentVerb.PAUSE if is_stand_in(row):
            return _refuse(row, f"gets no calls: {row.reason}; close or open it, then pause it")
        case AgentVerb.PAUSE:
            if row.paused_at is not None:
                return _refuse(row, f"is paused already, by {row.paused_by}: {row.pause_reason}")
            row = replace(row, paused_at=now, paused_by=command.by, pause_reason=command.reason)
            event = AgentPaused(*name_breaker(row), by=command.by, reason=command.reason)
        case AgentVerb.RESUME:
            if row.paused_at is None:
                return _refuse(row, "is not paused")
            row = replace(row, paused_at=None, paused_by="", pause_reason="")
            event = AgentResumed(*name_breaker(row), by=command.by, reason=command.reason)
    return BreakerChange(row, [event])


def _replace_unreadable(command: OperateAgent, row: BreakerRow, now: Instant) -> BreakerChange:
    """Replace the row of a breaker that cannot be read. The history may not know that it was open, so that comes first."""
    opened = open_by_hand(row, now, by=command.by, reason=row.reason)
    closed = close_by_hand(opened, now)
    events: list[Event] = [
        BreakerOpened(*name_breaker(opened), reason=opened.reason, failing_since=opened.failing_since, by=command.by),
        BreakerClosed(*name_breaker(closed), by=command.by, reason=command.reason),
    ]
    return BreakerChange(closed, events)


def _refuse(row: BreakerRow, why: str) -> Refusal:
    return Refusal("not_allowed", f"{row.label} {why}", state=row.state)
