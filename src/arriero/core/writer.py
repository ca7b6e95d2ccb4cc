"""The writer collects what one command changes: rows, and the events that report them.

``core.transitions`` looks at the guards and says what happens; how that shows in rows and history stands here.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from ..events import Event
from ..events.base import payload_hash
from ..events.step import (
    CompensationFailedEvent,
    CompensationReached,
    CompensationRecorded,
    RecoverApplied,
    StepFailedEvent,
    StepParked,
    StepRecorded,
    StepWithdrawn,
    TimerFired,
)
from ..events.task import AlertOpened, TaskReleased, TaskTerminal, UndoBegun, UndoPlanned
from ..model import (
    FAILED_IN_OUTAGE,
    TASK_FORWARD,
    TASK_OPEN,
    AlertRow,
    EditRow,
    Instant,
    SignalRow,
    StatusKind,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
    Turn,
    later,
)
from ..model.answers import Dispatch
from ..model.failures import TaskFailure
from ..model.moves import (
    BeginUndo,
    Compensate,
    Ending,
    GaveUp,
    Hold,
    NewStep,
    NextUndo,
    Outcome,
    PlanUndo,
    Process,
    PutDown,
    RetryAsked,
    Succeeded,
)
from ..model.signals import build_fired_result, is_note, is_question
from . import changes
from .alert_rows import build_task_alert
from .breaker_book import BreakerBook, begin_attempt, note_charged
from .changes import STATUS_OF_END, Change, ConvoyChange, Rows, publish_status
from .limits import is_limited, name_limit_keys
from .starts import find_request_start, find_start
from .states import StepEvent, TaskEvent, advance_step, advance_task
from .supervision import judge_again


class Writer:
    """The changes of one command, as they are collected."""

    def __init__(
        self, task: TaskRow, rows: Rows, now: Instant, process_no: int | None, *, may_probe: bool = True
    ) -> None:
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
        self.signals: list[SignalRow] = []  # new or changed
        self.trace_link: str | None = None  # that the convoy had before
        self._may_probe = may_probe
        self._breakers: BreakerBook | None = None  # most commands concern none

    @property
    def breakers(self) -> BreakerBook:
        """Breakers as this command finds and changes them."""
        if self._breakers is None:
            self._breakers = BreakerBook(self.rows, self.now, may_probe=self._may_probe)
        return self._breakers

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
            breakers=[] if self._breakers is None else list(self._breakers.changes.values()),
            trace_link=self.trace_link,
            signals=self.signals,
        )

    def step(self, step_no: int) -> StepRow | None:
        return self.changed.get(step_no) or self.rows.step(step_no)

    def set(self, **fields: Any) -> None:
        if fields.get("turn", self.task.turn) is Turn.WAITING:
            fields["not_before"] = None  # whose turn in its convoy has not come is due for nobody, whatever wakes it
        self.task = task = replace(self.task, **fields)
        if task.snoozed_until is not None and task.not_before is not None:
            self.task = replace(task, not_before=find_start(task, task.not_before))

    def put(self, step: StepRow) -> None:
        self.changed[step.step_no] = step

    # --- steps
    def record(
        self, step: StepRow, outcome: Outcome, at: Instant, fence: int, *, result_hash: str | None = None
    ) -> None:
        """Record the end of an attempt. ``fence`` is the step's from now on; ``result_hash`` that of a success."""
        if step.in_doubt and not isinstance(outcome, Succeeded):
            # The one who decided may not know of it: an earlier call that another process made, or one made since they read the row.
            outcome = replace(outcome, in_doubt=True)
        if not isinstance(outcome, Succeeded):
            outcome = judge_again(step, outcome, self.now)
        counted = outcome if isinstance(outcome, Succeeded) else self.breakers.spare(step, outcome)
        if step.is_canary:
            step = self.breakers.end(step, outcome)
        match counted:
            case Succeeded(result=result):
                self._end_step(step, StepEvent.SUCCEEDED, at, fence, in_doubt=False, result=result)
                recorded = CompensationRecorded if step.kind is StepKind.COMPENSATION else StepRecorded
                of_child = 0 if step.agent else fence
                self.events.append(recorded(step.ordinal, self.task.result_count, result_hash, of_child))
            case GaveUp(failure=failure, in_doubt=in_doubt):
                text = msgspec.json.encode(failure)
                failures = int(step.state is StepState.RUNNING)  # a request nobody took is not a failed attempt
                ended = self._end_step(
                    step, StepEvent.GAVE_UP, at, fence, in_doubt=in_doubt, failure=text.decode(), failures=failures
                )
                failed = CompensationFailedEvent if step.kind is StepKind.COMPENSATION else StepFailedEvent
                result_no, told = self.task.result_count, msgspec.Raw(text)
                self.events.append(failed(step.ordinal, result_no, told, in_doubt, ended.failure_count, fence))
            case RetryAsked() as retry:
                self._retry(step, retry, fence)

    def _end_step(
        self,
        step: StepRow,
        event: StepEvent,
        at: Instant,
        fence: int,
        *,
        in_doubt: bool,
        result: str | None = None,
        failure: str | None = None,
        failures: int = 0,
    ) -> StepRow:
        number = self.task.result_count + 1
        ended = replace(
            step,
            state=advance_step(step.state, event),
            failure_count=step.failure_count + failures,
            in_doubt=in_doubt,
            fence=fence,
            locked_by=None,
            complete_by=None,
            wait_by=None,
            result=result,
            failure=failure,
            result_number=number,
            delivered_at=at,
            finished_at=self.now,
            canary=None,
        )
        self.changed[step.step_no] = ended
        self.set(
            result_count=number,
            open_count=self.task.open_count - 1,
            lost_count=0,
            failure_count=self.task.failure_count + failures,
        )
        return ended

    def _retry(self, step: StepRow, outcome: RetryAsked, fence: int) -> None:
        count = step.failure_count + outcome.is_charged
        self.set(failure_count=self.task.failure_count + outcome.is_charged)
        failure = msgspec.json.encode(outcome.failure)
        fields: dict[str, Any] = {
            "fence": fence,
            "locked_by": None,
            "complete_by": None,
            "attempt": step.attempt + 1,
            "failure_count": count,
            "in_doubt": outcome.in_doubt,
            "failure": failure.decode(),
        }
        if self.breakers.is_outage(step):
            fields["canary"] = (
                FAILED_IN_OUTAGE  # what is charged none the less is never given back, so charged_at does not have it
            )
        elif outcome.is_charged:
            fields["charged_at"] = note_charged(step, self.now)
        # Once the undo began, or an operator is asked, no forward step runs again. A compensation of a task that is held stays open.
        if self.may_run_again(step):
            state = advance_step(step.state, StepEvent.RETRY_ASKED)
            self.put(replace(step, **fields, state=state, not_before=find_request_start(self.task, outcome.not_before)))
            what = "cool_off" if outcome.cool_off else "retry"
        else:
            self.put(self.close_step(replace(step, **fields)))
            what = "error"
        self.events.append(
            RecoverApplied(
                step=step.ordinal,
                what=what,
                fence=fence,
                failure_count=count,
                not_before=outcome.not_before,
                in_doubt=outcome.in_doubt,
                failure=msgspec.Raw(failure),
                is_charged=outcome.is_charged,
            )
        )

    def may_run_again(self, step: StepRow) -> bool:
        if (
            self.task.turn is Turn.WAITING
        ):  # in its convoy another is at work: whatever it still needs it asks for in its turn
            return False
        return self.task.state in (TASK_FORWARD if step.kind is StepKind.STEP else TASK_OPEN)

    def close_step(self, step: StepRow) -> StepRow:
        """Close a step that was pending or running and will not be taken again as things stand; returns its row."""
        self.set(open_count=self.task.open_count - (step.kind is not StepKind.TIMER))
        if step.kind is StepKind.COMPENSATION:
            self.events.append(StepParked(step.ordinal, step.in_doubt))
            return replace(step, state=advance_step(step.state, StepEvent.PARKED), wait_by=None, finished_at=None)
        if step.kind is StepKind.STEP:
            self.events.append(StepWithdrawn(step.ordinal, step.in_doubt))
        return replace(step, state=advance_step(step.state, StepEvent.WITHDRAWN), wait_by=None, finished_at=self.now)

    def fire(self, step: StepRow, at: Instant) -> None:
        """Fire a timer; that is a result too."""
        number, state = self.task.result_count + 1, advance_step(step.state, StepEvent.FIRED)
        result = build_fired_result(step)
        self.put(replace(step, state=state, result=result, result_number=number, delivered_at=at, finished_at=self.now))
        self.set(result_count=number)
        self.events.append(TimerFired(step.ordinal, number))

    def open(self, new: NewStep, state: StepState = StepState.PENDING) -> None:
        if new.reopens is not None:
            self._reopen(new, new.reopens)
            return
        ordinal, is_timer = self.task.opened_count + 1, new.kind is StepKind.TIMER
        if is_timer and is_note(new.kind, new.name):
            state = StepState.COMPLETED  # there is nothing to wait for
        limit_keys = name_limit_keys(new, self.rows.limits, self.task.app)
        step = changes.build_step(self.task, new, ordinal, state, limit_keys, self.now)
        is_open = not is_timer and state is StepState.PENDING
        if is_open and not step.agent:
            step = replace(step, state=advance_step(state, StepEvent.TAKEN))  # it needs no Agent
        self.set(opened_count=ordinal, open_count=self.task.open_count + is_open)
        self.events.append(changes.build_opened(step))
        self.opened.append(step)
        if is_question(step):  # the store opens its alert
            self.publish("asked", question=step)
        if new.take:
            self.opened[-1] = self._dispatch(step, new.complete_within)

    def _reopen(self, new: NewStep, step_no: int) -> None:
        """Reopen a step that was withdrawn or set back, because the code of a resubmitted task asks for it again.

        Key and arguments are the row's (an operator may have edited them), the policy is the code's of today.
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
            target=new.target,
            limit_keys=name_limit_keys(new, self.rows.limits, self.task.app),
            routing=new.routing,
            canary=None,
            not_before=before.not_before if is_timer else self.now,
            wait_by=None if new.wait_within is None or before.taken else later(self.now, new.wait_within),
            finished_at=None,
        )
        if not is_timer:
            self.set(open_count=self.task.open_count + 1)
        self.rewrites = True
        self.events.append(changes.build_reopened(step))
        if not step.agent and not is_timer:
            step = replace(step, state=advance_step(step.state, StepEvent.TAKEN))
        self.put(self._dispatch(step, new.complete_within) if new.take else step)
        if is_question(step):  # the store opens its alert
            self.publish("asked", question=step)

    def _dispatch(self, step: StepRow, complete_within: float) -> StepRow:
        """Begin an attempt. Returns the row as it is if the Agent has limits, or its breaker does not let it through."""
        assert self.process_no is not None
        if (limits := self.rows.limits(step.agent)) and is_limited(limits, step.app):
            return step  # only a Take begins it: that has the limits locked
        if self.rows.breakers(step.agent):
            begun = self.breakers.admit(step)
            if begun is None:
                return step
            if begun.returned:
                self.set(failure_count=self.task.failure_count - begun.returned)
                self.events += begun.events
            step = begun.step
        running, task = begin_attempt(step, self.process_no, self.now, complete_within), self.task
        self.events.append(changes.build_dispatched(running))
        self.dispatches.append(
            Dispatch(running, task.task_id, self.now, task.lost_count, task.trace_context, task.tags)
        )
        return running

    def withdraw_pending(self) -> None:
        """Withdraw timers and requests that nobody has taken; attempts that run continue to their end."""
        # A failed step that an operator answers has two results, so the counts alone do not say.
        each_has_its_result = self.task.opened_count == self.task.result_count and not self.task.open_count
        if self.task.incarnation == 1 and each_has_its_result:
            return
        for step in self.rows.open_steps(self.task.task_no):
            now_as = self.changed.get(step.step_no, step)
            if now_as.state is StepState.PENDING:
                self.put(self.close_step(now_as))
        self.opened = [self.close_step(step) if step.state is StepState.PENDING else step for step in self.opened]

    # --- the task
    def wake_task(self) -> None:
        """Wake the task after something came while nobody, or another process, drives it. If it is due, it keeps its place."""
        task = self.task
        if task.state in TASK_OPEN:
            due = task.not_before if task.locked_by is not None else min(task.not_before or self.now, self.now)
            self.set(not_before=due, unseen_since=task.unseen_since or self.now)

    def release(self, not_before: Instant | None, why: str) -> None:
        self.set(locked_by=None, fence=self.task.fence + 1, not_before=not_before, unseen_since=None)
        self.events.append(TaskReleased(self.task.fence, self.task.not_before, why))

    def end(self, state: TaskState, *, output: str | None = None, failure: TaskFailure | None = None) -> None:
        if failure is not None and state is TaskState.HELD:
            failure = replace(failure, results=self.task.result_count)
        text = None if failure is None else msgspec.json.encode(failure)
        self.set(
            state=state,
            output=output,
            failure=self.task.failure if text is None else text.decode(),
            ended_at=self.now,
            locked_by=None,
            fence=self.task.fence + 1,
            not_before=None,
            unseen_since=None,
            paused_at=None,
        )
        failed = msgspec.UNSET if text is None else msgspec.Raw(text)
        self.events.append(TaskTerminal(state, self.task.fence, payload_hash(output), failed))
        if state is TaskState.HELD:
            assert failure is not None
            self.open_alert(failure)
        self.publish(STATUS_OF_END[state], failure=failure, output=output)

    def open_alert(self, failure: TaskFailure) -> None:
        self.events.append(AlertOpened(failure.kind))
        self.alert = build_task_alert(self.task, failure, self.now)

    def publish(self, kind: StatusKind, **says: Any) -> None:
        """Notify the submitter's reply queue, if it named one. ``says``: as of ``publish_status``."""
        self.task = publish_status(self.task, kind, self.now, self.events, self.statuses, **says)

    def hold(self, failure: TaskFailure, planned: Iterable[NewStep] = ()) -> None:
        advance_task(self.task.state, TaskEvent.HELD)
        self.withdraw_pending()
        first = self.task.opened_count + 1
        for new in planned:
            self.open(new, StepState.PLANNED)
        if self.task.opened_count >= first:
            self.events.append(UndoPlanned(tuple(range(first, self.task.opened_count + 1))))
        self.end(TaskState.HELD, failure=failure)

    def begin_undo(self, failure: TaskFailure) -> None:
        self.withdraw_pending()
        text, state = msgspec.json.encode(failure), advance_task(self.task.state, TaskEvent.UNDO_BEGUN)
        self.set(state=state, failure=text.decode(), undoing=True, ended_at=None)
        self.events.append(UndoBegun(msgspec.Raw(text)))
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
        first, position = self.task.opened_count + 1, len(self.opened)
        for index, one in enumerate(planned):
            self.open(replace(one, take=False), StepState.PENDING if index == 0 else StepState.PLANNED)
        self.events.append(UndoPlanned(tuple(range(first, first + len(planned)))))
        if planned[0].take:  # only now: the plan stands before its first action, also in the history
            self.opened[position] = self._dispatch(self.opened[position], planned[0].complete_within)

    def next_undo(self, ending: NextUndo) -> None:
        step = self.step(ending.step_no)
        assert step is not None
        wait_by = None if ending.wait_within is None else later(self.now, ending.wait_within)
        reached = replace(step, state=advance_step(step.state, StepEvent.REACHED), not_before=self.now, wait_by=wait_by)
        self.set(open_count=self.task.open_count + 1)
        self.events.append(CompensationReached(step.ordinal))
        if not reached.agent:
            reached = replace(reached, state=advance_step(reached.state, StepEvent.TAKEN))
        self.put(self._dispatch(reached, ending.complete_within) if ending.take else reached)

    def finish(self, ending: Ending) -> None:
        """Write where an advance leaves the task. That its holder has seen it is for the caller to write."""
        match ending:
            case PutDown(not_before=not_before):
                if not_before is None and self.task.state is TaskState.COMPENSATING and not self.task.open_count:
                    not_before = self.now  # nothing is open that could wake it: an undo never sleeps indefinitely
                self.release(not_before, "put_down")
            case Process(output=output):
                advance_task(self.task.state, TaskEvent.ENDED)
                self.withdraw_pending()  # timers nobody waits for any longer; steps are closed, by the guard
                self.end(TaskState.PROCESSED, output=output)
            case BeginUndo(failure=failure):
                self.begin_undo(failure)
            case PlanUndo(failure=failure, planned=planned):
                self.plan_undo(failure, planned)
            case NextUndo():
                self.next_undo(ending)
            case Compensate(failure=failure):
                if self.task.state is not TaskState.COMPENSATING:
                    self.begin_undo(failure)
                advance_task(self.task.state, TaskEvent.UNDONE)
                self.end(TaskState.COMPENSATED, failure=failure)
            case Hold(failure=failure, planned=planned, may_go_forward=may_go_forward):
                self.hold(failure, planned)
                if may_go_forward:
                    self.set(undoing=False)
