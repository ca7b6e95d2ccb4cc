"""Plain data: schedules as rows of the state store, and the commands that change them. ``core.schedules`` has the rules."""

from enum import StrEnum
from typing import Literal

import msgspec

from . import Instant
from .answers import Refusal, Submitted
from .commands import Command, Submit

OF_CODE = "code"  # declared by ``App.schedule``
OF_PERSON = "person"  # declared by ``arriero schedule add`` or ``app.schedules.add``


class Overlap(StrEnum):
    """Policy for a run that is due while the last one is still open. OVERLAPS says what each does."""

    SKIP = "skip"
    QUEUE = "queue"
    ALL = "all"
    CANCEL_RUNNING = "cancel_running"


OverlapName = Literal["skip", "queue", "all", "cancel_running"]  # of Overlap, for the signatures of public methods
OVERLAPS = {
    Overlap.SKIP: "an instant is passed over while the last run is open",
    Overlap.QUEUE: "runs wait for their turn, one after the other",
    Overlap.ALL: "runs begin immediately, beside those that are open",
    Overlap.CANCEL_RUNNING: "a run that is open is cancelled, and the new one begins",
}


def join_overlaps() -> str:
    """Join the names of all policies for a sentence: ``skip, queue, all or cancel_running``."""
    *names, last = Overlap
    return f"{', '.join(names)} or {last}"


class ScheduleState(StrEnum):
    """The state of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"  # by an operator; what becomes due meanwhile is never run
    ENDED = "ended"  # no instant is left: it was due once, or its cron line names no day any longer


class ScheduleVerb(StrEnum):
    """The verbs of an operator on a schedule."""

    PAUSE = "pause"
    RESUME = "resume"
    REMOVE = "remove"


class ProblemCause(StrEnum):
    """Reason why a due schedule submits nothing."""

    CODE = "code"  # no process alive has its workflow
    APPROVALS = "approvals"  # an open run is to be cancelled, and the settings ask for several operators
    ARGUMENTS = "arguments"  # they do not fit the workflow any longer
    PAUSED = "paused"  # an operator has paused its workflow for new tasks; it is not reported as a problem
    REFUSED = "refused"  # the store refuses its run
    UNREADABLE = "unreadable"  # its row; the store reports it in a separate alert


class Timing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Times of a schedule: a cron line in a time zone, a period in microseconds, or one instant. Exactly one is given."""

    cron: str = ""
    timezone: str = ""
    every: int = 0
    at: Instant | None = None


