"""The changes of each command: guards first, then the rows and the events that record them.

Written once and used by every store, under its lock, with the rows as they stand; so all stores give the same answer
and a guard can be read in one place. A store adds only how rows are found, locked and kept.
"""

from typing import Any

from msgspec.structs import replace

from ..events import Event
from ..events.base import START
from ..events.step import StepExpired, StepLost
from ..events.store import LeaderRefused
from ..events.task import TaskExpired, TaskLost, TaskSubmitted
from ..model import (
    STEP_BITS,
    TASK_FORWARD,
    TASK_OPEN,
    Instant,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
    later,
)
from ..model.answers import Dispatch, Refusal
from ..model.commands import Advance, AnyCommand, EndByLimit, FreeTask, Recover, Report, Submit
from ..model.failures import TaskFailure, read_task_failure
from ..model.moves import (
    BeginUndo,
    ChildEnded,
    Compensate,
    Continue,
    Delivered,
    Fired,
    GaveUp,
    Keep,
    PlanUndo,
    Process,
    PutDown,
    Reported,
    Succeeded,
)
from ..model.progress import Published
from ..model.tags import read_tags
from .breaker_book import BreakerBook, begin_attempt
from .changes import (
    BreakerRows,
    Change,
    ConvoyChange,
    Refused,
    Rows,
    build_dispatched,
    build_late_answer,
    build_refused_report_event,
    build_report_event,
    publish_status,
)
from .children import CHILDREN_OPEN_MAX, end_child
from .convoys import settle_convoy
from .limits import LimitBook, hash_keys
from .placement import Spot, place_task
from .routing import may_move
from .signals import answer_request, find_unknown_request, take_signal
from .speculative_start import claim
from .starts import find_request_start
from .states import StepEvent, advance_step
from .supervision import judge_again
from .writer import Writer

__all__ = [
    "advance",
    "build_new_task",
    "claim",
    "end_by_limit",
    "free",
    "has_ended",
    "recover",
    "report",
    "report_verdict",
    "take",
]

STEPS_PER_TASK_MAX = 100_000  # a task that opens more is a loop without an end, or should be several tasks


def build_new_task(
    command: Submit, task_no: int, now: Instant, spot: Spot | None = None, ledger: str | None = None
) -> Change:
    """Build the rows of a submitted task.

    Args:
        spot: the convoy it is submitted to, which has been found to take it.
        ledger: the id of the ledger that it came with.
    """
    due = later(now, command.delay)
    limit = None if command.complete_within is None else later(due, command.complete_within)
    task = TaskRow(
        task_no=task_no,
        task_id=command.task_id,
        workflow=command.workflow,
        state=TaskState.PENDING,
        priority=command.priority,
        not_before=due,
        locked_by=None,
        fence=0,
        revision=0,
        incarnation=1,
        failure_count=0,
        lost_count=0,
        opened_count=0,
        open_count=0,
        result_count=0,
        unseen_since=None,
        seed=command.seed,
        policy=command.policy,
        body_hash=command.body_hash,
        submitted_at=now,
        started_at=None,
        ended_at=None,
        complete_by=limit,
        output=None,
        failure=None,
        link=0,
        head=START,
        reply_to=command.reply_to,
        app=command.app,
        trace_context=command.trace_context,
        submitter=command.submitter,
        tags=command.tags,
        parent_step=command.parent_step,
        depth=command.depth,
    )
    event = TaskSubmitted(
        workflow=command.workflow,
        body=command.body_hash,
        priority=command.priority,
        not_before=due,
        complete_by=limit,
        reply_to=command.reply_to,
        app=command.app,
        ledger=ledger,
        tags={} if command.tags is None else read_tags(command.tags),
        parent=None if command.parent_step is None else command.parent_step >> STEP_BITS,
        parent_step=None if command.parent_step is None else command.parent_step & ((1 << STEP_BITS) - 1),
    )
    events: list[Event] = [event]
    statuses: list[StatusRow] = []
    change = Change(task, [], [], events, [], statuses)
    if spot is not None:
        place = place_task(task, command, spot, now)
        change.task = place.task
        events += place.events
        change.convoy = ConvoyChange(place.convoy, place.tail)
    change.task = publish_status(change.task, "received", now, events, statuses)
    return change


