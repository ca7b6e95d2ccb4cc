"""The fold of events about the task itself and its undo."""

from typing import assert_never

import msgspec

from ..events.task import (
    ChildNoticed,
    EventOfTask,
    StepCopied,
    TaskClaimed,
    TaskContinued,
    TaskExpired,
    TaskForked,
    TaskLost,
    TaskReleased,
    TaskSubmitted,
    TaskTerminal,
    UndoBegun,
    UndoPlanned,
)
from ..model import StepState, TaskState, Turn
from ..model.signals import PASSED_ON
from .fold import STEP_IS_OPEN, TaskFold, read_failure_code
from .fold_forks import copy_step

_FORWARD = ("step", "child")  # what the code asks for and an undo may have to undo


def begin_undo(task: TaskFold) -> None:
    task.refuse_after_end("undo begun")
    task.judge_pivot("the undo began")
    task.undo_began = True
    task.state = TaskState.COMPENSATING


def plan_undo(task: TaskFold, event: UndoPlanned) -> None:
    task.judge_pivot("the undo was planned")
    task.plan = list(event.steps)
    for step in task.life:
        if step.kind in _FORWARD and step.state in STEP_IS_OPEN:
            task.convict("I28", f"the undo was planned while step {step.ordinal} was {step.state}")
    forward = [s for s in reversed(task.life) if s.kind in _FORWARD]
    wanted = [s.ordinal for s in forward if s.may_have_happened and s.undoable]
    wanted += [s.ordinal for s in forward if s.is_due_for_undo and s.undoable]
    found = [task.steps[ordinal].undoes for ordinal in task.plan]
    if set(found) != set(wanted):
        task.convict("I30", f"the undo plan undoes steps {found}, it should undo {wanted}")
    elif found != wanted:
        task.convict("I28", f"the undo plan undoes steps in the order {found}, it should be {wanted}")


def fold_task_event(task: TaskFold, event: EventOfTask) -> None:
    """Fold one event of the task itself or of its undo."""
    match event:
        case TaskSubmitted():
            _submit(task, event)
        case TaskContinued():
            _continue(task, event)
        case TaskClaimed():
            _claim(task, event)
        case TaskReleased():
            _release(task, event)
        case TaskExpired():
            _expire(task)
        case TaskLost():
            _count_loss(task, event)
        case TaskTerminal():
            _end(task, event)
        case UndoBegun():
            begin_undo(task)
        case UndoPlanned():
            plan_undo(task, event)
        case TaskForked():
            task.origin = event.task, event.step
            task.has_begun, task.code_version = event.has_begun, event.code_version or None
        case StepCopied():
            copy_step(task, event)
        case ChildNoticed():
            task.note_news()
        case _:
            assert_never(event)


def _submit(task: TaskFold, event: TaskSubmitted) -> None:
    if task.state is not None:
        task.convict("I3", "submitted twice")
    task.state = TaskState.PENDING
    task.not_before = event.not_before
    task.complete_by = event.complete_by
    task.reply_to = event.reply_to
    task.tags = event.tags
    task.app = event.app
    task.workflow = event.workflow
    if event.continues is not None:
        task.status_count, task.paused = event.statuses, event.paused
    if event.parent is not None and event.parent_step is not None:
        task.parent_step = event.parent, event.parent_step


def _continue(task: TaskFold, event: TaskContinued) -> None:
    """Fold the end of a run, whose next one has all by which others find the task, and what no wait had taken."""
    if task.state is not TaskState.PROCESSED:
        task.convict("I89", f"continued while it was {task.state}")
    for number in event.signals:
        signal = task.signals.get(number)
        if signal is None or signal.taken_by is not None:
            taken = "was never sent" if signal is None else f"wait {signal.taken_by} had taken"
            task.convict("I89", f"signal {number}, which {taken}, went along to the next run")
        else:
            signal.taken_by = PASSED_ON
    task.reply_to = task.convoy_no = task.place = task.sequence = task.rank = task.turn = None


def _claim(task: TaskFold, event: TaskClaimed) -> None:
    task.refuse_after_end("claimed")
    if task.holder is not None:
        task.convict("I9", f"claimed by process {event.process} while process {task.holder} held it")
    if task.paused:
        task.convict("I10", "claimed while an operator kept it paused")
    if task.turn not in (None, Turn.OPEN):
        task.convict("I10", f"claimed while its turn in the convoy was {task.turn}")
    elif task.not_before is None or task.at < task.not_before:
        task.convict("I10", f"claimed at {task.at}, due at {task.not_before}")
    task.judge_snooze("claimed")
    task.grow_fence(event.fence, "claimed")
    task.holder = event.process
    if not task.has_begun and task.state is TaskState.PENDING:
        task.code_version = event.code_version or None
    elif event.code_version:
        task.convict("I88", f"a claim began it with code version {event.code_version}, but it had begun")
    task.has_begun = True
    task.claims += 1
    task.state = TaskState(event.state)
    if task.state not in (TaskState.PROCESSING, TaskState.COMPENSATING):
        task.convict("I2", f"a claim made it {task.state}")


def _release(task: TaskFold, event: TaskReleased) -> None:
    task.refuse_after_end("released")
    task.grow_fence(event.fence, "released")
    task.holder = None
    task.not_before = event.not_before


def _expire(task: TaskFold) -> None:
    task.refuse_after_end("expired")
    if task.complete_by is None or task.at < task.complete_by:
        task.convict("I24", f"ended by its limit at {task.at}, its limit is {task.complete_by}")


def _count_loss(task: TaskFold, event: TaskLost) -> None:
    task.lost_count += 1
    if event.lost_count != task.lost_count:
        task.convict("I23", f"lost_count is {event.lost_count}, {task.lost_count} losses are recorded")


def _end(task: TaskFold, event: TaskTerminal) -> None:
    task.refuse_after_end(f"ended as {event.state}")
    task.grow_fence(event.fence, "ended")
    task.state = TaskState(event.state)
    task.output = event.output
    task.failure_code = "" if event.failure is msgspec.UNSET else read_failure_code(event.failure)
    task.holder, task.not_before, task.paused = None, None, False
    if task.state is TaskState.HELD and task.plan is None:  # release 0.1.0 reported the steps, not the plan
        task.plan = [s.ordinal for s in task.life if s.kind == "compensation"] or None
    if task.state is TaskState.PROCESSED:
        _judge_processed(task)
    elif task.state is TaskState.COMPENSATED:
        _judge_compensated(task)


def _judge_processed(task: TaskFold) -> None:
    if task.undo_began:
        task.convict("I31", "processed although its undo had begun")
    for step in task.life:
        if step.state in STEP_IS_OPEN and step.kind != "timer":
            task.convict("I2", f"processed while step {step.ordinal} was {step.state}")


def _judge_compensated(task: TaskFold) -> None:
    task.judge_pivot("compensated")
    if not task.undo_began:
        task.convict("I32", "compensated although no undo began")
    done = {s.undoes for s in task.life if s.kind == "compensation" and s.state is StepState.COMPLETED}
    for step in task.life:
        if step.kind == "compensation" and step.state is not StepState.COMPLETED:
            task.convict("I32", f"compensated while the compensation {step.ordinal} was {step.state}")
        if step.kind not in _FORWARD or step.ordinal in done:
            continue
        if step.undoable and (step.state is StepState.COMPLETED or step.may_have_happened):
            task.convict("I30", f"compensated, but step {step.ordinal} ({step.name}) was not undone")
        elif step.may_have_happened and not step.effect_free:
            task.convict(
                "I30", f"compensated, but step {step.ordinal} ({step.name}) is in doubt and has no compensation"
            )
