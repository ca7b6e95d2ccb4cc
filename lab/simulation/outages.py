"""What a whole history in commit order shows of outages: who was let through, and what failures in it cost.

A history of PostgreSQL is not in the order of commits across tasks, so this is not an invariant of the check.
"""

from collections.abc import Iterable

from arriero.audit.check import Violation
from arriero.events import read_events
from arriero.events.step import (
    CompensationDispatched,
    CompensationFailedEvent,
    RecoverApplied,
    StepDispatched,
    StepFailedEvent,
    StepOpened,
    StepReopened,
)
from arriero.events.store import BreakerAnswered, BreakerClosed, BreakerOpened, BreakerProbed
from arriero.events.task import TaskAssigned, TaskSubmitted
from arriero.model import HistoryRow

WHOLE = "left"  # the Agent of the simulated world that has no targets

Name = tuple[int, int]  # task and ordinal of a step


class _Outages:
    def __init__(self) -> None:
        self.agents: dict[Name, str] = {}
        self.apps: dict[int, str] = {}  # of tasks
        self.open: set[str] = set()  # Apps whose breaker of the Agent without targets is not closed
        self.answering: set[str] = set()  # of them, those whose service has answered a canary since it opened last
        self.canaries: dict[Name, tuple[str, int]] = {}  # running: App and wave
        self.failed: set[tuple[str, int]] = set()  # waves of which a canary has failed
        self.unexplained: dict[tuple[int, int, int], int] = {}  # attempts begun beside an open breaker, and when
        self.found: list[Violation] = []


def judge_outages(rows: Iterable[HistoryRow]) -> list[Violation]:
    """Judge that beside an open breaker only canaries go, and that a failure beside it is not charged.

    But for the first one of a wave to fail, while the service answers others: then the request is to blame.

    Args:
        rows: in commit order. A commit's rows stand one after the other: the task's, then the breaker's.
    """
    state = _Outages()
    for row in rows:
        for event in read_events(row.events):
            _fold(state, row, event)
    state.found += [
        Violation("I63", f"task {task}", f"step {step} was dispatched although its breaker was open, and is no canary")
        for task, step, _ in state.unexplained
    ]
    return state.found


def _fold(state: _Outages, row: HistoryRow, event: object) -> None:
    match event:
        case TaskSubmitted() | TaskAssigned():
            state.apps[row.task_no] = event.app
        case StepOpened() | StepReopened():
            state.agents[row.task_no, event.step] = event.agent
        case StepDispatched() | CompensationDispatched():
            agent = state.agents[row.task_no, event.step]
            if agent == WHOLE and state.apps.get(row.task_no) in state.open:
                state.unexplained[row.task_no, event.step, event.fence] = row.at
        case BreakerProbed():
            state.unexplained.pop((event.task, event.step, event.step_fence), None)
            if event.agent == WHOLE:
                state.canaries[event.task, event.step] = (event.app, event.fence)
        case BreakerAnswered():
            if event.agent == WHOLE:
                _end_canary(state, event)
        case BreakerOpened():
            if event.agent == WHOLE:
                state.open.add(event.app)
                state.answering.discard(event.app)
        case BreakerClosed():
            if event.agent == WHOLE:
                state.open.discard(event.app)
            for begun in [begun for begun, at in state.unexplained.items() if at == row.at]:
                del state.unexplained[begun]  # the commit that closes it lets its attempt through
        case RecoverApplied() | StepFailedEvent() | CompensationFailedEvent():
            _judge_charge(state, row, event)
        case _:
            pass


def _end_canary(state: _Outages, event: BreakerAnswered) -> None:
    state.canaries.pop((event.task, event.step), None)
    if event.outcome == "answered":
        state.answering.add(event.app)
    elif event.outcome == "failed":
        state.failed.add((event.app, event.fence))


def _judge_charge(
    state: _Outages, row: HistoryRow, event: RecoverApplied | StepFailedEvent | CompensationFailedEvent
) -> None:
    agent = state.agents[row.task_no, event.step]
    is_answer = b'"permanent"' in bytes(event.failure) or b"not_taken" in bytes(event.failure)
    is_charged = event.is_charged if isinstance(event, RecoverApplied) else not is_answer
    app, wave = state.apps.get(row.task_no), state.canaries.get((row.task_no, event.step))
    if wave is not None and app in state.answering and wave not in state.failed:
        return
    if agent == WHOLE and app in state.open and is_charged and not is_answer:
        text = f"step {event.step} was charged for a failure while the breaker of its Agent was open"
        state.found.append(Violation("I64", f"task {row.task_no}", text))
