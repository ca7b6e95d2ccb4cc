"""Answers of a store to commands: what was written, or why it was refused."""

import msgspec

from . import ConvoyRow, Instant, Loaded, StepRow, TaskRow
from .agents import BreakerRow

APPROVAL_NEEDED = "approval_needed"
WORKFLOW_PAUSED = "workflow_paused"  # the verdict on a submission of a workflow that takes no new tasks
TOO_MANY_OPEN_TASKS = "too_many_open_tasks"  # the verdict on a submission beyond a cap


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The guard did not hold: someone else came first. ``verdict`` says what became of a report.

    Of a verb: ``not_allowed``, ``came_first``, ``approval_needed`` or ``parent_undone``, with the task's ``state`` and the verbs
    ``allowed`` there.
    """

    verdict: str
    detail: str = ""
    state: str = ""
    allowed: tuple[str, ...] = ()


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The tasks claimed."""

    tasks: tuple[Loaded, ...]


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """One attempt for an Agent of this process to carry out."""

    step: StepRow
    task_id: str
    now: Instant  # the store's clock when it was taken
    lost_count: int
    trace_context: str | None = None  # of its task
    tags: str | None = None  # of its task, as JSON text


class Begun(msgspec.Struct, frozen=True, gc=False):
    """A task that began in the commit that brought it, and its first attempts."""

    task: Loaded
    dispatches: tuple[Dispatch, ...]


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The task that now stands under the id; ``created`` is False when it stood there before."""

    task_no: int
    created: bool
    task_id: str = ""  # of the task that stands there, where it is another: it came under the same sequence
    begun: Begun | None = None  # it has begun here, as it was asked for


class LimitedAgent(msgspec.Struct, frozen=True, gc=False):
    """An Agent whose limits a Take has found. ``is_full``: requests may wait that they hold back.

    ``is_used_up``: no request of any key may begin now.
    ``has_rate``: each further try of an attempt asks the store, too.
    ``next_in``: seconds until a rate that holds something back lets the next call through; None: none does.
    """

    agent: str
    is_full: bool
    is_used_up: bool
    has_rate: bool
    next_in: float | None


class Taken(msgspec.Struct, frozen=True, gc=False):
    """The attempts taken. ``model.agents``: of the Agents that were asked for, those that are not plainly closed.

    ``limited``: those that have limits.
    """

    dispatches: tuple[Dispatch, ...]
    breakers: tuple[BreakerRow, ...] = ()
    limited: tuple[LimitedAgent, ...] = ()


class Applied(msgspec.Struct, frozen=True, gc=False):
    """Written. ``task`` as it now is; ``steps``: rows changed or opened; ``dispatches``: attempts begun here.

    ``next``: the next task of its convoy, claimed here; ``begun``: what began of it with the same commit, because its code
    had run ahead; None: its code is to be run. ``following``: the one that waits behind it, as it stands; a hint.
    ``trace_link``: to the span of the task before it in its convoy, whose turn has ended; None: it is not traced.
    ``changes``: of an operator's verb, in words: each value that it changed, with the old one, and what it left.
    """

    task: TaskRow
    steps: tuple[StepRow, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    next: Loaded | None = None
    begun: tuple[Dispatch, ...] | None = None
    following: Loaded | None = None
    trace_link: str | None = None
    changes: tuple[str, ...] = ()


class AttemptApplied(msgspec.Struct, frozen=True, gc=False):
    """Written: until when the attempt must have ended, and the store's clock as that was written."""

    complete_by: Instant
    now: Instant


class TryDelayed(msgspec.Struct, frozen=True, gc=False):
    """No call may be made yet: a rate is used up. ``seconds``: until the next one may begin."""

    seconds: float


class ConvoyApplied(msgspec.Struct, frozen=True, gc=False):
    """Written: the convoy as it now is."""

    convoy: ConvoyRow


class BreakerApplied(msgspec.Struct, frozen=True, gc=False):
    """Written: the breaker as it now is."""

    breaker: BreakerRow


class SignalPlaced(msgspec.Struct, frozen=True, gc=False):
    """The place of a signal that was sent in the caller's transaction; ``created``: as in ``SignalKept``."""

    number: int
    created: bool


class SignalKept(msgspec.Struct, frozen=True, gc=False):
    """The signal stands there under its ``signal_id``; ``created`` is False when it stood there before.

    ``task`` as it now is: the process that drives it, or any other one if it is free, has news of it. ``kept_in``: number
    of the run that has the signal.
    """

    number: int
    created: bool
    task: TaskRow
    kept_in: int


Answer = (
    Refusal
    | Submitted
    | Claimed
    | Taken
    | Applied
    | AttemptApplied
    | TryDelayed
    | ConvoyApplied
    | BreakerApplied
    | SignalKept
)
