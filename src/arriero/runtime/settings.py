"""Settings of a node. Values that cannot work are refused at construction."""

from collections.abc import Iterable

import msgspec

from ..core.lease import HELD_FROM, PROBATION_FROM
from ..errors import DefinitionError, InvalidInput

# Ten thousand attempts come back over 50 s. That is less than the longest delay between two attempts, so a mass is spread about
# as far as its next failure would be; and more attempts than a healthy system loses in a second.
REDISPATCH_PER_SECOND_MAX = 200

HTTP = "http"
DEFAULT_ROLES = ("scheduler", "agents", "supervisor")
ROLES = (*DEFAULT_ROLES, HTTP)  # nobody listens on a socket who did not ask for it


def check_roles(roles: Iterable[str] | None) -> frozenset[str]:
    """Check the roles to run; None means all but http. Raises InvalidInput naming an unknown one."""
    chosen = frozenset(DEFAULT_ROLES if roles is None else roles)
    if unknown := chosen - set(ROLES):
        raise InvalidInput(f"role {min(unknown)!r} is not known; roles are {', '.join(ROLES)}")
    if not chosen:
        raise InvalidInput(f"no role was named; roles are {', '.join(ROLES)}")
    return chosen


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds and counts of one node.

    Args:
        lease_seconds: of the process; renewed at less than a third of it.
        poll_seconds: how often the store is asked what is due; wake-ups in the process need no poll.
        supervise_seconds: between passes of the Supervisor while something is overdue, and a third of a lease of its own at most.
        supervise_seconds_max: between its passes while nothing is overdue; less than ``supervise_seconds`` counts as that.
        leader_seconds: the Supervisor's lease.
        progress_seconds: how long a holder may leave news unseen before its task is freed as lost.
        hang_seconds: how long the event loop may be blocked before the process's lease is no longer renewed.
        linger_seconds: how long an idle task is kept in memory before it is put down.
        tasks_max: tasks held at a time.
        batch_max: rows in one claim, take or pass.
        redispatch_per_second_max: attempts that expired and come back in a second, by one leader.
        approvals_cancel: operators who must ask for a task to be cancelled; with more than one no schedule cancels a run.
        lost_processes_max: a task is held once that many processes were lost with it in a row.
        public_url: under which services reach the HTTP API, without a slash at its end; empty: not said.
        deployment: name of the deployment of the code, to which tasks may belong; empty: it has none.
    """

    lease_seconds: float = 3.0
    poll_seconds: float = 0.05
    supervise_seconds: float = 0.25
    supervise_seconds_max: float = 2.0
    leader_seconds: float = 6.0
    progress_seconds: float = 60.0
    hang_seconds: float = 20.0
    linger_seconds: float = 1.0
    tasks_max: int = 1_000
    batch_max: int = 500
    redispatch_per_second_max: int = REDISPATCH_PER_SECOND_MAX
    lost_processes_max: int = HELD_FROM
    approvals_cancel: int = 1
    public_url: str = ""
    deployment: str = ""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name not in ("public_url", "deployment") and getattr(self, name) <= 0:
                raise DefinitionError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        if self.lost_processes_max <= PROBATION_FROM:
            raise DefinitionError(
                f"lost_processes_max is {self.lost_processes_max}; it must be above {PROBATION_FROM}: from that loss on a task "
                "is handled alone, and only then is it known that the task caused the loss"
            )
        if self.supervise_seconds * 3 > self.leader_seconds:
            raise DefinitionError(
                f"supervise_seconds {self.supervise_seconds} is more than a third of leader_seconds {self.leader_seconds}: "
                "the leader would lose its lease between two passes"
            )
