"""Backlog of a store: counts and ages for monitors."""

import msgspec

from ..model import Instant


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what waits, as of one moment. Each count stops at ``store.contract_parts.COUNTED_MAX``: so many, or more.

    They are read from indexes that hold only what is not finished, so ended tasks cost nothing.

    Attributes:
        held: tasks that a process holds.
        due: free tasks that may go on now; ``oldest_due_at``: since when the oldest may.
        later: free tasks that may not go on before an instant that has not come.
        in_convoy: tasks that wait for their turn.
        error: tasks that wait for a person.
        convoys_stopped, convoys_in_gap, convoys_parked: convoys that stand still.
        alerts: open alerts.
        statuses: status messages that nobody acknowledged; ``oldest_status_at``: since when the oldest is there.
        schedules_due: schedules that the leader should have looked at; ``oldest_schedule_at``: since when.
        leases: leases that somebody holds, with that of the Supervisors.
    """

    now: Instant
    held: int
    due: int
    oldest_due_at: Instant | None
    later: int
    in_convoy: int
    error: int
    convoys_stopped: int
    convoys_in_gap: int
    convoys_parked: int
    alerts: int
    statuses: int
    oldest_status_at: Instant | None
    schedules_due: int
    oldest_schedule_at: Instant | None
    leases: int
