"""Writing what a command changes: rows, and one link of history for each task and commit. Shared by all stores."""

from collections.abc import Callable, Sequence

import msgspec

from ...core import attempts, transitions, verbs
from ...core.alert_rows import build_question_alert
from ...core.apps import assign_app
from ...core.attempts import deliver_attempt, release_attempt
from ...core.changes import SAY_CHANGES, BreakerChange, Change, ConvoyChange, Refused
from ...core.children import note_child_end
from ...core.convoy_verbs import operate_convoy
from ...core.convoys import Gone, Held, NextUnreadable, find_next_turn
from ...core.progress import list_publications, publish_progress
from ...core.signals import send_signal
from ...core.supervision import compute_complete_within
from ...errors import UnreadableRow
from ...events import Event, encode_events
from ...events.base import link_hash
from ...events.store import BreakerClosed
from ...model import (
    ConvoyRow,
    Instant,
    LateAnswerRow,
    Loaded,
    SignalRow,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
)
from ...model.answers import Answer, Applied, AttemptApplied, ConvoyApplied, Refusal, SignalKept
from ...model.commands import (
    Advance,
    AnyCommand,
    AssignApp,
    DeliverAttempt,
    EndByLimit,
    ExtendAttempt,
    FreeTask,
    GatherBatch,
    NoteChildEnd,
    Operate,
    OperateConvoy,
    PublishProgress,
    Recover,
    ReleaseAttempt,
    Report,
    SaveCheckpoint,
    SendSignal,
)
from ...model.signals import is_question
from ..contract import SUPERVISOR_LEASE
from ..readable import of_convoy
from ..sql.table import Table

UPKEEP = "upkeep"  # the actor of what a store drops by its own rules
STORE_STREAM = 0  # the task_no under which the store's own events stand: processes, leases
_encode = msgspec.json.Encoder().encode


