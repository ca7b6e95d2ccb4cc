"""Scopes of a token, and what each route needs. Deny is the default: a route without a need is refused at start-up."""

from collections.abc import Set as AbstractSet

import msgspec

from ..tokens import AGENT_PREFIX, ANY_AGENT, Scope

__all__ = ["AGENT", "AGENT_PREFIX", "ANY_AGENT", "ANY_TOKEN", "Needs", "Scope", "describe_missing_scope"]


class Needs(msgspec.Struct, frozen=True):
    """Scopes that a route demands of its caller.

    Args:
        scope: this one; None: see the others.
        also: and this one.
        agent: ``agent:NAME``, where NAME is the path's ``{agent}``.
        public: why nobody has to say who they are; empty: they have to.
    A need of nothing is a valid token with any scope.
    """

    scope: Scope | None = None
    also: Scope | None = None
    agent: bool = False
    public: str = ""


def may_read_payloads(held: AbstractSet[str]) -> bool:
    """Return True if a caller with these scopes gets arguments, results and outputs."""
    return Scope.READ_PAYLOADS in held or Scope.ADMIN in held


def may_read_reasons(held: AbstractSet[str]) -> bool:
    """Return True if a caller with these scopes gets the reasons of failures, which are written for operators."""
    return Scope.READ in held or Scope.ADMIN in held


ANY_TOKEN = Needs()
AGENT = Needs(agent=True)


def describe_missing_scope(needs: Needs, held: frozenset[str], agent: str = "") -> str:
    """Return the name of the first scope that a caller lacks for a route; empty: the caller may pass.

    Args:
        needs: of the route. A public route lacks nothing.
        held: scopes of the caller.
        agent: the name in the path, for a route of one Agent.
    """
    if needs.public or Scope.ADMIN in held:
        return ""
    if needs.agent:
        wanted = AGENT_PREFIX + agent
        return "" if wanted in held or ANY_AGENT in held else wanted
    return next((str(scope) for scope in (needs.scope, needs.also) if scope is not None and scope not in held), "")
