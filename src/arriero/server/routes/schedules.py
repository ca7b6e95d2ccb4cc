"""Schedules: what is submitted when, why something was not, and the verbs on one."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query

from ...client.named_calls import build_named_call
from ...client.schedules import AskedRun, Schedules, ScheduleView, build_schedule_view, choose_app_of_schedule
from ...client.verb_commands import check_signature
from ...schedules import ScheduleRow
from ..answers import Payloads
from ..calls import Call, HttpCall
from ..parameters import OfApp, ScheduleName
from ..problems import INVALID_ARGUMENTS, UNKNOWN_NAME, UNKNOWN_WORKFLOW, VERB_REFUSED
from ..routing import RouteGroup
from ..scopes import Needs, Scope

schedules = RouteGroup("schedules")
MAY_SUBMIT_RUNS = Needs(Scope.OPERATE, also=Scope.SUBMIT)


class ScheduleListAnswer(msgspec.Struct, frozen=True):
    """Schedules by App and name. ``payloads``: ``withheld``: their arguments are null."""

    schedules: tuple[ScheduleView, ...]
    payloads: Payloads


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule that no code declares, of this server's App. One of cron, every and at is given.

    Args:
        reason: why; kept in the store's history. Who asks is the token's name.
        name: of the schedule, unique in the App.
        workflow, arguments: what is submitted, as for a task.
        cron: minute, hour, day of month, month, day of week. ``timezone``: where its times of day are meant; UTC by default.
        every: seconds between two runs. ``at``: once, at an instant with a time zone.
        overlap: skip, queue, all or cancel_running.
        catch_up: seconds so far back that missed runs are made up; null: only the last one is.
        jitter: seconds that a run may be late on purpose.
        priority: of its tasks, 0 to 9.
    """

    reason: str
    name: str
    workflow: str
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cron: str | None = None
    timezone: str | None = None
    every: float | None = None
    at: datetime | None = None
    overlap: str = "skip"
    catch_up: float | None = None
    jitter: float = 0.0
    priority: int = 5


class ScheduleVerbRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``reason``: why; kept in the store's history. ``app``: needed only if several Apps have a schedule of the name."""

    reason: str
    app: str | None = None


