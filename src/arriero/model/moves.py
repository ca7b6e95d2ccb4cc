"""Parts of commands: what attempts report, what workflow code asks for, and where a write leaves its task.

Payloads are JSON text.
"""

from typing import Literal

import msgspec

from . import Instant, StepKind
from .failures import StepFailure, TaskFailure
from .progress import Published


# --- outcomes of one attempt
class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The step has a result (JSON text)."""

    result: str


class RetryAsked(msgspec.Struct, frozen=True, gc=False):
    """The attempt failed or expired; the next may be taken from ``not_before`` on.

    ``cool_off``: a round was spent. ``is_charged`` False: it failed in an outage and does not count. ``retry_after``: seconds that
    the service asked for, if it did; who judges the failure again keeps to them.
    """

    failure: StepFailure
    in_doubt: bool
    not_before: Instant
    cool_off: bool = False
    is_charged: bool = True
    retry_after: float | None = None


class GaveUp(msgspec.Struct, frozen=True, gc=False):
    """No attempt is left, or none would help. ``retry_after``: as of ``RetryAsked``."""

    failure: StepFailure
    in_doubt: bool
    retry_after: float | None = None


Outcome = Succeeded | RetryAsked | GaveUp


class Reported(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an attempt of step ``step_no`` under the step's ``fence``, after that many tries.

    ``attempt``, ``complete_by``: as the attempt was dispatched; a report that no longer counts is kept with them.
    ``published``: the last value that the attempt has published, if it is not known to be written.
    """

    step_no: int
    fence: int
    outcome: Outcome
    delivered_at: Instant
    tries: int = 1
    attempt: int = 0
    complete_by: Instant | None = None
    published: Published | None = None


class Fired(msgspec.Struct, frozen=True, gc=False):
    """A timer is due."""

    step_no: int
    delivered_at: Instant


class Signalled(msgspec.Struct, frozen=True, gc=False):
    """A wait takes the signal of that number. ``unfit``: why its code cannot read it; then it is set aside, and the wait waits.

    ``also``: numbers of those after it that a wait for several takes with it, in their order.
    """

    step_no: int
    number: int
    delivered_at: Instant
    unfit: str = ""
    also: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all signals that it takes."""
        return (self.number, *self.also)


class ChildEnded(msgspec.Struct, frozen=True, gc=False):
    """A child has ended, or there is none, because it was refused or was never submitted.

    Args:
        step_no: the step that it is, or the undo of it.
        child_no, incarnation: of the child, as it ended; 0: there is none.
    """

    step_no: int
    delivered_at: Instant
    outcome: Succeeded | GaveUp
    child_no: int = 0
    incarnation: int = 0


Came = Reported | Fired | ChildEnded  # what comes in for a task
Delivered = Came | Signalled  # what its code is given


class UndoContext(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The facts about a step that its compensation gets. ``result`` is JSON text, None when unknown; so is ``checkpoint``."""

    outcome: Literal["completed", "unknown"]
    forward_key: str
    result: str | None
    checkpoint: str | None = None


read_undo_context = msgspec.json.Decoder(UndoContext).decode


class NewStep(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A step, timer or compensation to be opened. ``take``: immediately by the process that asks; its Agent has room.

    ``reopens``: the row of a step that was withdrawn or set back, and that the code of a resubmitted task asks for.
    """

    kind: StepKind
    name: str
    key: str
    agent: str = ""
    arguments: str = "{}"
    policy: str = "{}"
    idempotency_key: str = ""
    pivot: bool = False
    effect_free: bool = False
    compensation: str | None = None
    undoes: int | None = None
    undo: str | None = None
    fire_at: Instant | None = None
    complete_within: float = 0.0
    wait_within: float | None = None
    take: bool = False
    reopens: int | None = None
    target: str = ""
    limit_keys: str | None = None
    routing: str = ""
    replies_to: int | None = None  # of a reply: the number of the request


# --- where an advance leaves its task
class Keep(msgspec.Struct, frozen=True, gc=False):
    """Continue holding it."""


class PutDown(msgspec.Struct, frozen=True, gc=False):
    """Free it; ``not_before`` None: only news wakes it."""

    not_before: Instant | None


class Process(msgspec.Struct, frozen=True, gc=False):
    """Processed, with its output (JSON text). ``convoy_state``: what its convoy's state is from now on; None: as it was."""

    output: str
    convoy_state: str | None = None


class Continue(msgspec.Struct, frozen=True, gc=False):
    """The run has ended, and the task continues in the next one, with these arguments (JSON text) and this policy.

    ``complete_within``: of the next run; ``convoy_state``: as of ``Process``.
    """

    arguments: str
    policy: str
    complete_within: float | None = None
    convoy_state: str | None = None


class BeginUndo(msgspec.Struct, frozen=True, gc=False):
    """Begin to undo the task: requests not taken are withdrawn, taken attempts are waited for."""

    failure: TaskFailure


class PlanUndo(msgspec.Struct, frozen=True, gc=False):
    """The undo plan in its order, durable before its first action. Only when no forward step is open."""

    failure: TaskFailure
    planned: tuple[NewStep, ...]


class NextUndo(msgspec.Struct, frozen=True, gc=False):
    """The turn of one planned compensation. ``take``: immediately by the process that asks."""

    step_no: int
    take: bool
    complete_within: float
    wait_within: float | None = None


class Compensate(msgspec.Struct, frozen=True, gc=False):
    """Everything is undone."""

    failure: TaskFailure


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Hold the task until an operator acts. ``planned``: compensations that stay open.

    ``may_go_forward``: its undo had begun, but nothing is undone and nothing will be: a resubmission goes forward.
    """

    failure: TaskFailure
    planned: tuple[NewStep, ...] = ()
    may_go_forward: bool = False


ENDS = Process | Compensate | Hold  # what passes the turn in a convoy on
Ending = Keep | PutDown | Process | Continue | BeginUndo | PlanUndo | NextUndo | Compensate | Hold
