"""The fold of signals to a task: who sent which, and which wait took it (I79, I81)."""

from typing import assert_never

from ..events.signal import EventOfSignal, SignalAnswered, SignalSent, SignalSetAside, SignalTaken
from ..model import StepKind, StepState, TaskState
from ..model.signals import SET_ASIDE
from .fold import SignalFold, StepFold, TaskFold


def may_be_taken(signal: SignalFold, step: StepFold) -> bool:
    """Returns True if a wait has the name that the signal is for, or is the one wait that it is for."""
    return step.kind == StepKind.TIMER and signal.name in (step.name, f"{step.name}{step.key}@{step.ordinal}")


def fold_signal_event(task: TaskFold, event: EventOfSignal) -> None:
    """Fold one event of a signal."""
    match event:
        case SignalSent():
            _send(task, event)
        case SignalTaken():
            _take(task, event)
        case SignalSetAside():
            _set_aside(task, event)
        case SignalAnswered():
            _answer(task, event)
        case _:
            assert_never(event)


def _send(task: TaskFold, event: SignalSent) -> None:
    if event.number != len(task.signals) + 1:
        task.convict("I79", f"signal {event.number} was kept after {len(task.signals)}")
    if any(known.signal_id == event.signal_id for known in task.signals.values()):
        task.convict("I79", f"signal {event.number} has the id {event.signal_id!r} of another one")
    if task.state in (TaskState.PROCESSED, TaskState.COMPENSATING, TaskState.COMPENSATED):
        task.convict("I79", f"signal {event.number} was kept for a task that is {task.state}")
    if "#" in event.name:
        _judge_addressed(task, event)
    signal = task.signals[event.number] = SignalFold(event)
    if any(step.state is StepState.PENDING and may_be_taken(signal, step) for step in task.life):
        task.note_news()


def _judge_addressed(task: TaskFold, event: SignalSent) -> None:
    """Judge a signal that is for one wait alone. Those that a hold has withdrawn may be opened again."""
    signal = SignalFold(event)
    wait = next((step for step in task.life if may_be_taken(signal, step)), None)
    if wait is None or wait.state not in (StepState.PENDING, StepState.WITHDRAWN):
        task.convict("I81", f"signal {event.number} was kept for {event.name}, which does not wait")
    if any(known.name == event.name and known.taken_by != SET_ASIDE for known in task.signals.values()):
        task.convict("I81", f"signal {event.number} was kept for {event.name}, which has one")


def _take(task: TaskFold, event: SignalTaken) -> None:
    task.refuse_after_end(f"signal {event.signal} was taken")
    step = task.steps[event.step]
    for number in (event.signal, *event.also):
        _take_one(task, step, number)
    if step.state is not StepState.PENDING:
        task.convict("I79", f"wait {event.step} took a signal as it was {step.state}")
    step.state = StepState.COMPLETED


def _take_one(task: TaskFold, step: StepFold, number: int) -> None:
    signal = task.signals.get(number)
    if signal is None:
        task.convict("I79", f"wait {step.ordinal} took signal {number}, which nobody had sent")
    elif signal.taken_by is not None:
        task.convict("I79", f"wait {step.ordinal} took signal {number}, which wait {signal.taken_by} had taken")
    elif not may_be_taken(signal, step):
        task.convict("I79", f"wait {step.ordinal} ({step.name}) took signal {number} ({signal.name})")
    else:
        earlier = [n for n, one in task.signals.items() if n < number and one.name == signal.name]
        if any(task.signals[n].taken_by is None for n in earlier):
            task.convict("I79", f"wait {step.ordinal} took signal {number} before an earlier one of its name")
        signal.taken_by = step.ordinal


def _set_aside(task: TaskFold, event: SignalSetAside) -> None:
    signal = task.signals.get(event.signal)
    if signal is None or signal.taken_by is not None:
        task.convict("I79", f"signal {event.signal} was set aside, which was not in the inbox")
    else:
        signal.taken_by = SET_ASIDE


def _answer(task: TaskFold, event: SignalAnswered) -> None:
    signal, step = task.signals.get(event.signal), task.steps[event.step]
    if event.signal < 0 and task.origin is not None:  # which another task has received, and replies to
        step.state = StepState.COMPLETED
        return
    if signal is None or signal.taken_by is None or not signal.is_request:
        task.convict("I79", f"step {event.step} answered {event.signal}, which it had not received as a request")
    elif signal.reply not in (None, event.reply):
        task.convict("I79", f"step {event.step} answered request {event.signal} otherwise than before")
    else:
        signal.reply = event.reply
    step.state = StepState.COMPLETED
