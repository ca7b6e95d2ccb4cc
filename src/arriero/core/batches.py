"""Batches of a convoy: one task handles the messages of those that wait behind it.

Each message is a separate task: submitted, placed and found as every other. When the turn of one comes whose workflow
handles batches, it takes what waits behind it, up to a count. Its arguments become the lists of all, in their order, and the
others end with it, in the same commit and in the same way. So nothing of a batch is known to submissions or to a replay.
"""

from collections.abc import Sequence

import msgspec

from ..events.base import payload_hash
from ..events.convoy import ConvoyBatched
from ..model import ConvoyRow, Instant, Loaded, TaskRow, TaskState, Turn, later
from ..model.answers import Refusal
from ..model.commands import GatherBatch
from ..payloads.codec import PAYLOAD_BYTES_MAX
from .apps import is_another_app
from .changes import Change, Refused, Rows
from .convoys import ConvoyWriter, was_skipped
from .lease import is_on_probation
from .placement import pass_number
from .starts import is_snoozed
from .supervision import decode_task_policy
from .writer import Writer

_read_lists = msgspec.json.Decoder(dict[str, list[msgspec.Raw]]).decode


def must_gather(task: TaskRow) -> bool:
    """Returns True if a task that was claimed gathers a batch before its code runs."""
    return (
        task.convoy_no is not None
        and task.batch_no is None
        and task.state is TaskState.PROCESSING
        and task.opened_count == task.past_count
        and decode_task_policy(task.policy).convoy.handle_batch is not None
    )


class Gathered(msgspec.Struct):
    """The messages of a batch that stand behind its first one, in their order.

    Args:
        arguments: of all, in one list; None: the first has something else than a list.
        is_closed: nothing that comes later can be in the batch, because what stands next is none of it.
    """

    messages: list[Loaded]
    arguments: str | None
    is_closed: bool = False


def gather_batch(command: GatherBatch, rows: Rows, now: Instant) -> Change | Refused:
    """Begin the batch of a task whose turn has come, or put the task down until it is full or its time is over."""
    task = rows.task(command.task_no)
    if task is None:
        return Refused(Refusal("unknown", f"task {command.task_no}"))
    held_as = (task.locked_by, task.fence, task.revision)
    if held_as != (command.process_no, command.fence, command.revision) or not must_gather(task):
        return Refused(Refusal("moved_on", f"task {task.task_id} was held as {held_as}"))
    convoy_writer = ConvoyWriter(rows.convoy(command.convoy_no), rows, now)
    policy = decode_task_policy(task.policy).convoy
    most = policy.handle_batch
    assert most is not None
    assert isinstance(policy.batch_within, float)
    placed, line = rows.waiting_line(command.convoy_no, (convoy_writer.convoy.from_rank, 0), most - 1)
    found = find_messages(Loaded(task, rows.arguments(task.task_no), ()), line, convoy_writer.convoy, now)
    until = later(task.submitted_at, policy.batch_within)
    writer = Writer(task, rows, now, command.process_no)
    writer.rewrites = True
    missing = most - 1 - len(found.messages)
    if missing > 0 and until > now and not found.is_closed:
        convoy_writer.set(full_at=placed + missing)
        writer.release(until, "gathers")
    else:
        _begin_batch(writer, convoy_writer, found, most)
    writer.set(revision=task.revision + 1)
    writer.convoy = convoy_writer.change()
    return writer.change()


def find_messages(first: Loaded, line: Sequence[Loaded], convoy: ConvoyRow, now: Instant) -> Gathered:
    """Find the tasks whose messages go with the first one: those that stand next, up to one that does not.

    Args:
        line: tasks that wait behind it, in their order, at most as many as the batch may have.
    """
    lists = _read_list(first.arguments)
    if lists is None:
        return Gathered([], None, is_closed=True)
    (name, values), size, expected = lists, len(first.arguments.encode()), convoy.expected
    messages: list[Loaded] = []
    is_closed = False
    for one in line:
        task, also = one.task, _read_list(one.arguments)
        size += len(one.arguments.encode())
        fits = also is not None and also[0] == name and size <= PAYLOAD_BYTES_MAX
        if not fits or not _may_join(task, first.task, now) or was_skipped(task, expected):
            is_closed = True
            break
        if task.sequence is not None and task.sequence > expected:
            break  # what is missing may come
        assert also is not None
        values += also[1]
        messages.append(one)
        expected = pass_number(expected, task)
    return Gathered(messages, msgspec.json.encode({name: values}).decode(), is_closed)


def _read_list(arguments: str) -> tuple[str, list[msgspec.Raw]] | None:
    """Read the one list in the arguments of a message, with the name of its parameter; None: they are something else."""
    try:
        ((name, values),) = _read_lists(arguments).items()
    except (msgspec.MsgspecError, ValueError):
        return None
    return name, values


def _may_join(task: TaskRow, first: TaskRow, now: Instant) -> bool:
    return (
        task.workflow == first.workflow
        and not is_another_app(task.app, first.app)
        and task.state is TaskState.PENDING
        and task.batch_no is None
        and task.opened_count == 0
        and task.parent_step is None
        and task.ledger_no is None
        and task.inbox == 0
        and task.paused_at is None
        and not is_snoozed(task, now)
        and not is_on_probation(task)
        and (task.due_at is None or task.due_at <= now)
        and (task.complete_by is None or task.complete_by > now)
    )


def _begin_batch(writer: Writer, convoy_writer: ConvoyWriter, found: Gathered, most: int) -> None:
    head = writer.task
    for message in found.messages:
        _hand_over(message.task, head, convoy_writer, writer.rows)
    convoy_writer.set(full_at=None)
    writer.set(batch_no=head.task_no)
    if found.messages:
        writer.arguments = found.arguments
    assert head.rank is not None
    writer.events.append(
        ConvoyBatched(
            *convoy_writer.take_number(),
            batch=head.task_no,
            rank=head.rank,
            expected=convoy_writer.convoy.expected,
            messages=1 + len(found.messages),
            most=most,
            arguments=payload_hash(found.arguments if found.messages else writer.rows.arguments(head.task_no)),
        )
    )


def _hand_over(task: TaskRow, head: TaskRow, convoy_writer: ConvoyWriter, rows: Rows) -> None:
    """Hand the message of a waiting task to the batch. The limit of the batch counts from now on, and not the task's own."""
    assert task.rank is not None
    member = Writer(task, rows, convoy_writer.now, None)
    member.rewrites = True
    convoy_writer.close_alert(member)
    member.set(
        turn=Turn.BATCHED,
        batch_no=head.task_no,
        not_before=None,
        due_at=None,
        complete_by=None,
        started_at=convoy_writer.now,
        revision=task.revision + 1,
    )
    convoy = convoy_writer.convoy
    convoy_writer.set(
        reached=max(convoy.reached, task.rank),
        expected=pass_number(convoy.expected, task),
    )
    member.events.append(
        ConvoyBatched(
            *convoy_writer.take_number(),
            batch=head.task_no,
            rank=task.rank,
            expected=convoy_writer.convoy.expected,
        )
    )
    member.publish("started")
    convoy_writer.follows.append(member.change())