def take(
    task: TaskRow,
    step: StepRow,
    process_no: int,
    now: Instant,
    complete_within: float,
    rows: BreakerRows,
    limits: LimitBook | None = None,
    agent: str = "",
) -> Change | None:
    """Take a due request as an attempt of the process. None: the Agent's breaker does not let it through.

    Args:
        limits: of the Agent, locked by the transaction; the caller has found that there is room.
        agent: takes over the request of another Agent. Then None means also that it may not move.
    """
    breakers = BreakerBook(rows, now)
    if agent and not may_move(step):
        return None
    begun = breakers.admit_moved(step, agent) if agent else breakers.admit(step)
    if begun is None:
        return None
    if begun.returned:
        task = replace(task, failure_count=task.failure_count - begun.returned)
    step = begun.step if limits is None else limits.begin(begun.step, now)
    counted = None if limits is None else hash_keys(limits.row.limits, step.limit_keys)
    running = begin_attempt(step, process_no, now, complete_within)
    return Change(
        task,
        [running],
        [],
        [*begun.events, build_dispatched(running, counted, agent)],
        [Dispatch(running, task.task_id, now, task.lost_count, task.trace_context, task.tags)],
        rewrites=bool(agent),
        breakers=list(breakers.changes.values()),
    )


def has_ended(command: AnyCommand, task: TaskRow) -> bool:
    """Returns True if a command ended its task. ``task``: its row as the command left it, which may have ended before."""
    if task.ended_at is None:
        return False
    if isinstance(command, Advance | EndByLimit):  # their guards hold only for a task that has not ended
        return True
    if not isinstance(command, FreeTask) or command.hold is None or command.fence is None or task.failure is None:
        return False
    failure = read_task_failure(task.failure)
    return (task.fence, failure.kind, failure.code) == (command.fence + 1, command.hold.kind, command.hold.code)


def report_verdict(step: StepRow | None, fence: int, now: Instant) -> str:
    """Judge a report: ``applied``, or the reason why it changes nothing (unknown, stale, duplicate, late)."""
    if step is None:
        return "unknown"
    if step.fence != fence:
        return "stale"
    if step.state is not StepState.RUNNING:
        return "duplicate"
    if step.complete_by is not None and now >= step.complete_by:
        return "late"
    return "applied"


def _refused_report(step: StepRow | None, report: Reported, verdict: str, *, late: bool = False) -> Refused:
    refusal = Refusal(verdict, f"step {report.step_no} under fence {report.fence}")
    if step is None:
        return Refused(refusal)
    kept = build_late_answer(step, report, verdict, late=late)
    event = build_refused_report_event(step, report, verdict, is_kept=kept is not None)
    return Refused(refusal, step.task_no, (event,), kept)


def advance(command: Advance, rows: Rows, now: Instant) -> Change | Refused:
    """Write for the Scheduler, guarded by (task, fence, state, revision) and by each report's (fence, state, time)."""
    task = rows.task(command.task_no)
    if task is None:
        return Refused(Refusal("unknown", f"task {command.task_no}"))
    found = (task.locked_by, task.fence, task.revision, task.state)
    if found != (command.process_no, command.fence, command.revision, command.state):
        return Refused(Refusal("moved_on", f"task {task.task_id} was held as {found}"))
    writer = Writer(task, rows, now, command.process_no)
    published: list[Published] = []
    for item in command.delivered:
        if (refused := _record_delivered(writer, item)) is not None:
            return refused
        if isinstance(item, Reported) and item.published is not None:
            published.append(item.published)
    next_run: Change | None = None
    is_seen, opened = task.unseen_since in (None, command.unseen_since), len(command.opened)
    may_be_too_many = task.opened_count + opened > STEPS_PER_TASK_MAX or task.open_count + opened > CHILDREN_OPEN_MAX
    if may_be_too_many and (too_many := _find_too_many(command, task)) is not None:
        writer.hold(too_many)  # none of the steps is opened
    elif (unknown := find_unknown_request(writer, command.opened)) is not None:
        reason = f"its code replied to request {unknown}, which it has not received"
        writer.hold(TaskFailure("bug", reason, code="unknown_request"))
    else:
        for new in command.opened:
            if new.replies_to is None:
                writer.open(new)
            else:
                answer_request(writer, new)
        if isinstance(command.ending, Process | Continue | PlanUndo | Compensate) and writer.task.open_count > 0:
            return Refused(Refusal("moved_on", f"task {task.task_id} has open steps"))
        if isinstance(command.ending, Continue):
            from .runs import continue_task  # only who continues pays for loading it

            next_run = continue_task(writer, command.ending)
        elif not isinstance(command.ending, Keep):
            is_late = isinstance(command.ending, PutDown) and not is_seen  # news has come since: it is due
            writer.finish(PutDown(now) if is_late else command.ending)
    writer.set(revision=task.revision + 1, unseen_since=None if is_seen else writer.task.unseen_since)
    if not is_seen:  # a child has ended since its driver read the task
        writer.wake_task()
    convoy_state = command.ending.convoy_state if isinstance(command.ending, Process) else None
    if next_run is None:
        settle_convoy(
            writer, task, hand_over=command.hand_over, convoy_state=convoy_state, trace_link=command.trace_link
        )
    change = writer.change()
    change.next_run = next_run
    if command.published is not None:
        published.append(Published(0, command.published, 0, now))
    if published:
        change.published = tuple(published)
    return change


