"""Events of the store's own history: processes, leases, ledgers, Apps, and what was removed."""

from msgspec import Raw, field

from ..model import Instant
from ..model.tags import format_tags
from ..text.format import format_count, format_instant, format_timing
from .base import HistoryEvent, HistoryNames


class _OfSchedule(HistoryEvent, frozen=True):
    """An event of one schedule. ``revision``: of its row from now on."""

    schedule: str
    app: str
    revision: int


class ScheduleDeclared(_OfSchedule, frozen=True, kw_only=True, tag="schedule.declared"):
    """A schedule is due from now on as it says here. ``decided_until``: no instant before is run by it.

    ``cron``, ``timezone``, ``every`` (microseconds, counted from ``anchor``) and ``at``: when it is due. ``catch_up``:
    microseconds; None: only the last missed run is run late. ``by``, ``reason``: of an operator; empty: code declares it.
    ``tags``: of its runs.
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
    tags: dict[str, str] = field(default_factory=dict)

    def describe(self, names: HistoryNames) -> str:
        timing = format_timing(self.cron, self.timezone, self.every, self.at)
        who = f"{self.by} added it" if self.by else "code declared it"
        why = f' ("{self.reason}")' if self.reason else ""
        tags = f", tagged {format_tags(self.tags)}" if self.tags else ""
        return f"{who}: {self.workflow}, {timing}, overlap {self.overlap}{tags}{why}"


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
    """An operator asked for runs. ``tasks``: those that are new. ``backfill``: of instants in the past; else of now."""

    by: str
    reason: str
    backfill: bool
    tasks: tuple[str, ...] = ()

    def describe(self, names: HistoryNames) -> str:
        what = "a backfill" if self.backfill else "a run now"
        return f'{self.by} asked for {what}: "{self.reason}"; {format_count(len(self.tasks), "new run")}'


class SchedulePaused(_OfSchedule, frozen=True, kw_only=True, tag="schedule.paused"):
    """The schedule was paused: it submits nothing until an operator resumes it."""

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
    """The schedule no longer exists. Its runs stay."""

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


class _OfBreaker(HistoryEvent, frozen=True):
    """An event of one breaker. ``fence``: of the breaker from now on."""

    agent: str
    fence: int
    app: str = ""
    target: str = ""


class BreakerOpened(_OfBreaker, frozen=True, kw_only=True, tag="breaker.opened"):
    """The Agent begins no more attempts.

    ``probe_at``: when the first canary may go; None: an operator must close it. ``by``: the person who opened it.
    """

    reason: str
    failing_since: Instant | None = None
    probe_at: Instant | None = None
    by: str = ""

    def describe(self, names: HistoryNames) -> str:
        if self.by:
            return f'{self.by} opened it: "{self.reason}"'
        until = "" if self.probe_at is None else f"; a canary may go from {format_instant(self.probe_at)} on"
        return f"it opened: {self.reason}{until}"


class BreakerProbed(_OfBreaker, frozen=True, kw_only=True, tag="breaker.probed"):
    """A canary goes: an attempt of ``step`` (its ordinal) of ``task``, as number ``number`` of a wave of that many."""

    task: int
    step: int
    step_fence: int
    wave: int
    number: int

    def describe(self, names: HistoryNames) -> str:
        return f"canary {self.number} of {self.wave} went: task number {self.task}, step {self.step}"


class BreakerAnswered(_OfBreaker, frozen=True, kw_only=True, tag="breaker.answered"):
    """A canary has ended. ``outcome``: ``answered``, ``failed``, or ``lost`` with its process."""

    task: int
    step: int
    step_fence: int
    outcome: str

    def describe(self, names: HistoryNames) -> str:
        what = {"answered": "was answered", "failed": "failed", "lost": "was lost with its process"}
        return f"the canary of task number {self.task} {what.get(self.outcome, self.outcome)}"


class BreakerProbeBegun(_OfBreaker, frozen=True, kw_only=True, tag="breaker.probe_begun"):
    """A process asks the service by the Agent's probe, in place of a canary. Nobody else does before ``until``."""

    began_at: Instant
    until: Instant

    def describe(self, names: HistoryNames) -> str:
        return f"a probe asks the service; it has until {format_instant(self.until)}"


