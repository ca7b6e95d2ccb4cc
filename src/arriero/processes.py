"""Plain data: the row of a process, and what a process says of itself to others."""

import msgspec

from .model import Instant


class ProcessRow(msgspec.Struct, frozen=True, gc=False):
    """One start of one process."""

    process_no: int
    instance: str
    lease_until: Instant
    retired: bool
    about: str = "{}"  # what it runs, as JSON text
    room: str = ""  # of its Agents at its last renewal, as JSON text; see core.room_reports


class ProcessAbout(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The description of a process start, so that others know which code runs somewhere.

    ``workflows``: as in a task's row, so with ``step:NAME`` for tasks of one step. ``steps``: as Agent and name.
    ``policies``: of its workflows by name, as JSON text in a task's row, for those who submit by SQL. ``leaving``: it was
    asked to end, and drains. ``limits``: of its Agents that have any, by name, as JSON text. ``providers``: of its App, as
    base, Agent, weight and preference; a base is one of its own. ``pulled``: Agents of its App whose requests programs outside
    of Python ask for.
    """

    app: str = ""
    roles: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    steps: tuple[tuple[str, str], ...] = ()
    policies: dict[str, str] = {}
    leaving: bool = False
    limits: dict[str, str] = {}
    providers: tuple[tuple[str, str, float, int], ...] = ()
    pulled: tuple[str, ...] = ()


class LeaderSurvey(msgspec.Struct, frozen=True):
    """The Supervisor that leads.

    Args:
        process: the name of the process; empty: its row is gone.
        since: when its term began; None: an older release began it, which did not keep that.
        until: when its lease lapses, unless it renews.
    """

    now: Instant
    process: str
    term: int
    since: Instant | None
    until: Instant
