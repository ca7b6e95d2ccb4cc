"""The wake of a batch that has become full, and its end: all tasks whose messages it had end with it."""

from typing import Protocol

import msgspec

from ..events.base import payload_hash
from ..events.convoy import ConvoyBatched, ConvoyMessageEnded
from ..model import ConvoyRow, ConvoyState, Instant, TaskRow, TaskState, Turn
from ..model.failures import read_task_failure
from .changes import STATUS_OF_END, Change, Rows
from .starts import find_start
from .states import TaskEvent, advance_task
from .writer import Writer


class TurnWriter(Protocol):
    """The changes that one commit makes in a convoy: ``core.convoys.ConvoyWriter``."""

    convoy: ConvoyRow
    rows: Rows
    now: Instant
    follows: list[Change]

    def set(self, **fields: object) -> None: ...
    def take_number(self) -> tuple[int, int]: ...


def wake_full_batch(convoy_writer: TurnWriter) -> None:
    """Let the open task of a convoy begin, if the batch that it gathers is full. Raises: Held, before anything is written."""
    number = convoy_writer.convoy.open_task
    convoy_writer.set(full_at=None)
    task = None if number is None else convoy_writer.rows.member(number)
    if (
        task is None
        or convoy_writer.convoy.state is not ConvoyState.OPEN
        or task.state not in (TaskState.PENDING, TaskState.PROCESSING)
        or task.batch_no is not None
        or task.locked_by is not None
    ):
        return
    writer, now = Writer(task, convoy_writer.rows, convoy_writer.now, None), convoy_writer.now
    if task.not_before is not None and task.not_before <= now:
        return
    assert task.rank is not None
    writer.set(not_before=find_start(task, now), revision=task.revision + 1)
    writer.events.append(
        ConvoyBatched(
            *convoy_writer.take_number(),
            batch=task.task_no,
            rank=task.rank,
            expected=convoy_writer.convoy.expected,
            messages=0,
        )
    )
    convoy_writer.follows.append(writer.change())


def end_messages(convoy_writer: TurnWriter, head: TaskRow) -> None:
    """End all tasks whose messages a batch had, as it has ended. Raises: Held - another transaction has one of them."""
    is_done = head.state is TaskState.PROCESSED
    failure = None if is_done or head.failure is None else read_task_failure(head.failure)
    text = None if failure is None else msgspec.json.encode(failure)
    for task in convoy_writer.rows.unended_messages(head.task_no, head.state):
        writer = Writer(task, convoy_writer.rows, convoy_writer.now, None)
        state = advance_task(task.state, TaskEvent.BATCH_ENDED if is_done else TaskEvent.BATCH_UNDONE)
        is_again = task.ended_at is not None  # its batch was undone, or ran again
        writer.rewrites = is_again
        writer.set(
            state=state,
            incarnation=task.incarnation + is_again,
            turn=Turn.ENDED,
            output=head.output,
            failure=None if text is None else text.decode(),
            ended_at=convoy_writer.now,
            fence=task.fence + 1,
            revision=task.revision + 1,
        )
        writer.events.append(
            ConvoyMessageEnded(
                *convoy_writer.take_number(),
                batch=head.task_no,
                state=state,
                fence=writer.task.fence,
                output=payload_hash(head.output),
                failure=msgspec.UNSET if text is None else msgspec.Raw(text),
            )
        )
        writer.publish(STATUS_OF_END[state], failure=failure, output=head.output)
        convoy_writer.follows.append(writer.change())
