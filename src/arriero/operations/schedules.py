"""Operations on schedules: list and add them, pause, resume and remove one, and ask for runs."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import asdict

from ..client.schedules import AskedRun, Schedules, ScheduleView, build_schedule_view, choose_app_of_schedule
from ..client.session import Session
from ..client.task_shapes import Payloads
from ..errors import UnknownName, VerbRefused
from ..model.schedules import ScheduleRow, join_overlaps
from ..model.tags import TAGS_SCHEMA
from ..model.tokens import Scope
from .declaration import Act, Done, OperationDeclaration, ReasonRequest, Subject, say, say_app_name

OPERATE_AND_SUBMIT = (Scope.OPERATE, Scope.SUBMIT)
SCHEDULE = Subject("name", "The schedule's name", "SCHEDULE")


class ScheduleListAnswer(msgspec.Struct, frozen=True):
    """Schedules by App and name. ``payloads``: ``withheld``: their arguments are null."""

    schedules: tuple[ScheduleView, ...]
    payloads: Payloads


class ScheduleFilter(msgspec.Struct, frozen=True):
    """Filter of the list of schedules."""

    app: Annotated[str | None, say_app_name("Only schedules of this App. By default of all Apps.")] = None


class ScheduleRequest(ReasonRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule that no code declares, of this server's App. One of cron, every and at is given; durations are seconds."""

    name: Annotated[str, say("Unique in the App.")]
    workflow: Annotated[str, say("The workflow that is submitted.")]
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cron: Annotated[
        str | None, say("Cron line: minute, hour, day of month, month, day of week, like '0 3 * * *'.", "LINE")
    ] = None
    timezone: Annotated[str | None, say("Time zone of the cron line, like Europe/Madrid. By default UTC.", "ZONE")] = (
        None
    )
    every: Annotated[float | None, say("The period between two runs.")] = None
    at: Annotated[datetime | None, say("Run once, at this instant with a time zone.")] = None
    overlap: Annotated[str, say(f"While the last run is open: {join_overlaps()}.", "WORD")] = "skip"
    catch_up: Annotated[float | None, say("Run missed instants up to this long ago. By default only the latest.")] = (
        None
    )
    jitter: Annotated[float, say("Maximum random delay added to each run.")] = 0.0
    priority: Annotated[int, say("Priority of its tasks, 0 to 9. 9 comes first.")] = 5
    tags: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(
            description="A tag of its tasks, by which operators find them. May be given several times.",
            extra={"option": "--tag", "metavar": "NAME=VALUE"},
            extra_json_schema=TAGS_SCHEMA,
        ),
    ] = None


