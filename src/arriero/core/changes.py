"""Input and output of a decision: the rows as they stand, and the rows, events, statuses and late answers that it writes.

A late answer is that of an attempt that no longer counts. It changes nothing. An operator may want to know it all the same: the
attempt may have had an effect.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..events import Event
from ..events.base import payload_hash
from ..events.step import CompensationDispatched, StepAdjusted, StepDispatched, StepOpened, StepReopened, StepReport
from ..events.task import OperatorAction, StatusPublished
from ..model import (
    STEP_BITS,
    AlertRow,
    ConvoyRow,
    EditRow,
    Instant,
    LateAnswerRow,
    Loaded,
    SignalRow,
    StatusKind,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TailRow,
    TaskRow,
    TaskState,
    Verb,
    later,
    step_number,
)
from ..model.agents import AgentLimitsRow, BreakerRow
from ..model.answers import Dispatch, Refusal
from ..model.failures import TaskFailure, choose_public_text
from ..model.moves import NewStep, Reported, Succeeded
from ..model.progress import Published
from ..model.signals import Inbox
from ..text.format import CARRIED_OUT, format_limit_changes, format_step

if TYPE_CHECKING:
    from ..model.workflow_pauses import Pauses  # only who pauses workflows pays for loading it
    from .parents import ParentStep

_KEEP_OLD_VALUES = (Verb.EXTEND, Verb.ADJUST, Verb.TAG, Verb.PIN)
SAY_CHANGES = (*_KEEP_OLD_VALUES, Verb.ANSWER)  # a question may ask for more operators than the settings


def build_report_event(step: StepRow, report: Reported, verdict: str) -> StepReport:
    """Build the event of a report; its payload only as a hash."""
    outcome = report.outcome
    return StepReport(
        step=step.ordinal,
        fence=report.fence,
        verdict=verdict,
        outcome="succeeded" if isinstance(outcome, Succeeded) else "failed",
        tries=report.tries,
        result=payload_hash(outcome.result if isinstance(outcome, Succeeded) else outcome.failure.message),
    )


def build_refused_report_event(step: StepRow, report: Reported, verdict: str, *, is_kept: bool) -> StepReport:
    """Build the event of a report that changes nothing, with the times that show how late it was.

    ``is_kept``: its answer is kept beside the history; the event then has the hash of just that payload.
    """
    event = build_report_event(step, report, verdict)
    if report.complete_by is not None:
        event = replace(event, attempt=report.attempt, answered_at=report.delivered_at, complete_by=report.complete_by)
    if is_kept:
        event = replace(event, kept=True, result=payload_hash(_encode_answer(report)))
    return event


def build_late_answer(step: StepRow, report: Reported, verdict: str, *, late: bool) -> LateAnswerRow | None:
    """Build the row that keeps a refused report; None: nothing is kept.

    A report that counted is sent again when the answer of its commit was lost. Then it is a duplicate, or, if it was a
    failure, perhaps stale. So a stale failure is kept only of an Agent that knew it to be late.

    Args:
        late: the Agent itself says that the attempt's time was over.
    """
    is_new = verdict == "late" or (verdict == "stale" and (late or isinstance(report.outcome, Succeeded)))
    if not is_new or report.complete_by is None:
        return None
    return LateAnswerRow(
        task_no=step.task_no,
        ordinal=step.ordinal,
        fence=report.fence,
        attempt=report.attempt,
        verdict="late" if verdict == "late" else "stale",
        outcome="succeeded" if isinstance(report.outcome, Succeeded) else "failed",
        answer=_encode_answer(report),
        answered_at=report.delivered_at,
        complete_by=report.complete_by,
        link=0,  # given when it is written
    )


def _encode_answer(report: Reported) -> str:
    outcome = report.outcome
    if isinstance(outcome, Succeeded):
        return outcome.result
    return msgspec.json.encode(outcome.failure).decode()


def build_dispatched(
    step: StepRow, limits: Mapping[str, str] | None = None, moved_to: str = ""
) -> StepDispatched | CompensationDispatched:
    """Build the event of an attempt that begins.

    Args:
        limits: see ``core.limits.hash_keys``.
        moved_to: the Agent that takes it over from another one.
    """
    kind = CompensationDispatched if step.kind is StepKind.COMPENSATION else StepDispatched
    assert step.complete_by is not None
    assert step.locked_by is not None
    return kind(
        step.ordinal,
        step.attempt,
        step.fence,
        step.complete_by,
        step.locked_by,
        step.idempotency_key,
        dict(limits) if limits else None,
        moved_to,
    )


def build_step(
    task: TaskRow, new: NewStep, ordinal: int, state: StepState, limit_keys: str | None, now: Instant
) -> StepRow:
    """Build the row of a step, compensation, timer or wait that a task opens now. ``limit_keys``: that its request is kept with."""
    return StepRow(
        step_no=step_number(task.task_no, ordinal),
        task_no=task.task_no,
        ordinal=ordinal,
        kind=new.kind,
        name=new.name,
        key=new.key,
        agent=new.agent,
        state=state,
        priority=task.priority,
        arguments=new.arguments,
        policy=new.policy,
        idempotency_key=new.idempotency_key,
        pivot=new.pivot,
        effect_free=new.effect_free,
        compensation=new.compensation,
        undoes=new.undoes,
        undo=new.undo,
        attempt=1,
        failure_count=0,
        lost_count=0,
        taken=False,
        in_doubt=False,
        fence=0,
        locked_by=None,
        not_before=new.fire_at if new.kind is StepKind.TIMER else now,
        complete_by=None,
        wait_by=None if new.wait_within is None else later(now, new.wait_within),
        target=new.target,
        limit_keys=limit_keys,
        result=None,
        failure=None,
        result_number=None,
        delivered_at=None,
        opened_at=now,
        finished_at=now if state is StepState.COMPLETED else None,
        app=task.app,
        routing=new.routing,
    )


def build_opened(step: StepRow) -> StepOpened:
    """Build the event of a step, compensation or timer that is opened."""
    return StepOpened(**_list_declared_fields(step))


def build_reopened(step: StepRow) -> StepReopened:
    """Build the event of a step or timer that is opened again."""
    return StepReopened(**_list_declared_fields(step), attempt=step.attempt)


def _list_declared_fields(step: StepRow) -> dict[str, Any]:
    fields = {"step": step.ordinal, "kind": step.kind, "name": step.name, "key": step.key}
    if step.kind is StepKind.TIMER:
        return {**fields, "fire_at": step.not_before}
    return {
        **fields,
        "agent": step.agent,
        "idempotency_key": step.idempotency_key,
        "arguments": payload_hash(step.arguments),
        "policy": Raw(step.policy.encode()),
        "pivot": step.pivot,
        "effect_free": step.effect_free,
        "undoable": step.compensation is not None,
        "undoes": None if step.undoes is None else step.undoes & ((1 << STEP_BITS) - 1),
        "planned": step.state is StepState.PLANNED,
        "routing": step.routing,
    }


STATUS_OF_END: dict[TaskState, StatusKind] = {
    TaskState.PROCESSED: "completed",
    TaskState.COMPENSATED: "compensated",
    TaskState.HELD: "held",
}


def publish_status(
    task: TaskRow,
    kind: StatusKind,
    now: Instant,
    events: list[Event],
    statuses: list[StatusRow],
    *,
    failure: TaskFailure | None = None,
    output: str | None = None,
    question: StepRow | None = None,
) -> TaskRow:
    """Add a status to ``events`` and ``statuses``. ``question``: the row that waits for the answer.

    Returns: the task with its new count of statuses; unchanged if it has no reply queue.
    """
    queue = task.reply_to
    if queue is None:
        return task
    number = task.status_count + 1
    data: dict[str, Any] = {}
    if failure is not None:
        data = {"reason": failure.reason, "cause": failure.kind, "step": failure.step, "code": failure.code}
        data["public"] = choose_public_text(failure, task.state)
    elif output is not None:
        data = {"output": msgspec.Raw(output.encode())}
    elif question is not None:
        from ..model.questions import describe_question  # only who asks pays for loading it

        data = describe_question(question)
    text = msgspec.json.encode(data).decode()
    statuses.append(
        StatusRow(0, queue, task.task_no, task.task_id, task.workflow, number, task.incarnation, kind, now, text)
    )
    events.append(StatusPublished(number, kind, queue))
    return replace(task, status_count=number)


class BreakerRows(Protocol):
    """Breakers as they stand in the transaction."""

    def breakers(self, agent: str) -> Sequence[BreakerRow]:
        """The breakers of an Agent, of any App, that are not closed, are paused, or were closed a short time ago."""
        ...

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        """A breaker, locked by this transaction. None: it was never opened or paused."""
        ...


class LimitRows(Protocol):
    """Limits of Agents as they stand in the transaction."""

    def limits(self, agent: str) -> Sequence[AgentLimitsRow]:
        """The limits of an Agent, of any App; not locked. None are listed for an App that has none."""
        ...


class Rows(BreakerRows, LimitRows, Protocol):
    """Rows as they stand in the transaction. All methods raise UnreadableRow, of a row that this release cannot read."""

    @property
    def pauses(self) -> "Pauses":
        """Workflows that are paused for new tasks."""
        ...

    def task(self, task_no: int) -> TaskRow | None: ...
    def step(self, step_no: int) -> StepRow | None: ...
    def open_steps(self, task_no: int) -> list[StepRow]:
        """Pending and running rows of a task, timers included, in the order of opening."""
        ...

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        """All rows of a task, in the order of opening."""
        ...

    def arguments(self, task_no: int) -> str:
        """The arguments of what a task runs, as they stand."""
        ...

    def people_commits(self, task_no: int, since: Instant) -> Sequence[str]:
        """The events of a task's commits from an instant on that report operators' verbs, the newest first."""
        ...

    def look_at_inbox(self, task_no: int, signal_id: str, name: str) -> Inbox:
        """The signals of a task that this transaction has locked; see ``Inbox`` for the id and the name."""
        ...

    def signal(self, task_no: int, number: int) -> SignalRow | None:
        """One signal of a task that this transaction has locked."""
        ...

    def inbox(self, task_no: int) -> tuple[SignalRow, ...]:
        """Signals of a task that no wait has taken, in the order of their commits."""
        ...

    def find_signal_of_runs(self, first_no: int, signal_id: str) -> SignalRow | None:
        """The signal of that id in any run of a task, if it stands in one."""
        ...

    def has_task(self, task_id: str) -> bool: ...

    def next_task_no(self) -> int: ...

    def child(self, step_no: int) -> TaskRow | None:
        """The task that is a step of another one; None: there is none, nor will there be until this transaction ends."""
        ...

    def parent(self, step_no: int) -> "ParentStep | None":
        """The step that a child is, with its task, as they stand; not locked. None: the task was purged."""
        ...

    def process_is_retired(self, process_no: int) -> bool: ...
    def term(self, lease: str) -> int: ...

    def convoy(self, convoy_no: int) -> ConvoyRow:
        """The convoy's row, locked by this transaction."""
        ...

    def member(self, task_no: int) -> TaskRow | None:
        """Lock and return a task of a convoy whose row this transaction has locked. Raises: core.convoys.Held."""
        ...

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        """The first task of a convoy that waits for its turn behind a (rank, place), locked by this transaction.

        Raises: core.convoys.Held - it is another transaction's just now; NextUnreadable - this release cannot read it.
        """
        ...

    def waiting_line(self, convoy_no: int, after: tuple[int, int], limit: int) -> tuple[int, list[Loaded]]:
        """Lock the first tasks of a convoy that wait behind a (rank, place), in their order, each without its steps.

        Returns: how many tasks were placed in the convoy before the others were read, and those: up to the first that another
            transaction has, or that this release cannot read.
        """
        ...

    def unended_messages(self, batch_no: int, state: TaskState) -> list[TaskRow]:
        """Lock the tasks whose messages a batch has, without the one that handles it, and that are not in that state.

        Raises: core.convoys.Held - another transaction has one.
        """
        ...

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        """Count the tasks of a convoy with a sequence from ``start`` up to but without ``end``."""
        ...

    def seal(self, convoy_no: int) -> TailRow | None:
        """Lock the convoy's tail, so that nobody adds to it until this transaction ends; None: another transaction has it."""
        ...


