"""Reasons why a task is running: who drives it, the steps that are open, limits, pauses and turns."""

from collections import Counter
from collections.abc import Sequence

from ..core.lease import HELD_FROM, is_on_probation
from ..core.starts import is_snoozed
from ..core.supervision import decode_task_policy, find_pivot, read_step_policy
from ..core.workflow_pauses import describe_pause, find_pause, format_resume, must_wait, waits_for_workflow
from ..model import (
    STEP_OPEN,
    TASK_FORWARD,
    Instant,
    StepKind,
    StepRow,
    StepState,
    TaskState,
    Turn,
    Verb,
    seconds_between,
)
from ..model.failures import read_step_failure
from ..model.processes import SET_PUBLIC_URL, ProcessRow
from ..model.questions import describe_question
from ..model.signals import count_wanted, is_question, is_wait, label_callback, label_signal, may_take, names_callback
from ..text.escaping import one_line, shell_argument
from ..text.format import (
    format_awaited,
    format_count,
    format_count_with_verb,
    format_send_command,
    format_step,
    format_step_failure,
)
from .agents import (
    describe_lack_of_room,
    describe_spent_retry_budget,
    describe_wait_behind_breaker,
    describe_wait_for_limit,
    describe_ways,
)
from .child_reasons import describe_parent, list_child_reasons
from .children import format_explain
from .convoys import describe_turn_wait, format_place
from .liveness import (
    describe_missing_version,
    describe_process,
    format_code_name,
    format_of_app,
    format_process,
    suggest_assignment,
)
from .past import PersonAct
from .requests import describe_lack_of_url, describe_wait_for_program
from .task_situation import (
    SOON_SECONDS,
    STEPS_TOLD_MAX,
    Reason,
    TaskSituation,
    find_key_in_doubt,
    format_attempt,
    join_names,
    locate_failure,
)


