"""Operations on Agents: list them, open and close a breaker, pause and resume."""

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from ..client.agents import AgentHandle, AgentView, check_agent_name, choose_app, load_agent_views
from ..client.session import Session
from ..errors import UnknownName, VerbRefused
from ..model.tokens import Scope
from .declaration import Done, NoArguments, OperationDeclaration, ReasonRequest, Subject, say, say_app_name


class AgentListAnswer(msgspec.Struct, frozen=True):
    """Agents by name, an entry for each App that has one and for each target."""

    agents: tuple[AgentView, ...]


class AgentVerbRequest(ReasonRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb on an Agent."""

    target: Annotated[str, say("Only this target of its service.")] = ""
    app: Annotated[
        str | None, say_app_name("The App of the Agent. Needed if several Apps have an Agent of this name.")
    ] = None


class AgentVerbAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``agent``: its state afterwards."""

    verb: str
    outcome: Literal["done"]
    agent: AgentView


async def list_agents(session: Session, _: NoArguments) -> AgentListAnswer:
    """List the Agents that processes host, that have requests, or that were called lately, with the state of their breakers.

    closed: calls are made. open: the service is down, and requests wait. half_open: a few calls find out if it is healthy again.
    """
    return AgentListAnswer(tuple(await load_agent_views(session.store)))


LIST = OperationDeclaration(
    noun="agent",
    name="list",
    function=list_agents,
    summary="List the Agents that the store knows of, of any App.",
    arguments=NoArguments,
    answer=AgentListAnswer,
    scopes=(Scope.READ,),
)


def _declare_verb(verb: str, summary: str) -> Callable[[Callable[[AgentView], str]], OperationDeclaration]:
    """Declare a verb. The function says what came of it; its docstring is the help of the command."""

    def declare(describe: Callable[[AgentView], str]) -> OperationDeclaration:
        async def act(session: Session, agent: str, by: str, asked: AgentVerbRequest) -> Done:
            check_agent_name(agent, asked.target)
            app = choose_app(await load_agent_views(session.store), agent, asked.app)
            method = getattr(AgentHandle(session, app, agent, asked.target), verb)
            view = await method(by=by, reason=asked.reason)
            return Done(AgentVerbAnswer(verb, "done", view), (describe(view),))

        act.__name__, act.__doc__ = describe.__name__, describe.__doc__
        return OperationDeclaration(
            noun="agent",
            name=verb,
            function=act,
            summary=summary,
            arguments=AgentVerbRequest,
            answer=AgentVerbAnswer,
            scopes=(Scope.OPERATE,),
            subject=Subject("agent", "The Agent's name", "AGENT"),
            raises=(UnknownName, VerbRefused),
            example={"reason": "the bank called"},
        )

    return declare


@_declare_verb("open", "Make no calls of an Agent until an operator closes it.")
def open_agent(view: AgentView) -> str:
    """Open the breaker of an Agent: no call is made until an operator closes it. Running attempts continue to their end."""
    return f"Agent {format_label(view)} gets no calls until an operator closes it; its requests wait and spend nothing"


@_declare_verb("close", "Make calls of an Agent as always again.")
def close_agent(view: AgentView) -> str:
    """Close the breaker of an Agent: resume calls now, without canaries."""
    return f"Agent {format_label(view)} gets calls as always"


@_declare_verb("pause", "Take no requests of an Agent until it is resumed.")
def pause_agent(view: AgentView) -> str:
    """Pause an Agent: no process takes a request of it until it is resumed. Running attempts continue to their end.

    If other Agents provide its steps, they take over its requests that were never taken, and those of interchangeable steps.
    """
    return f"Agent {format_label(view)} is paused; its requests wait and spend nothing"


@_declare_verb("resume", "Take requests of an Agent again.")
def resume_agent(view: AgentView) -> str:
    """Resume an Agent that was paused. If its breaker is open, that still holds."""
    still = "" if view.state == "closed" else f"; its breaker is {view.state}"
    return f"Agent {format_label(view)} takes requests again{still}"


VERBS = (open_agent, close_agent, pause_agent, resume_agent)


def format_label(view: AgentView) -> str:
    """Format the name of an Agent with its target, and its App if it has one."""
    target = f"[{view.target}]" if view.target else ""
    return f"{view.agent}{target}" + (f" of App {view.app}" if view.app else "")
