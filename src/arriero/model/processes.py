"""Plain data: the row of a process, what a process says of itself to others, and versions of the code that it runs."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from ..errors import InvalidInput
from . import Instant, TaskRow

FIRST = 1
SET_PUBLIC_URL = (  # in warnings and explanations
    "set public_url in arriero.toml, or ARRIERO_PUBLIC_URL=https://HOST, for the processes that run it, and start them again"
)
Versions = Mapping[
    str, tuple[str, ...]
]  # that code has, by workflow, the newest first; one that it does not name: version 1
NO_VERSIONS: Versions = {}
FIRST_VERSION = "1"  # of no named deployment: of code that says nothing. A task that it began carries none
VERSION_MAX = 1_000_000
DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
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


def format_code_version(version: int, deployment: str = "") -> str:
    """Format a version of the code of a workflow: ``2``, and of a deployment ``2@blue``."""
    return f"{version}@{deployment}" if deployment else str(version)


def read_code_version(text: str | None) -> tuple[int, str]:
    """Read the version that a task carries: its number, and the deployment; empty: any."""
    number, _, deployment = (text or FIRST_VERSION).partition("@")
    return int(number) if number.isascii() and number.isdigit() else 0, deployment


def keep_code_version(text: str) -> str | None:
    """Return a version as a task's row keeps it."""
    return None if text == FIRST_VERSION else text


def has_version(versions: Versions, task: TaskRow) -> bool:
    """Returns True if code of these versions may continue a task of its workflows. One that has not begun begins with any."""
    return task.started_at is None or (task.code_version or FIRST_VERSION) in versions.get(task.workflow, FIRST_ALONE)


FIRST_ALONE = (FIRST_VERSION,)


def choose_version(versions: Versions, workflow: str) -> str | None:
    """Choose the version with which a task of a workflow begins, as its row keeps it."""
    return keep_code_version(versions.get(workflow, FIRST_ALONE)[0])


def ask_versions(versions: Versions, workflows: Iterable[str]) -> dict[str, list[str]]:
    """Build the parameters of statements that find tasks for code of these versions."""
    named = {name: versions[name] for name in workflows if name in versions}
    return {
        "versions": [f"{name} {version}" for name, of in named.items() for version in of if version != FIRST_VERSION],
        "without_first": [name for name, of in named.items() if FIRST_VERSION not in of],
    }


def read_version_change(text: object, what: str) -> tuple[int | None, str | None]:
    """Read what names versions: ``2``, ``@blue``, ``2@blue``; ``@`` stands for no named deployment.

    Returns: the number and the deployment; None: any, or as it is. Raises InvalidInput.
    """
    number, at, deployment = text.partition("@") if isinstance(text, str) else ("", "", "")
    is_number = number.isascii() and number.isdigit() and len(number) <= 7 and 1 <= int(number) <= VERSION_MAX
    if not (is_number or (at and not number)) or (deployment and not DEPLOYMENT.fullmatch(deployment)):
        raise InvalidInput(
            f"{what} is {text!r}; give the number of a version, @DEPLOYMENT or both, like 2, @blue or 2@blue; @ alone stands"
            " for no named deployment"
        )
    return int(number) if is_number else None, deployment if at else None


def change_version(before: str | None, to: str) -> str:
    """Return the version of a task after it was moved. ``to``: what it names changes, the rest stays."""
    version, deployment = read_code_version(before)
    number, name = read_version_change(to, "to")
    return format_code_version(version if number is None else number, deployment if name is None else name)


def name_version(version: str, others: Iterable[str]) -> str:
    """Name a version in a command as no other one: ``2@`` of no named deployment, if any of the others is of one."""
    return f"{version}@" if "@" not in version and any("@" in other for other in others) else version


def is_of_version(task: TaskRow, asked: str) -> bool:
    """Returns True if a task has begun with a version that is asked for. ``asked``: see ``read_version_change``."""
    if task.started_at is None:
        return False
    version, deployment = read_code_version(task.code_version)
    number, name = read_version_change(asked, "code_version")
    return number in (None, version) and name in (None, deployment)


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
    ``versions``: see ``Versions``; of workflows with other ones than version 1 alone.
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
    versions: dict[str, tuple[str, ...]] = {}

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
