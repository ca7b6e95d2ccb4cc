"""The fold of a convoy's events for the single task: its place and its turn.

Whose turn it is among all tasks of a key stands in ``fold_turns``.
"""

from typing import assert_never

from ..events.convoy import (
    ConvoyBatched,
    ConvoyClosed,
    ConvoyContinued,
    ConvoyLeft,
    ConvoyMended,
    ConvoyMessageEnded,
    ConvoyMoved,
    ConvoyOpened,
    ConvoyPlaced,
    ConvoyReturned,
    ConvoySetAside,
    ConvoyStopped,
    EventOfTurn,
    NumberedEvent,
)
from ..model import TASK_OPEN, TaskState, Turn
from .fold import TaskFold
from .fold_batches import fold_batched, fold_message_ended

_FITTING_STATES: dict[Turn, frozenset[TaskState]] = {
    Turn.WAITING: frozenset({TaskState.PENDING, TaskState.COMPENSATING, TaskState.HELD}),
    Turn.OPEN: TASK_OPEN | {TaskState.HELD},
    Turn.ENDED: frozenset({TaskState.PROCESSED, TaskState.COMPENSATED}),
    Turn.SET_ASIDE: frozenset({TaskState.HELD}),
    Turn.BATCHED: frozenset({TaskState.PENDING}),
}


def fold_turn_event(task: TaskFold, event: EventOfTurn) -> None:
    """Fold one event of a convoy in the history of a task."""
    match event:
        case ConvoyPlaced():
            _place(task, event)
        case ConvoyOpened():
            _move_turn(task, event, Turn.OPEN, Turn.WAITING)
            _judge_rank(task, event)
            task.not_before = event.not_before
        case ConvoyContinued():
            task.convoy_no, task.place, task.rank = event.convoy, event.place, event.rank
            task.sequence, task.turn = event.sequence, Turn.OPEN
        case ConvoyClosed():
            _close(task, event)
        case ConvoyStopped():
            _move_turn(task, event, Turn.OPEN, Turn.WAITING, Turn.OPEN)
            _judge_rank(task, event)
            task.is_stopped = True
        case ConvoyMended():
            if not task.is_stopped:
                task.convict("I41", "its convoy continues with it, but was not blocked on it")
            _move_turn(task, event, Turn.OPEN, Turn.OPEN)
        case ConvoyReturned():
            _move_turn(task, event, Turn.WAITING, *Turn)
            _judge_rank(task, event)
            task.not_before = None
        case ConvoyLeft():
            _move_turn(task, event, Turn.ENDED, Turn.WAITING)
        case ConvoySetAside():
            _move_turn(task, event, Turn.SET_ASIDE, Turn.WAITING)
        case ConvoyMoved():
            _move_turn(task, event, Turn.WAITING, Turn.WAITING)
            task.rank = event.rank
        case ConvoyBatched():
            fold_batched(task, event)
        case ConvoyMessageEnded():
            fold_message_ended(task, event)
        case _:
            assert_never(event)


def _place(task: TaskFold, event: ConvoyPlaced) -> None:
    if task.turn is not None:
        task.convict("I39", f"placed twice: at {task.place} and at {event.place}")
    task.convoy_no, task.place, task.sequence = event.convoy, event.place, event.sequence
    task.rank = event.rank
    if not event.refused and task.rank != (task.place if task.sequence is None else task.sequence):
        task.convict("I39", f"placed with rank {task.rank}, its place is {task.place}, its sequence {task.sequence}")
    task.turn, task.not_before = Turn.WAITING, None


def _close(task: TaskFold, event: ConvoyClosed) -> None:
    turn = Turn(event.turn)
    if turn not in (Turn.ENDED, Turn.SET_ASIDE):
        task.convict("I40", f"the end of its turn left it {turn}")
    _move_turn(task, event, turn, Turn.OPEN)


def _move_turn(task: TaskFold, event: NumberedEvent, turn: Turn, *may_come_from: Turn) -> None:
    if event.convoy != task.convoy_no:
        task.convict("I40", f"{event.type} of convoy {event.convoy}, the task stands in {task.convoy_no or 'none'}")
    if task.turn not in may_come_from:
        task.convict("I40", f"{event.type} while its turn was {task.turn}")
    task.turn, task.is_stopped = turn, False


def _judge_rank(task: TaskFold, event: ConvoyOpened | ConvoyStopped | ConvoyReturned) -> None:
    if event.rank != task.rank:
        task.convict("I40", f"{event.type} with rank {event.rank}, its rank is {task.rank}")


def judge_turn(task: TaskFold) -> None:
    """Judge after a commit that the task's turn and its state fit each other."""
    if task.turn is None or task.state is None:
        return
    fits = task.state in _FITTING_STATES[task.turn]
    if task.turn is Turn.OPEN and task.state is TaskState.HELD:
        fits = task.is_stopped
    if not fits and task.turn_fits:
        invariant = "I41" if task.state is TaskState.HELD else "I40"
        task.convict(invariant, f"the task is {task.state} while its turn in the convoy is {task.turn}")
    task.turn_fits = fits  # said once
