"""Judgement of a stored task by the code of today: would a process that takes it up hold it?

The code runs over the record as at runtime: ``TaskRun`` brings it to where the record ends, ``core.drive`` says what follows from
that. Nothing is carried out: no step, no function of an Agent that names a key, and no write.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from msgspec.structs import replace

from ..declare.steps import Agent
from ..model import TASK_OPEN, Instant, Loaded, StepKind, StepRow, StepState, TaskState, Turn, Verb
from ..model.answers import Refusal
from ..model.commands import Operate
from ..model.failures import CapturedTraceback, TaskFailure
from ..model.moves import Hold
from .apps import find_code, may_run
from .code_end import Raised
from .drive import build_unknown_code_failure, decide_ending, give_signals
from .task_run import RunnableCode, TaskRun, build_driving_failure
from .verb_preview import carry_out_verb

ALL = "all"  # in place of a state: tasks in any state
OPEN = "open"  # in place of a state: those in TASK_OPEN
STATES = (OPEN, ALL, *map(str, TaskState))


class KnownCode(msgspec.Struct, frozen=True):
    """Code of an App: what runs a task, by the name in the task's row; all steps and workflows; Agents by name."""

    app: str
    codes: Mapping[str, RunnableCode]
    definitions: AbstractSet[Any]
    agents: Mapping[str, Agent]


class Judgement(msgspec.Struct, frozen=True):
    """Answer about one task.

    Args:
        failure: why it would be held; None: it would not, or it was skipped.
        step: label of the step at which code and record disagree; empty: it is about no step.
        trace: the place of the code then.
        skipped: why nothing was replayed, as a plural: ``of another App``.
    """

    failure: TaskFailure | None = None
    step: str = ""
    trace: CapturedTraceback = ()
    skipped: str = ""


def is_meant(state: TaskState, asked: str) -> bool:
    """Returns True if a task in that state is asked for. ``asked``: one of ``STATES``."""
    return asked == ALL or (state in TASK_OPEN if asked == OPEN else state == asked)


def judge_task(loaded: Loaded, known: KnownCode, now: Instant) -> Judgement:
    """Judge a task by its record.

    Args:
        loaded: as it is stored, readable.
        now: the store's clock; a task that has not begun is judged as if it began now.
    """
    task = loaded.task
    if not may_run(known.app, task.app):
        return Judgement(skipped="of another App")
    if task.state is TaskState.HELD:
        foreseen = carry_out_verb(
            Operate(actor="", verb=Verb.RESUBMIT, task_no=task.task_no, incarnation=task.incarnation, by="", reason=""),
            loaded,
            now,
        )
        if isinstance(foreseen, Refusal):
            return Judgement(skipped="held, and not to be resubmitted")
        loaded, task = foreseen, foreseen.task
    if task.state is TaskState.COMPENSATED:
        return Judgement(skipped="compensated")
    if task.state is TaskState.COMPENSATING:
        return _judge_undo(loaded, known)
    if task.workflow in known.codes and find_code(known.codes, task) is None:
        return Judgement(skipped="of a version that this App does not have")
    return _judge_code(loaded.as_begun(task.started_at or now, loaded.convoy), known, now)


def _judge_code(begun: Loaded, known: KnownCode, now: Instant) -> Judgement:
    """Judge a task whose code goes forward. The rows of one that has not begun are those of its begin."""
    # Its limit is the Supervisor's affair, whatever the code is.
    run = TaskRun(replace(begun, task=replace(begun.task, complete_by=None)), find_code(known.codes, begun.task))
    try:
        if run.broken is None and begun.task.turn is Turn.WAITING:
            return Judgement()  # its convoy will have another state when its turn comes
        if run.broken is None:
            _go_on(run, known.definitions, now)
        end = run.end()
        ending = None if end is None else decide_ending(run, end)
        if not isinstance(ending, Hold):
            return Judgement()
        failure = ending.failure
        stood_at = () if run.execution is None else run.execution.stood_at
        name = failure.step or (run.last_read if failure.kind == "replay" else "")
        return Judgement(failure, _find_label(begun.life, name, failure.reason), stood_at or failure.trace)
    except Exception as error:  # a process holds the task with its cause, too, and other tasks continue
        failure = build_driving_failure(error)
        return Judgement(failure, trace=failure.trace)
    finally:
        run.close()


def _go_on(run: TaskRun, definitions: AbstractSet[Any], now: Instant) -> None:
    """Do what the process does first that takes the task up: waits take signals, and requests are looked at."""
    for _ in give_signals(run, now):
        pass
    run.take_replies()
    if run.end() is not None:
        return
    for asked in run.take_requests():
        if asked.call is not None and asked.definition not in definitions:
            run.broken = build_unknown_code_failure(asked)
    if isinstance(run.end(), Raised) and run.execution is not None:
        run.execution.note_position("" if run.broken is None else run.broken.step)


def _find_label(steps: tuple[StepRow, ...], name: str, reason: str) -> str:
    """Find the label of the step that a reason is about, by the name of the step."""
    labels = [step.label for step in steps if step.name == name and step.label in reason]
    return max(labels, key=len, default=name)


# --- an undo
def _judge_undo(loaded: Loaded, known: KnownCode) -> Judgement:
    """Judge a task that is being undone: its plan is stored and no workflow code runs, but the App must have the compensations."""
    for step in loaded.life:
        if step.kind is StepKind.COMPENSATION and step.state is not StepState.COMPLETED and not _is_known(step, known):
            reason = (
                f"Agent {step.agent} of this App has no compensation of step {step.name}: nobody would carry it out; declare it by"
                f" @{step.name}.compensation, or keep the step under its old name with name="
            )
            return Judgement(TaskFailure("undo", reason, step.name, "unknown_step"), step.label)
    return Judgement()


def _is_known(compensation: StepRow, known: KnownCode) -> bool:
    if compensation.is_of_child:
        return True  # the child's own undo, by the child's record
    agent = known.agents.get(compensation.agent)
    step = None if agent is None else agent.steps.get(compensation.name)
    return step is not None and step.undone_by is not None
