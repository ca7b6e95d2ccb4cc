"""Declarations of schedules, by code or by an operator: checked, and turned into plain data.

Those of an App's code are kept in its store when a process of the App starts. The process that starts last is right. It writes
only what differs, marks what it does not declare any longer, and reports arguments that do not fit its code.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec

from ..core.schedule_instants import check_timing, list_between
from ..core.schedules import build_fire, decide_rest, is_anything_due, pass_over
from ..declare.workflows import Workflow
from ..errors import ArrieroError, InvalidInput
from ..model import MICROSECONDS, Instant
from ..model.answers import Refusal
from ..model.instants import as_instant
from ..model.policies import SECONDS_MAX, Duration, check_seconds
from ..model.schedules import (
    OF_CODE,
    DeclareSchedule,
    MarkUndeclared,
    Overlap,
    ProblemCause,
    ReportScheduleProblem,
    ScheduleCommand,
    ScheduleDeclaration,
    ScheduleRow,
    Timing,
    encode_declaration,
    read_declaration,
)
from ..model.tags import check_tags
from ..payloads import codec
from ..runtime.code import Code, read_one_step
from ..store.readable import faults_of
from ..text.format import format_period
from .session import Session
from .submission import find_code

logger = logging.getLogger("arriero")

ACTOR = "client"
BATCH = 500  # in one transaction
TRIES_MAX = 20  # while other processes declare the same schedules
GAPS_CHECKED = 100
CHECKED_FROM = Instant(1_767_225_600_000_000)  # 2026: whether a line names any day does not depend on today
# What the id of a run adds to the names of App and schedule: two marks, and an instant with microseconds.
LONGEST_OF_RUN = "/@9999-12-31T23:59:59.999999Z"


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a schedule, as ``App.schedule`` describes them; not checked yet."""

    cron: str | None = None
    timezone: str | None = None
    every: Duration | None = None
    at: datetime | None = None
    overlap: str = Overlap.SKIP
    catch_up: Duration | None = None
    jitter: Duration = 0
    priority: int = 5
    tags: Mapping[str, str] | None = None


def check_schedule_name(name: object, app: str) -> str:
    """Check the name of a schedule: with it and an instant the id of a task is made. Raises InvalidInput."""
    text = codec.check_id(name, "name of a schedule")
    if "/" in text:
        raise InvalidInput(f"name of a schedule {text!r} holds a '/'; it stands between App and schedule in a run's id")
    if len(app) + len(text) + len(LONGEST_OF_RUN) > codec.ID_LENGTH_MAX:
        room = codec.ID_LENGTH_MAX - len(app) - len(LONGEST_OF_RUN)
        raise InvalidInput(f"name of a schedule {text!r} is too long for the id of a run; it must have {room} at most")
    return text


def build_declaration(
    workflow: str, arguments: str, policy: str, options: ScheduleOptions, *, source: str = OF_CODE, by: str = ""
) -> ScheduleDeclaration:
    """Build the declaration of a schedule. Its cron line and zone are not read yet. Raises InvalidInput."""
    priority, overlap = options.priority, options.overlap
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidInput(f"priority is {priority!r}; it must be a whole number from 0 to 9")
    if overlap not in tuple(Overlap):
        raise InvalidInput(f"overlap is {overlap!r}; it must be one of {', '.join(Overlap)}")
    catch_up = None if options.catch_up is None else _check_microseconds(options.catch_up, "catch_up")
    return ScheduleDeclaration(
        workflow=workflow,
        arguments=arguments,
        policy=policy,
        timing=_build_timing(options),
        overlap=Overlap(overlap),
        catch_up=catch_up,
        jitter=_check_microseconds(options.jitter, "jitter"),
        priority=priority,
        source=source,
        by=by,
        tags={} if options.tags is None else check_tags(options.tags),
    )


def _build_timing(options: ScheduleOptions) -> Timing:
    for name, value in (("cron", options.cron), ("timezone", options.timezone)):
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise InvalidInput(f"{name} is {value!r}; it must be a text, like '0 3 * * *' or 'Europe/Madrid'")
    every = 0
    if options.every is not None:
        every = _check_microseconds(options.every, "every")
        if every < MICROSECONDS:
            raise InvalidInput(f"every is {every / MICROSECONDS:g} s; it must be at least 1 second")
    at = None if options.at is None else check_instant(options.at, "at")
    return Timing(cron=options.cron or "", timezone=options.timezone or "", every=every, at=at)


def check_instant(when: object, what: str) -> Instant:
    """Check an aware datetime, and return its instant. Raises InvalidInput."""
    if not isinstance(when, datetime):
        raise InvalidInput(f"{what} is {when!r}; it must be a datetime with a time zone")
    if when.tzinfo is None or when.utcoffset() is None:
        raise InvalidInput(
            f"{what} is {when.isoformat()}, without a time zone; give one, like datetime(..., tzinfo=UTC)"
        )
    if not 1970 <= when.astimezone(UTC).year < 9999:
        raise InvalidInput(f"{what} is {when.isoformat()}; it must lie after 1970 and before 9999")
    return as_instant(when)


