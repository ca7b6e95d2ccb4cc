"""Rules of what is due, and in which order: tasks to claim, requests to take, deadlines that have passed.

The memory store asks these functions. The databases select by the same rules in SQL; the tests of ``tests/store`` compare all stores.

The order is that of priority, and of how long each has waited. Each step of priority is worth ten minutes of waiting. A row's
place is a number that never changes while the row waits, so nothing is rewritten as time passes, and every store can select by it.

The bound: a row of priority p is passed only by rows that became due less than (9 - p) x 10 minutes after it. However many
come later, all of them stand behind it.

Ten minutes: a step must be worth more than what an ordinary disturbance leaves behind (a fail-over, a deployment, a few
minutes without the service), else the urgent would stand behind all of that. The lowest priority then waits 90 minutes
behind an endless stream of the highest one, not indefinitely. The number is a rule of all processes that share a store.
"""

from collections.abc import Iterable

import msgspec

from ..model import (
    MICROSECONDS,
    NOT_SAID,
    TASK_FORWARD,
    Instant,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
)
from ..model.commands import Claim, Take
from ..model.processes import has_version
from .apps import may_run
from .breaker_book import Barred
from .lease import is_on_probation

PRIORITY_STEP_SECONDS = 600
HEAD_START = PRIORITY_STEP_SECONDS * MICROSECONDS  # of each step of priority, in the unit of instants


def compute_position(priority: int, due_since: Instant, number: int, head_start: int = HEAD_START) -> tuple[int, int]:
    """Compute the place of a task or request among those that are due; the smallest goes first.

    Args:
        priority: 0 to 9, the task's.
        due_since: since when it may be claimed or taken: its ``not_before``.
        number: the row's own; of two that are equal otherwise the older one goes first.
        head_start: what a step of priority is worth; 0 where only the wait decides.
    """
    return due_since - priority * head_start, number


def is_claimable(task: TaskRow, command: Claim, now: Instant, *, probation: bool) -> bool:
    """Returns True if a claim may have the task.

    Args:
        command: the claim, of a process that knows the code of its ``workflows``, in some versions. An undo does not need it.
        probation: True if a task on probation may be claimed, too.
    """
    return (
        task.locked_by is None
        and is_due(task.not_before, now)
        and task.paused_at is None
        and (
            task.state is TaskState.COMPENSATING
            or (task.workflow in command.workflows and has_version(command.versions, task))
        )
        and may_run(command.app, task.app)
        and (probation or not is_on_probation(task))
    )


class WantedRequests(msgspec.Struct, frozen=True, gc=False):
    """Due requests of one Agent that a Take may begin.

    Attributes:
        probation: of tasks on probation only this one's; None: of any.
        priority_from: none of a lower priority.
        barred: is left out.
        is_by_age: what waits longest comes first, whatever its priority.
    """

    command: Take
    agent: str
    probation: int | None
    priority_from: int
    barred: Barred
    is_by_age: bool = False

    @property
    def head_start(self) -> int:
        """Microseconds that a step of priority is worth."""
        return 0 if self.is_by_age else HEAD_START


def is_takeable(step: StepRow, task: TaskRow, wanted: WantedRequests, now: Instant) -> bool:
    """Returns True if the request is one of those that are wanted. Whether a breaker bars it is not asked here.

    Args:
        task: of the step. It says the App where a step of an earlier release does not.
    """
    app = wanted.command.app
    return (
        step.state is StepState.PENDING
        and step.kind is not StepKind.TIMER
        and step.agent == wanted.agent
        and step.name in wanted.command.names
        and is_due(step.not_before, now)
        and step.priority >= wanted.priority_from
        and may_run(app, step.app)
        and (step.app != NOT_SAID or may_run(app, task.app))
        and (wanted.probation in (None, step.task_no) or not is_on_probation(task))
    )


def is_due(instant: Instant | None, now: Instant) -> bool:
    """Returns True if an instant is there and has come."""
    return instant is not None and instant <= now


def find_task_deadline(task: TaskRow) -> Instant | None:
    """Find the instant at which the Supervisor ends the task by its own limit: not while it is paused, undone or at an end."""
    return task.complete_by if task.state in TASK_FORWARD and task.paused_at is None else None


def find_wait_deadline(step: StepRow) -> Instant | None:
    """Find the instant from which a request that no Agent took has waited too long."""
    return step.wait_by if step.state is StepState.PENDING else None


def find_next_deadline(
    steps: Iterable[StepRow], tasks: Iterable[TaskRow], now: Instant, until: Instant
) -> Instant | None:
    """Find the next deadline after ``now`` and up to ``until``, of attempts, waiting requests and tasks."""
    deadlines = [at for step in steps for at in (step.complete_by, find_wait_deadline(step))]
    deadlines += map(find_task_deadline, tasks)
    return min((at for at in deadlines if at is not None and now < at <= until), default=None)
