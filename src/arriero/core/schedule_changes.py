"""Commands on one schedule: what they require of its row, and the row and events that they write. Values in, values out."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ..events import Event
from ..events.store import (
    ScheduleAsked,
    ScheduleDecided,
    ScheduleDeclared,
    ScheduleMended,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleTroubled,
)
from ..model import MICROSECONDS, AlertRow, Instant, later
from ..model.answers import WORKFLOW_PAUSED, Refusal, Submitted
from ..model.schedules import (
    OF_CODE,
    DeclareSchedule,
    FireSchedule,
    MarkUndeclared,
    OperateSchedule,
    ProblemCause,
    ReportScheduleProblem,
    RunSchedule,
    ScheduleCommand,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleState,
    ScheduleVerb,
    encode_declaration,
    read_declaration,
)
from .alert_rows import build_schedule_alert
from .deduplication import CONFLICT
from .schedules import find_look_at, is_anything_due

_encode = msgspec.json.encode
FOUND_BY_LEADER = (
    ProblemCause.CODE,
    ProblemCause.APPROVALS,
    ProblemCause.REFUSED,
)  # mended by a decision that is written
AGAIN_SECONDS = 10.0  # until a run is submitted again that the store refused


class ScheduleChange(msgspec.Struct):
    """Writes of a command. ``row`` None: the schedule is removed. No events: nothing is changed, unless ``marks``.

    ``opens``: an alert is opened. ``closes``: the open one is closed.
    """

    row: ScheduleRow | None
    events: list[Event]
    opens: AlertRow | None = None
    closes: bool = False
    marks: bool = False

    @property
    def is_written(self) -> bool:
        """True if anything is to be written."""
        return bool(self.events) or self.marks


def change_schedule(
    command: ScheduleCommand,
    row: ScheduleRow | None,
    now: Instant,
    term: int,
    answers: Sequence[Submitted | Refusal],
    cancelled: tuple[str, ...] = (),
) -> ScheduleChange | Refusal:
    """Decide what a command does to a schedule.

    Args:
        row: the schedule as it stands, locked; None: there is none of the name.
        term: of the leader that the store knows.
        answers: to the submissions of the command, in their order; empty if they are not asked yet.
        cancelled: ids of the runs that this transaction has cancelled for the command.
    """
    if isinstance(command, DeclareSchedule):
        return _declare(command, row, now)
    if row is None:
        return Refusal("unknown", f"there is no schedule {command.name!r} of App {command.app!r}")
    match command:
        case OperateSchedule():
            return _operate(command, row, now)
        case RunSchedule():
            return _run(command, row, answers)
        case FireSchedule():
            moved = _refuse_moved(row, command.revision, command.term, term)
            return moved or _fire(command, row, now, answers, cancelled)
        case ReportScheduleProblem():
            return _refuse_moved(row, command.revision, command.term, term) or _report_problem(command, row, now)
        case MarkUndeclared():
            marked = replace(row, undeclared_at=now, revision=row.revision + 1)
            return _refuse_moved(row, command.revision, None, term) or ScheduleChange(marked, [], marks=True)


def _refuse_moved(row: ScheduleRow, revision: int, sent_term: int | None, term: int) -> Refusal | None:
    if sent_term is not None and sent_term != term:
        return Refusal("old_term", f"term {sent_term}")
    if row.revision != revision:
        return Refusal("moved_on", f"schedule {row.name!r} has changed since", state=row.state)
    return None


# --- declaring
def _declare(command: DeclareSchedule, row: ScheduleRow | None, now: Instant) -> ScheduleChange | Refusal:
    declared = command.declaration
    text = encode_declaration(declared)
    if row is None:
        return _declare_new(command, text, now)
    if command.if_new and _is_code(row):
        return Refusal("declared", f"schedule {row.name!r} is declared by the code of App {row.app!r}: change it there")
    if row.declaration == text and row.undeclared_at is None:
        return ScheduleChange(row, [])
    if command.if_new:
        return Refusal("exists", f"schedule {row.name!r} exists with another declaration")
    before = _read_known(row)
    changed = replace(row, declaration=text, undeclared_at=None, changed_at=now, revision=row.revision + 1)
    if before is None or before.timing != declared.timing:  # instants of the new one that have passed are not run late
        if before is not None and is_anything_due(row, before, now):
            return Refusal("due", f"schedule {row.name!r} has an instant that is due and not decided")
        changed = replace(changed, anchor=_find_anchor(now), decided_until=now, owed_until=None)
        if row.state is not ScheduleState.PAUSED:
            changed = replace(changed, state=ScheduleState.ACTIVE)
    mends = before is None or (before.workflow, before.arguments) != (declared.workflow, declared.arguments)
    if mends:
        changed = replace(changed, problem="", problem_cause="", problem_since=None)
    changed = _look_again(changed, declared)
    events: list[Event] = [_build_declared(changed, declared, command.reason)]
    return ScheduleChange(changed, events, closes=mends)


def _read_known(row: ScheduleRow) -> ScheduleDeclaration | None:
    """Read how a schedule was declared; None: it cannot be read, and a new declaration takes its place."""
    try:
        return read_declaration(row)
    except msgspec.MsgspecError:
        return None


def _declare_new(command: DeclareSchedule, text: str, now: Instant) -> ScheduleChange:
    row = ScheduleRow(
        app=command.app,
        name=command.name,
        declaration=text,
        state=ScheduleState.ACTIVE,
        anchor=_find_anchor(now),
        next_at=None,
        look_at=None,
        decided_until=now,
        changed_at=now,
    )
    row = _look_again(row, command.declaration)
    return ScheduleChange(row, [_build_declared(row, command.declaration, command.reason)])


def _find_anchor(now: Instant) -> Instant:
    """Find where periods count from: a whole second, so that the instants of runs are easy to read."""
    return Instant(now // MICROSECONDS * MICROSECONDS)


def _look_again(row: ScheduleRow, declared: ScheduleDeclaration) -> ScheduleRow:
    """Set when a schedule is due next, and its state if nothing is."""
    next_at, look_at = find_look_at(row, declared.timing, declared.jitter, row.decided_until)
    if row.state is ScheduleState.PAUSED:
        return replace(row, next_at=next_at, look_at=None)
    if next_at is None:
        return replace(row, next_at=None, look_at=None, state=ScheduleState.ENDED)
    is_barred = row.problem_cause == ProblemCause.ARGUMENTS
    return replace(row, next_at=next_at, look_at=None if is_barred else look_at)


def _build_declared(row: ScheduleRow, declared: ScheduleDeclaration, reason: str) -> ScheduleDeclared:
    timing = declared.timing
    return ScheduleDeclared(
        row.name,
        row.app,
        row.revision,
        workflow=declared.workflow,
        decided_until=row.decided_until,
        overlap=str(declared.overlap),
        cron=timing.cron,
        timezone=timing.timezone,
        every=timing.every,
        anchor=row.anchor if timing.every else Instant(0),
        at=timing.at,
        catch_up=declared.catch_up,
        by=declared.by,
        reason=reason,
        tags=declared.tags,
    )


def _is_code(row: ScheduleRow) -> bool:
    before = _read_known(row)
    return before is not None and before.source == OF_CODE


# --- operators
def _operate(command: OperateSchedule, row: ScheduleRow, now: Instant) -> ScheduleChange | Refusal:
    who = (command.name, command.app, row.revision + 1)
    match command.verb:
        case ScheduleVerb.PAUSE:
            if row.state is not ScheduleState.ACTIVE:
                return _refuse(row, _describe_pause(row) if row.state is ScheduleState.PAUSED else "has ended")
            paused = replace(
                row,
                state=ScheduleState.PAUSED,
                look_at=None,
                paused_at=now,
                paused_by=command.by,
                pause_reason=command.reason,
                revision=row.revision + 1,
            )
            return ScheduleChange(paused, [SchedulePaused(*who, by=command.by, reason=command.reason)])
        case ScheduleVerb.RESUME:
            if row.state is not ScheduleState.PAUSED:
                return _refuse(row, "is not paused")
            resumed = replace(
                row,
                state=ScheduleState.ACTIVE,
                decided_until=Instant(max(now, row.decided_until)),
                owed_until=None,
                paused_at=None,
                paused_by="",
                pause_reason="",
                revision=row.revision + 1,
            )
            resumed = _look_again(resumed, read_declaration(row))
            event = ScheduleResumed(*who, by=command.by, reason=command.reason, decided_until=resumed.decided_until)
            return ScheduleChange(resumed, [event])
        case ScheduleVerb.REMOVE:
            removed = ScheduleRemoved(*who, by=command.by, reason=command.reason)
            return ScheduleChange(None, [removed], closes=True)


def _describe_pause(row: ScheduleRow) -> str:
    return f"is paused already, by {row.paused_by}: {row.pause_reason}"


def _refuse(row: ScheduleRow, why: str) -> Refusal:
    return Refusal("not_allowed", f"schedule {row.name!r} {why}", state=row.state)


def _run(command: RunSchedule, row: ScheduleRow, answers: Sequence[Submitted | Refusal]) -> ScheduleChange:
    submitted = list(zip(command.runs, command.submits, answers, strict=False))
    new = [(at, run, said) for at, run, said in submitted if isinstance(said, Submitted) and said.created]
    changed = replace(row, runs=row.runs + len(new), revision=row.revision + 1)
    if new and not command.is_backfill:
        at, run, said = new[-1]
        changed = replace(changed, last_at=at, last_task=run.task_id, last_task_no=said.task_no)
    event = ScheduleAsked(
        row.name,
        row.app,
        changed.revision,
        by=command.by,
        reason=command.reason,
        backfill=command.is_backfill,
        tasks=tuple(run.task_id for _, run, _ in new),
    )
    return ScheduleChange(changed, [event])


# --- the leader
def _fire(
    command: FireSchedule,
    row: ScheduleRow,
    now: Instant,
    answers: Sequence[Submitted | Refusal],
    cancelled: tuple[str, ...],
) -> ScheduleChange:
    said = list(zip(command.runs, command.submits, answers, strict=False))
    refused = [(run.task_id, answer) for _, run, answer in said if isinstance(answer, Refusal)]
    if any(
        answer.verdict == WORKFLOW_PAUSED for _, answer in refused
    ):  # paused in this moment: it waits, as from now on
        look_at = later(now, AGAIN_SECONDS)
        return ScheduleChange(replace(row, look_at=look_at, revision=row.revision + 1), [], marks=True)
    if any(answer.verdict != CONFLICT for _, answer in refused):
        return _report_problem(_build_refused_report(command, refused, later(now, AGAIN_SECONDS)), row, now)
    problem = f"run {refused[-1][0]} was not submitted: {refused[-1][1].detail}" if refused else ""
    submitted = [(at, run, answer) for at, run, answer in said if isinstance(answer, Submitted)]
    mends = row.problem_cause in FOUND_BY_LEADER and not problem
    if row.problem_cause == ProblemCause.REFUSED and not submitted:
        mends = False  # nothing shows that the next run is accepted
    changed = replace(
        row,
        state=ScheduleState.ENDED if command.next_at is None else row.state,
        next_at=command.next_at,
        look_at=command.look_at,
        decided_until=command.until,
        owed_until=command.owed_until,
        runs=row.runs + len(submitted),
        passed_over=row.passed_over + command.passed_over,
        revision=row.revision + 1,
    )
    if mends:
        changed = replace(changed, problem="", problem_cause="", problem_since=None)
    if submitted:
        at, run, answer = submitted[-1]
        changed = replace(changed, last_at=at, last_task=run.task_id, last_task_no=answer.task_no)
    who = (row.name, row.app, changed.revision)
    events: list[Event] = [ScheduleMended(*who, cause=row.problem_cause)] if mends else []
    alert = None
    if problem:
        if row.problem_cause != ProblemCause.REFUSED:
            events.append(ScheduleTroubled(*who, cause=ProblemCause.REFUSED, problem=problem))
            alert = build_schedule_alert(row.app, row.name, problem, now)
            changed = replace(changed, problem_since=now)
        changed = replace(changed, problem=problem, problem_cause=str(ProblemCause.REFUSED))
    if command.runs or command.passed_over:
        events.append(
            ScheduleDecided(
                *who,
                since=command.since,
                until=command.until,
                runs=command.runs,
                tasks=tuple(run.task_id for run in command.submits),
                passed_over=command.passed_over,
                why=command.why,
                refused=tuple(task_id for task_id, _ in refused),
                cancelled=cancelled,
                owed_until=command.owed_until,
            )
        )
    return ScheduleChange(changed, events, alert, closes=mends or alert is not None, marks=True)


def _build_refused_report(
    command: FireSchedule, refused: Sequence[tuple[str, Refusal]], look_at: Instant
) -> ReportScheduleProblem:
    """Build the report that a run waits because the store refuses it. Those of the decision that it took stay."""
    task_id, first = next((task_id, answer) for task_id, answer in refused if answer.verdict != CONFLICT)
    return ReportScheduleProblem(
        actor=command.actor,
        app=command.app,
        name=command.name,
        revision=command.revision,
        cause=ProblemCause.REFUSED,
        problem=f"run {task_id} is refused: {first.detail}",
        look_at=look_at,
        term=command.term,
    )


def _report_problem(command: ReportScheduleProblem, row: ScheduleRow, now: Instant) -> ScheduleChange:
    """A problem is reported once: another alert is opened only after this one was closed."""
    who = (row.name, row.app, row.revision + 1)
    if not command.problem and row.problem_cause != command.cause:
        if command.look_at is None:
            return ScheduleChange(row, [])
        return ScheduleChange(replace(row, look_at=command.look_at, revision=row.revision + 1), [], marks=True)
    if not command.problem:
        mended = replace(row, problem="", problem_cause="", problem_since=None, revision=row.revision + 1)
        mended = _look_again(mended, read_declaration(row))
        return ScheduleChange(mended, [ScheduleMended(*who, cause=str(command.cause))], closes=True)
    if row.problem_cause == command.cause:
        return ScheduleChange(replace(row, look_at=command.look_at, revision=row.revision + 1), [], marks=True)
    troubled = replace(
        row,
        problem=command.problem,
        problem_cause=str(command.cause),
        problem_since=now,
        look_at=command.look_at,
        revision=row.revision + 1,
    )
    event = ScheduleTroubled(*who, cause=str(command.cause), problem=command.problem)
    alert = build_schedule_alert(row.app, row.name, command.problem, now)
    return ScheduleChange(troubled, [event], alert, closes=True)  # that of another problem, if there was one