class BreakerProbeEnded(_OfBreaker, frozen=True, kw_only=True, tag="breaker.probe_ended"):
    """The probe that began under ``probe_fence`` has ended.

    ``failure``: what speaks against the service; None: it is healthy, and waves of canaries follow. ``probe_at``: of a failed
    one: when the next may go.
    """

    probe_fence: int
    failure: str | None = None
    probe_at: Instant | None = None

    def describe(self, names: HistoryNames) -> str:
        if self.failure is None:
            return "the probe says that the service is healthy"
        again = "" if self.probe_at is None else f"; again from {format_instant(self.probe_at)} on"
        return f"the probe failed: {self.failure}{again}"


class BreakerClosed(_OfBreaker, frozen=True, kw_only=True, tag="breaker.closed"):
    """Attempts begin as always. ``by``: the person who closed it; empty: the ramp is over."""

    by: str = ""
    reason: str = ""

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} closed it: "{self.reason}"' if self.by else "it closed: the service is healthy again"


class AgentPaused(_OfBreaker, frozen=True, kw_only=True, tag="agent.paused"):
    """An operator keeps the Agent from taking anything."""

    by: str
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} paused it: "{self.reason}"'


class AgentResumed(_OfBreaker, frozen=True, kw_only=True, tag="agent.resumed"):
    """The Agent takes requests again."""

    by: str
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} resumed it: "{self.reason}"'


EventOfBreaker = (
    BreakerOpened
    | BreakerProbed
    | BreakerAnswered
    | BreakerProbeBegun
    | BreakerProbeEnded
    | BreakerClosed
    | AgentPaused
    | AgentResumed
)


class ProcessStarted(HistoryEvent, frozen=True, tag="process.started"):
    """A process has begun. ``app``: empty if it names none. ``versions``: of its code, see ``model.processes.Versions``."""

    process: int
    app: str = ""
    versions: dict[str, tuple[str, ...]] = field(default_factory=dict)


class ProcessRetired(HistoryEvent, frozen=True, tag="process.retired"):
    """A process holds nothing any longer. ``known_dead``: it was found dead, or ended; else it was silent for too long."""

    process: int
    known_dead: bool


class LimitsDeclared(HistoryEvent, frozen=True, tag="limits.declared"):
    """A process that starts declares the limits of an Agent. They hold from now on. ``model.agents``: LimitPolicies."""

    agent: str
    app: str
    process: int
    limits: Raw


class LeaseGranted(HistoryEvent, frozen=True, tag="lease.granted"):
    """A process leads, under a new term. ``owner``: the holder of a mutex, then ``process`` is 0."""

    lease: str
    term: int
    process: int
    owner: str = ""

    def describe(self, names: HistoryNames) -> str:
        return f"{name_holder(self)} leads, in term {self.term}"


class LeaseLost(HistoryEvent, frozen=True, tag="lease.lost"):
    """A process gave its lease back, or let it run out. ``owner``: the holder of a mutex, then ``process`` is 0."""

    lease: str
    term: int
    process: int
    owner: str = ""

    def describe(self, names: HistoryNames) -> str:
        return f"{name_holder(self)} gave it back, in term {self.term}"


class LeaseBroken(HistoryEvent, frozen=True, tag="lease.broken"):
    """An operator took a lease from its holder. ``at_once``: another one may have it from now on."""

    lease: str
    term: int
    process: int
    owner: str
    at_once: bool
    reason: str

    def describe(self, names: HistoryNames) -> str:
        now = ", immediately" if self.at_once else ""
        return f'{names.actor} took it from {name_holder(self)}, term {self.term}{now}: "{self.reason}"'


EventOfLease = LeaseGranted | LeaseLost | LeaseBroken