class ScheduleVerbRequest(ReasonRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb on a schedule."""

    app: Annotated[
        str | None, say_app_name("The App of the schedule. Needed if several Apps have a schedule of this name.")
    ] = None


class BackfillRequest(ScheduleVerbRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs of a time that has passed."""

    start: Annotated[datetime, say("The first instant, with a time zone.", "FROM")]
    end: Annotated[datetime, say("The last instant, included.", "TO")]
    dry_run: Annotated[bool, say("Only print what would be submitted.")] = False


class ScheduleVerbAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``schedule``: its state afterwards; of a removed one, its last state."""

    verb: str
    outcome: Literal["done"]
    schedule: ScheduleView
    payloads: Payloads


class AskedRunsAnswer(msgspec.Struct, frozen=True):
    """The runs that were asked for, each with what became of it."""

    runs: tuple[AskedRun, ...]


async def list_schedules(session: Session, which: ScheduleFilter) -> ScheduleListAnswer:
    """List the schedules of all Apps with their next instants, their last runs and what is wrong with one."""
    rows = await session.store.list_schedules(which.app)
    return ScheduleListAnswer(tuple(map(build_schedule_view, rows)), "included")


async def load_rows_of_name(session: Session, name: str, app: str | None) -> list[ScheduleRow]:
    """Load the schedule of each App that has one of the name, as it stands in the store. Raises UnknownName, StoreError."""
    rows = [row for row in await session.store.list_schedules(app) if row.name == name]
    if not rows:
        choose_app_of_schedule(rows, name, app)
    return rows


async def load_schedules_of_name(session: Session, name: str, app: str | None) -> list[ScheduleView]:
    """Load the schedule of each App that has one of the name. Raises UnknownName, StoreError."""
    return list(map(build_schedule_view, await load_rows_of_name(session, name, app)))


LIST = OperationDeclaration(
    noun="schedule",
    name="list",
    function=list_schedules,
    summary="List the schedules of all Apps, or of one, with their next runs.",
    arguments=ScheduleFilter,
    answer=ScheduleListAnswer,
    scopes=(Scope.READ,),
    is_narrowed=True,
)


async def find_schedules(session: Session, name: str, app: str | None) -> Schedules:
    """Find the schedules of the App that is meant. Raises UnknownName, InvalidInput."""
    return Schedules(session, choose_app_of_schedule(await session.store.list_schedules(), name, app))


def _declare_verb(verb: str, summary: str) -> Callable[[Callable[[ScheduleView], str]], OperationDeclaration]:
    """Declare a verb. The function says what came of it; its docstring is the help of the command."""

    def declare(describe: Callable[[ScheduleView], str]) -> OperationDeclaration:
        async def act(session: Session, name: str, by: str, asked: ScheduleVerbRequest) -> Done:
            method = getattr(await find_schedules(session, name, asked.app), verb)
            view = await method(name, by=by, reason=asked.reason)
            return build_verb_done(verb, view, describe(view))

        act.__name__, act.__doc__ = describe.__name__, describe.__doc__
        return _declare_act(verb, summary, act, ScheduleVerbRequest, ScheduleVerbAnswer, {"reason": "a holiday"})

    return declare


def build_verb_done(verb: str, view: ScheduleView, says: str) -> Done:
    """Build the outcome of a verb."""
    return Done(ScheduleVerbAnswer(verb, "done", view, "included"), (says,))


def _declare_act(
    name: str,
    summary: str,
    act: Act,
    arguments: type[ReasonRequest],
    answer: type[msgspec.Struct],
    example: dict[str, object],
    scopes: tuple[Scope, ...] = (Scope.OPERATE,),
) -> OperationDeclaration:
    return OperationDeclaration(
        noun="schedule",
        name=name,
        function=act,
        summary=summary,
        arguments=arguments,
        answer=answer,
        scopes=scopes,
        subject=SCHEDULE,
        raises=(UnknownName, VerbRefused),
        is_narrowed=True,
        example=example,
    )


@_declare_verb("pause", "Run nothing until it is resumed. What is due meanwhile is never run.")
def pause_schedule(view: ScheduleView) -> str:
    """Pause a schedule: what is due until it is resumed is never run. Runs that are open continue to their end."""
    return f"schedule {view.name} of App {view.app} runs nothing until it is resumed"


@_declare_verb("resume", "Run again what becomes due from now on.")
def resume_schedule(view: ScheduleView) -> str:
    """Resume a schedule that was paused. What was due meanwhile is not run late; see `arriero schedule backfill`."""
    return describe_next_run(view, "has ended")


@_declare_verb("remove", "Remove a schedule; its runs stay.")
def remove_schedule(view: ScheduleView) -> str:
    """Remove a schedule. Its runs stay. One that code declares is back when a process of its App starts: pause it instead."""
    back = ""
    if view.declared_in_code and view.undeclared_since is None:
        back = "; its code declares it, so it is back when a process of the App starts: take it out there, or pause it instead"
    return f"schedule {view.name} of App {view.app} is removed; its runs stay{back}"


async def add_schedule(session: Session, call: Any, by: str, asked: ScheduleRequest) -> Done:
    """Add a schedule of the session's App. ``call``: the one that was asked for."""
    named = ("name", "workflow", "arguments")
    options: dict[str, Any] = {name: value for name, value in asdict(asked).items() if name not in named}
    view = await Schedules(session, session.app).add(asked.name, call, by=by, **options)
    return build_verb_done("add", view, describe_next_run(view, "is never due"))


def describe_next_run(view: ScheduleView, never: str) -> str:
    """Describe when a schedule runs next. ``never``: what is said if it does not."""
    due = f"runs next at {view.next_runs[0].runs_at:%Y-%m-%d %H:%M:%S}Z" if view.next_runs else never
    return f"schedule {view.name} of App {view.app} {due}"


async def run_schedule_now(session: Session, name: str, by: str, asked: ScheduleVerbRequest) -> Done:
    """Submit a run of now, whatever overlap says, also while the schedule is paused. Its next instants stay as they are."""
    found = await find_schedules(session, name, asked.app)
    return _build_done((await found.run_now(name, by=by, reason=asked.reason),))


async def backfill_schedule(session: Session, name: str, by: str, asked: BackfillRequest) -> Done:
    """Submit the runs of all instants from FROM to TO, both included, whose tasks are not there; at most 1,000.

    FROM and TO are instants with a time zone, like 2026-11-24T03:00+01:00. Exits with 1 if one was refused.
    """
    found = await find_schedules(session, name, asked.app)
    runs = await found.backfill(name, asked.start, asked.end, by=by, reason=asked.reason, dry_run=asked.dry_run)
    return _build_done(runs)


_OUTCOMES = {
    "planned": "would submit",
    "submitted": "submitted",
    "there": "was there already:",
    "refused": "could not submit",
}


def _build_done(runs: tuple[AskedRun, ...]) -> Done:
    says = tuple(f"{_OUTCOMES[one.outcome]} {one.task_id}{one.detail and ': '}{one.detail}" for one in runs)
    is_refused = any(one.outcome == "refused" for one in runs)
    return Done(AskedRunsAnswer(runs), says or ("no instant of the schedule lies there",), is_refused)


VERBS = (
    pause_schedule,
    resume_schedule,
    remove_schedule,
    _declare_act(
        "run-now",
        "Submit a run of now, whatever overlap says, also while it is paused.",
        run_schedule_now,
        ScheduleVerbRequest,
        AskedRunsAnswer,
        {"reason": "the file came late"},
        OPERATE_AND_SUBMIT,
    ),
    _declare_act(
        "backfill",
        "Submit the runs of a time that has passed, whose tasks are not there.",
        backfill_schedule,
        BackfillRequest,
        AskedRunsAnswer,
        {
            "reason": "the outage of Friday",
            "start": "2026-11-20T00:00:00Z",
            "end": "2026-11-21T00:00:00Z",
            "dry_run": True,
        },
        OPERATE_AND_SUBMIT,
    ),
)
