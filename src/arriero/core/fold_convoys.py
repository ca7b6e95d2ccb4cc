"""What the events of a convoy say of the single task: its place, and whether its turn has come.

Whose turn it is among all tasks of a key stands in ``fold_turns``.
"""

from collections.abc import Callable

from ..model import TASK_OPEN, TaskState, Turn
from .fold import Event, TaskFold

_MAY_COME_FROM: dict[str, tuple[Turn, ...]] = {
    "convoy.opened": (Turn.WAITING,),
    "convoy.closed": (Turn.OPEN,),
    "convoy.stopped": (Turn.WAITING, Turn.OPEN),
    "convoy.mended": (Turn.OPEN,),
    "convoy.returned": (Turn.WAITING, Turn.OPEN, Turn.ENDED, Turn.SET_ASIDE),
    "convoy.left": (Turn.WAITING,),
    "convoy.set_aside": (Turn.WAITING,),
    "convoy.moved": (Turn.WAITING,),
}
_FITTING_STATES: dict[Turn, frozenset[TaskState]] = {
    Turn.WAITING: frozenset({TaskState.PENDING, TaskState.COMPENSATING, TaskState.ERROR}),
    Turn.OPEN: TASK_OPEN | {TaskState.ERROR},
    Turn.ENDED: frozenset({TaskState.PROCESSED, TaskState.COMPENSATED}),
    Turn.SET_ASIDE: frozenset({TaskState.ERROR}),
}


def placed(task: TaskFold, event: Event) -> None:
    """It was submitted to a convoy, and waits for its turn."""
    if task.turn is not None:
        task.convict("I39", f"placed twice: at {task.place} and at {event['place']}")
    task.convoy_no, task.place, task.sequence = event["convoy"], event["place"], event.get("sequence")
    task.rank = event["rank"]
    if not event.get("refused") and task.rank != (task.place if task.sequence is None else task.sequence):
        task.convict("I39", f"placed with rank {task.rank}, its place is {task.place}, its sequence {task.sequence}")
    task.turn, task.not_before = Turn.WAITING, None


def opened(task: TaskFold, event: Event) -> None:
    """Its turn begins: it may be claimed."""
    _turn(task, event, Turn.OPEN)
    _judge_rank(task, event)
    task.not_before = event["not_before"]


def closed(task: TaskFold, event: Event) -> None:
    """Its turn has ended, with it, or because it is passed over."""
    turn = Turn(event["turn"])
    if turn not in (Turn.ENDED, Turn.SET_ASIDE):
        task.convict("I40", f"the end of its turn left it {turn}")
    _turn(task, event, turn)


def stopped(task: TaskFold, event: Event) -> None:
    """The key stands still on it."""
    _turn(task, event, Turn.OPEN)
    _judge_rank(task, event)
    task.is_stopped = True


def mended(task: TaskFold, event: Event) -> None:
    """A person has reopened the task that the key stood still on."""
    if not task.is_stopped:
        task.convict("I41", "its convoy goes on with it, but did not stand still on it")
    _turn(task, event, Turn.OPEN)


def returned(task: TaskFold, event: Event) -> None:
    """A person has reopened it, and it waits for its turn."""
    _turn(task, event, Turn.WAITING)
    _judge_rank(task, event)
    task.not_before = None


def left(task: TaskFold, event: Event) -> None:
    """It ended before its turn, with nothing done."""
    _turn(task, event, Turn.ENDED)


def set_aside(task: TaskFold, event: Event) -> None:
    """It is passed over before its turn."""
    _turn(task, event, Turn.SET_ASIDE)


def moved(task: TaskFold, event: Event) -> None:
    """A person has put it before all others that wait."""
    _turn(task, event, Turn.WAITING)
    task.rank = event["rank"]


def _turn(task: TaskFold, event: Event, turn: Turn) -> None:
    kind = event["type"]
    if event["convoy"] != task.convoy_no:
        task.convict("I40", f"{kind} of convoy {event['convoy']}, the task stands in {task.convoy_no or 'none'}")
    if task.turn not in _MAY_COME_FROM[kind]:
        task.convict("I40", f"{kind} while its turn was {task.turn}")
    task.turn, task.is_stopped = turn, False


def _judge_rank(task: TaskFold, event: Event) -> None:
    if event["rank"] != task.rank:
        task.convict("I40", f"{event['type']} with rank {event['rank']}, its rank is {task.rank}")


def judge_turn(task: TaskFold) -> None:
    """After a commit: its turn and its state go together."""
    if task.turn is None or task.state is None:
        return
    fits = task.state in _FITTING_STATES[task.turn]
    if task.turn is Turn.OPEN and task.state is TaskState.ERROR:
        fits = task.is_stopped
    if not fits and task.turn_fits:
        invariant = "I41" if task.state is TaskState.ERROR else "I40"
        task.convict(invariant, f"the task is {task.state} while its turn in the convoy is {task.turn}")
    task.turn_fits = fits  # said once


HANDLERS: dict[str, Callable[[TaskFold, Event], None]] = {
    "convoy.placed": placed,
    "convoy.opened": opened,
    "convoy.closed": closed,
    "convoy.stopped": stopped,
    "convoy.mended": mended,
    "convoy.returned": returned,
    "convoy.left": left,
    "convoy.set_aside": set_aside,
    "convoy.moved": moved,
}
