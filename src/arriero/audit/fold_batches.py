"""The fold of batches: which messages a task handles, and how they end with it (I87)."""

import msgspec

from ..events.convoy import ConvoyBatched, ConvoyMessageEnded
from ..model import TaskState, Turn
from .fold import ENDED, TaskFold, read_failure_code
from .fold_turns import ConvoyFold, Member


def fold_batched(task: TaskFold, event: ConvoyBatched) -> None:
    """Fold a batch in the history of a task: of the one that handles it, or of one whose message it has."""
    if event.messages is None:
        if task.turn is not Turn.WAITING or task.state is not TaskState.PENDING:
            task.convict("I87", f"its message was put into a batch while it was {task.state}, its turn {task.turn}")
        if task.batch is not None:
            task.convict("I87", f"its message was put into batch {event.batch}, it is in batch {task.batch}")
        task.batch, task.turn = event.batch, Turn.BATCHED
        task.not_before, task.complete_by = None, None
    elif event.messages == 0:
        if task.batch is not None:
            task.convict("I87", "its batch was found full after it had begun")
        task.note_news()
    else:
        if task.turn is not Turn.OPEN or task.holder is None:
            task.convict("I87", f"it began a batch while its turn was {task.turn}, held by {task.holder}")
        if task.batch is not None or event.batch != task.task_no:
            task.convict("I87", f"it began batch {event.batch}, it is in batch {task.batch}")
        if event.messages > event.most:
            task.convict("I87", f"its batch has {event.messages} messages, it may have {event.most}")
        task.batch = event.batch
    if event.rank != task.rank:
        task.convict("I40", f"{event.type} with rank {event.rank}, its rank is {task.rank}")


def fold_message_ended(task: TaskFold, event: ConvoyMessageEnded) -> None:
    """Fold the end of a task whose message another one handled. That one may be undone, and run again, after its end."""
    if task.batch != event.batch or event.batch == task.task_no or task.turn not in (Turn.BATCHED, Turn.ENDED):
        task.convict("I87", f"it ended with batch {event.batch}, it is in batch {task.batch}, its turn {task.turn}")
    if event.state == task.state or event.state not in (TaskState.PROCESSED, TaskState.COMPENSATED):
        task.convict("I87", f"it ended {event.state} with its batch, it was {task.state}")
    task.grow_fence(event.fence, "ended")
    if task.state in ENDED:  # its batch was undone, or ran again
        task.incarnation, task.last_status = task.incarnation + 1, ""
    task.state, task.turn = TaskState(event.state), Turn.ENDED
    task.output = event.output
    task.failure_code = "" if event.failure is msgspec.UNSET else read_failure_code(event.failure)


def fold_batch_of_key(convoy: ConvoyFold, member: Member, event: ConvoyBatched, seen: int) -> None:
    """Fold a batch among the turns of its key: messages go into it in their order, while its task has its turn."""
    if convoy.open_task != event.batch:
        owner, other = convoy.name(event.batch), convoy.name(convoy.open_task)
        said = f"the batch of task {owner} took task {member.task_id}, the turn was {other}'s"
        convoy.convict("I87", said, unless_purged=True)
    if event.messages is None:
        convoy.judge_first(member, seen, f"task {member.task_id} went into a batch")
        member.turn, member.batch = Turn.BATCHED, event.batch
        convoy.reached = max(convoy.reached, (member.rank, member.place))
        if member.sequence is not None:
            missing = convoy.line.find_missing(convoy.expected, member.sequence, seen)
            if missing is not None:
                said = f"task {member.task_id} went into a batch, but sequence {missing} had not come"
                convoy.convict("I87", said, unless_purged=True)
            convoy.expected = max(convoy.expected, member.sequence + 1)
    elif event.messages:
        found = 1 + sum(one.batch == event.batch for one in convoy.line.members.values())
        if found != event.messages:
            said = f"the batch of task {member.task_id} has {event.messages} messages, {found} were put into it"
            convoy.convict("I87", said, unless_purged=True)


def judge_ends(convoy: ConvoyFold) -> None:
    """Judge at the end that each message ended as the task that handled it."""
    for member in convoy.line.members.values():
        head = None if member.batch is None else convoy.line.members.get(member.batch)
        if head is None or head.task.state not in (TaskState.PROCESSED, TaskState.COMPENSATED):
            continue
        if head.task.turn is Turn.ENDED and member.task.state is not head.task.state:
            convoy.convict(
                "I87", f"task {member.task_id} is {member.task.state}, its batch {head.task_id} is {head.task.state}"
            )
