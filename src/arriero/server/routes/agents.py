"""Agents: whether their services are healthy, and what waits for them."""

import msgspec

from ...client.agent_metrics import AppMetrics
from ...client.agent_minutes import CallMinutes, load_minutes
from ...client.agents import check_agent_name, choose_app, load_agent_views
from ...operations import agents as operations
from ...operations.problems import UNKNOWN_NAME
from ..calls import Call
from ..operation_routes import add_operations_of
from ..parameters import AgentName, OfApp
from ..routing import RouteGroup
from ..scopes import Needs, Scope

agents = RouteGroup("agents")


class CallMinutesAnswer(msgspec.Struct, frozen=True):
    """The calls of an Agent in each minute of the last hour, of each App that made any."""

    apps: tuple[CallMinutes, ...]


add_operations_of(agents, operations.LIST)


@agents.operation(
    "GET",
    "/v1/agents/{agent}",
    Needs(Scope.READ),
    summary="An Agent of each App that has it, with each of its targets.",
    problems=(UNKNOWN_NAME,),
)
async def show_agent(call: Call, agent: AgentName, app: OfApp = None) -> operations.AgentListAnswer:
    check_agent_name(agent, "")
    views = [one for one in await load_agent_views(call.session.store) if one.agent == agent and app in (None, one.app)]
    if not views:
        choose_app(views, agent, app)
    return operations.AgentListAnswer(tuple(views))


@agents.operation(
    "GET",
    "/v1/agents/{agent}/metrics",
    Needs(Scope.READ),
    summary="Numbers about the calls of an Agent, of each App that has it.",
    problems=(UNKNOWN_NAME,),
)
async def show_agent_metrics(call: Call, agent: AgentName) -> AppMetrics:
    return await call.client.metrics(agent=agent)


@agents.operation(
    "GET",
    "/v1/agents/{agent}/minutes",
    Needs(Scope.READ),
    summary="Calls, failures and latency of an Agent in each minute of the last hour, of each App that made calls.",
)
async def show_agent_minutes(call: Call, agent: AgentName) -> CallMinutesAnswer:
    check_agent_name(agent, "")
    return CallMinutesAnswer(await load_minutes(call.session.store, agent))


add_operations_of(agents, *operations.VERBS)
