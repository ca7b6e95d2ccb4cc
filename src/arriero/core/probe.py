"""The probe of a service: how one process of all asks whether it is well, in place of a canary. Values in, values out.

A probe is a function of the user that does no harm if it is called often, and needs no request. Who begins it moves
``probe_at`` of the open breaker to the end of the probe's time, under a new fence. So until then nobody else probes, and no
canary goes. If the process dies, that time passes, and the next one probes. The end of a probe counts only under its fence.

If the service is well, the breaker is half open as after the first canary, and waves of requests follow. If not, it stays
open for another cool-off.
"""

from msgspec.structs import replace

from ..answers import Refusal
from ..breakers import BreakerRow, BreakerState
from ..commands import BeginProbe, EndProbe
from ..events import Event
from ..events.breaker import BreakerProbeBegun, BreakerProbeEnded
from ..model import Instant, later
from .breaker import BreakerEvent, advance_breaker, decode_breaker_policy
from .breaker_book import name_breaker
from .changes import BreakerChange

ANSWER_SECONDS = 5.0  # beyond the time of a probe, until its end is written: else another process would probe as well


def begin_probe(command: BeginProbe, row: BreakerRow, now: Instant) -> BreakerChange | Refusal:
    """Let a process probe. Guard: the breaker is open by itself, not paused, and its time for a probe has come."""
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
    """Take in the end of a probe. Guard: the breaker is as the probe began it, and the time of the probe is not over."""
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
