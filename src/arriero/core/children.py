"""Children: what a task asks of the tasks that it has started, and what their ends are for it.

A child's end stands in its own row. The process that drives the parent reads it there and records it as the end of a step, so
the child's commit touches no row of its parent. ``runtime.child_tasks`` looks and asks; everything that it decides stands here.
"""

from enum import StrEnum

import msgspec

from ..events.base import payload_hash
from ..events.task import ChildNoticed
from ..model import STEP_BITS, TASK_FORWARD, TASK_OPEN, Instant, StepKind, StepRow, StepState, TaskRow, TaskState
from ..model.answers import Refusal
from ..model.commands import NoteChildEnd, Submit
from ..model.failures import StepFailure, read_task_failure
from ..model.moves import ChildEnded, GaveUp, Outcome, Succeeded
from ..model.policies import ChildOptions
from .changes import Change, Refused, Rows
from .deduplication import hash_body
from .supervision import decode_task_policy, read_step_policy
from .writer import Writer

DEPTH_MAX = 20  # generations below a task that was submitted: a workflow that starts itself ends here
CHILDREN_OPEN_MAX = 10_000  # children of one task that have not ended
NO_RESULT = Succeeded("null")


class ChildOrder(StrEnum):
    """Requests to a child, because the code or the undo of its parent has come to it."""

    SUBMIT = "submit"
    RESUBMIT = "resubmit"
    CANCEL = "cancel"
    COMPENSATE = "compensate"


def read_options(step: StepRow) -> ChildOptions:
    """The options of the child that a step is, or whose undo it is."""
    options = read_step_policy(step).child
    assert options is not None
    return options


def find_child_step(step: StepRow) -> int:
    """Return the number of the step that is the child: of an undo, the step that it undoes."""
    return step.step_no if step.undoes is None else step.undoes


def decide_child(task: TaskRow, step: StepRow, child: TaskRow | None) -> ChildOrder | Succeeded | GaveUp | None:
    """Decide what a running step that is a child, or the undo of one, needs now.

    Args:
        task: the parent, which is open.
        child: its row as it stands; None: it was not submitted, or was purged.
    Returns: what to ask for; or the outcome of the step; None: the child is open, or an operator has to act on it.
    """
    if step.kind is StepKind.COMPENSATION:
        return _decide_undo(child)
    is_undone = task.state is TaskState.COMPENSATING
    if child is None:
        if step.fence:
            return _fail("child_purged", f"its task {describe_child(task, step)} was purged")
        if is_undone:
            return _fail("child_not_begun", "its parent was undone before it began")
        if task.depth >= DEPTH_MAX:
            return _fail("child_too_deep", f"it would stand more than {DEPTH_MAX} tasks below the first one")
        return ChildOrder.SUBMIT
    if read_options(step).is_detached:
        return Succeeded(msgspec.json.encode(child.task_id).decode())
    if child.state is TaskState.PROCESSED:
        return Succeeded("null" if child.output is None else child.output)
    if child.state is TaskState.COMPENSATED:
        # An end that the parent knows already: its code asks for the child again.
        is_known = child.incarnation <= step.fence
        return ChildOrder.RESUBMIT if is_known and not is_undone else _fail_as(child)
    return ChildOrder.CANCEL if is_undone and child.state in TASK_FORWARD else None


def _decide_undo(child: TaskRow | None) -> ChildOrder | Succeeded | GaveUp | None:
    if child is None:
        return _fail("child_purged", "its task was purged: nothing can undo it")
    if child.state is TaskState.COMPENSATED:
        return NO_RESULT
    if child.state is TaskState.PROCESSED:
        return ChildOrder.COMPENSATE
    return ChildOrder.CANCEL if child.state in TASK_FORWARD else None


def name_task(task: TaskRow) -> str:
    """Return the id of the task that a row is a run of: of an earlier run without its ``~1``."""
    return task.task_id if task.next_no is None else task.task_id.removesuffix(f"~{task.run}")


def describe_child(task: TaskRow, step: StepRow) -> str:
    """The id of the child of a step; of one that was given none it is like ``trip-7/book_hotel.3``.

    A step's ordinal is never used twice in a task. After a life that was undone, the child of that life has the id that the code
    gives: the next one is ``ID/3``. A fork has the ids that the code gives, too: its children are ``ID/FORK``.
    A later run of a task counts its steps from 1 again: its children are like ``trip-7~2/book_hotel.3``.
    """
    options = read_step_policy(step).child
    named = None if options is None else options.task_id
    if named is None:
        run = name_task(task) if task.run == 1 else f"{name_task(task)}~{task.run}"
        return f"{run}/{step.name}.{step.ordinal}"
    if task.forked_from is not None:
        named = f"{named}/{task.task_id}"
    return f"{named}/{step.ordinal}" if 0 < task.past_count < step.ordinal else named