class BreakerChange(msgspec.Struct):
    """A breaker's row to write, and the events that say why."""

    row: BreakerRow
    events: list[Event]
    alert: AlertRow | None = None  # to be opened


class Change(msgspec.Struct):
    """Rows to write and events to append, all for one task."""

    task: TaskRow
    steps: list[StepRow]  # changed
    opened: list[StepRow]  # new
    events: list[Event]
    dispatches: list[Dispatch]
    statuses: list[StatusRow] = []
    alert: AlertRow | None = None  # to be opened
    closes_alert: bool = False
    arguments: str | None = None  # the workflow's, as an operator edited them
    rewrites: bool = False  # also fields change that no other command changes
    convoy: "ConvoyChange | None" = None
    edit: EditRow | None = None
    late_answer: LateAnswerRow | None = None
    breakers: list[BreakerChange] = []
    trace_link: str | None = None  # that the convoy had before
    published: tuple[Published, ...] = ()
    signals: Sequence[SignalRow] = ()  # new or changed
    next_run: "Change | None" = None  # rows of the run in which the task continues; ``arguments``: with which

    def describe_changes(self) -> tuple[str, ...]:
        """Describe what a verb changed: who approved it, each value with the old one, and what it left as it was."""
        changes: list[str] = []
        for event in self.events:
            if isinstance(event, OperatorAction) and event.approved_by:
                changes.append(f"{CARRIED_OUT}, approved by {' and '.join(event.approved_by)}")
            if isinstance(event, OperatorAction) and event.verb in _KEEP_OLD_VALUES:
                changes += event.list_changes()
            elif isinstance(event, StepAdjusted):
                step = next(step for step in self.steps if step.ordinal == event.step)
                changes.append(f"{format_step(step)}: {format_limit_changes(event.limits, event.before)}")
        return tuple(changes)


class ConvoyChange(msgspec.Struct):
    """Changes of a convoy in one commit: its row and its tail if they changed, other tasks of it, separate events."""

    convoy: ConvoyRow | None
    tail: TailRow | None
    follows: list[Change] = []
    events: list[Event] = []
    begins: bool = False  # the last of ``follows`` has begun: its code had run ahead


class Refused(msgspec.Struct, frozen=True):
    """The guard did not hold. ``events`` (of ``task_no``; 0: of the store itself) and ``late_answer`` keep it for operators."""

    refusal: Refusal
    task_no: int = 0
    events: tuple[Event, ...] = ()
    late_answer: LateAnswerRow | None = None