class TaskUnderWay(TaskSituation):
    """A task that is pending, processing or compensating."""

    def list_reasons(self) -> list[Reason]:
        """List the reasons, the most important one first."""
        holder = self._describe_holder()
        stopped = [reason for reason in holder if reason.kind != "driven"]  # a step says more than who drives the task
        turn = self._describe_wait_for_turn()
        found = [
            *self._describe_pause(),
            *self._describe_paused_workflow(),
            *self._describe_snooze(),
            *turn,
            *self._describe_undo(),
            *self._describe_passed_limit(),
            *stopped,
            *list_child_reasons(self.loaded, self.family, self._at),
            *self._describe_open_steps(),
        ]
        found += [reason for reason in holder if reason.kind == "driven"]
        if not found:
            found.append(Reason("nothing_wakes_it", "it is free, and only news of a step would wake it"))
        told = [
            *found,
            *self._describe_later_lack(found),
            *self._describe_probation(),
            *self._describe_coming_limit(),
            *self._describe_pivot(),
        ]
        return [*told, *describe_parent(self.task, self.family), *self._describe_own_turn(), *self._describe_inbox()]

    def _describe_wait_for_turn(self) -> list[Reason]:
        """Describe the wait for the turn in its convoy; nothing once its turn has come."""
        task, convoy = self.task, self.convoy
        if convoy is not None and task.turn is Turn.BATCHED:
            batch = None if self.family is None else self.family.batch
            leads = "" if batch is None else f"; {format_explain(batch)}"
            return [Reason("in_batch", f"{self._describe_batch()}; it ends as that task ends{leads}")]
        if convoy is None or task.turn is not Turn.WAITING:
            return []
        where = format_place(task, convoy.ordering)
        says = f"it waits for {describe_turn_wait(task, convoy, self.ahead)}; it has {where}"
        found = [Reason("waits_for_turn", says)]
        if task.due_at is not None and task.due_at > self.now:
            says = f"also when its turn comes it does not start before {self._at(task.due_at)}, as submitted"
            found.append(Reason("waits_for_start", says, until=task.due_at))
        return found

    def _describe_own_turn(self) -> list[Reason]:
        task, convoy = self.task, self.convoy
        if convoy is None or task.turn is not Turn.OPEN:
            return []
        where = format_place(task, convoy.ordering)
        if convoy.full_at is not None and task.batch_no is None and task.not_before is not None:
            most = decode_task_policy(task.policy).convoy.handle_batch
            full = format_count(most or 1, "message")
            says = f"it gathers a batch of convoy {convoy.key!r}: it begins with {full}, or {self._at(task.not_before)}"
            return [Reason("gathers_batch", says, until=task.not_before)]
        says = f"it has the turn in convoy {convoy.key!r}, with {where}: the others of the convoy wait for its end"
        return [Reason("has_the_turn", says)]

    def _describe_pause(self) -> list[Reason]:
        since = self.task.paused_at
        if since is None:
            return []
        says = f"paused since {self._at(since)}{_format_who(self.past.last(Verb.PAUSE))}; nothing new begins until it is resumed"
        return [Reason("paused", says, since=since)]

    def _describe_paused_workflow(self) -> list[Reason]:
        """Describe the pause of its workflow, if the task has not begun; or that it is about to begin since the resume."""
        if not must_wait(self.task, self.pauses):
            if not waits_for_workflow(self.task):
                return []
            return [Reason("workflow_resumed", "its workflow was resumed, and it is about to be let begin")]
        pause = find_pause(self.pauses, self.task.app, self.task.workflow)
        assert pause is not None
        says = f"{describe_pause(pause)}; it has not begun, and waits until an operator resumes it with {format_resume(pause)}"
        return [Reason("workflow_paused", says, since=pause.paused_at)]

    @property
    def _snoozed_until(self) -> Instant | None:
        """The end of a snooze that has not come."""
        return self.task.snoozed_until if is_snoozed(self.task, self.now) else None

    def _describe_snooze(self) -> list[Reason]:
        until, act = self._snoozed_until, self.past.last(Verb.SNOOZE)
        if until is None:
            return []
        says = f"snoozed until {self._at(until)}{_format_who(act)}; nothing new begins before"
        return [Reason("snoozed", says, since=None if act is None else act.at, until=until)]

    def _describe_undo(self) -> list[Reason]:
        if self.task.state is not TaskState.COMPENSATING:
            return []
        since = self.past.undo_begun_at
        why = "" if self.failure is None else f": {self.failure.reason}"
        says = f"it is being undone{'' if since is None else f' since {self._at(since)}'}{why}"
        undoing = [step for step in self.life if step.kind is StepKind.COMPENSATION]
        done = [step for step in undoing if step.state is StepState.COMPLETED]
        if undoing:
            says += f"; {len(done)} of {format_count(len(undoing), 'compensation')} done"
        planned = [step.label for step in undoing if step.state is StepState.PLANNED]
        if planned:
            says += f"; then to be undone: {join_names(planned[:STEPS_TOLD_MAX])}"
        line = [] if self.failure is None else locate_failure(self.failure.trace, self.failure.step)
        return [Reason("undo", says, since=since), *line]

    def _describe_passed_limit(self) -> list[Reason]:
        limit = self.task.complete_by
        if limit is None or limit > self.now or self.task.state not in TASK_FORWARD:
            return []
        if self.task.paused_at is not None:
            says = f"its own limit passed at {self._at(limit)} and waits while it is paused: extend it before you resume it"
        else:
            says = (
                f"its own limit passed at {self._at(limit)}: the Supervisor ends it{self._format_lack_of_supervisor()}"
            )
        return [Reason("limit_passed", says, since=limit)]

    def _describe_coming_limit(self) -> list[Reason]:
        limit = self.task.complete_by
        if limit is None or limit <= self.now or self.task.state not in TASK_FORWARD:
            return []
        undone = decode_task_policy(self.task.policy).supervision.then == "compensate" and find_pivot(self.life) is None
        says = f"its own limit is {self._at(limit)}; then it is {'undone' if undone else 'held'}"
        return [Reason("limit", says, until=limit)]

    def _describe_probation(self) -> list[Reason]:
        if not is_on_probation(self.task):
            return []
        says = (
            f"on probation: {format_count(self.task.lost_count, 'process')} in a row died or froze with it; a process handles one such"
            f" task at a time, and at loss {HELD_FROM}, or what node.lost_processes_max says, it is held"
        )
        return [Reason("probation", says)]

    def _describe_holder(self) -> list[Reason]:
        return (
            self._describe_free_task()
            if self.task.locked_by is None
            else [self._describe_process_that_holds(self.task.locked_by)]
        )

    def _describe_process_that_holds(self, process_no: int) -> Reason:
        process = self.running.rows.get(process_no)
        if process is None:
            return Reason(
                "holder_lost", f"driven by process {process_no}, which was declared lost; {self._describe_rescue()}"
            )
        name = format_process(process)
        if process.lease_until <= self.now:
            says = f"driven by {name}, whose lease ran out at {self._at(process.lease_until)}: it hangs or died; "
            return Reason("holder_lost", says + self._describe_rescue(), since=process.lease_until)
        unseen = self.task.unseen_since
        if unseen is not None and seconds_between(unseen, self.now) >= SOON_SECONDS:
            says = (
                f"driven by {name}, which has not looked at its news since {self._at(unseen)}: its code or its event loop is"
                " busy or stuck; after node.progress_seconds the Supervisor frees it"
                + self._format_lack_of_supervisor()
            )
            return Reason("holder_busy", says, since=unseen)
        return Reason("driven", f"{name} drives it")

    def _describe_free_task(self) -> list[Reason]:
        due = self.task.not_before
        if due is None or self.task.paused_at is not None:
            return []
        if waits_for_workflow(self.task) or must_wait(self.task, self.pauses):
            return []  # the pause of its workflow says it
        if due > self.now:
            return self._describe_later_start(due)
        return [self._describe_due_task(due)]

    def _describe_later_start(self, due: Instant) -> list[Reason]:
        if due == self._snoozed_until:
            return []
        if self.task.started_at is None:
            return [Reason("waits_for_start", f"it waits for its start at {self._at(due)}, as submitted", until=due)]
        if any(step.kind is StepKind.TIMER and step.state in STEP_OPEN for step in self.life):
            return []  # the timer shows it
        return [Reason("not_due", f"it is free, and looked at again at {self._at(due)}", until=due)]

    def _describe_due_task(self, due: Instant) -> Reason:
        ready = self._list_ready_processes()
        since = f"it is free and due since {self._at(due)}"
        if not ready:
            return Reason("nobody_runs_it", f"{since}, but {self._describe_lack()}", since=due)
        names = join_names(map(format_process, ready[:STEPS_TOLD_MAX]))
        if seconds_between(due, self.now) < SOON_SECONDS:
            return Reason("due", f"{since}; it is about to be taken up by {names}", since=due)
        probation = ", or handles another task on probation" if is_on_probation(self.task) else ""
        says = (
            f"{since}, and not taken up yet by {names}: each holds as many tasks as it may, is busy with tasks that go"
            f" before one of priority {self.task.priority}{probation}"
        )
        return Reason("no_room", says, since=due)

    def _list_ready_processes(self) -> list[ProcessRow]:
        """List the processes alive that may take it up; an undo needs none of its workflow's code."""
        if self.task.state is TaskState.COMPENSATING:
            return self.running.list_schedulers(self.task.app)
        return self.running.list_with_code(self.task)

    def _describe_lack(self) -> str:
        if not self.running.alive:
            return self._list_alive()
        is_undo = self.task.state is TaskState.COMPENSATING
        if not is_undo and (others := self.running.list_with_workflow(self.task.workflow, self.task.app)):
            return describe_missing_version(self.task, others)
        what = "plays the role scheduler" if is_undo else f"runs {format_code_name(self.task.workflow)}"
        app = format_of_app(self.running.choose_app_to_name(self.task.app))
        return f"no process alive{app} {what}; {self._suggest_app_or_list_alive()}"

    def _suggest_app_or_list_alive(self) -> str:
        """Suggest an assignment to another App that has the code; else list the processes alive."""
        others = self.running.list_other_apps_with(self.task.workflow, self.task.app)
        return suggest_assignment(self.task.app, others) or self._list_alive()

    def _describe_later_lack(self, found: list[Reason]) -> list[Reason]:
        """Add that no process could continue with what waits for something else now."""
        is_told = any(reason.kind in ("nobody_runs_it", "holder_lost", "in_batch") for reason in found)
        if is_told or self._list_ready_processes():
            return []
        return [Reason("nobody_runs_it", f"nobody would take it up then: {self._describe_lack()}")]

    def _list_alive(self) -> str:
        alive = self.running.alive
        if not alive:
            return "no process is alive at all: start one (arriero run MODULE:APP)"
        more = f"; and {len(alive) - STEPS_TOLD_MAX} more" if len(alive) > STEPS_TOLD_MAX else ""
        return f"alive are: {'; '.join(map(describe_process, alive[:STEPS_TOLD_MAX]))}{more}"

    def _describe_open_steps(self) -> list[Reason]:
        open_steps = [step for step in self.life if step.state in STEP_OPEN and not step.is_of_child]
        found = [reason for step in open_steps[:STEPS_TOLD_MAX] for reason in self._describe_open_step_with_line(step)]
        if len(open_steps) > STEPS_TOLD_MAX:
            found.append(
                Reason("more", f"and {format_count_with_verb(len(open_steps) - STEPS_TOLD_MAX, 'more step')} open")
            )
        return found

    def _describe_open_step_with_line(self, step: StepRow) -> list[Reason]:
        """Describe a step, and the line of code by which its last attempt failed."""
        trace = () if step.failure is None else read_step_failure(step.failure).trace
        return [self._describe_open_step(step), *locate_failure(trace, step.label)]

    def _describe_open_step(self, step: StepRow) -> Reason:
        if step.kind is StepKind.TIMER:
            return self._describe_timer(step)
        return self._describe_attempt(step) if step.state is StepState.RUNNING else self._describe_request(step)

    def _describe_wait(self, step: StepRow) -> Reason:
        until = step.not_before
        command = format_send_command(self.task.task_id, step)
        verb = "answers" if is_question(step) else "sends"
        how = f"{_describe_callback(step, self.life)}; `{command}` {verb} it" if command else ""
        if until is not None and until <= self.now:
            says = f"the time of {format_step(step)} is over since {self._at(until)}; what was sent before still counts"
            return Reason("wait_due", says, step.label, since=until)
        limit = "without a limit" if until is None else f"until {self._at(until)}"
        if is_question(step):
            asked = describe_question(step)
            says = f'it asks {asked["of"]}, {limit}: "{one_line(asked["question"])}"{how}'
            return Reason("waits_for_answer", says, step.label, until=until)
        awaited = format_awaited(step)
        if (wanted := count_wanted(step)) is not None:
            came = sum(may_take(step, signal) for signal in self.signals)
            awaited = f"{format_count(wanted, 'value')} of {awaited}, of which {came:,} came"
        return Reason("waits_for_signal", f"it waits for {awaited}, {limit}{how}", step.label, until=until)

    def _describe_inbox(self) -> list[Reason]:
        """Describe the signals that no wait has taken, and those that were set aside."""
        show = f"`arriero task signals {shell_argument(self.task.task_id)}` shows them"
        found = []
        collecting = [step for step in self.life if step.state in STEP_OPEN and is_wait(step) and count_wanted(step)]
        kept = [signal for signal in self.signals if not any(may_take(step, signal) for step in collecting)]
        if kept:
            counts = Counter(label_signal(signal.name).replace(":", " ", 1) for signal in kept)
            names = join_names(f"{name} ({count:,})" for name, count in sorted(counts.items())[:STEPS_TOLD_MAX])
            says = f"{format_count_with_verb(len(kept), 'signal')} kept until its code waits for what it got: {names}; {show}"
            found.append(Reason("inbox", says))
        if aside := self.past.set_aside:
            number, why = aside[-1]
            kind, _, label = label_signal(self.past.sent.get(number, "")).partition(":")
            task = shell_argument(self.task.task_id)
            remedy = "send a value that fits under another signal_id"
            if kind == "callback":
                remedy = f"`arriero task complete-callback {task} {shell_argument(label)} JSON` sends one that fits"
            says = (
                f"{format_count_with_verb(len(aside), 'signal')} set aside, since the code cannot read the value; the last is number"
                f" {number}: {why}; {remedy}; {show}"
            )
            found.append(Reason("set_aside_signals", says))
        return found

    def _describe_timer(self, step: StepRow) -> Reason:
        if is_wait(step):
            return self._describe_wait(step)
        at = step.not_before or self.now
        if at > self.now:
            says = (
                f"it sleeps until {self._at(at)}"
                if step.name == "sleep"
                else f"timer {step.label} fires at {self._at(at)}"
            )
            return Reason("sleeps", says, step.label, until=at)
        return Reason("timer_due", f"{format_step(step)} is over since {self._at(at)}", step.label, since=at)

    def _describe_request(self, step: StepRow) -> Reason:
        name, due = format_step(step), step.not_before
        if due is None:
            return Reason("waits_for_resume", f"{name} is asked for, and waits until the task is resumed", step.label)
        if due == self._snoozed_until:
            says = f"{name}: {format_attempt(step)} waits for the end of the snooze"
            return Reason(
                "waits_for_snooze", says + self._format_doubt(step), step.label, None, due, find_key_in_doubt(step)
            )
        if due > self.now:
            return self._describe_retry(step, due)
        barred = describe_wait_behind_breaker(step, self.breakers, self.now)
        barred = barred or describe_wait_for_limit(step, self.limits, self.now)
        says = f"{name} waits untaken since {self._at(due)}: {barred or self._describe_takers(step, due)}"
        if ways := describe_ways(self.running.alive, step):
            says += f"; {ways}"
        if step.wait_by is not None:
            says += f"; it fails when nobody takes it by {self._at(step.wait_by)} (wait_within)"
        if step.failure is not None:
            says += f"; the attempt before failed: {format_step_failure(step)}"
        return Reason(
            "untaken", says + self._format_doubt(step), step.label, due, step.wait_by, find_key_in_doubt(step)
        )

    def _describe_retry(self, step: StepRow, due: Instant) -> Reason:
        is_round_spent = (
            step.failure_count > 0 and step.failure_count % read_step_policy(step).supervision.attempts == 0
        )
        is_cool_off = is_round_spent and not step.failed_in_outage
        why = "the round before is spent, and this is its cool-off" if is_cool_off else "the attempt before failed"
        says = (
            f"{format_step(step)}: {format_attempt(step)} comes not before {self._at(due)}: {why}"
            f" ({format_step_failure(step) or 'no reason is kept'})"
        )
        if barred := describe_wait_behind_breaker(step, self.breakers, self.now):
            says += f"; also, {barred}"
        kind = "cool_off" if is_cool_off else "retry"
        return Reason(kind, says + self._format_doubt(step), step.label, None, due, find_key_in_doubt(step))

    def _describe_takers(self, step: StepRow, due: Instant) -> str:
        ready = self.running.list_hosts_of_step(step.agent, step.name, step.app)
        if step.taken and (spent := describe_spent_retry_budget(ready, step.agent)):
            return spent
        if told := describe_lack_of_url(self.running, step.agent, step.name, step.app):
            return f"{told}; {SET_PUBLIC_URL}"
        if told := describe_wait_for_program(self.running, step.agent, step.name, step.app):
            return told
        if not ready:
            others = self.running.list_other_apps_hosting(step.agent, step.name, step.app)
            if others and (remedy := suggest_assignment(step.app, others)):
                return f"no process alive{format_of_app(step.app)} hosts Agent {step.agent}; {remedy}"
            if hosting := self.running.list_hosts(step.agent, step.app):
                names = join_names(map(format_process, hosting[:STEPS_TOLD_MAX]))
                return f"no process alive has its code: {names} hosts Agent {step.agent}, but not this step"
            hosts = f"no process alive hosts Agent {step.agent}; " if self.running.alive else ""
            return hosts + self._list_alive()
        names = join_names(map(format_process, ready[:STEPS_TOLD_MAX]))
        if seconds_between(due, self.now) < SOON_SECONDS:
            return f"Agent {step.agent} takes it at any moment at {names}"
        if full := describe_lack_of_room(self.running.alive, step.agent, self.now, step.app):
            return full
        return f"Agent {step.agent} has no room at {names}: all its places are taken, or it does not answer"


def _format_who(act: PersonAct | None) -> str:
    """Format who did it and why; empty if the history does not say so."""
    return "" if act is None else f' by {act.by}: "{act.reason}"'


def _describe_callback(wait: StepRow, life: Sequence[StepRow]) -> str:
    """Describe who was given the URL of a callback; empty: it is another wait, or no step was."""
    label = label_callback(wait)
    steps = [step.label for step in life if label and names_callback(step.arguments, label)]
    return f"; the service that step {join_names(steps[:STEPS_TOLD_MAX])} passed its URL to sends it" if steps else ""
