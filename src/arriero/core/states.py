"""The two tables of states. A pair that is not there is a refusal; the documentation draws its diagrams from here."""

from enum import StrEnum

from ..errors import IllegalTransition
from ..model import StepState, TaskState
from ..payloads.plain_values import add_article


class TaskEvent(StrEnum):
    """Events that move a task to another state."""

    CLAIMED = "claimed"
    ENDED = "ended"  # the workflow returned and no step is open
    UNDO_BEGUN = "undo_begun"
    UNDONE = "undone"
    HELD = "held"
    RESUBMITTED = "resubmitted"  # an operator: forward again, in a new incarnation
    UNDO_RESUMED = "undo_resumed"  # an operator: a failed undo continues, in a new incarnation
    BATCH_ENDED = "batch_ended"  # the task that handled its message in a batch was processed
    BATCH_UNDONE = "batch_undone"  # that task was compensated


class StepEvent(StrEnum):
    """Events that move a step, a compensation or a timer to another state."""

    TAKEN = "taken"
    SUCCEEDED = "succeeded"
    RETRY_ASKED = "retry_asked"  # an attempt was spent
    HOLDER_LOST = "holder_lost"  # nobody's fault: no attempt is spent
    GAVE_UP = "gave_up"
    WITHDRAWN = "withdrawn"
    FIRED = "fired"  # a timer's time has come
    SIGNALLED = "signalled"  # a wait has taken a signal
    REACHED = "reached"  # a planned compensation's turn has come
    PARKED = "parked"  # a compensation of a task that is held: it stays open for the person who repairs it
    SET_BACK = "set_back"  # a failure that a resubmission does again; its code has to ask for it again
    REOPENED = "reopened"  # the code of a resubmitted task asks for it again
    ANSWERED = "answered"  # an operator gave the result


TASK_MOVES: dict[tuple[TaskState, TaskEvent], TaskState] = {
    (TaskState.PENDING, TaskEvent.CLAIMED): TaskState.PROCESSING,
    (TaskState.PROCESSING, TaskEvent.CLAIMED): TaskState.PROCESSING,
    (TaskState.COMPENSATING, TaskEvent.CLAIMED): TaskState.COMPENSATING,  # an undo continues as an undo
    (TaskState.PROCESSING, TaskEvent.ENDED): TaskState.PROCESSED,
    (TaskState.PENDING, TaskEvent.UNDO_BEGUN): TaskState.COMPENSATING,  # its limit passed before anyone claimed it
    (TaskState.PROCESSING, TaskEvent.UNDO_BEGUN): TaskState.COMPENSATING,
    (TaskState.COMPENSATING, TaskEvent.UNDONE): TaskState.COMPENSATED,
    (TaskState.PENDING, TaskEvent.HELD): TaskState.HELD,
    (TaskState.PROCESSING, TaskEvent.HELD): TaskState.HELD,
    (TaskState.COMPENSATING, TaskEvent.HELD): TaskState.HELD,
    # Only an operator's verb leaves an end, and it opens a new incarnation.
    (TaskState.HELD, TaskEvent.RESUBMITTED): TaskState.PENDING,
    (TaskState.HELD, TaskEvent.UNDO_RESUMED): TaskState.COMPENSATING,
    (TaskState.HELD, TaskEvent.UNDO_BEGUN): TaskState.COMPENSATING,
    (TaskState.PROCESSED, TaskEvent.UNDO_BEGUN): TaskState.COMPENSATING,
    (TaskState.COMPENSATED, TaskEvent.RESUBMITTED): TaskState.PENDING,
    # A task whose message another one handles has no life of its own: it ends as that one, whenever that one ends.
    (TaskState.PENDING, TaskEvent.BATCH_ENDED): TaskState.PROCESSED,
    (TaskState.COMPENSATED, TaskEvent.BATCH_ENDED): TaskState.PROCESSED,
    (TaskState.PENDING, TaskEvent.BATCH_UNDONE): TaskState.COMPENSATED,
    (TaskState.PROCESSED, TaskEvent.BATCH_UNDONE): TaskState.COMPENSATED,
}

STEP_MOVES: dict[tuple[StepState, StepEvent], StepState] = {
    (StepState.PLANNED, StepEvent.REACHED): StepState.PENDING,
    (StepState.PENDING, StepEvent.TAKEN): StepState.RUNNING,
    (StepState.PENDING, StepEvent.GAVE_UP): StepState.FAILED,  # waited longer than wait_within
    (StepState.PENDING, StepEvent.WITHDRAWN): StepState.WITHDRAWN,
    (StepState.PENDING, StepEvent.FIRED): StepState.COMPLETED,
    (StepState.PENDING, StepEvent.SIGNALLED): StepState.COMPLETED,
    (StepState.PENDING, StepEvent.PARKED): StepState.PLANNED,
    (StepState.RUNNING, StepEvent.SUCCEEDED): StepState.COMPLETED,
    (StepState.RUNNING, StepEvent.RETRY_ASKED): StepState.PENDING,
    (StepState.RUNNING, StepEvent.HOLDER_LOST): StepState.PENDING,
    (StepState.RUNNING, StepEvent.GAVE_UP): StepState.FAILED,
    (StepState.RUNNING, StepEvent.PARKED): StepState.PLANNED,
    (StepState.RUNNING, StepEvent.WITHDRAWN): StepState.WITHDRAWN,  # its attempt ended while the task is undone or held
    (StepState.FAILED, StepEvent.SET_BACK): StepState.WITHDRAWN,
    (StepState.FAILED, StepEvent.PARKED): StepState.PLANNED,  # a failed compensation, for the undo that continues
    (StepState.WITHDRAWN, StepEvent.REOPENED): StepState.PENDING,
    (StepState.PLANNED, StepEvent.ANSWERED): StepState.COMPLETED,
    (StepState.PENDING, StepEvent.ANSWERED): StepState.COMPLETED,
    (StepState.RUNNING, StepEvent.ANSWERED): StepState.COMPLETED,
    (StepState.FAILED, StepEvent.ANSWERED): StepState.COMPLETED,
    (StepState.WITHDRAWN, StepEvent.ANSWERED): StepState.COMPLETED,
}


def advance_task(state: TaskState, event: TaskEvent) -> TaskState:
    """Return the state after ``event``. Raises IllegalTransition when the table has no such move."""
    try:
        return TASK_MOVES[state, event]
    except KeyError:
        raise IllegalTransition(f"{add_article(state)} task cannot be {event}") from None


def advance_step(state: StepState, event: StepEvent) -> StepState:
    """Return the state after ``event``. Raises IllegalTransition when the table has no such move."""
    try:
        return STEP_MOVES[state, event]
    except KeyError:
        raise IllegalTransition(f"{add_article(state)} step cannot be {event}") from None