class BackfillRequest(ScheduleVerbRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``start``, ``end``: instants with a time zone, both included. ``dry_run``: only tell what would be submitted."""

    start: datetime
    end: datetime
    dry_run: bool = False


class ScheduleVerbAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``schedule``: its state afterwards; of a removed one, its last state."""

    verb: str
    outcome: Literal["done"]
    schedule: ScheduleView
    payloads: Payloads


class AskedRunsAnswer(msgspec.Struct, frozen=True):
    """The runs that were asked for, each with what became of it."""

    runs: tuple[AskedRun, ...]


EXAMPLE: dict[str, Any] = {
    "name": "nightly",
    "app": "shop",
    "workflow": "fulfil",
    "arguments": None,
    "cron": "0 3 * * *",
    "timezone": "UTC",
    "every": None,
    "at": None,
    "overlap": "skip",
    "catch_up": None,
    "jitter": "PT0S",
    "priority": 5,
    "declared_in_code": True,
    "declared_by": "",
    "state": "active",
    "next_runs": [],
    "last_run": None,
    "last_task": "",
    "runs": 0,
    "passed_over": 0,
    "problem": "",
    "problem_since": None,
    "undeclared_since": None,
    "paused_at": None,
    "paused_by": "",
    "pause_reason": "",
}
RUN_EXAMPLE = {"at": "2026-11-20T03:00:00Z", "task_id": "shop/nightly@2026-11-20T03:00:00Z", "outcome": "submitted"}


def _build_list(call: HttpCall, rows: Iterable[ScheduleRow]) -> ScheduleListAnswer:
    return ScheduleListAnswer(tuple(map(build_schedule_view, rows)), call.payloads)


# --- looking
@schedules.operation(
    "GET",
    "/v1/schedules",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="List the schedules of all Apps, or of one, with their next runs.",
    answer=ScheduleListAnswer,
    answer_example={"schedules": [EXAMPLE], "payloads": "withheld"},
)
async def list_schedules(
    call: Call, app: Annotated[str | None, Query(max_length=255, description="Only of this App.")] = None
) -> ScheduleListAnswer:
    return _build_list(call, await call.session.store.list_schedules(app))


@schedules.operation(
    "GET",
    "/v1/schedules/{name}",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="A schedule of each App that has one of the name.",
    answer=ScheduleListAnswer,
    problems=(UNKNOWN_NAME,),
    answer_example={"schedules": [EXAMPLE], "payloads": "withheld"},
)
async def show_schedule(call: Call, name: ScheduleName, app: OfApp = None) -> ScheduleListAnswer:
    rows = [row for row in await call.session.store.list_schedules(app) if row.name == name]
    if not rows:
        choose_app_of_schedule(rows, name, app)
    return _build_list(call, rows)


# --- acting
@schedules.operation(
    "POST",
    "/v1/schedules",
    MAY_SUBMIT_RUNS,
    is_narrowed=True,
    summary="Add a schedule that no code declares. The same again changes nothing.",
    body=ScheduleRequest,
    answer=ScheduleVerbAnswer,
    problems=(UNKNOWN_WORKFLOW, INVALID_ARGUMENTS),
    examples={
        "nightly": {"reason": "asked by sales", "name": "nightly", "workflow": "fulfil", "cron": "0 3 * * *"},
        "each hour": {"reason": "a probe", "name": "probe", "workflow": "fulfil", "arguments": {}, "every": 3600.0},
    },
    answer_example={"verb": "add", "outcome": "done", "schedule": EXAMPLE, "payloads": "withheld"},
)
async def add_schedule(call: Call) -> ScheduleVerbAnswer:
    asked = call.read(ScheduleRequest)
    check_signature(call.caller.name, asked.reason)
    named = build_named_call(call.session, asked.workflow, asked.arguments)
    options: Any = {
        name: getattr(asked, name)
        for name in ("cron", "timezone", "every", "at", "overlap", "catch_up", "jitter", "priority")
    }
    view = await Schedules(call.session, call.session.app).add(
        asked.name, named, by=call.caller.name, reason=asked.reason, **options
    )
    return ScheduleVerbAnswer("add", "done", view, call.payloads)


async def _choose(call: HttpCall, name: str, app: str | None) -> Schedules:
    """The schedules of the App that is meant. Raises UnknownName, InvalidInput."""
    session = call.session
    return Schedules(session, choose_app_of_schedule(await session.store.list_schedules(), name, app))


Act = Callable[[Schedules, str, str, str], Awaitable[ScheduleView]]


def _declare_verb(verb: str, summary: str, act: Act) -> None:
    async def run(call: Call, name: ScheduleName) -> ScheduleVerbAnswer:
        asked, by = call.read(ScheduleVerbRequest), call.caller.name
        check_signature(by, asked.reason)
        view = await act(await _choose(call, name, asked.app), name, by, asked.reason)
        return ScheduleVerbAnswer(verb, "done", view, call.payloads)

    run.__name__ = f"{verb}_schedule"
    schedules.operation(
        "POST",
        f"/v1/schedules/{{name}}:{verb}",
        Needs(Scope.OPERATE),
        is_narrowed=True,
        summary=summary,
        body=ScheduleVerbRequest,
        answer=ScheduleVerbAnswer,
        problems=(UNKNOWN_NAME, VERB_REFUSED),
        examples={"do it": {"reason": "a holiday"}},
        answer_example={"verb": verb, "outcome": "done", "schedule": EXAMPLE, "payloads": "withheld"},
    )(run)


_declare_verb(
    "pause",
    "Run nothing until it is resumed. What is due meanwhile is never run.",
    lambda found, name, by, reason: found.pause(name, by=by, reason=reason),
)
_declare_verb(
    "resume",
    "Run again what becomes due from now on.",
    lambda found, name, by, reason: found.resume(name, by=by, reason=reason),
)
_declare_verb(
    "remove",
    "Remove a schedule; its runs stay.",
    lambda found, name, by, reason: found.remove(name, by=by, reason=reason),
)


@schedules.operation(
    "POST",
    "/v1/schedules/{name}:run-now",
    MAY_SUBMIT_RUNS,
    is_narrowed=True,
    summary="Submit a run of now, whatever overlap says, also while it is paused.",
    body=ScheduleVerbRequest,
    answer=AskedRunsAnswer,
    problems=(UNKNOWN_NAME, VERB_REFUSED),
    examples={"do it": {"reason": "the file came late"}},
    answer_example={"runs": [RUN_EXAMPLE]},
)
async def run_schedule_now(call: Call, name: ScheduleName) -> AskedRunsAnswer:
    asked, by = call.read(ScheduleVerbRequest), call.caller.name
    check_signature(by, asked.reason)
    found = await _choose(call, name, asked.app)
    return AskedRunsAnswer((await found.run_now(name, by=by, reason=asked.reason),))


@schedules.operation(
    "POST",
    "/v1/schedules/{name}:backfill",
    MAY_SUBMIT_RUNS,
    is_narrowed=True,
    summary="Submit the runs of a time that has passed, whose tasks are not there.",
    body=BackfillRequest,
    answer=AskedRunsAnswer,
    problems=(UNKNOWN_NAME, VERB_REFUSED),
    examples={
        "try it": {
            "reason": "the outage of Friday",
            "start": "2026-11-20T00:00:00Z",
            "end": "2026-11-21T00:00:00Z",
            "dry_run": True,
        }
    },
    answer_example={"runs": [RUN_EXAMPLE]},
)
async def backfill_schedule(call: Call, name: ScheduleName) -> AskedRunsAnswer:
    asked, by = call.read(BackfillRequest), call.caller.name
    check_signature(by, asked.reason)
    found = await _choose(call, name, asked.app)
    runs = await found.backfill(name, asked.start, asked.end, by=by, reason=asked.reason, dry_run=asked.dry_run)
    return AskedRunsAnswer(runs)
