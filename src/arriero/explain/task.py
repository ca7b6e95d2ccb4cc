"""Explains why a task is where it is, since when, and which verb would move it. Rows in, sentences out."""

from collections.abc import Iterable, Sequence

import msgspec

from ..core.children import describe_child, name_task
from ..core.supervision import find_pivot, may_have_happened
from ..core.undo import list_open_compensations, list_stuck_steps, may_undo_go_on
from ..core.verb_guards import list_steps_to_redo
from ..errors import UnreadableRow
from ..model import (
    UNDO_PREFIX,
    AlertRow,
    ConvoyVerb,
    HistoryRow,
    Instant,
    Loaded,
    StepKind,
    StepRow,
    StepState,
    TaskState,
    Turn,
)
from ..model.agents import BreakerRow, LimitsInUse
from ..model.processes import ProcessRow
from ..model.workflow_pauses import WorkflowPauseRow
from ..store.readable import Fault, legible_task
from ..text.escaping import shell_argument
from ..text.format import format_count, format_instant, format_step, format_step_failure, is_expected
from .available_actions import AvailableAction, list_available_actions
from .child_reasons import describe_parent, list_child_reasons
from .children import Relatives, format_explain
from .convoys import TasksAhead, format_convoy_command, would_lose_its_place
from .fork_reasons import describe_forks
from .liveness import (
    LiveProcesses,
)
from .past import PersonAct, PersonApproval, TaskPast
from .schedules import describe_run
from .task_situation import (
    STEPS_TOLD_MAX,
    Reason,
    TaskSituation,
    find_key_in_doubt,
    format_key_to_ask,
    join_names,
    locate_failure,
)
from .task_under_way import TaskUnderWay

_HINTS = {
    "refused": "the workflow itself refused to continue (it raised Permanent)",
    "bug": "its workflow's code has a bug: fix the code, run the App again, then resubmit; nothing was undone",
    "replay": "its workflow's code disagrees with what is recorded: bring back code that agrees, then resubmit; a time or a"
    " number that each run makes again never agrees: compensate it",
    "unawaited": "its workflow's code asked for a step and never awaited it: fix the code, then resubmit",
    "lost": "see in the processes' logs why they died or froze before you resubmit it",
    "limit": "resubmit begins its limit again",
    "run_id_taken": "purge the task that has the id of its run, then resubmit this one",
    "refused_arguments": "bring back code that takes its arguments, then resubmit; or, as long as it has no steps, resubmit it with others",
}