class Batch:
    """One transaction's writes, all at one instant of the store's clock."""

    def __init__(self, table: Table, now: Instant) -> None:
        self._table = table
        self.now = now

    def apply(self, command: AnyCommand) -> Answer | UnreadableRow:
        """Apply one command to one task. UnreadableRow: this release cannot read a row of it, and nothing changes."""
        try:
            result = self._decide(command)
            if isinstance(result, Refused) and result.events:
                self.note(result.task_no, command.actor, list(result.events), result.late_answer)
        except UnreadableRow as error:  # before anything is written: the other commands of the batch continue
            self._table.set_apart(error)
            return error
        except NextUnreadable as met:
            return met.error
        except Gone:
            assert isinstance(command, OperateConvoy)  # every other command that names a convoy has a task of it
            return Refusal("unknown", f"convoy {command.convoy_no} no longer exists")
        if isinstance(result, Refused):
            return result.refusal
        if isinstance(result, ConvoyChange):
            self._write_convoy(result, command.actor)
            assert result.convoy is not None
            return ConvoyApplied(result.convoy)
        if (
            isinstance(command, ExtendAttempt | SaveCheckpoint | PublishProgress | DeliverAttempt)
            and isinstance(result, Change)
            and result.steps[0].complete_by is not None
        ):
            return self._write_of_attempt(result, command.actor)
        if isinstance(command, SendSignal):
            return self._keep_signal(result, command)
        assert isinstance(result, Change)
        self.write(result, command.actor)
        rows = (*result.steps, *result.opened)
        says_more = isinstance(command, Operate) and (command.verb in SAY_CHANGES or command.persons > 1)
        changes = result.describe_changes() if says_more else ()
        applied = Applied(result.task, rows, tuple(result.dispatches), trace_link=result.trace_link, changes=changes)
        return applied if result.convoy is None else self._with_next(applied, result.convoy, command)

    def _decide(self, command: AnyCommand) -> Change | ConvoyChange | Refused | SignalRow:
        match command:
            case Advance():
                return transitions.advance(command, self._table, self.now)
            case Report():
                return transitions.report(command, self._table, self.now)
            case ExtendAttempt():
                return attempts.extend_attempt(command, self._table, self.now)
            case SaveCheckpoint():
                return attempts.save_checkpoint(command, self._table, self.now)
            case PublishProgress():
                return publish_progress(command, self._table, self.now)
            case DeliverAttempt():
                return deliver_attempt(command, self._table, self.now)
            case ReleaseAttempt():
                return release_attempt(command, self._table, self.now)
            case Recover():
                return transitions.recover(command, self._table, self.now, SUPERVISOR_LEASE)
            case EndByLimit():
                return transitions.end_by_limit(command, self._table, self.now, SUPERVISOR_LEASE)
            case FreeTask():
                return transitions.free(command, self._table, self.now, SUPERVISOR_LEASE)
            case NoteChildEnd():
                return note_child_end(command, self._table, self.now)
            case GatherBatch():
                from ...core.batches import gather_batch  # only who handles batches pays for loading it

                return gather_batch(command, self._table, self.now)
            case SendSignal():
                return send_signal(command, self._table, self.now)
            case Operate():
                return verbs.operate(command, self._table, self.now)
            case AssignApp():
                return assign_app(command, self._table, self.now)
            case OperateConvoy():
                return operate_convoy(command, self._table, self.now)
            case _:
                raise AssertionError(f"{type(command).__name__} concerns many tasks and is the store's own")

    def _keep_signal(self, result: Change | SignalRow, command: SendSignal) -> SignalKept:
        if isinstance(result, Change):
            self.write(result, command.actor)
            return SignalKept(result.signals[0].number, True, result.task, result.task.task_no)
        task = self._table.task(command.task_no)
        assert task is not None
        return SignalKept(result.number, False, task, result.task_no)

    def _write_of_attempt(self, change: Change, actor: str) -> AttemptApplied:
        if change.events:
            self.write(change, actor)
        elif change.published:  # it has no event: no row of the task changes
            self._publish(change)
        (step,) = change.steps
        assert step.complete_by is not None
        return AttemptApplied(step.complete_by, self.now)

    def _with_next(self, applied: Applied, change: ConvoyChange, command: AnyCommand) -> Applied:
        """Add the next task of the convoy, if the same commit has claimed it for the process that asked."""
        if isinstance(command, GatherBatch):
            return self._with_batch(applied, change)
        last = change.follows[-1] if change.follows else None
        if last is None or last.task.locked_by is None or not isinstance(command, Advance):
            return applied
        task, steps = last.task, tuple(last.opened)
        if task.opened_count and not change.begins:
            try:
                steps = self._table.steps_of(task.task_no)
            except UnreadableRow as error:  # it is ours and set apart; once it can be read it is among our news
                self._table.set_apart(error)
                return applied
        return msgspec.structs.replace(
            applied,
            next=self._load_next(task, steps, change),
            begun=tuple(last.dispatches) if change.begins else None,
            following=self._table.find_following(task),
        )

    def _with_batch(self, applied: Applied, change: ConvoyChange) -> Applied:
        """Add the task that has gathered its batch, with the arguments of all; nothing if it was put down."""
        task = applied.task
        if task.locked_by is None:
            return applied
        steps = self._table.steps_of(task.task_no) if task.opened_count else ()
        return msgspec.structs.replace(applied, next=self._load_next(task, steps, change))

    def _load_next(self, task: TaskRow, steps: tuple[StepRow, ...], change: ConvoyChange) -> Loaded:
        signals = self._table.inbox(task.task_no) if task.inbox else ()
        return Loaded(task, self._table.arguments(task.task_no), steps, change.convoy, signals)

    def look(self, convoy: ConvoyRow, actor: str) -> None:
        """Decide again whose turn it is in a convoy."""
        try:
            change = find_next_turn(convoy, self._table, self.now)
        except Held:
            return
        except UnreadableRow as error:
            self._table.set_apart(of_convoy(error, convoy.convoy_no))
            return
        self._write_convoy(change, actor)

    def write(self, change: Change, actor: str, add: Callable[[TaskRow], None] | None = None) -> None:
        """Keep a change's rows and its link of history. ``change.task`` is updated to the row as kept.

        ``add``: keeps the row of a new task.
        """
        task = change.task
        events = encode_events(change.events)
        link = task.link + 1
        head = link_hash(task.head, task.task_no, link, self.now, actor, events)
        change.task = msgspec.structs.replace(task, link=link, head=head)
        if add is None:
            self._table.put_task(change.task, rewrites=change.rewrites)
        else:
            add(change.task)
        for step in change.steps:
            self._table.put_step(step, rewrites=change.rewrites)
        for step in change.opened:
            self._table.add_step(step)
        for step in (*change.steps, *change.opened):
            if step.kind is StepKind.TIMER and is_question(step):
                self._settle_question(change.task, step)
        if change.published:  # before the other statuses of the same commit
            self._publish(change)
        for status in change.statuses:
            self._table.add_status(status)
        if change.closes_alert:
            self._table.close_alert(task.task_no, self.now)
        if change.alert is not None:
            self._table.add_alert(change.alert)
        if change.arguments is not None:
            self._table.put_arguments(task.task_no, change.arguments)
        if change.edit is not None:
            self._table.add_edit(msgspec.structs.replace(change.edit, link=link))
        if change.late_answer is not None:
            self._table.add_late_answer(msgspec.structs.replace(change.late_answer, link=link))
        self._table.add_history(task.task_no, task.task_id, link, self.now, actor, events, head)
        for signal in change.signals:
            self._table.put_signal(signal)
        for breaker in change.breakers:
            self.write_breaker(breaker, actor)
        if change.convoy is not None:
            self._write_convoy(change.convoy, actor)
        if change.next_run is not None:
            self._write_next_run(change.task, change.next_run, actor)

    def _write_next_run(self, earlier: TaskRow, change: Change, actor: str) -> None:
        arguments, change.arguments = change.arguments, None  # those of a new row, and not of an edit
        assert arguments is not None
        self.write(change, actor, lambda task: self._table.add_run(earlier, task, arguments))

    def _settle_question(self, task: TaskRow, step: StepRow) -> None:
        """Open the alert of a question, unless it is open; close it once nobody waits for the answer any longer."""
        if step.state is StepState.PENDING:
            self._table.add_alert(build_question_alert(task, step, self.now))
        else:
            self._table.close_question(step.step_no, self.now)

    def _publish(self, change: Change) -> None:
        """Keep what is published, and show it in the reply queue of the task."""
        labels = {step.ordinal: step.label for step in change.steps}
        for one in list_publications(change.task, change.published, self._table, labels, self.now):
            self._table.put_published(one.row)
            if one.status is not None:
                self._table.replace_progress(one.status, one.visible_at)

    def write_breaker(self, change: BreakerChange, actor: str) -> None:
        """Keep a breaker's row, report it in the store's own history, and open or close its alert."""
        self._table.put_breaker(change.row)
        self.note(STORE_STREAM, actor, change.events)
        if change.alert is not None:
            self._table.add_alert(change.alert)
        if any(isinstance(event, BreakerClosed) for event in change.events):
            self._table.close_breaker_alert(change.row, self.now)

    def _write_convoy(self, change: ConvoyChange, actor: str) -> None:
        for follow in change.follows:
            self.write(follow, actor)
        if change.convoy is not None:
            if change.events:
                change.convoy = self._link_events(change.convoy, change.events, actor)
            self._table.put_convoy(change.convoy)
        if change.tail is not None:
            self._table.put_tail(change.tail)

    def _link_events(self, convoy: ConvoyRow, events: list[Event], actor: str) -> ConvoyRow:
        """Append a convoy's own events to its own stream, whose number is the convoy's below zero."""
        text, link, stream = encode_events(events), convoy.link + 1, -convoy.convoy_no
        head = link_hash(convoy.head, stream, link, self.now, actor, text)
        self._table.add_history(stream, convoy.key, link, self.now, actor, text, head)
        return msgspec.structs.replace(convoy, link=link, head=head)

    def note(self, task_no: int, actor: str, events: list[Event], late_answer: LateAnswerRow | None = None) -> None:
        """Append events that change no state: of a task, or with STORE_STREAM of the store itself."""
        if task_no != STORE_STREAM:
            task = self._table.task(task_no)
            assert task is not None
            self.write(Change(task, [], [], events, [], late_answer=late_answer), actor)
            return
        link, head = self._table.store_head()
        text = encode_events(events)
        digest = link_hash(head, STORE_STREAM, link + 1, self.now, actor, text)
        self._table.put_store_head(link + 1, digest)
        self._table.add_history(STORE_STREAM, "", link + 1, self.now, actor, text, digest)


def note_in_store(rows: Table, actor: str, event: Event) -> None:
    """Append an event to the store's own history, in the transaction of ``rows``."""
    Batch(rows, rows.read_clock()).note(STORE_STREAM, actor, [event])


class _Gap(msgspec.Struct, frozen=True):
    count: int = 0
    oldest_at: int | None = None
    newest_at: int | None = None


_read_gap = msgspec.json.Decoder(_Gap).decode


def build_gap_mark(queue: str, before: StatusRow | None, dropped: Sequence[StatusRow], now: Instant) -> StatusRow:
    """Build the one mark of a queue for all that was dropped since its reader last acknowledged one."""
    gap = _Gap() if before is None else _read_gap(before.data)
    instants = [status.at for status in dropped]
    oldest = min(instants) if gap.oldest_at is None else gap.oldest_at
    data = _Gap(gap.count + len(dropped), oldest, max(instants))
    return StatusRow(0, queue, 0, "", "", 0, 0, "dropped", now, _encode(data).decode())


def complete_within(step: StepRow) -> float:
    """Seconds the next attempt of the step may take, by the policy in its row."""
    return compute_complete_within(step)