def _record_delivered(writer: Writer, item: Delivered) -> Refused | None:
    """Record one thing that the code was given. Returns why it cannot be: others have written since."""
    task, now, step = writer.task, writer.now, writer.step(item.step_no)
    if isinstance(item, Reported):
        verdict = report_verdict(step, item.fence, now)
        if verdict != "applied":
            return _refused_report(step, item, verdict)
        assert step is not None
        assert step.task_no == task.task_no
        if (refusal := _find_outdated(writer, step, item)) is not None:
            return Refused(refusal)
        reported = build_report_event(step, item, verdict)
        writer.events.append(reported)
        writer.record(step, item.outcome, item.delivered_at, step.fence, result_hash=reported.result)
        return None
    assert step is not None
    if isinstance(item, Fired):
        assert (step.task_no, step.kind) == (task.task_no, StepKind.TIMER)
        if step.state is not StepState.PENDING or step.not_before is None or step.not_before > now:
            return Refused(Refusal("moved_on", f"timer {step.ordinal} of task {task.task_id} is not due"))
        writer.fire(step, item.delivered_at)
        return None
    refusal = end_child(writer, step, item) if isinstance(item, ChildEnded) else take_signal(writer, step, item)
    return None if refusal is None else Refused(refusal)


def _find_too_many(command: Advance, task: TaskRow) -> TaskFailure | None:
    """Find the limit that the steps which a commit opens go beyond."""
    if task.opened_count + len(command.opened) > STEPS_PER_TASK_MAX:  # their numbers would run into the next task's
        reason = f"it opened more than {STEPS_PER_TASK_MAX:,} steps: split it into several tasks"
        return TaskFailure("bug", reason, code="too_many_steps")
    children = sum(new.kind is StepKind.CHILD for new in command.opened)
    if children and task.open_count + children > CHILDREN_OPEN_MAX:
        reason = (
            f"more than {CHILDREN_OPEN_MAX:,} of its children were to run at a time: use arriero.map(..., at_a_time=)"
        )
        return TaskFailure("bug", reason, code="too_many_children")
    return None


def _find_outdated(writer: Writer, step: StepRow, item: Reported) -> Refusal | None:
    """Refuse a failure that counts as another one by now: the code was given the old one. The report comes again by itself, alone."""
    if isinstance(item.outcome, Succeeded):
        return None
    which = f"step {step.ordinal} of task {writer.task.task_id}"
    if judge_again(step, item.outcome, writer.now) is not item.outcome:
        return Refusal("adjusted", f"an operator has changed the limits of {which}")
    if isinstance(item.outcome, GaveUp) and writer.breakers.spare(step, item.outcome) is not item.outcome:
        return Refusal("outage", f"{which} failed in an outage")
    return None


def report(command: Report, rows: Rows, now: Instant) -> Change | Refused:
    """Write an Agent's report for a task its process does not hold, guarded by the step's (fence, state) and time."""
    step = rows.step(command.report.step_no)
    verdict = report_verdict(step, command.report.fence, now)
    if verdict == "applied" and command.late:
        verdict = "late"  # the Agent's deadline is never later than the store's, so the Agent may know first
    if verdict != "applied":
        return _refused_report(step, command.report, verdict, late=command.late)
    assert step is not None
    task = rows.task(step.task_no)
    assert task is not None
    writer = Writer(task, rows, now, command.process_no)
    reported = build_report_event(step, command.report, verdict)
    writer.events.append(reported)
    writer.record(step, command.report.outcome, now, step.fence, result_hash=reported.result)
    change = _count_news(writer, step)
    if command.report.published is not None:
        change.published = (command.report.published,)
    return change


def _count_news(writer: Writer, step: StepRow) -> Change:
    """A report or recovery grows the revision; an end of a step is news for the task, another attempt is not."""
    assert step.step_no in writer.changed
    if writer.changed[step.step_no].state is not StepState.PENDING:
        writer.wake_task()
    writer.set(revision=writer.task.revision + 1)
    return writer.change()


def _refuse_term(term: int, current: int, task_no: int) -> Refused:
    """Refuse what a Supervisor decided that does not lead any longer. The store's own history keeps it, to be counted."""
    refused = LeaderRefused(term=term, current=current, task=task_no)
    return Refused(Refusal("old_term", f"term {term}, by now it is {current}"), events=(refused,))


