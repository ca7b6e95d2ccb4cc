"""Tokens of the HTTP API as they are kept, and the scopes that they may have."""

from enum import StrEnum

import msgspec

from . import Instant

AGENT_PREFIX = "agent:"
REPLIES_PREFIX = "replies:"
NAMED_PREFIXES = (AGENT_PREFIX, REPLIES_PREFIX)  # a name follows, or * for any


class Scope(StrEnum):
    """Permission of a token's holder. Beside these there are ``agent:NAME`` for each Agent, ``replies:NAME`` for each reply queue,
    ``agent:*`` and ``replies:*``.

    No scope implies another one, but for ``admin``, which implies all.
    """

    SUBMIT = "submit"
    READ = "read"
    READ_PAYLOADS = "read-payloads"
    OPERATE = "operate"
    ADMIN = "admin"


class Reach(msgspec.Struct, frozen=True):
    """The tasks that a token is restricted to; everything else is not there for its holder.

    Args:
        apps: of these Apps; none: of any.
        workflows: of these workflows, ``step:NAME`` for tasks of one step; none: of any.
    """

    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Returns True if the token is not restricted."""
        return not self.apps and not self.workflows

    def includes(self, app: str, workflow: str) -> bool:
        """Return True if the holder sees the tasks of a workflow of an App."""
        return self.includes_app(app) and (not self.workflows or workflow in self.workflows)

    def includes_app(self, app: str) -> bool:
        """Return True if the holder sees some tasks of an App."""
        return not self.apps or app in self.apps


ANY_REACH = Reach()


class OpenTaskCap(msgspec.Struct, frozen=True):
    """A limit on the open tasks of one token.

    Args:
        submitter: the token's id.
        open_tasks_max: tasks of it that may be open.
    """

    submitter: str
    open_tasks_max: int


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token. The secret in it is kept nowhere; ``digest`` is what its holder's secret must hash to.

    Args:
        token_id: stands in the token, and names it to operators.
        name: signs each act of its holder in the history. Several tokens may have one name.
        digest: SHA-256 of the secret, hexadecimal. The secret is 256 random bits, so nothing slower is needed.
        scopes: what the holder may do, sorted.
        expires_at: from then on it is refused; None: it never expires.
        last_used_at: within a minute; None: it was never used.
        revoked_at: from then on it is refused; None: it is not revoked.
        apps, workflows: to which it is restricted: see ``Reach``.
        open_tasks_max: tasks of its holder that may be open; None: any number.
    """

    token_id: str
    name: str
    digest: str
    scopes: tuple[str, ...]
    created_at: Instant
    created_by: str
    expires_at: Instant | None = None
    last_used_at: Instant | None = None
    revoked_at: Instant | None = None
    revoked_by: str = ""
    revoked_reason: str = ""
    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    open_tasks_max: int | None = None


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token to be kept. ``expires_in``: seconds from when it is kept; None: never. The others are those of TokenRow."""

    token_id: str
    name: str
    digest: str
    scopes: tuple[str, ...]
    created_by: str
    expires_in: float | None = None
    reach: Reach = ANY_REACH
    open_tasks_max: int | None = None