def _check_microseconds(duration: Duration, what: str) -> int:
    if isinstance(duration, timedelta):  # exact, where a float may not be
        if not timedelta(0) <= duration <= timedelta(seconds=SECONDS_MAX):
            raise InvalidInput(f"{what} is {duration!r}; it must lie between 0 and {SECONDS_MAX:.0f} seconds")
        return duration // timedelta(microseconds=1)
    return round(check_seconds(duration, what) * MICROSECONDS)


def check_declaration(
    session: Session, name: object, call: Any, options: ScheduleOptions, **who: str
) -> tuple[str, ScheduleDeclaration]:
    """Check a schedule of a call of this App. Raises InvalidInput."""
    checked = check_schedule_name(name, session.app)
    code = find_code(session, call)
    declaration = build_declaration(code.name, code.arguments, code.policy_text, options, **who)
    timing = declaration.timing
    check_timing(timing, CHECKED_FROM)
    if declaration.jitter and timing.at is None:
        gap = _find_shortest_gap(timing)
        if declaration.jitter > gap:
            raise InvalidInput(
                f"jitter is {format_period(declaration.jitter)}, longer than the {format_period(gap)} between two runs;"
                " choose a shorter one"
            )
    return checked, declaration


def _find_shortest_gap(timing: Timing) -> int:
    """Find the shortest time between two runs, of a cron line among the first ones. Later ones may lie closer."""
    if timing.every:
        return timing.every
    instants = list_between(timing, CHECKED_FROM, CHECKED_FROM, Instant(2**60), GAPS_CHECKED + 1)
    return min(after - before for before, after in pairwise(instants))


async def declare_schedules(session: Session) -> None:
    """Keep the schedules of the App's code in its store. Raises StoreError."""
    store = session.store
    for _ in range(TRIES_MAX):
        rows = await store.list_schedules(session.app)
        commands = await _list_changes(session, rows)
        if not commands:
            return
        is_done = True
        for start in range(0, len(commands), BATCH):
            answers = await store.change_schedules(commands[start : start + BATCH])
            is_done = is_done and not any(isinstance(answer, Refusal | ArrieroError) for answer in answers)
        if is_done:
            return
    logger.warning("not all schedules of App %s could be declared: see `arriero schedule list`", session.app)


async def _list_changes(session: Session, rows: Sequence[ScheduleRow]) -> list[ScheduleCommand]:
    known = {row.name: row for row in rows}
    is_readable = {row.name: not faults_of(row) for row in rows}
    now = session.store.now()
    commands: list[ScheduleCommand] = []
    for name, declaration in session.schedules.items():
        row = known.get(name)
        if row is not None and row.declaration == encode_declaration(declaration) and row.undeclared_at is None:
            continue
        if row is not None and is_readable[name] and read_declaration(row).timing != declaration.timing:
            commands += await _decide_rest(session, row, declaration, now)
        commands.append(DeclareSchedule(actor=ACTOR, app=session.app, name=name, declaration=declaration))
    for row in rows:
        if row.name in session.schedules or not is_readable[row.name]:
            continue
        if read_declaration(row).source == OF_CODE and row.undeclared_at is None:
            commands.append(MarkUndeclared(actor=ACTOR, app=row.app, name=row.name, revision=row.revision))
        elif (report := report_misfit(session, row)) is not None:
            commands.append(report)
    return sorted(
        commands, key=lambda command: command.name
    )  # rows are made in one order by all who start at the same time


async def _decide_rest(
    session: Session, row: ScheduleRow, declaration: ScheduleDeclaration, now: Instant
) -> list[ScheduleCommand]:
    """Decide what is due by the timing that is to be replaced: it is run with the new code and arguments."""
    if not is_anything_due(row, read_declaration(row), now):
        return []
    decision = decide_rest(row, now, is_open=await session.store.is_run_open(row.app, row.name))
    if decision.cancels and (session.configuration or session.configure()).approvals_cancel > 1:
        decision = pass_over(decision)
    run_as = msgspec.structs.replace(row, declaration=encode_declaration(declaration))
    draw = session.ports.random.getrandbits
    return [build_fire(run_as, decision, declaration.policy, draw, actor=ACTOR, term=None)]


def report_misfit(session: Session, row: ScheduleRow) -> ReportScheduleProblem | None:
    """Build the command that says whether the arguments of a schedule fit the code of this App, if that is news."""
    if faults_of(row):
        return None
    declaration = read_declaration(row)
    code = session.codes.get(declaration.workflow)
    if code is None:
        return None  # another process may have it; the leader sees that
    problem = describe_misfit(code, declaration)
    if bool(problem) == (row.problem_cause == ProblemCause.ARGUMENTS):
        return None
    return ReportScheduleProblem(
        actor=ACTOR,
        app=row.app,
        name=row.name,
        revision=row.revision,
        cause=ProblemCause.ARGUMENTS,
        problem=problem,
        look_at=None,
    )


def describe_misfit(code: Code, declaration: ScheduleDeclaration) -> str:
    """Describe how arguments do not fit the code that they are for; empty: they fit."""
    definition, text = code.definition, declaration.arguments
    try:
        if not isinstance(definition, Workflow):
            text = bytes(read_one_step(text).arguments).decode()
        definition.signature.arguments(text)
    except (InvalidInput, ValueError) as error:
        return f"its arguments no longer fit {declaration.workflow!r}: {error}"
    return ""