class EndedTask(TaskSituation):
    """A task that is processed, compensated or held."""

    def list_reasons(self) -> list[Reason]:
        """List the reasons, the most important one first."""
        match self.task.state:
            case TaskState.HELD:
                return [*self._describe_held(), *self._describe_stopped_convoy(), *self._describe_pivot()]
            case TaskState.PROCESSED:
                return [*self._describe_processed(), *self._describe_pivot(), *describe_parent(self.task, self.family)]
            case _:
                return [*self._describe_compensated(), *describe_parent(self.task, self.family)]

    def _describe_stopped_convoy(self) -> list[Reason]:
        """Describe the effect of an error on the convoy of the task."""
        task, convoy = self.task, self.convoy
        if convoy is None or task.turn not in (Turn.OPEN, Turn.WAITING, Turn.SET_ASIDE):
            return []
        name = f"convoy {convoy.key!r}"
        if task.turn is Turn.WAITING:
            says = f"its turn in {name} has not come; the convoy's head policy is followed when it does"
            return [Reason("waits_for_turn", says)]
        if task.turn is Turn.SET_ASIDE:
            says = f"{name} has set it aside and continues without it; resubmit brings it back, to wait for its turn"
            lost = "; its place is lost then: others that came after it have gone before"
            return [Reason("set_aside", says + lost * would_lose_its_place(task, convoy))]
        says = f"it has the turn in {name}, which is blocked until it is fixed"
        if convoy.parked_at is not None:
            release = format_convoy_command(ConvoyVerb.RELEASE, convoy.key)
            says += f"; the convoy is parked besides ({convoy.parked_why}) until {release}"
        says += f"; to continue without it: {format_convoy_command(ConvoyVerb.SKIP, convoy.key)}"
        return [Reason("convoy_stopped", says)]

    def _format_end(self) -> str:
        return "" if self.task.ended_at is None else f" since {self._at(self.task.ended_at)}"

    def _describe_processed(self) -> list[Reason]:
        if self.task.next_no is not None:
            task_id = name_task(self.task)
            says = f"run {self.task.run} ended{self._format_end()} by ContinueAs; the task continues: arriero task explain {task_id}"
            return [Reason("ended", says, since=self.task.ended_at)]
        may_undo = find_pivot(self.life) is None
        moved = ", except compensate, which undoes it" if may_undo else ""
        if batch := self._describe_batch():
            moved = f"; {batch}, and only with that it is undone"
        says = f"processed{self._format_end()}: it is done, and no command changes it{moved}"
        return [Reason("ended", says, since=self.task.ended_at)]

    def _describe_compensated(self) -> list[Reason]:
        why, nothing = ("", ()) if self.failure is None else (self.failure.reason, self.failure.nothing_to_undo)
        left = f"; completed with nothing to undo: {join_names(nothing)}" if nothing else ""
        says = (
            f"compensated{self._format_end()}, everything is undone: {why}{left}; only resubmit moves it,"
            " which runs it again from the beginning"
        )
        if self.task.next_no is not None:
            task_id = name_task(self.task)
            says = (
                f"compensated{self._format_end()}, all that run {self.task.run} of task {task_id} did is undone:"
                f" {why}{left}; an earlier run does not run again: arriero task explain {task_id}"
            )
        if self.task.forked_from is not None and self.task.run == 1:
            says = f"compensated{self._format_end()}, all that it did is undone: {why}{left}; a fork is not resubmitted"
        if batch := self._describe_batch():
            says = f"compensated{self._format_end()}: {why}; {batch}, and only with that it runs again"
        line = [] if self.failure is None else locate_failure(self.failure.trace, self.failure.step)
        return [Reason("ended", says, since=self.task.ended_at), *line]

    def _describe_held(self) -> list[Reason]:
        failure = self.failure
        assert failure is not None
        code = f" [{failure.code}]" if failure.code else ""
        says = f"held{self._format_end()}, it waits for an operator: {failure.reason}{code}"
        found = [Reason("held", says, failure.step, since=self.task.ended_at), *describe_parent(self.task, self.family)]
        line = locate_failure(failure.trace, failure.step)
        if not is_expected(failure.trace):
            found, line = [*found, *line], []
        if (hint := _HINTS.get(failure.code) or _HINTS.get(failure.kind)) is not None:
            found.append(Reason("cause", hint, failure.step))
        found += self._list_undo_obstacles() if self.task.undoing else self._list_failed_steps()
        running = [step for step in self.life if step.state is StepState.RUNNING and not step.is_of_child]
        found += [
            *map(self._describe_attempt, running[:STEPS_TOLD_MAX]),
            *list_child_reasons(self.loaded, self.family, self._at),
        ]
        return [*found, *line, *self._describe_alert()]

    def _list_failed_steps(self) -> list[Reason]:
        redo = list_steps_to_redo(self.task, self.life)
        doubtful = [s for s in self.life if s.kind is StepKind.STEP and s not in redo and may_have_happened(s)]
        return [
            *(self._describe_failed_step(step) for step in redo[:STEPS_TOLD_MAX]),
            *(self._describe_doubt(step) for step in doubtful[:STEPS_TOLD_MAX]),
        ]

    def _describe_failed_step(self, step: StepRow) -> Reason:
        if step.is_of_child:
            return self._describe_failed_child(step)
        doubt = "it is in doubt: it may have happened" if step.in_doubt else "it definitely did not happen"
        edited = (
            "its arguments may not be edited until you answer it" if step.in_doubt else "its arguments may be edited"
        )
        times = format_count(step.failure_count, "attempt")
        after = f" after {times}" if step.failure_count else ""
        says = f"{format_step(step)} failed{after} ({format_step_failure(step)}); {doubt}; resubmit does it again, {edited}"
        return Reason(
            "failed_step", says + format_key_to_ask(step), step.label, step.finished_at, None, step.idempotency_key
        )

    def _describe_failed_child(self, step: StepRow) -> Reason:
        task_id = describe_child(self.task, step)
        says = (
            f"{format_step(step)} failed ({format_step_failure(step)}): it is task {task_id}, which was undone or never began;"
            f" resubmit asks for it again; {format_explain(task_id)}"
        )
        return Reason("failed_child", says, step.label, step.finished_at)

    @staticmethod
    def _describe_doubt(step: StepRow) -> Reason:
        says = f"{format_step(step)} is {step.state} and in doubt: it may have happened{format_key_to_ask(step)}"
        return Reason("in_doubt", says, step.label, step.finished_at, None, step.idempotency_key)

    def _list_undo_obstacles(self) -> list[Reason]:
        found: list[Reason] = []
        for step in list_stuck_steps(self.life)[:STEPS_TOLD_MAX]:
            says = (
                f"{format_step(step)} may have happened and has no compensation: find out whether it did, then answer it;"
                f" {self._format_effect_of_answer()}{format_key_to_ask(step)}"
            )
            found.append(Reason("in_doubt", says, step.label, step.finished_at, None, step.idempotency_key))
        still_open = [
            step for step in self.life if step.kind is StepKind.COMPENSATION and step.state is not StepState.COMPLETED
        ]
        for step in still_open[:STEPS_TOLD_MAX]:
            key = step.idempotency_key if step.state is StepState.FAILED else find_key_in_doubt(step)
            found.append(
                Reason(
                    "open_compensation", self._format_open_compensation(step), step.label, step.finished_at, None, key
                )
            )
        if still_open:
            says = (
                "repair what the undo fails by, then resubmit continues it; or undo it by hand and answer"
                f" {join_names(UNDO_PREFIX + step.label for step in still_open[:STEPS_TOLD_MAX])}"
            )
            found.append(Reason("repair", says))
        return found

    def _format_effect_of_answer(self) -> str:
        """Say what the undo does without the answer of a stuck step, and with it."""
        if may_undo_go_on(self.task, self.life):
            return "resubmit undoes the rest also without the answer (its workflow says undo_on_doubt='continue')"
        if not list_open_compensations(self.life):
            return "nothing else is left to undo; then resubmit ends it as compensated"
        return "nothing is undone before (its workflow says undo_on_doubt='stop'); then resubmit continues the undo"

    @staticmethod
    def _format_open_compensation(step: StepRow) -> str:
        name = format_step(step)
        if step.state is StepState.FAILED:
            doubt = "; it is in doubt: it may have happened" if step.in_doubt else ""
            return f"{name} failed ({format_step_failure(step)}){doubt}{format_key_to_ask(step)}"
        return f"{name} is still open{', and in doubt' if step.in_doubt else ''}{format_key_to_ask(step)}"

    def _describe_alert(self) -> list[Reason]:
        alert = self.alert
        if alert is None:
            return []
        told = f"delivered to {join_names(alert.told)}" if alert.told else ""
        if alert.next_at is None:
            return [Reason("alert", f"its alert was {told or 'delivered nowhere: no sink is configured'}")]
        error = f": {alert.error}" if alert.error else ""
        tried = (
            f"tried {format_count(alert.attempts, 'time')}{error}; again at {self._at(alert.next_at)}"
            if alert.attempts
            else ""
        )
        nobody = (
            ""
            if self.running.list_with_role("supervisor")
            else "no process alive runs the role supervisor, which delivers it"
        )
        why = "; ".join(part for part in (tried, nobody) if part) or "it is about to be delivered"
        says = f"its alert is {f'{told}, but ' if told else ''}not delivered {'to all ' if told else ''}yet: {why}"
        return [Reason("alert_untold", says, since=alert.opened_at, until=alert.next_at)]


