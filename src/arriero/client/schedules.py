"""Schedules as operators see them: when they are due next, what is wrong, and the verbs on one of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from ..core.schedule_instants import iterate_instants
from ..core.schedules import build_run
from ..errors import ArrieroError, InvalidInput, NotAllowed, UnknownName, VerbRefused
from ..explain.schedules import NextRun, list_next_runs
from ..model import Instant
from ..model.answers import Refusal, Submitted
from ..model.instants import as_datetime
from ..model.policies import Duration
from ..model.schedules import (
    OF_CODE,
    OF_PERSON,
    UNKNOWN_DECLARATION,
    DeclareSchedule,
    OperateSchedule,
    OverlapName,
    ProblemCause,
    RunSchedule,
    ScheduleApplied,
    ScheduleCommand,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleState,
    ScheduleVerb,
    read_declaration,
)
from ..runtime.schedule_runner import list_codes
from ..store.contract import Busy
from ..store.readable import faults_of, format_faults, legible
from .row_shapes import build_output, to_datetime
from .schedule_declarations import ScheduleOptions, check_declaration, check_instant, report_misfit
from .session import Session
from .task_verbs import ACTOR, check_signature

NEXT_SHOWN = 5
BACKFILL_MAX = 1_000  # runs of one backfill: each is a task
BUSY_MAX = 40  # tries while another transaction has a row of it
BUSY_SECONDS = 0.05


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands.

    Attributes:
        cron, timezone, every, at: when it is due; one of cron, every and at is given.
        overlap: what becomes of a run that is due while the last one is open, in the word that it was declared with.
        catch_up: how far back missed runs are run late; None: only the last one is.
        declared_in_code: else ``declared_by`` has added it.
        state: ``active``, ``paused`` or ``ended``.
        next_runs: the next five instants; what is unusual about one is said there. Empty: none comes, or it is paused.
        last_run, last_task: instant and task of the run that was submitted last.
        runs, passed_over: how many instants were run, and how many were not.
        problem: why it submits nothing although it is due; empty: there is no problem.
        tags: of its runs.
        undeclared_since: code declared it, but the newest process of its App does not any longer.
    """

    name: str
    app: str
    workflow: str
    arguments: msgspec.Raw
    cron: str
    timezone: str
    every: timedelta | None
    at: datetime | None
    overlap: str
    catch_up: timedelta | None
    jitter: timedelta
    priority: int
    declared_in_code: bool
    declared_by: str
    state: str
    next_runs: tuple[NextRun, ...]
    last_run: datetime | None
    last_task: str
    runs: int
    passed_over: int
    problem: str
    problem_since: datetime | None
    undeclared_since: datetime | None
    paused_at: datetime | None
    paused_by: str
    pause_reason: str
    tags: dict[str, str] = {}


class AskedRun(msgspec.Struct, frozen=True):
    """One run that an operator asked for. ``outcome``: ``planned`` with a dry run; ``there``: its task was there already."""

    at: datetime
    task_id: str
    outcome: Literal["planned", "submitted", "there", "refused"]
    detail: str = ""


def build_schedule_view(row: ScheduleRow, count: int = NEXT_SHOWN) -> ScheduleView:
    """Build the view of a schedule, with that many of its next instants. Of an unreadable one, as much as can be shown."""
    faults = faults_of(row)
    declared = read_shown_declaration(row)
    row = legible(row)
    timing = declared.timing
    is_active = row.state is ScheduleState.ACTIVE and not faults
    return build_output(
        ScheduleView,
        row,
        workflow=declared.workflow,
        arguments=msgspec.Raw(declared.arguments.encode()),
        cron=timing.cron,
        timezone=timing.timezone or ("UTC" if timing.cron else ""),
        every=timedelta(microseconds=timing.every) if timing.every else None,
        at=to_datetime(timing.at),
        overlap=str(declared.overlap),
        catch_up=None if declared.catch_up is None else timedelta(microseconds=declared.catch_up),
        jitter=timedelta(microseconds=declared.jitter),
        priority=declared.priority,
        declared_in_code=declared.source == OF_CODE,
        declared_by=declared.by,
        next_runs=tuple(list_next_runs(row, count)) if is_active else (),
        last_run=to_datetime(row.last_at),
        problem=row.problem or (f"its row cannot be read: {format_faults(faults)}" if faults else ""),
        undeclared_since=to_datetime(row.undeclared_at),
        tags=declared.tags,
    )


def read_shown_declaration(row: ScheduleRow) -> ScheduleDeclaration:
    """Read how a schedule was declared, also if its zone is not known here; of an unreadable one all is unknown."""
    try:
        return read_declaration(row)
    except msgspec.MsgspecError:
        return UNKNOWN_DECLARATION


