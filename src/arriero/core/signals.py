"""Signals to a task: which one is accepted, which wait takes it, and how both are written.

A signal is kept in the task's inbox. The process that drives the task knows which waits its code has open, so it decides
which of them takes the signal, with its next write (``core.drive``).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..events.base import payload_hash
from ..events.signal import SignalAnswered, SignalSent, SignalSetAside, SignalTaken
from ..model import Instant, SignalRow, StepRow, StepState, TaskRow, TaskState, step_number
from ..model.answers import Refusal
from ..model.commands import SendSignal
from ..model.moves import NewStep, Signalled
from ..model.signals import (
    INBOX_BYTES_MAX,
    INBOX_MAX,
    PASSED_ON,
    SET_ASIDE,
    SIGNALS_MAX,
    Inbox,
    RefusedBecause,
    address_wait,
    build_wait_result,
    count_wanted,
    encode_refusal,
    is_wait,
    may_take,
)
from ..text.format import format_count
from .apps import is_another_app
from .changes import Change, Refused, Rows
from .states import StepEvent, advance_step
from .writer import Writer


def send_signal(command: SendSignal, rows: Rows, now: Instant) -> Change | Refused | SignalRow:
    """Keep a signal in the inbox of its task, and wake the task if it waits for it.

    Returns: SignalRow - it stands there already, under the same ``signal_id``.
    """
    task = rows.task(command.task_no)
    if task is None:
        return Refused(Refusal("unknown", f"task {command.task_no}"))
    inbox = rows.look_at_inbox(command.task_no, command.signal_id, command.name)
    known = inbox.known
    if task.next_no is not None and (known is None or known.step == PASSED_ON):
        return Refused(Refusal("continued", "this run of the task has ended: send it to the task", str(task.state)))
    if known is None and task.first_no is not None:  # it may stand in an earlier run
        known = rows.find_signal_of_runs(task.first_no, command.signal_id)
        inbox = replace(inbox, known=known)
    if known is not None and is_same(command, known) and not is_of_past_life(task, known):
        return known
    wait = None if command.wait is None else rows.step(step_number(command.task_no, command.wait))
    refusal = find_refusal(command, task, inbox, wait, now)
    if refusal is not None:
        return Refused(refusal)
    signal = SignalRow(
        task_no=task.task_no,
        number=inbox.last_number + 1,
        name=command.name,
        signal_id=command.signal_id,
        value=command.value,
        sent_by=command.sent_by,
        sent_at=now,
        wants_reply=command.wants_reply,
    )
    writer = Writer(task, rows, now, None)
    writer.signals.append(signal)
    writer.events.append(build_sent(signal))
    # The one who holds the task may be about to open a wait. Nobody does so for a free task before it is claimed, with its inbox.
    if task.locked_by is not None or any(may_take(step, signal) for step in rows.open_steps(task.task_no)):
        writer.wake_task()
    writer.set(inbox=task.inbox + 1, revision=task.revision + 1)
    return writer.change()


def build_sent(signal: SignalRow) -> SignalSent:
    """Build the event of a signal that is kept."""
    return SignalSent(
        number=signal.number,
        name=signal.name,
        signal_id=signal.signal_id,
        value=payload_hash(signal.value),
        by=signal.sent_by,
        is_request=signal.wants_reply,
    )


def is_same(command: SendSignal, known: SignalRow) -> bool:
    """Returns True if a signal of the sender's id is what the sender sends."""
    return (known.name, known.value) == (command.name, command.value)


def is_of_past_life(task: TaskRow, signal: SignalRow) -> bool:
    """Returns True if a wait took a signal in a life of the task that was undone as a whole: the code of today has not got it."""
    return signal.task_no == task.task_no and SET_ASIDE < (signal.step or SET_ASIDE) <= task.past_count


def find_refusal(
    command: SendSignal, task: TaskRow, inbox: Inbox, wait: StepRow | None, now: Instant
) -> Refusal | None:
    """Return why a signal that is not known yet is refused; None if it is kept.

    Args:
        wait: the row of ``command.wait``; None: there is none, or the command names none.
    """
    because: RefusedBecause
    if inbox.known is not None and is_same(command, inbox.known):
        because = "past_life"
        why = "it was taken before the task was undone and began again; to send it again, give it another signal_id"
    elif inbox.known is not None:
        because, why = "another_value", f"another signal has the id {command.signal_id!r}; give each its own signal_id"
    elif is_another_app(command.app, task.app):
        because, why = "another_app", f"the task is of App {task.app!r}, this is App {command.app!r}"
    elif task.state in (TaskState.COMPENSATING, TaskState.COMPENSATED):
        because, why = "undone", f"the task is {task.state}: its code receives nothing any longer"
    elif task.state is TaskState.PROCESSED:
        because, why = "ended", "the task has ended: its code receives nothing any longer"
    elif task.batch_no not in (None, task.task_no):
        because = "in_batch"
        why = (
            f"its message is in the batch of another task, number {task.batch_no}, whose code runs: send it to that one"
        )
    elif inbox.count >= INBOX_MAX or inbox.size + len(command.value.encode()) > INBOX_BYTES_MAX:
        because = "inbox_full"
        waiting = f"{format_count(inbox.count, 'signal')} with {inbox.size:,} bytes"
        why = f"{waiting} wait to be taken; at most {INBOX_MAX:,} with {INBOX_BYTES_MAX:,} bytes may"
    elif inbox.last_number >= SIGNALS_MAX:
        because, why = "too_many", f"the task has had {SIGNALS_MAX:,} signals, which is the limit"
    elif command.wait is not None:
        return _refuse_by_wait(command, task, wait, inbox, now)
    else:
        return None
    return Refusal(because, why, str(task.state))


