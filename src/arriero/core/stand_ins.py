"""Stand-ins for shared rows that this release cannot read. Values in, values out.

A row of a breaker, of limits or of a lease belongs to no task: many need it. While it cannot be read, all that needs it
waits, and nothing else does. So each row has a stand-in that the other rules know how to treat. No stand-in is ever written,
except where a verb of an operator or a process start replaces the row.
"""

from functools import singledispatch

from msgspec.structs import replace

from ..model import INSTANT_END, Instant
from ..model.agents import BEGUN_UNKNOWN, AgentLimitsRow, BreakerRow, BreakerState, LimitPolicy, RateRow, encode_limits
from ..model.leases import LeaseRow
from ..model.tokens import TokenRow
from ..model.workflow_pauses import PauseState, WorkflowPauseRow
from .lease import SUPERVISORS

FENCE_UNKNOWN = 1 << 40  # of a breaker: higher than any fence that it may have had
HOLDER_UNKNOWN = "unreadable"
LOOK_SECONDS = 1.0  # until limits are asked for again that could not be read
LIMITS_UNKNOWN = encode_limits((LimitPolicy(name="unreadable", kind="rate", most=0, per=LOOK_SECONDS),))


@singledispatch
def stand_in(row: object, column: str, why: str) -> object:
    """Return the stand-in for a row. Of any other kind it is as much of the row as can be read.

    Args:
        row: with a placeholder in each column that cannot be read (``store.readable.legible``).
        column: the first of those.
        why: names table, row and column.
    """
    return row


@stand_in.register
def _(row: BreakerRow, column: str, why: str) -> BreakerRow:
    """An unreadable breaker is open until an operator closes it. The policy of a closed one is never read."""
    if column == "policy" and row.state is BreakerState.CLOSED:
        return row
    return replace(
        row, state=BreakerState.OPEN, closed_at=None, probe_at=None, ramp_from=None, opened_by="", reason=_explain(why)
    )


def is_stand_in(row: BreakerRow) -> bool:
    """Returns True if this breaker stands in for one that cannot be read: nothing else opens one that never closes by itself."""
    return row.state is BreakerState.OPEN and row.probe_at is None and not row.opened_by


@stand_in.register
def _(row: AgentLimitsRow, column: str, why: str) -> AgentLimitsRow:
    """Unreadable limits have no room. ``look_at`` never comes, so a Take does not write them."""
    return replace(row, limits=LIMITS_UNKNOWN, has_keyless=False, look_at=INSTANT_END)


@stand_in.register
def _(row: RateRow, column: str, why: str) -> RateRow:
    """An unreadable rate is used up until its row says nothing any longer."""
    return replace(row, begun=BEGUN_UNKNOWN)


@stand_in.register
def _(row: LeaseRow, column: str, why: str) -> LeaseRow:
    """A mutex is held until its holder renews it, or an operator breaks it. The Supervisors' lease has lapsed.

    The one who gets that one has a higher term, so two who believe that they lead do no harm.
    """
    return replace(row, holder=None, until=Instant(0)) if row.name == SUPERVISORS else row


@stand_in.register
def _(row: TokenRow, column: str, why: str) -> TokenRow:
    """An unreadable token is refused."""
    return replace(row, scopes=(), revoked_at=row.revoked_at or row.created_at, revoked_reason=_explain(why))


@stand_in.register
def _(row: WorkflowPauseRow, column: str, why: str) -> WorkflowPauseRow:
    """An unreadable pause keeps new tasks waiting, and refuses none, until an operator pauses or resumes the workflow."""
    return replace(row, state=PauseState.PAUSED, pause_reason=_explain(why))


def _explain(why: str) -> str:
    return f"its row cannot be read: {why}"
