"""Agents: how their services are, what waits for them, the curves of the last hour, and the verbs on each."""

from typing import Any

from ...client.agent_minutes import CallMinutes
from ...client.agents import AgentView
from ...client.verb_offers import offer_agent_verbs
from ..calls import Call
from ..parameters import AgentName, OfApp
from ..scopes import Needs, Scope
from .asking import ask, may_ask
from .page import Page, page

STATES = {"closed": ("good", "✓"), "open": ("bad", "✗"), "half_open": ("warn", "◐"), "paused": ("wait", "‖")}
LATENCIES = (("p50", "--run"), ("p90", "--warn"), ("p99", "--bad"))


@page("/agents", Needs(Scope.READ), "Agents: health, room, what waits, and the state of each breaker.", is_live=True)
async def show_agents(call: Call) -> Page:
    listed = await ask(call, "list_agents")
    return Page("agents.html", "Agents", {"agents": listed.agents, "states": STATES})


@page("/agents/{agent}", Needs(Scope.READ), "An Agent: its breaker, its room, its last hour, its verbs.", is_live=True)
async def show_agent_page(call: Call, agent: AgentName, app: OfApp = None) -> Page:
    listed = await ask(call, "show_agent", agent=agent, app=app)
    minutes = await ask(call, "show_agent_minutes", agent=agent)
    views: tuple[AgentView, ...] = listed.agents
    by_app = {one.app: one for one in minutes.apps}
    context = {
        "agent": agent,
        "views": [(view, offer_agent_verbs(view), _name_subject(view)) for view in views],
        "hours": {view.app: build_curves(by_app[view.app]) for view in views if view.app in by_app},
        "minutes": by_app,
        "states": STATES,
        "may_operate": may_ask(call, "pause_agent"),
    }
    return Page("agent.html", agent, context)


def _name_subject(view: AgentView) -> dict[str, dict[str, str]]:
    """Name App and target in the form of each verb."""
    named = {"app": view.app} | ({"target": view.target} if view.target else {})
    return dict.fromkeys(("pause", "resume", "open", "close"), named)


def build_curves(of_app: CallMinutes) -> list[dict[str, Any]]:
    """Build the curves of an hour: a title and, for the script that draws them, instants and series of values."""
    at = [int(one.at.timestamp()) for one in of_app.minutes]
    counts = [
        {"label": "calls", "color": "--run", "values": [one.calls for one in of_app.minutes]},
        {"label": "failures", "color": "--bad", "values": [one.failed for one in of_app.minutes]},
    ]
    latencies = [
        {"label": name, "color": color, "values": [getattr(one, f"{name}_seconds") for one in of_app.minutes]}
        for name, color in LATENCIES
    ]
    return [
        {"title": "Calls in each minute", "at": at, "series": counts, "unit": ""},
        {"title": "Latency", "at": at, "series": latencies, "unit": "s"},
    ]
