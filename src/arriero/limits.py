"""Plain data: the limits of Agents that all processes share, as rows of the state store."""

from typing import Literal

import msgspec

from .model import Instant

BEGUN_UNKNOWN = ""  # the calls of a rate whose row cannot be read: as many as it allows
WITHOUT_KEYS = "{}"  # of a request that belongs to no key of its own
NO_LIMIT_KEYS = (None, WITHOUT_KEYS)  # of requests that wait under no key


class LimitPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One limit of an Agent.

    Attributes:
        name: by which people and the keys of requests name it; the limits of one Agent have different names.
        kind: ``concurrent``: attempts at once. ``rate``: calls that begin within ``per`` seconds.
        most: how many.
        is_keyed: each key has a room of its own.
    """

    name: str
    kind: Literal["concurrent", "rate"]
    most: int
    per: float = 0.0
    is_keyed: bool = False


class AgentLimitsRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The limits of an Agent of an App, as the process that was started last has declared them.

    Whoever takes requests of the Agent locks this row until the commit. So two processes never use the same room.

    Attributes:
        limits: the LimitPolicies, as JSON text; an empty list: none any more.
        process_no: the process start that declared them.
        declared_at: when it did.
        has_keyless: there are, or may be, requests or attempts that were kept before these limits; they carry no keys.
        look_at: when such requests are looked for again.
        last_keys: keys behind which requests of another Agent are looked for that this one may take over.
    """

    app: str
    agent: str
    limits: str = "[]"
    process_no: int = 0
    declared_at: Instant = Instant(0)
    has_keyless: bool = False
    look_at: Instant = Instant(0)
    last_keys: str = ""


class RateRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Calls of one rate limit that began a short time ago; ``key`` is empty if it is not keyed.

    Attributes:
        begun: pairs of instant and number of calls, oldest first, as JSON text.
        until: from then on the row says nothing any more.
    """

    app: str
    agent: str
    name: str
    key: str
    begun: str
    until: Instant


class WaitingKeysRow(msgspec.Struct, frozen=True, gc=False):
    """Keys under which requests of an Agent wait, or waited when it was written.

    Attributes:
        keys: as in the rows of the requests.
        look_at: when a Take looks at them next. Not before that a request under them is due and has room.
    """

    app: str
    agent: str
    keys: str
    look_at: Instant


class LimitsInUse(msgspec.Struct, frozen=True):
    """The limits of an Agent and what is in use of them.

    Attributes:
        running: pairs of keys (as JSON text) and the number of attempts under way with them.
        rates: calls of rate limits that began a short time ago.
        now: the store's clock when they were read.
    """

    row: AgentLimitsRow
    running: tuple[tuple[str, int], ...]
    rates: tuple[RateRow, ...]
    now: Instant


_read_policies = msgspec.json.Decoder(tuple[LimitPolicy, ...]).decode
_read_keys = msgspec.json.Decoder(dict[str, str]).decode


def read_limits(text: str) -> tuple[LimitPolicy, ...]:
    """Read the limits of a row. Raises msgspec.MsgspecError."""
    return _read_policies(text)


def encode_limits(limits: tuple[LimitPolicy, ...]) -> str:
    """The JSON text of limits for a row."""
    return msgspec.json.encode(limits).decode()


def read_limit_keys(text: str | None) -> dict[str, str]:
    """Read the keys of a request, by the names of their limits."""
    return {} if text is None else _read_keys(text)


def encode_limit_keys(keys: dict[str, str]) -> str:
    """The JSON text of keys for a row; the same keys give the same text."""
    return msgspec.json.encode(keys, order="sorted").decode()