class Schedules:
    """The schedules of one App, for operators. ``App.schedules`` makes it; nothing is asked of the store by that."""

    def __init__(self, session: Session, app: str) -> None:
        self._session = session
        self._app = app

    async def list(self) -> tuple[ScheduleView, ...]:
        """All schedules of the App, by name, each with its next instant. Raises StoreError."""
        rows = await self._session.store.list_schedules(self._app)
        return tuple(build_schedule_view(row, 1) for row in rows)

    async def show(self, name: str) -> ScheduleView:
        """One schedule, with its next five instants and what is unusual about each.

        Raises: InvalidInput - there is none of the name; StoreError.
        """
        return build_schedule_view(await self._find(name))

    async def add(
        self,
        name: str,
        call: Any,
        *,
        by: str,
        reason: str,
        cron: str | None = None,
        timezone: str | None = None,
        every: Duration | None = None,
        at: datetime | None = None,
        overlap: OverlapName = "skip",
        catch_up: Duration | None = None,
        jitter: Duration = 0,
        priority: int = 5,
        tags: Mapping[str, str] | None = None,
    ) -> ScheduleView:
        """Add a schedule that no code declares. The same again changes nothing.

        Args:
            by, reason: who asks, and why; kept in the store's history.
            call, cron, timezone, every, at, overlap, catch_up, jitter, priority, tags: as for ``App.schedule``.
        Raises: InvalidInput - it cannot be so, ``at`` has passed, or there is another one of the name; StoreError.
        """
        who, why = check_signature(by, reason)
        options = ScheduleOptions(
            cron=cron,
            timezone=timezone,
            every=every,
            at=at,
            overlap=overlap,
            catch_up=catch_up,
            jitter=jitter,
            priority=priority,
            tags=tags,
        )
        checked, declaration = check_declaration(self._session, name, call, options, source=OF_PERSON, by=who)
        due = declaration.timing.at
        if due is not None and due <= self._session.store.now():
            raise InvalidInput(
                f"at is {as_datetime(due).isoformat()}, which has passed; submit the task, or name another"
            )
        command = DeclareSchedule(
            actor=ACTOR, app=self._app, name=checked, declaration=declaration, if_new=True, reason=why
        )
        answer = await self._change(command)
        assert answer.row is not None
        return build_schedule_view(answer.row)

    async def pause(self, name: str, *, by: str, reason: str) -> ScheduleView:
        """Run nothing until it is resumed. What is due meanwhile is never run, and runs that are open continue.

        Raises: VerbRefused - it is paused, or has ended; InvalidInput - there is none of the name; StoreError.
        """
        return await self._operate(ScheduleVerb.PAUSE, name, by, reason)

    async def resume(self, name: str, *, by: str, reason: str) -> ScheduleView:
        """Run what becomes due from now on. Raises: VerbRefused - it is not paused; as ``pause``."""
        return await self._operate(ScheduleVerb.RESUME, name, by, reason)

    async def remove(self, name: str, *, by: str, reason: str) -> ScheduleView:
        """Remove it; its runs stay. If code declares it, it is back when a process of its App starts.

        Returns: the schedule as it was.
        Raises: InvalidInput - there is none of the name; StoreError.
        """
        return await self._operate(ScheduleVerb.REMOVE, name, by, reason)

    async def run_now(self, name: str, *, by: str, reason: str) -> AskedRun:
        """Submit a run of now, whatever overlap says, also while it is paused.

        Raises: VerbRefused - its arguments do not fit; InvalidInput - there is none of the name; StoreError.
        """
        who, why = check_signature(by, reason)
        row = await self._find_readable(name)
        (asked,) = await self._ask(row, [self._session.store.now()], who, why, is_backfill=False)
        return asked

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, by: str, reason: str, dry_run: bool = False
    ) -> tuple[AskedRun, ...]:
        """Submit the runs of all instants from ``start`` to ``end``, both included, whose task is not there.

        Args:
            start, end: with a time zone; ``end`` has passed. A schedule with ``every`` has instants since its declaration.
            dry_run: only say what would be submitted.
        Returns: each instant with what became of it, in their order.
        Raises: VerbRefused - its arguments do not fit; InvalidInput - there is none of the name, the time is wrong, or
            there are more than 1,000 instants; StoreError.
        """
        who, why = check_signature(by, reason)
        first, last = check_instant(start, "start"), check_instant(end, "end")
        if last < first:
            raise InvalidInput(f"end is {end.isoformat()}, before start, {start.isoformat()}")
        if last > self._session.store.now():
            raise InvalidInput(
                f"end is {end.isoformat()}, in the future; the schedule itself runs what is still to come"
            )
        row = await self._find_readable(name)
        instants: list[Instant] = []
        for instant in iterate_instants(read_declaration(row).timing, row.anchor, Instant(first - 1)):
            if instant > last:
                break
            instants.append(instant)
            if len(instants) > BACKFILL_MAX:
                raise InvalidInput(
                    f"from {start.isoformat()} to {end.isoformat()} there are more than {BACKFILL_MAX:,} runs; choose a"
                    " shorter time"
                )
        return await self._ask(row, instants, who, why, is_backfill=True, dry_run=dry_run)

    # --- asking the store
    async def _find(self, name: str) -> ScheduleRow:
        row = await self._session.store.find_schedule(self._app, name)
        if row is None:
            raise UnknownName(f"there is no schedule {name!r} of App {self._app!r}; see `arriero schedule list`")
        return row

    async def _find_readable(self, name: str) -> ScheduleRow:
        row = await self._find(name)
        if faults := faults_of(row):
            raise InvalidInput(
                f"schedule {name!r}: its row cannot be read: {format_faults(faults)}; declare it again, or remove it"
            )
        return row

    async def _operate(self, verb: ScheduleVerb, name: str, by: str, reason: str) -> ScheduleView:
        who, why = check_signature(by, reason)
        before = await (self._find if verb is ScheduleVerb.REMOVE else self._find_readable)(name)
        answer = await self._change(
            OperateSchedule(actor=ACTOR, verb=verb, app=self._app, name=name, by=who, reason=why), verb
        )
        if answer.row is None:
            return build_schedule_view(before)
        if verb is ScheduleVerb.RESUME and (report := report_misfit(self._session, answer.row)) is not None:
            await self._session.store.change_schedules([report])
        return build_schedule_view(answer.row)

    async def _ask(
        self,
        row: ScheduleRow,
        instants: Sequence[Instant],
        by: str,
        reason: str,
        *,
        is_backfill: bool,
        dry_run: bool = False,
    ) -> tuple[AskedRun, ...]:
        if row.problem_cause == ProblemCause.ARGUMENTS:
            verb = "backfill" if is_backfill else "run-now"
            raise VerbRefused(f"schedule {row.name!r} submits nothing: {row.problem}", verb=verb, state=str(row.state))
        policy = await self._find_policy(row)
        draw = self._session.ports.random.getrandbits
        submits = tuple(build_run(row, instant, policy, draw(62)) for instant in instants)
        if dry_run:
            found = [await self._session.store.find(submit.task_id) for submit in submits]
            return tuple(
                AskedRun(as_datetime(at), submit.task_id, "planned" if task is None else "there")
                for at, submit, task in zip(instants, submits, found, strict=True)
            )
        if not instants:
            return ()
        command = RunSchedule(
            actor=ACTOR,
            app=row.app,
            name=row.name,
            by=by,
            reason=reason,
            runs=tuple(instants),
            submits=submits,
            is_backfill=is_backfill,
        )
        answer = await self._change(command)
        self._session.hint()
        return tuple(
            _build_asked(at, submit.task_id, said)
            for at, submit, said in zip(instants, submits, answer.submitted, strict=True)
        )

    async def _find_policy(self, row: ScheduleRow) -> str:
        declared = read_declaration(row)
        now, processes = await self._session.store.known_processes()
        return list_codes(processes, now).get((row.app, declared.workflow)) or declared.policy

    async def _change(self, command: ScheduleCommand, verb: ScheduleVerb | None = None) -> ScheduleApplied:
        for _ in range(BUSY_MAX):
            (answer,) = await self._session.store.change_schedules([command])
            if not isinstance(answer, Busy):
                break
            await self._session.ports.clock.sleep(BUSY_SECONDS)
        if isinstance(answer, ArrieroError):
            raise answer
        if isinstance(answer, Refusal):
            if verb is not None and answer.verdict == "not_allowed":
                raise VerbRefused(answer.detail, verb=verb, state=answer.state)
            remedy = "; remove it first" if answer.verdict == "exists" else ""
            raise NotAllowed(answer.detail + remedy)
        return answer


def _build_asked(at: Instant, task_id: str, said: Submitted | Refusal) -> AskedRun:
    when = as_datetime(at)
    if isinstance(said, Submitted):
        return AskedRun(when, task_id, "submitted" if said.created else "there")
    if said.verdict == "conflict":  # it ran with the arguments of that time
        return AskedRun(when, task_id, "there", said.detail)
    return AskedRun(when, task_id, "refused", said.detail)


def choose_app_of_schedule(rows: Sequence[ScheduleRow], name: str, app: str | None) -> str:
    """Choose the App whose schedule an operator means. Raises InvalidInput - nobody has it, or several Apps have one."""
    apps = sorted({row.app for row in rows if row.name == name})
    if app is not None and app in apps:
        return app
    if not apps or app is not None:
        where = "" if app is None else f" of App {app!r}"
        raise UnknownName(f"there is no schedule {name!r}{where}; see `arriero schedule list`")
    if len(apps) > 1:
        raise InvalidInput(
            f"several Apps have a schedule {name!r}: name one with --app, of {', '.join(map(repr, apps))}"
        )
    return apps[0]