class Explanation(msgspec.Struct, frozen=True):
    """The reasons why a task is where it is, the most specific first; actions of operators, and those that are possible."""

    reasons: tuple[Reason, ...]
    acts: tuple[PersonAct, ...]
    actions: tuple[AvailableAction, ...]


def explain(
    loaded: Loaded,
    now: Instant,
    processes: Iterable[ProcessRow],
    *,
    history: Iterable[HistoryRow] = (),
    alert: AlertRow | None = None,
    ahead: TasksAhead | None = None,
    breakers: Sequence[BreakerRow] = (),
    limits: Sequence[LimitsInUse] = (),
    pauses: Sequence[WorkflowPauseRow] = (),
    family: Relatives | None = None,
) -> Explanation:
    """Explain a task as it was read.

    Args:
        loaded: the task and its steps.
        now: the store's clock.
        processes: those not retired, with what they say they run.
        history: of the task, in commit order.
        alert: its open one.
        ahead: who comes before it in its convoy, if its turn has not come.
        breakers: of all Agents.
        limits: of all Agents, with what is in use.
        pauses: of all workflows.
        family: its parent, its children and its forks, if it has any.
    Returns: of a task with a row that this release cannot read only that, each column by name, and no verb.
    """
    past = TaskPast(history)
    if faults := legible_task(loaded)[1]:
        return Explanation(tuple(map(_cannot_be_read, faults)), tuple(past.acts), ())
    is_ended = loaded.task.state in (TaskState.HELD, TaskState.PROCESSED, TaskState.COMPENSATED)
    situation = EndedTask if is_ended else TaskUnderWay
    run = describe_run(loaded.task, past.submitted_by)
    return Explanation(
        (
            *situation(
                loaded, now, LiveProcesses(processes, now), past, alert, ahead, breakers, limits, pauses, family
            ).list_reasons(),
            *(
                Reason(
                    "approval",
                    _describe_approval(loaded.task.task_id, one),
                    request="" if one.request == "{}" else one.request,
                )
                for one in past.approvals
            ),
            *([Reason("schedule", run)] if run else []),
            *describe_forks(loaded, family),
        ),
        tuple(past.acts),
        tuple(list_available_actions(loaded, now, None if family is None else family.parent)),
    )


def _describe_approval(task_id: str, approval: PersonApproval) -> str:
    command = f"arriero task {approval.verb} {shell_argument(task_id)} --by NAME --reason TEXT"
    return (
        f"{approval.verb} needs {format_count(approval.persons, 'person')}, and nothing is done before; {approval.by} approved it at"
        f' {format_instant(approval.at)}: "{approval.reason}"; another one asks for the same, `{command}`'
    )


def _cannot_be_read(fault: Fault) -> Reason:
    """The reason of a task that this release cannot read; no verb is judged on half of a task."""
    return Reason("unreadable", f"{fault.says} cannot be read; {UnreadableRow.remedy}")
