"""Rows about the calls of Agents, as the store keeps them; ``core.agent_metrics`` adds them up."""

import msgspec

from ..model import Instant


class CountsRow(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that one process made for its App within one minute of the store's clock.

    Attributes:
        process_no: 0: the sum of all minutes that are no longer kept one by one; its ``minute`` is 0.
        minute: minutes since 1970 by the store's clock.
        calls: how many ended. It only grows, so of two versions of a row the one with more calls is the newer one.
        counts: by Agent, as JSON text; see ``core.agent_metrics``.
    """

    app: str
    process_no: int
    minute: int
    calls: int
    counts: str


class AgentLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and attempts of one Agent of an App.

    Attributes:
        due: requests that may be taken now; ``oldest_at``: since when the oldest may.
        later: requests whose time has not come.
        running: attempts under way.
    """

    app: str
    agent: str
    due: int = 0
    oldest_at: Instant | None = None
    later: int = 0
    running: int = 0


class AgentMeasurements(msgspec.Struct, frozen=True, kw_only=True):
    """All that the store knows about calls and load, as of one moment. ``loads``: by Agent and App."""

    now: Instant
    counts: tuple[CountsRow, ...]
    loads: tuple[AgentLoad, ...]
