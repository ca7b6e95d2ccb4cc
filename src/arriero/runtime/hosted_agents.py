"""Selection of the Agents that a process hosts, by its roles."""

from collections.abc import Iterable

from ..declare.steps import Agent


def choose_hosted(agents: Iterable[Agent], roles: frozenset[str]) -> tuple[Agent, ...]:
    """Choose the Agents to host.

    Programs outside of Python ask a process with the role ``http`` for requests, so that one hosts their Agents. All others
    are hosted by the role ``agents``.
    """
    return tuple(agent for agent in agents if ("http" if agent.is_pulled else "agents") in roles)