def _refuse_by_wait(
    command: SendSignal, task: TaskRow, wait: StepRow | None, inbox: Inbox, now: Instant
) -> Refusal | None:
    """Refuse what is for one wait alone, if that cannot take it any longer.

    The waits of a held task are withdrawn. After a resubmission its code opens them again, and takes what is kept for them.
    """
    if wait is None or not is_wait(wait) or address_wait(wait) != command.name:
        return Refusal("not_waiting", "the task has not asked for it")
    if wait.ordinal <= task.past_count:
        return Refusal("not_waiting", "the task does not wait for it any longer")
    if wait.state not in (StepState.PENDING, StepState.WITHDRAWN):
        is_late = wait.result is None
        return Refusal("late", "its time was over") if is_late else Refusal("answered", "it was answered before")
    if inbox.named:
        return Refusal("undecided", "its task has not read the value that was sent before; send the same again later")
    if wait.not_before is not None and wait.not_before <= now:
        return Refusal("late", "its time is over")
    return None


def find_ready_wait(
    waits: Sequence[StepRow], signals: Iterable[SignalRow], now: Instant
) -> tuple[StepRow, list[SignalRow]] | None:
    """Find the first wait that has what it waits for, and its signals. A signal is for the wait that was opened first.

    A wait for several has what it waits for once it has all of them, or has some and its time is over.

    Args:
        waits: that the code of a task waits for now, in the order in which it opened them.
        signals: that no wait has taken, in the order of their commits.
    """
    for_waits: defaultdict[int, list[SignalRow]] = defaultdict(list)
    for signal in signals:
        step = next((one for one in waits if may_take(one, signal)), None)
        if step is not None:
            found = for_waits[step.step_no]
            found.append(signal)
            if len(found) == (count_wanted(step) or 1):
                return step, found
    due = (step for step in waits if step.not_before is not None and step.not_before <= now)
    return next(((step, for_waits[step.step_no]) for step in due if for_waits[step.step_no]), None)


def _find_signal(writer: Writer, number: int) -> SignalRow | None:
    """A signal of the task, as this command has changed it."""
    changed = next((one for one in reversed(writer.signals) if one.number == number), None)
    return changed or writer.rows.signal(writer.task.task_no, number)


def take_signal(writer: Writer, step: StepRow, taken: Signalled) -> Refusal | None:
    """Let a wait take a signal, which is its result. Returns why it cannot: others have written since it was decided."""
    signals: list[SignalRow] = []
    for number in taken.numbers:
        signal = _find_signal(writer, number)
        if (
            signal is None
            or signal.step is not None
            or signal in signals
            or step.state is not StepState.PENDING
            or not may_take(step, signal)
        ):
            return Refusal("moved_on", f"wait {step.ordinal} and signal {number} of task {writer.task.task_id}")
        signals.append(signal)
    if taken.unfit:
        writer.signals.append(replace(signals[0], step=SET_ASIDE, reply=encode_refusal(taken.unfit)))
        writer.set(inbox=writer.task.inbox - 1)
        writer.events.append(SignalSetAside(taken.number, taken.unfit))
        return None
    is_over = step.not_before is not None and step.not_before <= writer.now
    if len(signals) < (count_wanted(step) or 1) and not is_over:
        return Refusal("moved_on", f"wait {step.ordinal} of task {writer.task.task_id} waits for more signals")
    result_number = writer.task.result_count + 1
    writer.put(
        replace(
            step,
            state=advance_step(step.state, StepEvent.SIGNALLED),
            result=build_wait_result(step, signals),
            result_number=result_number,
            delivered_at=taken.delivered_at,
            finished_at=writer.now,
        )
    )
    writer.signals += [replace(signal, step=step.ordinal) for signal in signals]
    writer.set(result_count=result_number, inbox=writer.task.inbox - len(signals))
    writer.events.append(SignalTaken(step.ordinal, result_number, taken.number, taken.also))
    return None


def find_unknown_request(writer: Writer, opened: Iterable[NewStep]) -> int | None:
    """Find a request that the code replies to and has not received; returns its number. None: it has received all.

    The number of one that the code of a fork has from the task that it is forked from is below zero.
    """
    for new in opened:
        if new.replies_to is not None and new.replies_to > 0:
            signal = _find_signal(writer, new.replies_to)
            if signal is None or not signal.wants_reply or signal.step is None:
                return new.replies_to
    return None


def answer_request(writer: Writer, new: NewStep) -> None:
    """Keep what the code replies to a request that it has received.

    Of a task that was resubmitted, the code may reply another thing than before. The first reply counts: its sender has it.
    The reply of a fork to a request that another task has received goes nowhere: that task replies.
    """
    assert new.replies_to is not None
    if new.replies_to < 0:
        writer.open(new)
        writer.events.append(SignalAnswered(writer.opened[-1].ordinal, new.replies_to, payload_hash(new.arguments)))
        return
    signal = _find_signal(writer, new.replies_to)
    assert signal is not None
    writer.open(new)
    row = writer.opened[-1]
    if signal.reply is None:
        signal = replace(signal, reply=new.arguments, replied_at=writer.now)
        writer.signals.append(signal)
    writer.events.append(SignalAnswered(row.ordinal, signal.number, payload_hash(signal.reply)))
