"""The runs of a task whose code ends with ContinueAs: each is a row of its own, and the last one has the task's id."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..events import Event
from ..events.base import START
from ..events.convoy import ConvoyContinued
from ..events.task import TaskContinued, TaskSubmitted
from ..model import Instant, Loaded, SignalRow, TaskRow, TaskState, later, split_number
from ..model.failures import TaskFailure
from ..model.moves import Continue, Hold
from ..model.signals import PASSED_ON, is_note
from ..model.tags import read_tags
from .changes import Change
from .convoys import ConvoyWriter
from .deduplication import hash_body
from .signals import build_sent
from .starts import find_start
from .writer import Writer

_SEED_FACTOR, _SEED_STEP, _SEED_BELOW = 6364136223846793005, 1442695040888963407, 2**62


def decide_next_run(call: Any, loaded: Loaded, convoy_state: str | None) -> Continue | Hold:
    """Decide what becomes of a task whose code has raised ContinueAs with a call, once none of its steps is open."""
    task, workflow = loaded.task, call.workflow
    if workflow.name != task.workflow:
        other = workflow.name
        reason = f"its code raised ContinueAs({other}(...)): the next run is of {task.workflow}, too; start {other} as a child"
        return Hold(TaskFailure("bug", reason, code="continues_as_another"))
    if all(is_note(step.kind, step.name) for step in loaded.life):
        reason = (
            "its code raised ContinueAs before any step, sleep or wait: its runs would follow each other without an end"
        )
        return Hold(TaskFailure("bug", reason, code="continues_without_step"))
    return Continue(call.arguments, workflow.policy_text, workflow.policy.complete_within, convoy_state)


def name_earlier_run(task: TaskRow) -> str:
    """Return the id of a run that has ended by ContinueAs: ``ID~1``."""
    return f"{task.task_id}~{task.run}"


def continue_task(writer: Writer, ending: Continue) -> Change | None:
    """End a run and build the rows of the next one. None: the task is held instead, because it may not continue.

    The row of the run that ends gives up all by which others find the task: its id, its place in its convoy, the reply queue,
    its parent and its ledger. What no wait has taken of its inbox goes along, but what is for one of its own waits.
    """
    task, rows = writer.task, writer.rows
    if (failure := _find_hindrance(writer)) is not None:
        writer.hold(failure)
        return None
    number, first_no = rows.next_task_no(), task.first_no or task.task_no
    passed, left = _split_inbox(writer)
    writer.withdraw_pending()
    writer.rewrites = True
    writer.set(
        task_id=name_earlier_run(task),
        reply_to=None,
        convoy_no=None,
        place=None,
        sequence=None,
        rank=None,
        turn=None,
        due_at=None,
        parent_step=None,
        from_ledger=None,
        first_no=first_no,
        next_no=number,
        inbox=left,
    )
    writer.end(TaskState.PROCESSED)
    writer.events.append(TaskContinued(number, tuple(signal.number for signal in passed)))
    writer.signals += [replace(signal, step=PASSED_ON) for signal in passed]
    signals = [replace(signal, task_no=number, number=count) for count, signal in enumerate(passed, 1)]
    following = _build_next_row(task, ending, number, first_no, len(signals), writer.now)
    events: list[Event] = [_build_submitted(task, following, ending), *map(build_sent, signals)]
    if task.convoy_no is not None:
        events.append(_keep_turn(writer, task, ending, number))
    return Change(following, [], [], events, [], arguments=ending.arguments, signals=signals)


def _find_hindrance(writer: Writer) -> TaskFailure | None:
    """Find why a task may not continue in another run."""
    task, rows = writer.task, writer.rows
    parent = None if task.parent_step is None else rows.parent(task.parent_step)
    if parent is not None and not parent.is_detached:
        reason = (
            f"its code raised ContinueAs, but task {parent.task_id!r} waits for it as its child, and an undo of that would not"
            " reach its earlier runs: start it with .options(detach=True)"
        )
        return TaskFailure("bug", reason, code="continues_as_child")
    if task.batch_no is not None:
        reason = "its code raised ContinueAs, but it handles a batch of messages, which end with it: return at its end"
        return TaskFailure("bug", reason, code="continues_with_batch")
    if rows.has_task(earlier := name_earlier_run(task)):
        reason = (
            f"its code raised ContinueAs, and its run needs the id {earlier!r}, which another task has: purge that one"
        )
        return TaskFailure("bug", reason, code="run_id_taken")
    return None


def _split_inbox(writer: Writer) -> tuple[Sequence[SignalRow], int]:
    """Split what no wait has taken: what goes along, and the number of signals for a wait of this run alone."""
    changed = {signal.number: signal for signal in writer.signals}
    kept = [changed.get(signal.number, signal) for signal in writer.rows.inbox(writer.task.task_no)]
    untaken = [signal for signal in kept if signal.step is None]
    passed = [signal for signal in untaken if "#" not in signal.name]
    return passed, len(untaken) - len(passed)


def _build_next_row(task: TaskRow, ending: Continue, number: int, first_no: int, inbox: int, now: Instant) -> TaskRow:
    following = replace(
        task,
        task_no=number,
        run=task.run + 1,
        first_no=first_no,
        state=TaskState.PENDING,
        not_before=now,
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
        seed=(task.seed * _SEED_FACTOR + _SEED_STEP) % _SEED_BELOW,
        policy=ending.policy,
        submitted_at=now,
        started_at=None,
        ended_at=None,
        complete_by=None if ending.complete_within is None else later(now, ending.complete_within),
        output=None,
        failure=None,
        link=0,
        head=START,
        undoing=False,
        past_count=0,
        branched_at=None,
        due_at=None,
        snoozed_until=None,
        inbox=inbox,
        submitted_tags=None,
        code_version=None,
    )
    if task.snoozed_until is None:
        return following
    return replace(following, not_before=find_start(task, now))


def _build_submitted(task: TaskRow, following: TaskRow, ending: Continue) -> TaskSubmitted:
    """Build the first event of the next run. ``build_new_task`` writes that of a submission itself: each call there is counted."""
    parent, parent_step = (None, None) if task.parent_step is None else split_number(task.parent_step)
    assert following.not_before is not None
    return TaskSubmitted(
        workflow=following.workflow,
        body=hash_body(ending.arguments),
        priority=following.priority,
        not_before=following.not_before,
        complete_by=following.complete_by,
        reply_to=following.reply_to,
        app=following.app,
        tags={} if following.tags is None else read_tags(following.tags),
        parent=parent,
        parent_step=parent_step,
        continues=task.task_no,
        run=following.run,
        statuses=following.status_count,
        paused=following.paused_at is not None,
    )


def _keep_turn(writer: Writer, task: TaskRow, ending: Continue, number: int) -> ConvoyContinued:
    """Keep the turn of a task in its convoy for the next run."""
    assert task.convoy_no is not None
    assert task.place is not None
    assert task.rank is not None
    turn = ConvoyWriter(writer.rows.convoy(task.convoy_no), writer.rows, writer.now)
    turn.set(open_task=number)
    if ending.convoy_state is not None:
        turn.set(value=ending.convoy_state)
    event = ConvoyContinued(
        *turn.take_number(), earlier=task.task_no, place=task.place, rank=task.rank, sequence=task.sequence
    )
    writer.convoy = turn.change()
    return event