def _fail(code: str, message: str) -> GaveUp:
    return GaveUp(StepFailure("permanent", message, code), in_doubt=False)


def _fail_as(child: TaskRow) -> GaveUp:
    """The failure of a child that was undone, as its parent's code sees it."""
    if child.failure is None:
        return _fail("compensated", f"task {child.task_id} was compensated")
    failure = read_task_failure(child.failure)
    return GaveUp(
        StepFailure(
            "permanent",
            failure.reason,
            failure.code,
            details={"task_id": child.task_id, "step": failure.step},
            trace=failure.trace,
            public=failure.public,
        ),
        in_doubt=False,
    )


def fail_as_refused(refusal: Refusal) -> GaveUp:
    """The failure of a child that was not accepted, or does not let itself be undone."""
    return _fail(f"child_{refusal.verdict}", refusal.detail)


def build_child_end(step: StepRow, child: TaskRow | None, outcome: Succeeded | GaveUp, now: Instant) -> ChildEnded:
    """Build what the parent records."""
    if child is None:
        return ChildEnded(step.step_no, now, outcome)
    return ChildEnded(step.step_no, now, outcome, child.task_no, child.incarnation)


def build_child_submission(task: TaskRow, step: StepRow, actor: str, seed: int) -> Submit:
    """Build the command that submits the child of a step."""
    options = read_options(step)
    return Submit(
        actor=actor,
        task_id=describe_child(task, step),
        workflow=step.name,
        arguments=step.arguments,
        body_hash=hash_body(step.arguments),
        policy=options.policy,
        priority=task.priority if options.priority is None else options.priority,
        delay=0.0,
        complete_within=decode_task_policy(options.policy).complete_within,
        seed=seed,
        convoy=options.convoy,
        app=task.app,
        trace_context=task.trace_context,
        tags=task.tags if options.tags is None else options.tags,
        parent_step=step.step_no,
        depth=task.depth + 1,
    )


def refuse_child(command: Submit, step: StepRow | None) -> Refusal | None:
    """Refuse a child that is not asked for any longer. ``step``: of its parent, locked until the child's commit.

    A parent whose undo has begun since asks for the child until it has seen that there is none.
    """
    if step is not None and step.kind is StepKind.CHILD and step.state is StepState.RUNNING:
        return None
    return Refusal("moved_on", f"the parent of task {command.task_id!r} does not ask for it any longer")


def end_child(writer: Writer, step: StepRow, item: ChildEnded) -> Refusal | None:
    """Record the end of a child in its parent. Returns why not: parent or child have changed since it was read."""
    if step.state is not StepState.RUNNING or not step.is_of_child:
        return Refusal("moved_on", f"step {step.ordinal} of task {writer.task.task_id} is {step.state}")
    number = find_child_step(step)
    child = writer.rows.task(item.child_no) if item.child_no else writer.rows.child(number)
    found = (0, 0) if child is None or child.parent_step != number else (child.task_no, child.incarnation)
    is_open = child is not None and (child.state in TASK_OPEN or child.state is TaskState.HELD)
    if found != (item.child_no, item.incarnation) or (is_open and not _may_be_open(step, item.outcome)):
        return Refusal("moved_on", f"the child of step {step.ordinal} of task {writer.task.task_id} has changed")
    outcome = item.outcome
    hashed = payload_hash(outcome.result) if isinstance(outcome, Succeeded) else None
    known = max(step.fence, item.incarnation)  # a child that is purged is not submitted again
    writer.record(step, outcome, item.delivered_at, known, result_hash=hashed)
    return None


def _may_be_open(step: StepRow, outcome: Outcome) -> bool:
    """Returns True if a step ends before its child: that is detached, or does not let itself be undone."""
    if step.kind is StepKind.COMPENSATION:
        return isinstance(outcome, GaveUp)
    return read_options(step).is_detached


def note_child_end(command: NoteChildEnd, rows: Rows, now: Instant) -> Change | Refused:
    """Wake a task, because a child of it has ended. Its revision stays: the process that drives it need not read it again."""
    task, step = rows.task(command.step_no >> STEP_BITS), rows.step(command.step_no)
    if task is None or step is None or task.state not in TASK_OPEN:
        return Refused(Refusal("moved_on", f"step {command.step_no}"))
    steps = [one for one in rows.open_steps(task.task_no) if find_child_step(one) == command.step_no]
    if not any(one.state is StepState.RUNNING and one.is_of_child for one in steps):
        return Refused(Refusal("moved_on", f"step {command.step_no}"))
    writer = Writer(task, rows, now, None)
    writer.events.append(ChildNoticed(step.ordinal))
    writer.wake_task()
    return writer.change()
