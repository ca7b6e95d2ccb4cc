"""Schedules: when each runs next, what became of the last runs, and the verbs on each."""

from typing import Any

from ...client.schedules import ScheduleView
from ...client.verb_offers import offer_schedule_verbs
from ...model.schedules import OVERLAPS, Overlap
from ...text.format import format_period
from ..calls import Call
from ..parameters import OfApp, ScheduleName
from ..scopes import Needs, Scope
from .asking import ask, may_ask
from .page import Page, page

DECISIONS = 20  # that the page of a schedule shows
STATES = {"active": ("good", "✓"), "paused": ("wait", "‖"), "ended": ("undone", "⊘")}


@page("/schedules", Needs(Scope.READ), "Schedules: when each runs next, and what is wrong with one.", is_live=True)
async def show_schedules(call: Call) -> Page:
    listed = await ask(call, "list_schedules", app=None)
    context = {
        "schedules": [(one, describe_timing(one)) for one in listed.schedules],
        "states": STATES,
        "may_add": may_ask(call, "add_schedule"),
    }
    return Page("schedules.html", "Schedules", context)


@page(
    "/schedules/{name}",
    Needs(Scope.READ),
    "A schedule: its declaration, its next and last runs, and its verbs.",
    is_live=True,
)
async def show_schedule_page(call: Call, name: ScheduleName, app: OfApp = None) -> Page:
    listed = await ask(call, "show_schedule", name=name, app=app)
    decided = await ask(call, "list_schedule_decisions", name=name, app=app, limit=DECISIONS)
    views: tuple[ScheduleView, ...] = listed.schedules
    context = {
        "name": name,
        "payloads": listed.payloads,
        "views": [_describe(view) for view in views],
        "decisions": decided.decisions,
        "states": STATES,
        "may_operate": may_ask(call, "pause_schedule"),
        "may_run": may_ask(call, "run_schedule_now"),
    }
    return Page("schedule.html", name, context)


def _describe(view: ScheduleView) -> dict[str, Any]:
    """Describe a schedule in words, and what may be done with it."""
    return {
        "view": view,
        "timing": describe_timing(view),
        "overlap": OVERLAPS[Overlap(view.overlap)] if view.overlap in tuple(Overlap) else view.overlap,
        "catch_up": "only the latest missed run is run late"
        if view.catch_up is None
        else f"missed runs of the last {format_period(int(view.catch_up.total_seconds() * 1e6))} are run late",
        "offers": offer_schedule_verbs(view),
        "prefilled": {verb: {"app": view.app} for verb in ("pause", "resume", "run-now", "backfill", "remove")},
    }


def describe_timing(view: ScheduleView) -> str:
    """Describe when a schedule is due, in words."""
    if view.cron:
        return f"cron line {view.cron}, in {view.timezone}"
    if view.every is not None:
        return f"every {format_period(int(view.every.total_seconds() * 1e6))}"
    return "once"
