"""Scopes of a token, and what each route needs. Deny is the default: a route without a need is refused at start-up."""

from collections.abc import Set as AbstractSet

import msgspec

from ..model.tokens import AGENT_PREFIX, REPLIES_PREFIX, Scope

__all__ = ["AGENT", "ANY_TOKEN", "REPLIES", "Needs", "Scope", "describe_missing_scope"]

_PATH_NAMES = {AGENT_PREFIX: "agent", REPLIES_PREFIX: "queue"}  # where the path has the name of a named scope


class Needs(msgspec.Struct, frozen=True):
    """Scopes that a route demands of its caller.

    Args:
        scope: this one; None: see the others.
        also: and this one.
        named: what begins a scope that ends in a name of the path: ``agent:`` or ``replies:``; empty: none does.
        public: why nobody has to say who they are; empty: they have to.
        credential: the name in the path of the token of a callback, which is the credential. ``public`` says so in words.
    A need of nothing is a valid token with any scope.
    """

    scope: Scope | None = None
    also: Scope | None = None
    named: str = ""
    public: str = ""
    credential: str = ""

    @property
    def is_open(self) -> bool:
        """True if callers cannot be distinguished, so that they are not counted."""
        return bool(self.public) and not self.credential

    @property
    def path_name(self) -> str:
        """The part of the path that has the name of the named scope; empty: there is none."""
        return _PATH_NAMES.get(self.named, "")


def may_read_payloads(held: AbstractSet[str]) -> bool:
    """Return True if a caller with these scopes gets arguments, results and outputs."""
    return Scope.READ_PAYLOADS in held or Scope.ADMIN in held


def may_read_reasons(held: AbstractSet[str]) -> bool:
    """Return True if a caller with these scopes gets the reasons of failures, which are written for operators."""
    return Scope.READ in held or Scope.ADMIN in held


def may_list_tokens(held: AbstractSet[str]) -> bool:
    """Return True if a caller with these scopes learns names, scopes and Apps of tokens."""
    return Scope.ADMIN in held


ANY_TOKEN = Needs()
AGENT = Needs(named=AGENT_PREFIX)
REPLIES = Needs(named=REPLIES_PREFIX)


def describe_missing_scope(needs: Needs, held: frozenset[str], name: str = "") -> str:
    """Return the name of the first scope that a caller lacks for a route; empty: the caller may pass.

    Args:
        needs: of the route. A public route lacks nothing.
        held: scopes of the caller.
        name: the one in the path, for a route of one Agent or one reply queue.
    """
    if needs.public or Scope.ADMIN in held:
        return ""
    if needs.named:
        wanted = needs.named + name
        return "" if wanted in held or f"{needs.named}*" in held else wanted
    return next((str(scope) for scope in (needs.scope, needs.also) if scope is not None and scope not in held), "")
