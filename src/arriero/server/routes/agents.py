"""Agents: whether their services are well, what waits for them, and the verbs on one."""

from typing import Any, Literal

import msgspec

from ...breakers import AgentVerb
from ...client.agent_metrics import AppMetrics
from ...client.agents import AgentHandle, AgentView, check_agent_name, choose_app, load_agent_views
from ...client.verb_commands import check_signature
from ..calls import Call
from ..parameters import AgentName, OfApp
from ..problems import UNKNOWN_NAME, VERB_REFUSED
from ..routing import RouteGroup
from ..scopes import Needs, Scope

agents = RouteGroup("agents")


class AgentListAnswer(msgspec.Struct, frozen=True):
    """Agents by name, an entry for each App that has one and for each target."""

    agents: tuple[AgentView, ...]


class AgentVerbRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb on an Agent.

    Args:
        reason: why; kept in the store's history. Who asks is the token's name.
        target: only this part of its service; empty: the whole Agent.
        app: its App; needed only if several Apps have an Agent of the name.
    """

    reason: str
    target: str = ""
    app: str | None = None


class AgentVerbAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``agent``: its state afterwards."""

    verb: str
    outcome: Literal["done"]
    agent: AgentView


EXAMPLE: dict[str, Any] = {"agent": "bank", "app": "shop", "target": "", "state": "closed", "waiting": 0, "running": 2}


@agents.operation(
    "GET",
    "/v1/agents",
    Needs(Scope.READ),
    summary="List the Agents that the store knows of, of any App.",
    answer=AgentListAnswer,
    answer_example={"agents": [EXAMPLE]},
)
async def list_agents(call: Call) -> AgentListAnswer:
    return AgentListAnswer(tuple(await call.client.agents_view()))


@agents.operation(
    "GET",
    "/v1/agents/{agent}",
    Needs(Scope.READ),
    summary="An Agent of each App that has it, with each of its targets.",
    answer=AgentListAnswer,
    problems=(UNKNOWN_NAME,),
    answer_example={"agents": [EXAMPLE]},
)
async def show_agent(call: Call, agent: AgentName, app: OfApp = None) -> AgentListAnswer:
    check_agent_name(agent, "")
    views = [view for view in await call.client.agents_view() if view.agent == agent and app in (None, view.app)]
    if not views:
        choose_app(views, agent, app)
    return AgentListAnswer(tuple(views))


@agents.operation(
    "GET",
    "/v1/agents/{agent}/metrics",
    Needs(Scope.READ),
    summary="Numbers about the calls of an Agent, of each App that has it.",
    answer=AppMetrics,
    problems=(UNKNOWN_NAME,),
    answer_example={"at": "2026-11-20T14:15:17.5Z", "agents": []},
)
async def show_agent_metrics(call: Call, agent: AgentName) -> AppMetrics:
    return await call.client.metrics(agent=agent)


SUMMARIES = {
    AgentVerb.OPEN: "Make no calls of an Agent until a person closes it.",
    AgentVerb.CLOSE: "Make calls of an Agent as always again, at once.",
    AgentVerb.PAUSE: "Take no requests of an Agent until it is resumed.",
    AgentVerb.RESUME: "Take requests of an Agent again.",
}


def _declare_verb(verb: AgentVerb) -> None:
    async def run(call: Call, agent: AgentName) -> AgentVerbAnswer:
        asked, by = call.read(AgentVerbRequest), call.caller.name
        check_signature(by, asked.reason)
        check_agent_name(agent, asked.target)
        session = call.session
        app = choose_app(await load_agent_views(session.store), agent, asked.app)
        handle = AgentHandle(session, app, agent, asked.target)
        methods = {
            AgentVerb.OPEN: handle.open,
            AgentVerb.CLOSE: handle.close,
            AgentVerb.PAUSE: handle.pause,
            AgentVerb.RESUME: handle.resume,
        }
        return AgentVerbAnswer(str(verb), "done", await methods[verb](by=by, reason=asked.reason))

    run.__name__ = f"{verb}_agent"
    agents.operation(
        "POST",
        f"/v1/agents/{{agent}}:{verb}",
        Needs(Scope.OPERATE),
        summary=SUMMARIES[verb],
        body=AgentVerbRequest,
        answer=AgentVerbAnswer,
        problems=(UNKNOWN_NAME, VERB_REFUSED),
        examples={"do it": {"reason": "the bank called"}},
        answer_example={"verb": str(verb), "outcome": "done", "agent": EXAMPLE},
    )(run)


for _verb in AgentVerb:
    _declare_verb(_verb)
