"""Runs an App with the store, roles and Agents that a caller chose."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

from ..declare.steps import Agent
from ..errors import InvalidInput
from ..store import open_store
from .session import Session


def run_configured(
    session: Session,
    store: str | None,
    roles: Iterable[str] | None,
    agents: Iterable[str] | None,
    lost_processes_max: int | None,
) -> AbstractAsyncContextManager[None]:
    """Run an App as ``App.running`` describes it. Raises InvalidInput at once - a setting that cannot be used."""
    from .assembly import run_node  # only who runs an App pays for loading the runtime

    chosen = None if roles is None else tuple(roles)
    configuration = session.configure(store=store, roles=chosen, lost_processes_max=lost_processes_max)
    opened, hosted = open_store(configuration.store), _list_hosted(session, agents)
    return run_node(session, opened, frozenset(configuration.roles), hosted, configuration)


def _list_hosted(session: Session, names: Iterable[str] | None) -> tuple[Agent, ...]:
    if names is None:
        return session.agents
    by_name = {agent.name: agent for agent in session.agents}
    wanted = list(names)
    for name in wanted:
        if name not in by_name:
            raise InvalidInput(f"Agent {name!r} is not in App {session.app}; it has {', '.join(by_name) or 'none'}")
    return tuple(by_name[name] for name in wanted)
