"""Events of the store's own history about schedules."""

from ..model import Instant
from ..text.format import format_count, format_timing
from .base import HistoryEvent, HistoryNames


class _OfSchedule(HistoryEvent, frozen=True):
    """An event of one schedule. ``revision``: of its row from now on."""

    schedule: str
    app: str
    revision: int


class ScheduleDeclared(_OfSchedule, frozen=True, kw_only=True, tag="schedule.declared"):
    """A schedule is due from now on as it says here. ``decided_until``: no instant before is run by it.

    ``cron``, ``timezone``, ``every`` (microseconds, counted from ``anchor``) and ``at``: when it is due. ``catch_up``:
    microseconds; None: only the last missed run is made up. ``by``, ``reason``: of a person; empty: code declares it.
    """

    workflow: str
    decided_until: Instant
    overlap: str
    cron: str = ""
    timezone: str = ""
    every: int = 0
    anchor: Instant = Instant(0)
    at: Instant | None = None
    catch_up: int | None = None
    by: str = ""
    reason: str = ""

    def describe(self, names: HistoryNames) -> str:
        timing = format_timing(self.cron, self.timezone, self.every, self.at)
        who = f"{self.by} added it" if self.by else "code declared it"
        why = f' ("{self.reason}")' if self.reason else ""
        return f"{who}: {self.workflow}, {timing}, overlap {self.overlap}{why}"


class ScheduleDecided(_OfSchedule, frozen=True, kw_only=True, tag="schedule.decided"):
    """The instants after ``since`` up to ``until`` were decided: ``runs`` are submitted, the others are passed over.

    ``tasks``: ids of the runs. ``why``: others are passed over: ``overlap``, because the last run was open, or
    ``catch_up``, because they were missed. ``refused``: ids that another task has. ``cancelled``: runs that were
    cancelled for this one. ``owed_until``: instants up to here are run later, because a pass had no room for them.
    """

    since: Instant
    until: Instant
    runs: tuple[Instant, ...] = ()
    tasks: tuple[str, ...] = ()
    passed_over: int = 0
    why: str = ""
    refused: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    owed_until: Instant | None = None

    def describe(self, names: HistoryNames) -> str:
        says = f"{format_count(len(self.runs), 'run')} submitted"
        if len(self.tasks) == 1:
            says = f"it submitted {self.tasks[0]}"
        elif not self.runs:
            says = "nothing was submitted"
        why = {"overlap": "the last run was open", "catch_up": "missed"}.get(self.why, self.why)
        over = f"; {format_count(self.passed_over, 'instant')} passed over: {why}" if self.passed_over else ""
        cancelled = f"; cancelled for it: {', '.join(self.cancelled)}" if self.cancelled else ""
        refused = f"; another task has the id {self.refused[0]}" if self.refused else ""
        return says + over + cancelled + refused


class ScheduleAsked(_OfSchedule, frozen=True, kw_only=True, tag="schedule.asked"):
    """A person asked for runs. ``tasks``: those that are new. ``backfill``: of instants in the past; else of now."""

    by: str
    reason: str
    backfill: bool
    tasks: tuple[str, ...] = ()

    def describe(self, names: HistoryNames) -> str:
        what = "a backfill" if self.backfill else "a run now"
        return f'{self.by} asked for {what}: "{self.reason}"; {format_count(len(self.tasks), "new run")}'


class SchedulePaused(_OfSchedule, frozen=True, kw_only=True, tag="schedule.paused"):
    """The schedule was paused: it submits nothing until a person resumes it."""

    by: str
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} paused it: "{self.reason}"'


class ScheduleResumed(_OfSchedule, frozen=True, kw_only=True, tag="schedule.resumed"):
    """The schedule was resumed: it submits again what becomes due after ``decided_until``."""

    by: str
    reason: str
    decided_until: Instant

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} resumed it: "{self.reason}"'


class ScheduleRemoved(_OfSchedule, frozen=True, kw_only=True, tag="schedule.removed"):
    """The schedule is gone. Its runs stay."""

    by: str
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} removed it: "{self.reason}"'


class ScheduleTroubled(_OfSchedule, frozen=True, kw_only=True, tag="schedule.troubled"):
    """The schedule cannot submit until its problem is mended. ``cause``: ``code`` or ``arguments``."""

    cause: str
    problem: str

    def describe(self, names: HistoryNames) -> str:
        return f"it submits nothing: {self.problem}"


class ScheduleMended(_OfSchedule, frozen=True, kw_only=True, tag="schedule.mended"):
    """The problem of the schedule is mended: it submits again."""

    cause: str

    def describe(self, names: HistoryNames) -> str:
        return "it submits again"


EventOfSchedule = (
    ScheduleDeclared
    | ScheduleDecided
    | ScheduleAsked
    | SchedulePaused
    | ScheduleResumed
    | ScheduleRemoved
    | ScheduleTroubled
    | ScheduleMended
)