def name_holder(event: EventOfLease) -> str:
    """Name who holds, or held, the lease of an event: the holder of a mutex by its name, a process by its number."""
    return event.owner or f"process {event.process}"


class LeaderRefused(HistoryEvent, frozen=True, tag="leader.refused"):
    """A Supervisor wrote under a term that was past: nothing was changed. ``current``: the term that holds."""

    term: int
    current: int
    task: int


class EpochOpened(HistoryEvent, frozen=True, tag="epoch.opened"):
    """The store was brought back from a copy: the one who worked on it before may not write any longer."""

    epoch: int
    reason: str


class AppRenamed(HistoryEvent, frozen=True, tag="app.renamed", rename={"from_app": "from"}):
    """Tasks of one App are another's from now on. ``tasks``: how many."""

    from_app: str
    app: str
    tasks: int
    reason: str


class LedgerOpenedEvent(HistoryEvent, frozen=True, tag="ledger.opened"):
    """All tasks of a ledger are there from now on. ``accepted``: how many."""

    ledger: str
    digest: str
    written: int
    accepted: int
    duplicates: int
    aside: int


class LedgerDiscarded(HistoryEvent, frozen=True, tag="ledger.discarded"):
    """A ledger was removed before it was opened."""

    ledger: str
    written: int
    reason: str


class LedgerPurged(HistoryEvent, frozen=True, tag="ledger.purged"):
    """A ledger was removed. ``erased``: link and hash of each row of this history whose events were erased for it."""

    erased: tuple[tuple[int, str], ...]


class TasksPurged(HistoryEvent, frozen=True, tag="tasks.purged"):
    """Tasks were removed with their histories. ``heads``: one hash over the last link of each."""

    count: int
    heads: str


class ConvoysPurged(HistoryEvent, frozen=True, tag="convoys.purged"):
    """A convoy was removed with its history. ``heads``: hash of its last link."""

    count: int
    heads: str


class StatusesDropped(HistoryEvent, frozen=True, tag="statuses.dropped"):
    """Messages in reply queues were removed that nobody had read."""

    count: int


class TokenCreated(HistoryEvent, frozen=True, tag="token.created"):
    """There is a new token of the HTTP API. ``expires_at``: None: never."""

    token: str
    name: str
    scopes: tuple[str, ...]
    expires_at: Instant | None
    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    open_tasks_max: int | None = None


class TokenRevoked(HistoryEvent, frozen=True, tag="token.revoked"):
    """A token is refused from now on."""

    token: str
    name: str
    reason: str


class WorkflowPausedEvent(HistoryEvent, frozen=True, tag="workflow.paused"):
    """No new task of a workflow of an App begins until it is resumed. ``refuses``: new tasks are refused, too."""

    app: str
    workflow: str
    by: str
    reason: str
    refuses: bool = False

    def describe(self, names: HistoryNames) -> str:
        takes = "and lets it take no new tasks" if self.refuses else "for new tasks"
        return f'{self.by} paused workflow {self.workflow} of App {self.app!r} {takes}: "{self.reason}"'


class WorkflowResumed(HistoryEvent, frozen=True, tag="workflow.resumed"):
    """New tasks of a workflow of an App begin again."""

    app: str
    workflow: str
    by: str
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} resumed workflow {self.workflow} of App {self.app!r}: "{self.reason}"'


class Erased(HistoryEvent, frozen=True, tag="erased"):
    """Stands in place of the events of a row that were removed; a ``LedgerPurged`` names the row."""


EventOfStore = (
    ProcessStarted
    | ProcessRetired
    | LimitsDeclared
    | EventOfLease
    | LeaderRefused
    | EpochOpened
    | AppRenamed
    | LedgerOpenedEvent
    | LedgerDiscarded
    | LedgerPurged
    | TasksPurged
    | ConvoysPurged
    | StatusesDropped
    | TokenCreated
    | TokenRevoked
    | WorkflowPausedEvent
    | WorkflowResumed
    | Erased
)
