"""What a command changes: rows and the events that tell of them, collected by one writer.

``core.transitions`` looks at the guards and says what happens; how that shows in rows and history stands here.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ..commands import (
    BeginUndo,
    Compensate,
    Dispatch,
    Ending,
    GaveUp,
    Hold,
    Keep,
    NewStep,
    NextUndo,
    Outcome,
    PlanUndo,
    Process,
    PutDown,
    Refusal,
    RetryAsked,
    Succeeded,
)
from ..model import (
    STEP_BITS,
    TASK_FORWARD,
    TASK_OPEN,
    AlertRow,
    ConvoyRow,
    EditRow,
    Instant,
    LateAnswerRow,
    StatusKind,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TailRow,
    TaskFailure,
    TaskRow,
    TaskState,
    Turn,
    later,
)
from .chain import payload_hash
from .states import StepEvent, TaskEvent, advance_step, advance_task
from .telling import STATUS_OF_END, Event, dispatched, opened, published

STEPS_PER_TASK_MAX = 100_000  # a task that opens more is a loop without an end, or should be several tasks


def step_number(task_no: int, ordinal: int) -> int:
    """The key of a step's row."""
    return task_no << STEP_BITS | ordinal


class Rows(Protocol):
    """Rows as they stand in the transaction. All methods raise UnreadableRow, of a row that this release cannot read."""

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

    def process_is_retired(self, process_no: int) -> bool: ...
    def term(self, lease: str) -> int: ...

    def convoy(self, convoy_no: int) -> ConvoyRow:
        """What a key is doing; ours to change."""
        ...

    def member(self, task_no: int) -> TaskRow | None:
        """A task of a convoy that is ours; it is ours to change, too. Raises: core.convoys.Held."""
        ...

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        """The task of a convoy that waits for its turn and stands first after a (rank, place); ours to change.

        Raises: core.convoys.Held - it is another transaction's just now; NextUnreadable - this release cannot read it.
        """
        ...

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        """How many tasks a convoy has with a sequence from ``start`` up to but without ``end``."""
        ...

    def seal(self, convoy_no: int) -> TailRow | None:
        """The convoy's tail, so that nobody adds to it until this transaction ends; None: somebody is just doing so."""
        ...


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
    arguments: str | None = None  # the workflow's, as a person edited them
    rewrites: bool = False  # also fields change that no other command changes
    convoy: "ConvoyChange | None" = None
    edit: EditRow | None = None
    late_answer: LateAnswerRow | None = None


class ConvoyChange(msgspec.Struct):
    """What becomes of a convoy in a commit: its row and its tail if they changed, other tasks of it, events of its own."""

    convoy: ConvoyRow | None
    tail: TailRow | None
    follows: list[Change] = []
    events: list[Event] = []
    begins: bool = False  # the last of ``follows`` has begun: its code had run ahead


class Refused(msgspec.Struct, frozen=True):
    """The guard did not hold. ``events`` (of ``task_no``) and ``late_answer`` keep a refused report for the operator."""

    refusal: Refusal
    task_no: int = 0
    events: tuple[Event, ...] = ()
    late_answer: LateAnswerRow | None = None


def begun(step: StepRow, process_no: int, now: Instant, complete_within: float) -> StepRow:
    """A request as it stands once a process has taken it: its fence grows, its time begins."""
    return replace(
        step,
        state=advance_step(step.state, StepEvent.TAKEN),
        fence=step.fence + 1,
        locked_by=process_no,
        complete_by=later(now, complete_within),
        wait_by=None,  # it bounds the wait for the first attempt only
        taken=True,
    )


def claim(task: TaskRow, process_no: int, now: Instant) -> Change:
    """A free, due task becomes the process's."""
    claimed = replace(
        task,
        state=advance_task(task.state, TaskEvent.CLAIMED),
        locked_by=process_no,
        fence=task.fence + 1,
        revision=task.revision + 1,
        started_at=task.started_at or now,
        unseen_since=now,
    )
    event: Event = {
        "type": "task.claimed",
        "fence": claimed.fence,
        "process": process_no,
        "state": claimed.state,
        "revision": claimed.revision,
    }
    events: list[Event] = [event]
    statuses: list[StatusRow] = []
    if task.started_at is None and task.state is TaskState.PENDING:
        claimed = published(claimed, "started", now, events, statuses)
    return Change(claimed, [], [], events, [], statuses)


