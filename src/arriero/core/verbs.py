"""Changes of an operator's verb on a task; the table of verbs and states stands in ``model.verb_rules``.

Guards first, on the rows as they stand; a verb that is refused changes nothing. Carried out, it frees the task.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..events.base import payload_hash
from ..events.step import StepAnswered, StepEdited, StepSetBack
from ..events.task import AlertClosed, OperatorAction
from ..model import (
    STEP_OPEN,
    TASK_FORWARD,
    TASK_OPEN,
    WAITS_FOR_WORKFLOW,
    EditRow,
    Instant,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
    Verb,
    later,
    life_of,
)
from ..model.answers import Refusal
from ..model.commands import Operate
from ..model.failures import TaskFailure, read_task_failure
from ..model.verb_rules import VERB_RULES, explain_left_out
from .attempts import may_revoke, revoke_attempt
from .changes import Change, Refused, Rows
from .convoys import settle_convoy
from .limit_changes import adjust, extend
from .pinning import pin
from .starts import find_request_start
from .states import StepEvent, TaskEvent, advance_step, advance_task
from .supervision import build_pivot_failure, decode_task_policy, find_pivot, is_held_by_program, read_step_policy
from .tags import change_tags
from .undo import FORWARD_KINDS, build_idempotency_key
from .verb_guards import (
    NotCarriedOut,
    ParentUndone,
    count_asked_persons,
    explain_late_answer,
    explain_missing_result,
    explain_refusal,
    explain_unsettled_doubt,
    list_allowed_verbs,
    list_steps_to_redo,
    may_edit_all,
    refuse_edit_of_child,
    refuse_without_parent,
)
from .writer import Writer

SEED_LIMIT = 1 << 62
_ENDS_A_SNOOZE = (Verb.RESUBMIT, Verb.COMPENSATE, Verb.CANCEL)


def operate(command: Operate, rows: Rows, now: Instant) -> Change | Refused:
    """Carry out a verb on the task as it stands, or refuse it and change nothing.

    Guards: the incarnation that the person saw, and the table. Of two that race, the second finds the task moved on.
    """
    task = rows.task(command.task_no)
    if task is None:
        return Refused(Refusal("unknown", f"there is no task number {command.task_no}"))
    if task.incarnation != command.incarnation:
        said = (
            f"another verb came first: task {task.task_id!r} is {task.state} in incarnation {task.incarnation},"
            f" you saw incarnation {command.incarnation}; look at it again"
        )
        return Refused(_build_refusal("came_first", said, task, rows))
    if task.ledger_no is not None:
        said = f"task {task.task_id!r} came with a ledger that is just letting its tasks go: ask again in a moment"
        return Refused(_build_refusal("came_first", said, task, rows))
    persons = count_asked_persons(command, rows) if command.verb is Verb.ANSWER else command.persons
    if persons > 1:
        return _operate_with_approvals(replace(command, persons=persons), task, rows, now)
    return _carry_out(command, task, rows, now)


def _operate_with_approvals(command: Operate, task: TaskRow, rows: Rows, now: Instant) -> Change | Refused:
    from .approvals import list_approvers, refuse_lonely_verb  # only who asks for it pays for loading it

    approvers = list_approvers(command, rows)
    change = _carry_out(command, task, rows, now, approvers)
    if isinstance(change, Refused):
        return change
    return refuse_lonely_verb(command, task.task_id, task.state, approvers) or change


def _carry_out(
    command: Operate, task: TaskRow, rows: Rows, now: Instant, approvers: tuple[str, ...] = ()
) -> Change | Refused:
    try:
        return _Operation(command, task, rows, now, approvers).carry_out()
    except NotCarriedOut as refused:
        return Refused(_build_refusal(refused.verdict, str(refused), task, rows))


def _build_refusal(verdict: str, detail: str, task: TaskRow, rows: Rows) -> Refusal:
    allowed = list_allowed_verbs(task, life_of(task, rows.steps_of(task.task_no)))
    if verdict == ParentUndone.verdict:
        allowed = tuple(verb for verb in allowed if verb is not Verb.RESUBMIT)
    return Refusal(verdict, detail, task.state, allowed)


class _Operation:
    """One verb on one task."""

    def __init__(
        self, command: Operate, task: TaskRow, rows: Rows, now: Instant, approvers: tuple[str, ...] = ()
    ) -> None:
        self.command = command
        self.approvers = approvers
        self.before = task
        self.life = life_of(task, rows.steps_of(task.task_no))
        self.writer = Writer(task, rows, now, None)
        self.writer.rewrites = True
        self.added: dict[str, Any] = {}  # what the verb adds to its event

    def carry_out(self) -> Change:
        command, task, writer = self.command, self.before, self.writer
        if (command.verb, task.state) not in VERB_RULES:
            raise NotCarriedOut(
                f"task {task.task_id!r} is {task.state}: {command.verb} is not allowed there; allowed: {self._list_allowed()}"
            )
        if left_out := explain_left_out(command.verb, task):
            raise NotCarriedOut(f"task {task.task_id!r} is {left_out}; allowed: {self._list_allowed()}")
        if command.verb is not Verb.ANSWER and (refused := explain_refusal(command.verb, task, self.life)):
            raise NotCarriedOut(refused)  # an answer names its step, and why that has none
        event = OperatorAction(
            verb=command.verb,
            by=command.by,
            reason=command.reason,
            before=task.state,
            after=task.state,  # until it is carried out, and so what follows
            incarnation=task.incarnation,
            fence=task.fence + 1,
            not_before=task.not_before,
            approved_by=self.approvers,
        )
        writer.events.append(event)
        is_at_rest = task.locked_by is None and task.not_before != WAITS_FOR_WORKFLOW  # the next claim judges it again
        writer.set(
            locked_by=None,
            fence=task.fence + 1,
            revision=task.revision + 1,
            unseen_since=None,
            not_before=task.not_before if is_at_rest else writer.now,
            snoozed_until=None if command.verb in _ENDS_A_SNOOZE else task.snoozed_until,
        )
        _CARRY_OUT[command.verb](self)
        settle_convoy(writer, task)
        after = writer.task
        writer.events[writer.events.index(event)] = replace(
            event, **self.added, after=after.state, incarnation=after.incarnation, not_before=after.not_before
        )
        return writer.change()

    def _list_allowed(self) -> str:
        return ", ".join(list_allowed_verbs(self.before, self.life)) or "none"

    def _format_cause(self, what: str) -> str:
        return f"{what} by {self.command.by}: {self.command.reason}"

    # --- resubmit
    def resubmit(self) -> None:
        if self.before.state is TaskState.COMPENSATED:
            self._run_anew()
        elif self.before.undoing:
            self._resume_undo()
        else:
            self._go_forward()

    def _reopen(self, event: TaskEvent) -> None:
        """Begin the next incarnation: the alert of this one closes, the task's limit runs again."""
        task, writer = self.before, self.writer
        within = decode_task_policy(task.policy).complete_within
        writer.set(
            state=advance_task(task.state, event),
            incarnation=task.incarnation + 1,
            not_before=writer.now,
            due_at=None,
            ended_at=None,
            lost_count=0,
            complete_by=None if within is None else later(writer.now, within),
            output=None,
        )
        self.added["complete_by"] = writer.task.complete_by
        self._close_alert()

    def _close_alert(self) -> None:
        if self.before.state is TaskState.HELD:
            self.writer.closes_alert = True
            self.writer.events.append(AlertClosed())

    def _run_anew(self) -> None:
        task, writer = self.before, self.writer
        refuse_without_parent(task, writer.rows)
        self._reopen(TaskEvent.RESUBMITTED)
        writer.set(
            past_count=task.opened_count,
            started_at=None,
            failure=None,
            failure_count=0,
            undoing=False,
            branched_at=None,
            code_version=None,
            # Another life draws other numbers: an id it made must not meet the one of the life that was undone.
            seed=(task.seed + task.incarnation * 0x9E3779B97F4A7C15) % SEED_LIMIT,
        )
        self.added["anew"] = True
        if self.command.step is not None:
            raise NotCarriedOut(
                f"task {task.task_id!r} runs again from the beginning: edit the workflow's arguments, not a step's"
            )
        self._edit_all()

    def _edit_all(self) -> None:
        """Replace the arguments of the task; those submitted stay beside them."""
        if self.command.arguments is not None:
            before, after = self.writer.rows.arguments(self.before.task_no), self.command.arguments
            self.writer.arguments = after
            self.added |= {"arguments": payload_hash(after), "replaces": payload_hash(before)}
            self._keep_edit("arguments", before, after)

    def _keep_edit(
        self,
        what: Literal["arguments", "result", "output"],
        before: str | None,
        after: str | None,
        step: StepRow | None = None,
        key: str = "",
    ) -> None:
        """Keep both payloads until the task is purged. ``key``: of the step from now on, if it gets another one."""
        task, command = self.writer.task, self.command
        key_before = "" if step is None else step.idempotency_key
        self.writer.edit = EditRow(
            task_no=task.task_no,
            link=0,  # given when it is written
            ordinal=0 if step is None else step.ordinal,
            what=what,
            incarnation=task.incarnation,
            attempt=0 if step is None else step.attempt,
            at=self.writer.now,
            edited_by=command.by,
            reason=command.reason,
            before=before,
            after=after,
            key_before=key_before,
            key_after=key or key_before,
        )

    def _resume_undo(self) -> None:
        task, writer = self.before, self.writer
        if self.command.arguments is not None:
            raise NotCarriedOut(
                f"task {task.task_id!r} is being undone: arguments cannot be edited; resubmit it without"
            )
        self._reopen(TaskEvent.UNDO_RESUMED)
        assert task.failure is not None
        stopped = read_task_failure(task.failure)
        failure = stopped.began_by or stopped
        writer.set(failure=msgspec.json.encode(failure).decode())
        writer.publish("failed", failure=failure)
        for step in self.life:
            if step.kind is StepKind.COMPENSATION and step.state is StepState.FAILED:
                writer.put(self._set_back(step, StepEvent.PARKED))

    def _go_forward(self) -> None:
        task, writer = self.before, self.writer
        assert task.failure is not None
        redo = list_steps_to_redo(task, self.life)
        edits_all = self.command.step is None and may_edit_all(task, self.life)
        edited = None if edits_all else self._edit_step(redo)
        self._reopen(TaskEvent.RESUBMITTED)
        if edits_all:
            self._edit_all()
        writer.set(failure=None, undoing=False)
        if redo:
            self._branch_at(min(step.finished_at or writer.now for step in redo))
        if task.started_at is not None:
            writer.publish("started")
        for step in redo:
            set_back = self._set_back(step, StepEvent.SET_BACK)
            writer.put(self._with_arguments(set_back) if step is edited else set_back)
        if edited is not None and edited not in redo:
            writer.put(self._with_arguments(edited))

    def _branch_at(self, at: Instant) -> None:
        before = self.before.branched_at
        self.writer.set(branched_at=at if before is None else min(before, at))

    def _set_back(self, step: StepRow, event: StepEvent) -> StepRow:
        """Return a failed step or compensation as if its next attempt had just come due; its doubts stay."""
        failure = None if step.failure is None else msgspec.json.decode(step.failure)
        was_taken = failure is None or failure.get("code") != "not_taken"
        attempt = step.attempt + was_taken
        self.writer.events.append(StepSetBack(step.ordinal, attempt))
        return replace(
            step,
            state=advance_step(step.state, event),
            attempt=attempt,
            failure_count=0,
            charged_at=None,  # there is nothing left to give back
            failure=None,
            result_number=None,
            delivered_at=None,
            finished_at=None,
        )

    def _edit_step(self, redo: list[StepRow]) -> StepRow | None:
        command, task = self.command, self.before
        if command.arguments is None:
            return None
        step = next((step for step in self.life if step.ordinal == command.step), None)
        may = [*redo, *(s for s in self.life if s.kind is StepKind.STEP and s.state is StepState.WITHDRAWN)]
        refuse_edit_of_child(task, step)
        if step is None or step not in may:
            names = ", ".join(s.label for s in may) or "none"
            raise NotCarriedOut(
                f"task {task.task_id!r}: only the arguments of a step that is done again can be edited: {names}"
            )
        if step.in_doubt:
            raise NotCarriedOut(
                f"task {task.task_id!r}: step {step.label} may have happened with its old arguments: answer it as not"
                " happened once you know, or resubmit it as it is, or compensate the task"
            )
        return step

    def _with_arguments(self, step: StepRow) -> StepRow:
        command, task = self.command, self.writer.task
        assert command.arguments is not None
        # Apart from the key of the step's name: in this incarnation the code may yet ask under it for something else.
        edited = f"{step.key}\x1fedited"
        key = build_idempotency_key(command.store_id, task.task_no, task.incarnation, step.kind, step.name, edited)
        self.writer.events.append(
            StepEdited(
                step=step.ordinal,
                attempt=step.attempt,
                arguments=payload_hash(command.arguments),
                replaces=payload_hash(step.arguments),
                idempotency_key=key,
            )
        )
        self._keep_edit("arguments", step.arguments, command.arguments, step, key)
        sent = replace(step, arguments=command.arguments, asked=step.asked or step.arguments, idempotency_key=key)
        return replace(sent, checkpoint=None)  # it belongs to what was done under the old key

    # --- compensate and cancel
    def compensate(self) -> None:
        task, writer = self.before, self.writer
        failure = TaskFailure("person", self._format_cause("compensated"), code="compensated")
        if task.state in TASK_OPEN:
            self._begin_undo(failure)
            return
        writer.set(incarnation=task.incarnation + 1, lost_count=0)
        if task.output is not None:  # the end of the undo takes it out of the row
            self._keep_edit("output", task.output, None)
        self._close_alert()
        self._begin_undo(failure)

    def _begin_undo(self, failure: TaskFailure) -> None:
        for step in self.life:
            if may_revoke(step):
                revoke_attempt(self.writer, step)  # the undo does not wait for it
        self.writer.undo_or_end(failure)
        if self.writer.task.state in TASK_OPEN:
            self.writer.set(not_before=self.writer.now, paused_at=None)

    def cancel(self) -> None:
        failure = TaskFailure("person", self._format_cause("cancelled"), code="cancelled")
        pivot = find_pivot(self.life)
        if pivot is None:
            self._begin_undo(failure)
        else:
            self.writer.hold(build_pivot_failure(failure, pivot))

    def answer(self) -> None:
        command, task, writer = self.command, self.before, self.writer
        step = next((step for step in self.life if step.ordinal == command.step), None)
        if step is None:
            raise NotCarriedOut(f"task {task.task_id!r} has no step number {command.step} that could be answered")
        if command.did_not_happen:
            refused = explain_unsettled_doubt(step, task)
        else:
            refused = explain_late_answer(step, writer.now) or explain_missing_result(step, task, self.life)
        if refused:
            raise NotCarriedOut(refused)
        (self._settle_doubt if command.did_not_happen else self._give_result)(step)
        if task.state in TASK_OPEN:
            writer.set(not_before=min(writer.task.not_before or writer.now, writer.now))  # if due, it keeps its place

    def _settle_doubt(self, step: StepRow) -> None:
        writer, ends_attempt = self.writer, is_held_by_program(step)
        if ends_attempt:
            step = revoke_attempt(writer, step)
        settled = replace(step, in_doubt=False)
        writer.events.append(StepAnswered(step.ordinal, step.fence, happened=False))
        closes = ends_attempt and not writer.may_run_again(settled)
        writer.put(writer.close_step(settled) if closes else settled)

    def _give_result(self, step: StepRow) -> None:
        task, writer = self.before, self.writer
        is_closed = step.kind in FORWARD_KINDS and step.state not in STEP_OPEN
        if is_closed and not task.undoing and step.state is StepState.FAILED:
            self._branch_at(step.finished_at or writer.now)
        number = task.result_count + 1
        result = "null" if step.kind is StepKind.COMPENSATION else self.command.result
        fence = step.fence + 1
        if step.is_canary:
            step = writer.breakers.end(step, None)
        answered = replace(
            step,
            state=advance_step(step.state, StepEvent.ANSWERED),
            fence=fence,
            locked_by=None,
            not_before=step.not_before if step.kind is StepKind.TIMER else None,  # until when an answer was waited for
            complete_by=None,
            wait_by=None,
            in_doubt=False,
            result=result,
            failure=None,
            result_number=number,
            delivered_at=writer.now,
            finished_at=writer.now,
            canary=None,
        )
        writer.put(answered)
        if step.kind is not StepKind.COMPENSATION:
            self._keep_edit("result", step.result, result, step)
        was_counted = step.state in STEP_OPEN and step.kind is not StepKind.TIMER
        writer.set(result_count=number, open_count=task.open_count - was_counted, lost_count=0)
        told = payload_hash(result)
        writer.events.append(StepAnswered(step.ordinal, fence, happened=True, number=number, result=told))

    # --- pause and resume
    def pause(self) -> None:
        writer = self.writer
        writer.set(paused_at=writer.now)
        self.added["paused"] = True
        for step in self._list_requests():
            writer.put(replace(step, not_before=None, wait_by=None))

    def resume(self) -> None:
        writer = self.writer
        writer.set(paused_at=None)
        self.added["paused"] = False
        for step in self._list_requests():
            self._put_off(step, writer.now)

    # --- snooze
    def snooze(self) -> None:
        task, writer = self.before, self.writer
        until = later(writer.now, self.command.within)
        if task.complete_by is not None and task.state in TASK_FORWARD and until >= task.complete_by:
            raise NotCarriedOut(f"task {task.task_id!r}: its own limit lies before that: extend it first")
        due, before = writer.task.not_before, task.snoozed_until
        if task.started_at is None and due is not None and due != before:
            writer.set(due_at=due)  # if another snooze replaces this one, it still does not start before
        writer.set(snoozed_until=until)
        if due is not None:
            writer.set(not_before=(writer.task.due_at or writer.now) if due == before else due)
        for step in self._list_requests():
            asked_for = writer.now if step.not_before in (None, before) else step.not_before
            self._put_off(step, asked_for)
        self.added["until"] = until

    def _put_off(self, step: StepRow, at: Instant) -> None:
        """Let a waiting request begin ``at``, or when its task may. From then on it waits for an Agent like a new one."""
        start = find_request_start(self.writer.task, at)
        within = None if step.taken else read_step_policy(step).wait_within
        wait_by = None if within is None or start is None else later(start, within)
        self.writer.put(replace(step, not_before=start, wait_by=wait_by))

    def _list_requests(self) -> list[StepRow]:
        return [step for step in self.life if step.state is StepState.PENDING and step.kind is not StepKind.TIMER]


_CARRY_OUT: dict[Verb, Callable[[_Operation], None]] = {
    Verb.RESUBMIT: _Operation.resubmit,
    Verb.COMPENSATE: _Operation.compensate,
    Verb.CANCEL: _Operation.cancel,
    Verb.EXTEND: lambda operation: operation.added.update(extend(operation.writer, operation.command)),
    Verb.ADJUST: lambda operation: operation.added.update(adjust(operation.writer, operation.life, operation.command)),
    Verb.ANSWER: _Operation.answer,
    Verb.PAUSE: _Operation.pause,
    Verb.RESUME: _Operation.resume,
    Verb.SNOOZE: _Operation.snooze,
    Verb.TAG: lambda operation: operation.added.update(change_tags(operation.writer, operation.command.tags)),
    Verb.PIN: lambda operation: operation.added.update(pin(operation.writer, operation.command.to)),
}
