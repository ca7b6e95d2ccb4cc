"""Commands: the decisions that a store writes. A command is one transition of one task: all of it or nothing.

Every command names what it was decided from (fence, revision, state); the store refuses it when that has moved on.
"""

from typing import NamedTuple

import msgspec

from . import ConvoyVerb, Instant, StepRow, TaskState, Verb
from .agents import AgentVerb
from .failures import TaskFailure
from .moves import BeginUndo, Delivered, Ending, Hold, Keep, NewStep, Outcome, Reported
from .policies import ConvoyOverrides
from .processes import Versions


class Command(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Base of all commands: ``actor`` is the instance id of the process start that asks."""

    actor: str


# --- commands
class Start(msgspec.Struct, frozen=True, gc=False):
    """The process that submits a task begins it in the same commit; ``opened``: what its code asks for first.

    Keys of the steps are made where the task gets its number. ``code_version``: as the task's row keeps it.
    """

    process_no: int
    opened: tuple[NewStep, ...]
    code_version: str | None = None


class Fork(NamedTuple):
    """The part of another task that a new one does not do again, as ``core.forks`` has built it.

    Args:
        of: id of the other task. ``step``: label of the step from which on the new task does it again; ``from_step``: its number.
        store_id: for the keys of the copies.
        by, reason: who asks, and why; empty: not said.
        began_at: when the other one was started, which is the first instant that its code has seen.
        branched_at, submitted_tags, code_version: of the other one's row.
        copies: rows with their results, in order; task and key are made where the new task gets its number.
    """

    of: str
    step: str
    from_step: int
    store_id: str
    by: str
    reason: str
    began_at: Instant | None
    branched_at: Instant | None
    submitted_tags: str | None
    code_version: str | None
    copies: tuple[StepRow, ...]


class Submit(Command, frozen=True, gc=False, kw_only=True):
    """A new task. The same ``task_id`` again answers with the same task; another body under it is refused."""

    task_id: str
    workflow: str
    arguments: str
    body_hash: str
    policy: str
    priority: int
    delay: float
    complete_within: float | None
    seed: int
    reply_to: str | None = None
    convoy: str | None = None
    sequence: int | None = None
    end_of_sequence: bool = False
    start: Start | None = None
    app: str = ""
    trace_context: str | None = None
    submitter: str | None = None  # id of a token whose open tasks are capped
    open_tasks_max: int | None = None  # the cap
    tags: str | None = None  # checked, as JSON text; see model.tags
    parent_step: int | None = None  # the step of another task that it is, which must run
    depth: int = 0
    fork: Fork | None = None


class ClaimShare(msgspec.Struct, frozen=True, gc=False):
    """Workflows that divide the room of a process with others by weight; ``held``: tasks of them that it holds already."""

    workflows: tuple[str, ...]
    weight: int
    held: int


class Claim(Command, frozen=True, gc=False, kw_only=True):
    """Take free, due tasks of known workflows, in the order of core.due; at most one on probation, when ``probation`` has room.

    ``app``: of the process; only its tasks and those whose App was not said. So it is with ``Take``. ``shares``: of all
    workflows; with them the room is divided by weight, and each gets its tasks in their order. ``only``: numbers of tasks,
    and no other is taken; empty: whatever is due. ``versions``: of the code of the workflows.
    """

    process_no: int
    workflows: tuple[str, ...]
    limit: int
    probation: bool
    app: str = ""
    shares: tuple[ClaimShare, ...] = ()
    only: tuple[int, ...] = ()
    versions: Versions = {}


class GatherBatch(Command, frozen=True, gc=False, kw_only=True):
    """The Scheduler's write for a task whose turn has come and whose convoy handles batches: it takes what waits behind it.

    If it is not time yet, the task is put down until the batch is full, or its time is over.
    """

    task_no: int
    process_no: int
    fence: int
    revision: int
    convoy_no: int


class Take(Command, frozen=True, gc=False, kw_only=True):
    """Take due requests for Agents with room. ``room``: (agent, how many); ``names``: steps whose code is here.

    ``urgent``: as ``room``, of places besides those, for requests of ``core.reserve.URGENT_FROM`` and above alone.
    ``probation``: tasks on probation whose steps may be taken here: None any, else only this one (0: none).
    ``retries``: of Agents with a retry budget, how many of their requests may be later attempts; canaries do not count.
    ``siblings``: for an Agent in ``room``, the others that provide the same steps: their requests move to it, as far as
    ``core.routing`` lets them.
    """

    process_no: int
    room: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    probation: int | None
    app: str = ""
    urgent: tuple[tuple[str, int], ...] = ()
    retries: tuple[tuple[str, int], ...] = ()
    siblings: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Ahead(msgspec.Struct, frozen=True, gc=False):
    """The first requests of a task, found by running its code before its turn: ``task_no`` as it stood at ``link``.

    It counts only if the task still stands so, and its key has the ``convoy_state`` that the code was run with.
    """

    task_no: int
    link: int
    convoy_state: str | None
    opened: tuple[NewStep, ...]


class HandOver(msgspec.Struct, frozen=True, gc=False):
    """The process that ends a task of a convoy continues with the next one, if that is of its App and this code. See ``Claim``."""

    workflows: tuple[str, ...]
    ahead: Ahead | None = None
    app: str = ""
    versions: Versions = {}


class Advance(Command, frozen=True, gc=False, kw_only=True):
    """The Scheduler's write: results that came, in order, steps they opened, and where that leaves the task.

    ``convoy_no``: of the task; ``hand_over``: whether the next of its convoy is claimed in the same commit; ``trace_link``: to the
    task's span, for the next of its convoy. ``published``: what its code has published last, as JSON text; None: nothing new.
    ``unseen_since``: of the task, as its driver knows it; what came since stays unseen.
    """

    task_no: int
    process_no: int
    fence: int
    revision: int
    state: TaskState
    delivered: tuple[Delivered, ...] = ()
    opened: tuple[NewStep, ...] = ()
    ending: Ending = Keep()
    convoy_no: int | None = None
    hand_over: HandOver | None = None
    trace_link: str | None = None
    published: str | None = None
    unseen_since: Instant | None = None


class Report(Command, frozen=True, gc=False, kw_only=True):
    """An Agent's report that travels by itself: its process does not hold the task, or the report does not count.

    ``late``: the attempt's time was over on the Agent's own clock. It never counts, whatever the store's clock says.
    """

    process_no: int
    report: Reported
    late: bool = False


class _OfAttempt(Command, frozen=True, gc=False, kw_only=True):
    """Base of commands of a running attempt, by its process."""

    process_no: int
    step_no: int
    fence: int


class ExtendAttempt(_OfAttempt, frozen=True, gc=False, kw_only=True):
    """The code of a running attempt asks for more time: it must have ended ``seconds`` from now, and by ``latest``."""

    seconds: float
    latest: Instant


class SaveCheckpoint(_OfAttempt, frozen=True, gc=False, kw_only=True):
    """The code of a running attempt keeps a value (JSON text) for the attempts after it.

    ``replaces``: hash of what is kept as far as the attempt knows; a command that arrives after a later one changes nothing.
    """

    value: str
    replaces: str | None


class PublishProgress(_OfAttempt, frozen=True, gc=False, kw_only=True):
    """The code of a running attempt publishes a value (JSON text) for those who look at its task.

    ``at``: when it did; a command that arrives after a later one changes nothing.
    """

    value: str
    at: Instant


class BeginTry(_OfAttempt, frozen=True, gc=False, kw_only=True):
    """A running attempt asks whether it may make another call now. It needs to ask if a rate counts calls, or if others may report.

    ``app``, ``agent``: whose limits count it. If its answer is lost, it is sent again and counts twice. ``in_doubt``: a call
    before may have happened; the step's row keeps that first.
    """

    app: str
    agent: str
    in_doubt: bool = False


class DeliverAttempt(_OfAttempt, frozen=True, gc=False, kw_only=True):
    """The request of a running attempt has reached its program, which holds the attempt from now on: no process does."""


class ReleaseAttempt(Command, frozen=True, gc=False, kw_only=True):
    """A running attempt that definitely has not begun its work goes back: its request may be taken again, nothing is charged."""

    step_no: int
    fence: int


class NoteChildEnd(Command, frozen=True, gc=False, kw_only=True):
    """A child of a task has ended, and no driver of that task is here: it is woken. ``step_no``: the step that the child is."""

    step_no: int


class Recover(Command, frozen=True, gc=False, kw_only=True):
    """The Supervisor's decision on a step that expired (running) or starved (pending past ``wait_by``)."""

    step_no: int
    fence: int
    starved: bool
    outcome: Outcome
    term: int


class EndByLimit(Command, frozen=True, gc=False, kw_only=True):
    """The task's own limit has passed: undo or hold, no matter who holds it."""

    task_no: int
    fence: int
    revision: int
    state: TaskState
    ending: BeginUndo | Hold
    term: int


class FreeTask(Command, frozen=True, gc=False, kw_only=True):
    """Free what a lost holder held of one task: the task itself (when ``fence`` is given), and attempts by step fence.

    ``lost_by``: the retired process; None: the holder lives but made no progress for too long (``stuck_since``).
    ``hold``: it was lost too often, if it still has ``held_from`` losses then.
    """

    task_no: int
    fence: int | None
    steps: tuple[tuple[int, int], ...]
    lost_by: int | None
    stuck_since: Instant | None
    charged: bool
    hold: TaskFailure | None
    held_from: int = 3
    term: int | None = None


PERSONS_MAX = 10  # who must ask for one verb, or give the same answer


class Operate(Command, frozen=True, gc=False, kw_only=True):
    """An operator's verb on a task.

    Args:
        incarnation: as the person saw it; the one who came first may have opened the next.
        by, reason: who asks, and why; kept in the history.
        store_id: of the store, for the new key of a step that is sent other arguments.
        step: ordinal; of ``answer`` the step, of ``adjust`` the one whose limits change (None: each open one), of ``resubmit`` the
            one whose arguments are edited (None: the workflow's).
        arguments: of ``resubmit``: all of them, edited, as JSON text.
        result: of ``answer``, as JSON text; None with ``did_not_happen``.
        within: of ``extend``, ``adjust`` and ``snooze``: seconds from now; of ``adjust`` 0: the task keeps its deadline.
        limits: of ``adjust``: changes of a step's policy, and ``delay`` of its next attempt in seconds, as a JSON object.
        tags: of ``tag``: their new values, as a JSON object; null for a tag that is removed.
        to: of ``pin``: what changes of its code version, see ``model.processes.read_version_change``.
        ``persons``: how many must ask for the same, each in a separate command; with fewer it is kept as an approval.
        approved_since: approvals count from this instant on.
    """

    verb: Verb
    task_no: int
    incarnation: int
    by: str
    reason: str
    store_id: str = ""
    step: int | None = None
    arguments: str | None = None
    result: str | None = None
    did_not_happen: bool = False
    within: float = 0.0
    limits: str | None = None
    tags: str | None = None
    to: str = ""
    persons: int = 1
    approved_since: Instant = Instant(0)


class SendSignal(Command, frozen=True, gc=False, kw_only=True):
    """Someone sends a signal to a task. Guard: the task goes forward or is held, and has room for it.

    Args:
        name: see ``model.signals.SignalRow``; so are ``signal_id``, ``value`` and ``wants_reply``.
        app: of the sender; empty: not said, as of operators. A task of another App is refused.
        wait: ordinal of the one wait that it is for, which must be open; None: any wait of that name, now or later.
    """

    task_no: int
    name: str
    signal_id: str
    value: str
    sent_by: str
    app: str = ""
    wait: int | None = None
    wants_reply: bool = False


class AssignApp(Command, frozen=True, gc=False, kw_only=True):
    """An operator says which App runs a task from now on.

    Args:
        from_app: whose it was as the person saw it; empty: nobody's.
        by, reason: who asks, and why; kept in the history.
    """

    task_no: int
    app: str
    from_app: str
    by: str
    reason: str


class OperateConvoy(Command, frozen=True, gc=False, kw_only=True):
    """An operator's verb on a convoy.

    Args:
        fence: as the person saw it; None: whatever it is doing now.
        by, reason: who asks, and why; kept in the history.
        task_no: of ``move_to_head``.
        policy: of ``set``: what is overridden from now on; a None in it means that the workflow's holds again.
    """

    verb: ConvoyVerb
    convoy_no: int
    fence: int | None
    by: str
    reason: str
    task_no: int | None = None
    policy: ConvoyOverrides | None = None


class TripBreaker(Command, frozen=True, gc=False, kw_only=True):
    """Open the breaker of an Agent by what its calls showed. Guard: it is closed, and was so in the whole window.

    Args:
        policy: the Breaker of the process, as JSON text.
        failing_since: start of the window that was judged.
        retry_after: seconds that the service asked for.
        is_one_request: one step made all the calls that failed.
    """

    app: str
    agent: str
    target: str
    policy: str
    reason: str
    failing_since: Instant
    retry_after: float | None = None
    is_one_request: bool = False


class OperateAgent(Command, frozen=True, gc=False, kw_only=True):
    """An operator's verb on an Agent, or on one target of it.

    Args:
        by, reason: who asks, and why; kept in the history.
    """

    verb: AgentVerb
    app: str
    agent: str
    target: str
    by: str
    reason: str


class BeginProbe(Command, frozen=True, gc=False, kw_only=True):
    """Ask a service in place of a canary. Guard: its breaker is open, and its ``probe_at`` has come.

    ``complete_within``: seconds that the probe may take.
    """

    app: str
    agent: str
    target: str
    complete_within: float


class EndProbe(Command, frozen=True, gc=False, kw_only=True):
    """Report how a probe ended. Guard: the breaker's fence, and its time is not over. ``failure``: None if the service is healthy."""

    app: str
    agent: str
    target: str
    fence: int
    failure: str | None


CommandOfBreaker = TripBreaker | OperateAgent | BeginProbe | EndProbe
CommandOfAttempt = ExtendAttempt | SaveCheckpoint | PublishProgress | BeginTry | DeliverAttempt
CommandOfPerson = Operate | AssignApp | OperateConvoy
TaskCommand = (
    Advance
    | Report
    | CommandOfAttempt
    | ReleaseAttempt
    | Recover
    | EndByLimit
    | FreeTask
    | NoteChildEnd
    | GatherBatch
    | SendSignal
    | CommandOfPerson
)
AnyCommand = Claim | Take | TaskCommand | CommandOfBreaker