class Writer:
    """Collects what one command changes."""

    def __init__(self, task: TaskRow, rows: Rows, now: Instant, process_no: int | None) -> None:
        self.task = task
        self.rows = rows
        self.now = now
        self.process_no = process_no
        self.changed: dict[int, StepRow] = {}
        self.opened: list[StepRow] = []
        self.events: list[Event] = []
        self.dispatches: list[Dispatch] = []
        self.statuses: list[StatusRow] = []
        self.alert: AlertRow | None = None
        self.closes_alert = False
        self.arguments: str | None = None
        self.rewrites = False
        self.convoy: ConvoyChange | None = None
        self.edit: EditRow | None = None

    def change(self) -> Change:
        return Change(
            self.task,
            list(self.changed.values()),
            self.opened,
            self.events,
            self.dispatches,
            self.statuses,
            self.alert,
            self.closes_alert,
            self.arguments,
            self.rewrites,
            self.convoy,
            self.edit,
        )

    def step(self, step_no: int) -> StepRow | None:
        return self.changed.get(step_no) or self.rows.step(step_no)

    def set(self, **fields: Any) -> None:
        if fields.get("turn", self.task.turn) is Turn.WAITING:
            fields["not_before"] = None  # whose turn in its convoy has not come is due for nobody, whatever wakes it
        self.task = replace(self.task, **fields)

    def put(self, step: StepRow) -> None:
        self.changed[step.step_no] = step

    # --- steps
    def record(self, step: StepRow, outcome: Outcome, at: Instant, fence: int) -> None:
        """The end of an attempt. ``fence`` is the step's from now on."""
        match outcome:
            case Succeeded(result=result):
                step = replace(step, in_doubt=False)  # whatever earlier tries did, now it has surely happened
                self._result(step, StepState.COMPLETED, StepEvent.SUCCEEDED, at, fence, result=result, failure=None)
            case GaveUp(failure=failure, in_doubt=in_doubt):
                ended = replace(step, in_doubt=in_doubt)
                if step.state is StepState.RUNNING:  # a request nobody took is no failed attempt
                    self._count_failure()
                    ended = replace(ended, failure_count=step.failure_count + 1)
                text = msgspec.json.encode(failure).decode()
                self._result(ended, StepState.FAILED, StepEvent.GAVE_UP, at, fence, result=None, failure=text)
            case RetryAsked():
                self._retry(step, outcome, fence)

    def _count_failure(self) -> None:
        self.set(failure_count=self.task.failure_count + 1)

    def _result(
        self,
        step: StepRow,
        state: StepState,
        event: StepEvent,
        at: Instant,
        fence: int,
        *,
        result: str | None,
        failure: str | None,
    ) -> None:
        assert advance_step(step.state, event) is state
        number = self.task.result_count + 1
        ended = replace(
            step,
            state=state,
            fence=fence,
            locked_by=None,
            complete_by=None,
            wait_by=None,
            result=result,
            failure=failure,
            result_number=number,
            delivered_at=at,
            finished_at=self.now,
        )
        self.put(ended)
        self.set(result_count=number, open_count=self.task.open_count - 1, lost_count=0)
        kind = "compensation" if step.kind is StepKind.COMPENSATION else "step"
        what = "recorded" if failure is None else "failed"
        recorded: Event = {"type": f"{kind}.{what}", "step": step.ordinal, "number": number}
        if failure is None:
            recorded["result"] = payload_hash(result)
        else:
            recorded |= {"failure": msgspec.Raw(failure.encode()), "in_doubt": ended.in_doubt}
            recorded |= {"failure_count": ended.failure_count, "fence": fence}
        self.events.append(recorded)

    def _retry(self, step: StepRow, outcome: RetryAsked, fence: int) -> None:
        self._count_failure()
        failure = msgspec.json.encode(outcome.failure).decode()
        fields: dict[str, Any] = {
            "fence": fence,
            "locked_by": None,
            "complete_by": None,
            "attempt": step.attempt + 1,
            "failure_count": step.failure_count + 1,
            "in_doubt": outcome.in_doubt,
            "failure": failure,
        }
        # Once the undo began, or a person is asked, no forward step runs again: the attempt's end is the step's. A
        # compensation of a task that is held stays open for the person who repairs it.
        if self.may_run_again(step):
            state = advance_step(step.state, StepEvent.RETRY_ASKED)
            self.put(replace(step, **fields, state=state, not_before=self.due(outcome.not_before)))
            what = "cool_off" if outcome.cool_off else "retry"
        else:
            self.put(self.closed(replace(step, **fields)))
            what = "error"
        self.events.append(
            {
                "type": "recover.applied",
                "step": step.ordinal,
                "what": what,
                "fence": fence,
                "failure_count": step.failure_count + 1,
                "not_before": outcome.not_before,
                "in_doubt": outcome.in_doubt,
                "failure": outcome.failure,
            }
        )

    def due(self, at: Instant) -> Instant | None:
        """When a request may be taken; None while a person keeps the task paused."""
        return at if self.task.paused_at is None else None

    def may_run_again(self, step: StepRow) -> bool:
        if self.task.turn is Turn.WAITING:
            return False  # in its convoy another is at work: whatever it still needs it asks for in its turn
        return self.task.state in (TASK_FORWARD if step.kind is StepKind.STEP else TASK_OPEN)

    def closed(self, step: StepRow) -> StepRow:
        """A step that was pending or running and will not be taken again as things stand."""
        event = StepEvent.WITHDRAWN if step.kind is not StepKind.COMPENSATION else StepEvent.PARKED
        finished_at = self.now if event is StepEvent.WITHDRAWN else None
        closed = replace(step, state=advance_step(step.state, event), wait_by=None, finished_at=finished_at)
        if step.kind is not StepKind.TIMER:
            self.set(open_count=self.task.open_count - 1)
            self.events.append({"type": f"step.{event}", "step": step.ordinal, "in_doubt": step.in_doubt})
        return closed

    def fire(self, step: StepRow, at: Instant) -> None:
        """A timer's time has come: that is a result too."""
        number = self.task.result_count + 1
        fired = replace(
            step,
            state=advance_step(step.state, StepEvent.FIRED),
            result="null",
            result_number=number,
            delivered_at=at,
            finished_at=self.now,
        )
        self.put(fired)
        self.set(result_count=number)
        self.events.append({"type": "timer.fired", "step": step.ordinal, "number": number})

    def open(self, new: NewStep, state: StepState = StepState.PENDING) -> None:
        if new.reopens is not None:
            self._reopen(new, new.reopens)
            return
        ordinal = self.task.opened_count + 1
        is_timer = new.kind is StepKind.TIMER
        step = StepRow(
            step_no=step_number(self.task.task_no, ordinal),
            task_no=self.task.task_no,
            ordinal=ordinal,
            kind=new.kind,
            name=new.name,
            key=new.key,
            agent=new.agent,
            state=state,
            priority=self.task.priority,
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
            not_before=new.fire_at if is_timer else self.now,
            complete_by=None,
            wait_by=None if new.wait_within is None else later(self.now, new.wait_within),
            result=None,
            failure=None,
            result_number=None,
            delivered_at=None,
            opened_at=self.now,
            finished_at=None,
            app=self.task.app,
        )
        counts = not is_timer and state is StepState.PENDING
        self.set(opened_count=ordinal, open_count=self.task.open_count + counts)
        self.events.append(opened(step))
        self.opened.append(step)
        if new.take:
            self.opened[-1] = self._dispatch(step, new.complete_within)

    def _reopen(self, new: NewStep, step_no: int) -> None:
        """The code of a resubmitted task asks again for a step that was withdrawn or set back.

        Key and arguments are the row's (a person may have edited them), the policy is the code's of today.
        """
        before = self.step(step_no)
        assert before is not None
        is_timer = before.kind is StepKind.TIMER
        step = replace(
            before,
            state=advance_step(before.state, StepEvent.REOPENED),
            agent=new.agent,
            policy=new.policy,
            pivot=new.pivot,
            effect_free=new.effect_free,
            compensation=new.compensation,
            not_before=before.not_before if is_timer else self.now,
            wait_by=None if new.wait_within is None or before.taken else later(self.now, new.wait_within),
            finished_at=None,
        )
        if not is_timer:
            self.set(open_count=self.task.open_count + 1)
        self.rewrites = True
        self.events.append({**opened(step), "type": "step.reopened", "attempt": step.attempt})
        self.put(self._dispatch(step, new.complete_within) if new.take else step)

    def _dispatch(self, step: StepRow, complete_within: float) -> StepRow:
        assert self.process_no is not None
        running = begun(step, self.process_no, self.now, complete_within)
        self.events.append(dispatched(running))
        self.dispatches.append(Dispatch(running, self.task.task_id, self.now, self.task.lost_count))
        return running

    def withdraw_pending(self) -> None:
        """Requests that nobody has taken, and timers, will not be; attempts that run go on to their end."""
        # A failed step that a person answers has two results, so the counts alone do not tell.
        each_has_its_result = self.task.opened_count == self.task.result_count and not self.task.open_count
        if self.task.incarnation == 1 and each_has_its_result:
            return
        for step in self.rows.open_steps(self.task.task_no):
            now_as = self.changed.get(step.step_no, step)
            if now_as.state is StepState.PENDING:
                self.put(self.closed(now_as))
        self.opened = [self.closed(step) if step.state is StepState.PENDING else step for step in self.opened]

    # --- the task
    def news(self) -> None:
        """Something came while nobody (or another process) drives the task: wake it."""
        if self.task.state in TASK_OPEN:
            self.set(
                not_before=self.now if self.task.locked_by is None else self.task.not_before,
                unseen_since=self.task.unseen_since or self.now,
            )

    def release(self, not_before: Instant | None, why: str) -> None:
        self.set(locked_by=None, fence=self.task.fence + 1, not_before=not_before, unseen_since=None)
        due = self.task.not_before
        self.events.append({"type": "task.released", "fence": self.task.fence, "not_before": due, "why": why})

    def end(self, state: TaskState, *, output: str | None = None, failure: TaskFailure | None = None) -> None:
        if failure is not None and state is TaskState.ERROR:
            failure = replace(failure, results=self.task.result_count)
        text = None if failure is None else msgspec.json.encode(failure).decode()
        self.set(
            state=state,
            output=output,
            failure=text or self.task.failure,
            ended_at=self.now,
            locked_by=None,
            fence=self.task.fence + 1,
            not_before=None,
            unseen_since=None,
            paused_at=None,
        )
        event: Event = {"type": "task.terminal", "state": state, "fence": self.task.fence}
        if output is not None:
            event["output"] = payload_hash(output)
        if failure is not None:
            event["failure"] = failure
        self.events.append(event)
        if state is TaskState.ERROR:
            assert failure is not None
            self.open_alert(failure)
        self.publish(STATUS_OF_END[state], failure=failure, output=output)

    def open_alert(self, failure: TaskFailure) -> None:
        """Tell a person."""
        self.events.append({"type": "alert.opened", "cause": failure.kind})
        task = self.task
        self.alert = AlertRow(
            no=0,
            task_no=task.task_no,
            task_id=task.task_id,
            workflow=task.workflow,
            incarnation=task.incarnation,
            cause=failure.kind,
            reason=failure.reason,
            step=failure.step,
            code=failure.code,
            opened_at=self.now,
            closed_at=None,
            told=(),
            attempts=0,
            next_at=self.now,
            error="",
            trace=msgspec.json.encode(failure.trace).decode() if failure.trace else None,
        )

    def publish(self, kind: StatusKind, *, failure: TaskFailure | None = None, output: str | None = None) -> None:
        """Tell the submitter's reply queue, if it named one, in the same commit."""
        self.task = published(self.task, kind, self.now, self.events, self.statuses, failure=failure, output=output)

    def hold(self, failure: TaskFailure, planned: Iterable[NewStep] = ()) -> None:
        advance_task(self.task.state, TaskEvent.HELD)
        self.withdraw_pending()
        first = self.task.opened_count + 1
        for new in planned:
            self.open(new, StepState.PLANNED)
        if self.task.opened_count >= first:
            self.events.append({"type": "undo.planned", "steps": list(range(first, self.task.opened_count + 1))})
        self.end(TaskState.ERROR, failure=failure)

    def begin_undo(self, failure: TaskFailure) -> None:
        self.withdraw_pending()
        text = msgspec.json.encode(failure).decode()
        self.set(state=advance_task(self.task.state, TaskEvent.UNDO_BEGUN), failure=text, undoing=True, ended_at=None)
        self.events.append({"type": "undo.begun", "failure": failure})
        self.publish("failed", failure=failure)

    def undo_or_end(self, failure: TaskFailure) -> None:
        """Begin the undo. A task that waits for its turn in a convoy and has done nothing is at its end with that."""
        if self.task.turn is Turn.WAITING and self.task.opened_count == self.task.past_count:
            self.finish(Compensate(failure))
        else:
            self.begin_undo(failure)

    def plan_undo(self, failure: TaskFailure, planned: tuple[NewStep, ...]) -> None:
        if self.task.state is not TaskState.COMPENSATING:
            self.begin_undo(failure)
        self.set(failure=msgspec.json.encode(failure).decode())
        first = self.task.opened_count + 1
        position = len(self.opened)
        for index, one in enumerate(planned):
            self.open(replace(one, take=False), StepState.PENDING if index == 0 else StepState.PLANNED)
        self.events.append({"type": "undo.planned", "steps": list(range(first, first + len(planned)))})
        if planned[0].take:  # only now: the plan stands before its first action, also in the history
            self.opened[position] = self._dispatch(self.opened[position], planned[0].complete_within)

    def next_undo(self, ending: NextUndo) -> None:
        step = self.step(ending.step_no)
        assert step is not None
        wait_by = None if ending.wait_within is None else later(self.now, ending.wait_within)
        reached = replace(step, state=advance_step(step.state, StepEvent.REACHED), not_before=self.now, wait_by=wait_by)
        self.set(open_count=self.task.open_count + 1)
        self.events.append({"type": "compensation.reached", "step": step.ordinal})
        self.put(self._dispatch(reached, ending.complete_within) if ending.take else reached)

    def finish(self, ending: Ending) -> None:
        match ending:
            case Keep():
                self.set(unseen_since=None)
            case PutDown(not_before=not_before):
                if not_before is None and self.task.state is TaskState.COMPENSATING and not self.task.open_count:
                    not_before = self.now  # nothing is open that could wake it: an undo never sleeps for ever
                self.release(not_before, "put_down")
            case Process(output=output):
                advance_task(self.task.state, TaskEvent.ENDED)
                self.withdraw_pending()  # timers nobody waits for any more; steps are closed, by the guard
                self.end(TaskState.PROCESSED, output=output)
            case BeginUndo(failure=failure):
                self.begin_undo(failure)
                self.set(unseen_since=None)
            case PlanUndo(failure=failure, planned=planned):
                self.plan_undo(failure, planned)
                self.set(unseen_since=None)
            case NextUndo():
                self.next_undo(ending)
                self.set(unseen_since=None)
            case Compensate(failure=failure):
                if self.task.state is not TaskState.COMPENSATING:
                    self.begin_undo(failure)
                advance_task(self.task.state, TaskEvent.UNDONE)
                self.end(TaskState.COMPENSATED, failure=failure)
            case Hold(failure=failure, planned=planned, may_go_forward=may_go_forward):
                self.hold(failure, planned)
                if may_go_forward:
                    self.set(undoing=False)