def recover(command: Recover, rows: Rows, now: Instant, lease: str) -> Change | Refused:
    """Write the Supervisor's decision, guarded by its term, by the step's fence and by "still expired"."""
    if (current := rows.term(lease)) != command.term:
        return _refuse_term(command.term, current, command.step_no >> STEP_BITS)
    step = rows.step(command.step_no)
    if step is None or step.fence != command.fence:
        return Refused(Refusal("moved_on", f"step {command.step_no}"))
    wanted = (StepState.PENDING, step.wait_by) if command.starved else (StepState.RUNNING, step.complete_by)
    if step.state is not wanted[0] or wanted[1] is None or wanted[1] > now:
        return Refused(Refusal("moved_on", f"step {command.step_no} is {step.state}"))
    task = rows.task(step.task_no)
    assert task is not None
    writer = Writer(task, rows, now, None)
    why = "starved" if command.starved else "expired"
    fence = step.fence + 1
    writer.events.append(StepExpired(step.ordinal, fence, why, command.term))
    writer.record(step, command.outcome, now, fence)
    return _count_news(writer, step)


def end_by_limit(command: EndByLimit, rows: Rows, now: Instant, lease: str) -> Change | Refused:
    """End a task whose own limit passed: guarded by the term, by (task, fence, state, revision) and by "still passed"."""
    if (current := rows.term(lease)) != command.term:
        return _refuse_term(command.term, current, command.task_no)
    task = rows.task(command.task_no)
    if task is None or (task.fence, task.revision, task.state) != (command.fence, command.revision, command.state):
        return Refused(Refusal("moved_on", f"task {command.task_no}"))
    if task.state not in TASK_FORWARD or task.complete_by is None or task.complete_by > now or task.paused_at:
        return Refused(Refusal("moved_on", f"task {task.task_id} is {task.state}"))
    writer = Writer(task, rows, now, None)
    writer.events.append(TaskExpired(command.term))
    if isinstance(command.ending, BeginUndo):
        writer.undo_or_end(command.ending.failure)
        if writer.task.state in TASK_OPEN:
            writer.release(now, "limit")
    else:
        writer.hold(command.ending.failure)
    writer.set(revision=task.revision + 1)
    settle_convoy(writer, task)
    return writer.change()


def free(command: FreeTask, rows: Rows, now: Instant, lease: str) -> Change | Refused:
    """Free what a lost holder held. Guards: the holder is retired (or still stuck, under a term), and the fences."""
    if command.lost_by is not None and not rows.process_is_retired(command.lost_by):
        return Refused(Refusal("moved_on", f"process {command.lost_by} is not retired"))
    if command.term is not None and (current := rows.term(lease)) != command.term:
        return _refuse_term(command.term, current, command.task_no)
    task = rows.task(command.task_no)
    if task is None:
        return Refused(Refusal("unknown", f"task {command.task_no}"))
    writer = Writer(task, rows, now, None)
    freed = _free_steps(writer, command)
    holds = command.fence is not None and task.locked_by is not None and task.fence == command.fence
    if holds and command.lost_by is None and (task.unseen_since is None or task.unseen_since != command.stuck_since):
        holds = False
    if not holds and not freed:
        return Refused(Refusal("moved_on", f"task {task.task_id}"))
    if command.charged and task.state in TASK_OPEN:
        writer.set(lost_count=task.lost_count + 1)
        writer.events.append(TaskLost(writer.task.lost_count, command.lost_by))
    # A step may have been recorded since the holder's tasks were read, which ended the probation: then it continues.
    if command.hold is not None and writer.task.state in TASK_OPEN and writer.task.lost_count >= command.held_from:
        writer.hold(command.hold)
    elif holds:
        writer.release(now, "lost" if command.lost_by is not None else "stuck")
    writer.set(revision=task.revision + 1)
    settle_convoy(writer, task)
    return writer.change()


def _free_steps(writer: Writer, command: FreeTask) -> bool:
    freed = False
    for step_no, fence in command.steps:
        step = writer.rows.step(step_no)
        if step is None or (step.fence, step.locked_by, step.state) != (fence, command.lost_by, StepState.RUNNING):
            continue
        freed = True
        if step.is_canary:
            step = writer.breakers.end(step, None)
        fields: dict[str, Any] = {
            "fence": step.fence + 1,
            "locked_by": None,
            "complete_by": None,
            "lost_count": step.lost_count + 1,
            "in_doubt": True,
        }
        step = replace(step, **fields)
        again = writer.may_run_again(step)
        writer.events.append(StepLost(step.ordinal, step.fence, step.lost_count))
        if again:
            freed_at = find_request_start(writer.task, writer.now)
            writer.put(replace(step, state=advance_step(step.state, StepEvent.HOLDER_LOST), not_before=freed_at))
        else:
            writer.put(writer.close_step(step))
            writer.wake_task()
    return freed
