"""Schedules: what is submitted when, and why something was not."""

from typing import cast

import msgspec

from ...client.json_payloads import build_named_call
from ...client.schedule_decisions import ScheduleDecision, load_decisions
from ...client.task_verbs import check_signature
from ...operations import schedules as operations
from ...operations.problems import INVALID_ARGUMENTS, UNKNOWN_NAME, UNKNOWN_WORKFLOW
from ...operations.schedules import ScheduleListAnswer, ScheduleRequest, ScheduleVerbAnswer
from ..calls import Call
from ..operation_routes import add_operations_of, add_payloads, build_verb_example
from ..parameters import LIMIT, Limit, OfApp, ScheduleName
from ..routing import RouteGroup
from ..scopes import Needs, Scope

schedules = RouteGroup("schedules")
add_operations_of(schedules, operations.LIST)


@schedules.operation(
    "GET",
    "/v1/schedules/{name}",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="A schedule of each App that has one of the name.",
    problems=(UNKNOWN_NAME,),
)
async def show_schedule(call: Call, name: ScheduleName, app: OfApp = None) -> ScheduleListAnswer:
    found = await operations.load_schedules_of_name(call.session, name, app)
    return ScheduleListAnswer(tuple(found), call.payloads)


class ScheduleDecisionsAnswer(msgspec.Struct, frozen=True):
    """The last decisions about a schedule, the newest first."""

    decisions: tuple[ScheduleDecision, ...]


@schedules.operation(
    "GET",
    "/v1/schedules/{name}/decisions",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="The last decisions about a schedule: its runs, what was passed over and why, and acts of operators.",
    problems=(UNKNOWN_NAME,),
)
async def list_schedule_decisions(
    call: Call,
    name: ScheduleName,
    app: OfApp = None,
    limit: Limit = LIMIT,
) -> ScheduleDecisionsAnswer:
    rows = await operations.load_rows_of_name(call.session, name, app)
    apps = frozenset(row.app for row in rows)
    return ScheduleDecisionsAnswer(await load_decisions(call.session.store, name, apps, limit=limit))


@schedules.operation(
    "POST",
    "/v1/schedules",
    Needs(*operations.OPERATE_AND_SUBMIT),
    is_narrowed=True,
    summary="Add a schedule that no code declares. The same again changes nothing.",
    body=ScheduleRequest,
    answer_example=build_verb_example(ScheduleVerbAnswer, "add"),
    problems=(UNKNOWN_WORKFLOW, INVALID_ARGUMENTS),
    examples={
        "nightly": {"reason": "asked by sales", "name": "nightly", "workflow": "fulfil", "cron": "0 3 * * *"},
        "each hour": {"reason": "a probe", "name": "probe", "workflow": "fulfil", "arguments": {}, "every": 3600.0},
    },
)
async def add_schedule(call: Call) -> ScheduleVerbAnswer:
    asked, by = call.read(ScheduleRequest), call.caller.name
    check_signature(by, asked.reason)
    named = build_named_call(call.session, asked.workflow, asked.arguments)
    done = await operations.add_schedule(call.session, named, by, asked)
    return cast(ScheduleVerbAnswer, add_payloads(call, done.answer))


add_operations_of(schedules, *operations.VERBS)
