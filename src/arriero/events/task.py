"""Events in the history of a task that tell of the task itself, of its undo and of people."""

from msgspec import UNSET, Raw, UnsetType

from ..model import Instant
from .base import Hash, HistoryEvent


class TaskSubmitted(HistoryEvent, frozen=True, tag="task.submitted"):
    """The first event of every task. ``body``: hash of its arguments; ``complete_by``: its own limit."""

    workflow: str
    body: str
    priority: int
    not_before: Instant
    complete_by: Instant | None
    reply_to: str | None = None
    app: str = ""
    ledger: str | None = None  # the id of the ledger that it came with


class TaskClaimed(HistoryEvent, frozen=True, tag="task.claimed"):
    """A process drives the task from now on."""

    fence: int
    process: int
    state: str
    revision: int


class TaskReleased(HistoryEvent, frozen=True, tag="task.released"):
    """The task was released, so nobody drives it. ``why``: ``put_down``, ``lost``, ``stuck`` or ``limit``."""

    fence: int
    not_before: Instant | None
    why: str


class TaskExpired(HistoryEvent, frozen=True, tag="task.expired"):
    """The Supervisor found that the task's own limit has passed. ``term``: of its lease."""

    term: int | None


class TaskLost(HistoryEvent, frozen=True, tag="task.lost"):
    """The process that drove the task was lost, which is counted. ``process`` None: it lives, but was stuck."""

    lost_count: int
    process: int | None


class TaskTerminal(HistoryEvent, frozen=True, tag="task.terminal"):
    """The task has ended. ``failure``: a ``model.TaskFailure`` as JSON."""

    state: str
    fence: int
    output: Hash = None
    failure: Raw | UnsetType = UNSET


class UndoBegun(HistoryEvent, frozen=True, tag="undo.begun"):
    """The task is undone from now on. ``failure``: a ``model.TaskFailure`` as JSON."""

    failure: Raw


class UndoPlanned(HistoryEvent, frozen=True, tag="undo.planned"):
    """All compensations that the undo needs are opened. ``steps``: their ordinals, in their order."""

    steps: tuple[int, ...]


# --- people
class OperatorAction(HistoryEvent, frozen=True, kw_only=True, tag="operator.action"):
    """A person carried out a verb on the task.

    Args:
        verb: a ``model.Verb``.
        before, after: state of the task.
        complete_by: of a resubmission and of ``extend`` the new limit.
        anew: a compensated task runs again from its beginning.
        arguments, replaces: hashes of the new arguments of the task's workflow, and of those before.
        paused: of ``pause`` and ``resume`` how it is now.
        approved_by: who else asked for it, where one person is not enough.
    """

    verb: str
    by: str
    reason: str
    before: str
    complete_by: Instant | UnsetType | None = UNSET
    anew: bool = False
    arguments: Hash | UnsetType = UNSET
    replaces: Hash | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    after: str
    incarnation: int
    fence: int
    not_before: Instant | None
    approved_by: tuple[str, ...] = ()


class OperatorApproval(HistoryEvent, frozen=True, tag="operator.approval"):
    """A person approved a verb that others must ask for as well; nothing else was changed.

    Args:
        request: what the verb carries beside its name, as JSON text (``core.approvals``): another answer is another thing
            to approve.
        persons: how many must ask for it.
    """

    verb: str
    by: str
    reason: str
    incarnation: int
    request: str
    persons: int


class TaskAssigned(HistoryEvent, frozen=True, tag="task.assigned", rename={"from_app": "from"}):
    """A person gave the task to an App."""

    app: str
    from_app: str
    by: str
    reason: str
    fence: int
    not_before: Instant | None


class StatusPublished(HistoryEvent, frozen=True, tag="status.published"):
    """A message to the submitter was put into its reply queue."""

    number: int
    kind: str
    queue: str


class AlertOpened(HistoryEvent, frozen=True, tag="alert.opened"):
    """The task needs a person. ``cause``: the kind of a ``model.TaskFailure``."""

    cause: str


class AlertClosed(HistoryEvent, frozen=True, tag="alert.closed"):
    """The task needs no person any more."""


EventOfTask = (
    TaskSubmitted | TaskClaimed | TaskReleased | TaskExpired | TaskLost | TaskTerminal | UndoBegun | UndoPlanned
)
EventOfPeople = OperatorAction | OperatorApproval | TaskAssigned | StatusPublished | AlertOpened | AlertClosed
