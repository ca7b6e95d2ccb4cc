"""A ledger: one message with operations on many keys. What is kept of an entry until all are there, and how it is let go.

Entries are written in batches, each a task that nobody sees and nobody may begin. One commit opens the ledger: from then on
all of them are there. After it they are let go in their order: only then each gets its place in its convoy, and the history
reports it as of any other submission. So a task that is never opened leaves nothing in the history.
"""

from msgspec.structs import replace

from ..events.convoy import ConvoyPlaced
from ..model import ConvoyRow, Instant, LedgerRow, TailRow, TaskRow
from ..model.commands import Submit
from ..model.failures import TaskFailure
from .changes import Change, ConvoyChange, Rows
from .convoys import ConvoyWriter
from .placement import Spot, build_first_tail
from .supervision import decode_task_policy
from .transitions import build_new_task
from .writer import Writer


def build_kept_task(command: Submit, task_no: int, ledger: LedgerRow, tail: TailRow | None, now: Instant) -> TaskRow:
    """Build the row that keeps an entry until it is let go. ``tail``: of its convoy."""
    task = build_new_task(command, task_no, now).task
    return replace(
        task,
        not_before=None,
        complete_by=None,  # its time begins when it is let go
        convoy_no=None if tail is None else tail.convoy_no,
        sequence=command.sequence,
        ledger_no=ledger.ledger_no,
        from_ledger=ledger.ledger_no,
    )


def restore_submission(task: TaskRow, tail: TailRow | None, actor: str) -> Submit:
    """Return the submission that a kept task stands for."""
    return Submit(
        actor=actor,
        task_id=task.task_id,
        workflow=task.workflow,
        arguments="",  # kept beside the row
        body_hash=task.body_hash,
        policy=task.policy,
        priority=task.priority,
        delay=0.0,
        complete_within=decode_task_policy(task.policy).complete_within,
        seed=task.seed,
        convoy=None if tail is None else tail.key,
        sequence=task.sequence,
        app=task.app,
        submitter=task.submitter,
        tags=task.tags,
    )


def have_all_ended(ledger: LedgerRow, *, is_any_open: bool) -> bool | None:
    """Decide whether all tasks of a ledger have ended, in whatever state. A task that was purged had ended.

    Args:
        is_any_open: a task that keeps the ledger's number has not ended.
    Returns: None: it cannot be known, because a release before 0.5 wrote tasks of it, which do not keep its number.
    """
    if not ledger.is_open or is_any_open:
        return False
    return True if ledger.linked >= ledger.accepted else None


def order_tail(command: Submit, tail: TailRow) -> TailRow:
    """Return the tail of a convoy without tasks, with the ordering of the command."""
    return replace(tail, ordering=build_first_tail(tail.convoy_no, command).ordering)


def release_kept_task(command: Submit, task: TaskRow, ledger: LedgerRow, spot: Spot | None, now: Instant) -> Change:
    """Submit a kept task as any other. ``spot``: its convoy, which was found to take it."""
    change = build_new_task(command, task.task_no, now, spot, ledger.ledger_id)
    change.task = replace(change.task, from_ledger=task.from_ledger)
    change.rewrites = True
    return change


def set_aside_kept_task(
    command: Submit,
    task: TaskRow,
    ledger: LedgerRow,
    convoy: ConvoyRow,
    tail: TailRow,
    rows: Rows,
    now: Instant,
    why: str,
) -> Change:
    """Set a kept task aside, held, at the end of its convoy, which takes no such task any longer; an operator decides."""
    change = build_new_task(command, task.task_no, now, ledger=ledger.ledger_id)
    place = tail.placed + 1
    # The sequence is reported, and not kept: it counts for nothing in the convoy's order.
    event = ConvoyPlaced(tail.convoy_no, tail.key, place, place, refused=True, numbered=task.sequence)
    new = replace(
        change.task,
        convoy_no=tail.convoy_no,
        place=place,
        sequence=None,
        rank=place,
        not_before=None,
        from_ledger=task.from_ledger,
    )
    writer = Writer(new, rows, now, None)
    writer.rewrites = True
    writer.events = [*change.events, event]
    reason = (
        f"it came with ledger {ledger.ledger_id!r}, and {why}: it was set aside; resubmit it to have it handled now, out of"
        " order"
    )
    writer.hold(TaskFailure("late", reason, code="late"))
    writer.set(revision=new.revision + 1)
    convoy_writer = ConvoyWriter(convoy, rows, now)
    convoy_writer.set_aside(writer, "ledger")
    last_rank = place if tail.ordering == "place" else tail.last_rank
    writer.convoy = ConvoyChange(convoy_writer.convoy, replace(tail, placed=place, last_rank=last_rank))
    return writer.change()