class ScheduleDeclaration(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A schedule as it was declared, as JSON text in its row.

    Attributes:
        workflow, arguments, policy: as in the row of a task.
        catch_up: microseconds that missed runs are run late for; None: only the last one is, however old.
        jitter: microseconds that a run may be late on purpose.
        source: OF_CODE or OF_PERSON; ``by``: that person.
        tags: of each run, in the order of their names.
    """

    workflow: str
    arguments: str
    policy: str
    timing: Timing
    overlap: Overlap = Overlap.SKIP
    catch_up: int | None = None
    jitter: int = 0
    priority: int = 5
    source: str = OF_CODE
    by: str = ""
    tags: dict[str, str] = {}


class ScheduleRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A schedule. Its columns are its fields, in this order.

    Attributes:
        declaration: a ScheduleDeclaration as JSON text.
        anchor: when it was declared so; ``every`` counts from here.
        next_at: the instant that is due next, without jitter; None: none is.
        look_at: when the leader looks at it next; None: not before an operator changes it.
        decided_until: about every instant up to here it is decided whether it is run.
        owed_until: instants up to here are run whatever ``catch_up`` says: a pass had no room for them.
        last_at, last_task, last_task_no: of the run that was submitted last.
        runs, passed_over: how many instants were run and passed over since it was declared first. A schedule with a cron
            line counts up to 100 of one gap.
        problem, problem_cause: why nothing is submitted; empty: there is no problem.
        undeclared_at: since when the newest process of its App does not declare it, although code declared it.
        revision: grows with each change of the row.
    """

    app: str
    name: str
    declaration: str
    state: ScheduleState
    anchor: Instant
    next_at: Instant | None
    look_at: Instant | None
    decided_until: Instant
    owed_until: Instant | None = None
    last_at: Instant | None = None
    last_task: str = ""
    last_task_no: int = 0
    runs: int = 0
    passed_over: int = 0
    problem: str = ""
    problem_cause: str = ""
    problem_since: Instant | None = None
    undeclared_at: Instant | None = None
    paused_at: Instant | None = None
    paused_by: str = ""
    pause_reason: str = ""
    changed_at: Instant = Instant(0)
    revision: int = 1


UNKNOWN_DECLARATION = ScheduleDeclaration(workflow="", arguments="null", policy="{}", timing=Timing())
decode_declaration = msgspec.json.Decoder(ScheduleDeclaration).decode
_encode = msgspec.json.Encoder().encode


def read_declaration(row: ScheduleRow) -> ScheduleDeclaration:
    """Read how a schedule was declared."""
    return decode_declaration(row.declaration)


def encode_declaration(declaration: ScheduleDeclaration) -> str:
    """Encode a declaration for a row. Equal declarations have equal texts."""
    return _encode(declaration).decode()


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule to be decided about.

    Attributes:
        is_open: whether any run of it has not ended, no matter who submitted it and whenever.
        cancellable: id of one of them that is not being undone already; empty: there is none.
        is_readable: False if this release, or this host, cannot read the row.
    """

    row: ScheduleRow
    is_open: bool
    cancellable: str
    is_readable: bool = True


class OpenRun(msgspec.Struct, frozen=True):
    """A run of a schedule that has not ended and is not being undone."""

    task_no: int
    task_id: str
    incarnation: int


class DueSchedules(msgspec.Struct, frozen=True):
    """Schedules to be decided about, longest due first. ``next_at``: when the next one is, of those that are not due."""

    now: Instant
    found: tuple[DueSchedule, ...]
    next_at: Instant | None


# --- commands
class DeclareSchedule(Command, frozen=True, gc=False, kw_only=True):
    """A schedule is declared, again or otherwise than before.

    ``if_new``: refused if there is one that is declared otherwise. ``reason``: of an operator.
    """

    app: str
    name: str
    declaration: ScheduleDeclaration
    if_new: bool = False
    reason: str = ""


class OperateSchedule(Command, frozen=True, gc=False, kw_only=True):
    """An operator's verb on a schedule. ``by``, ``reason``: who asks, and why; kept in the history."""

    verb: ScheduleVerb
    app: str
    name: str
    by: str
    reason: str


class FireSchedule(Command, frozen=True, gc=False, kw_only=True):
    """The decision about the instants of a schedule in (since, until]. Guard: the leader's term, and the row's revision.

    Args:
        term: of the leader; None: a process decides what is still due by the timing that it is about to replace.
        runs: the instants that are run, each with its submission in ``submits``.
        passed_over, why: how many are not, and why: ``overlap`` or ``catch_up``.
        cancels: whether the runs that are open are cancelled first, in the same transaction.
    """

    app: str
    name: str
    revision: int
    term: int | None
    since: Instant
    until: Instant
    runs: tuple[Instant, ...]
    submits: tuple[Submit, ...]
    passed_over: int
    why: str
    owed_until: Instant | None
    next_at: Instant | None
    look_at: Instant | None
    cancels: bool = False


class ReportScheduleProblem(Command, frozen=True, gc=False, kw_only=True):
    """Record that a schedule cannot submit, or that it can again (``problem`` is empty). Guard: the row's revision.

    ``term``: of the leader; None: a process that has the code found it. ``look_at``: when the leader looks again; with it a
    schedule that has no such problem is only looked at later.
    """

    app: str
    name: str
    revision: int
    cause: ProblemCause
    problem: str
    look_at: Instant | None
    term: int | None = None


class MarkUndeclared(Command, frozen=True, gc=False, kw_only=True):
    """The newest process of an App does not declare this schedule any longer. Guard: the row's revision."""

    app: str
    name: str
    revision: int


class RunSchedule(Command, frozen=True, gc=False, kw_only=True):
    """An operator asks for runs of some instants. ``submits``: one for each; what is there already stays as it is.

    ``is_backfill`` False: it is the run of now.
    """

    app: str
    name: str
    by: str
    reason: str
    runs: tuple[Instant, ...]
    submits: tuple[Submit, ...]
    is_backfill: bool


ScheduleCommand = (
    DeclareSchedule | OperateSchedule | FireSchedule | ReportScheduleProblem | MarkUndeclared | RunSchedule
)


class ScheduleApplied(msgspec.Struct, frozen=True, gc=False):
    """Written: the schedule as it now is; None: it was removed. ``submitted``: answers to its submissions, in their order.

    ``is_new``: it was not there before. ``is_changed`` False: everything was so already, and nothing was written.
    """

    row: ScheduleRow | None
    submitted: tuple[Submitted | Refusal, ...] = ()
    is_new: bool = False
    is_changed: bool = True
