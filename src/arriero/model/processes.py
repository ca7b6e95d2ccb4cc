"""Plain data: the row of a process, and what a process says of itself to others."""

import msgspec

from . import Instant

FIRST = 1
SET_PUBLIC_URL = (  # in warnings and explanations
    "set public_url in arriero.toml, or ARRIERO_PUBLIC_URL=https://HOST, for the processes that run it, and start them again"
)
NUMBERS_BITS = 32  # a task's number stays below 2 ** 43, since a step's number holds it and 20 bits more


def compute_first_number(epoch: int) -> int:
    """Return the first number of tasks and processes of an epoch.

    Args:
        epoch: 1, 2, ...; up to 2,000.
    """
    return 1 if epoch == FIRST else (epoch - FIRST) << NUMBERS_BITS


def describe_epoch_refusal(spoken_in: int, epoch: int) -> str:
    """Return why a process that speaks in one epoch is refused in another."""
    return f"this process is of epoch {spoken_in}, the store is in epoch {epoch} since it was restored"


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
    ``model.policies``: of its workflows by name, as JSON text in a task's row, for those who submit by SQL. ``leaving``: it was
    asked to end, and drains. ``model.agents``: of its Agents that have any, by name, as JSON text. ``providers``: of its App, as
    base, Agent, weight and preference; a base is one of its own. ``pulled``: Agents of its App whose requests programs outside
    of Python ask for. ``without_url``: those of its steps that it does not begin, because it knows no URL for their callbacks.
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
    without_url: tuple[tuple[str, str], ...] = ()

    def list_begun(self) -> list[tuple[str, str]]:
        """List the steps, as Agent and name, of which attempts begin in the process."""
        return [step for step in self.steps if step not in self.without_url]


class LeaderSurvey(msgspec.Struct, frozen=True):
    """The Supervisor that leads.

    Args:
        process: the name of the process; empty: its row no longer exists.
        since: when its term began; None: an older release began it, which did not keep that.
        until: when its lease lapses, unless it renews.
    """

    now: Instant
    process: str
    term: int
    since: Instant | None
    until: Instant
