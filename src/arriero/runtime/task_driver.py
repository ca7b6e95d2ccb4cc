"""Drives one task: takes in what comes for it, asks ``core.drive`` for the next move, writes it, begins its attempts.

At most one command of a task is in transit. Its answer, a report, a timer or a newer record makes the task move again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from ..core.drive import Move, decide_next_move, list_due_timers, list_pending_timers, sort_inbox
from ..core.task_run import TaskRun, build_driving_failure
from ..errors import StoreError, UnreadableRow
from ..model import Loaded, StepKind, StepRow, StepState, TaskRow, TaskState, seconds_between
from ..model.answers import Answer, Applied, Dispatch, Refusal
from ..model.commands import Advance
from ..model.failures import TaskFailure
from ..model.moves import ENDS, BeginUndo, Came, ChildEnded, Continue, Ending, Hold, NextUndo, PlanUndo, Reported
from .child_tasks import list_child_work
from .driver_parts import DriverHost, Parts, code_running, log_error, run_code
from .report_verdicts import APPLIED
from .speculative_start import ConvoyHandOver

logger = logging.getLogger("arriero")

UNWRITABLE_SECONDS = 5.0  # until a task is read again that could not even be held: the machine may have been to blame


class TaskDriver:
    """Drives one task.

    Args:
        key_since: since when this process has had the key of the task's convoy, on its own clock.
        behind: the next task of its convoy, if it is known.
    """

    def __init__(
        self, run: TaskRun, parts: Parts, holder: DriverHost, *, key_since: float, behind: Loaded | None = None
    ) -> None:
        self.run = run
        self._parts = parts
        self._holder = holder
        self.key_since = key_since
        self.behind = behind
        self._hand_over: ConvoyHandOver | None = None  # with the command that is in transit
        self.inbox: deque[Came] = deque()
        self.is_held = True  # this is the driver of its task; the Scheduler takes that back
        self.busy = False  # a command of it is in transit, or it is being read again
        self.in_flight = False  # a command of it is in transit
        self._outdated: tuple[Reported, ...] | None = None  # read it again after that command, with these reports
        self.idle_since: float | None = None

    @property
    def is_resting(self) -> bool:
        """True if no command is in transit and the inbox is empty."""
        return self.idle_since is not None and not self.busy and not self.inbox

    # --- what comes in
    def take_up(self, reports: tuple[Reported, ...]) -> None:
        """Continue with a task that stands as recorded; ``reports`` came for it and are not recorded yet."""
        run = self.run
        has_children = False
        for step in tuple(run.steps.values()):
            if step.agent:
                self._parts.agents.adopt(step, run.task)
            elif step.state is StepState.RUNNING:
                has_children = True
        for report in reports:
            step_now = run.steps.get(report.step_no)
            if step_now is not None and (step_now.fence, step_now.state) == (report.fence, StepState.RUNNING):
                self.inbox.append(report)
            else:
                self._holder.report_alone(report)
        self._fire_due()
        if has_children:
            self._holder.look_after_children(self)
        self.drive()

    @property
    def task(self) -> TaskRow:
        """The task, as last written or read."""
        return self.run.task

    def list_child_work(self) -> list[StepRow]:
        """See ``ParentDriver``."""
        return list_child_work(self.run.steps.values())

    def find_child_work(self, step_no: int) -> StepRow | None:
        """See ``ParentDriver``."""
        step = self.run.steps.get(step_no)
        if step is not None and step.state is StepState.RUNNING:
            return step
        return next((one for one in self.list_child_work() if one.undoes == step_no), None)

    def offer_child(self, end: ChildEnded) -> None:
        """Take the end of a child."""
        self.inbox.append(end)
        self.drive()

    def offer(self, report: Reported) -> None:
        """Take a report of an Agent here."""
        known = self.run.steps.get(report.step_no)
        if known is not None and known.fence >= report.fence:
            self.inbox.append(report)
            self.drive()
        else:  # opened by a commit whose answer was lost, or recovered and taken again since we read it
            self._holder.reload_soon(self.run.task.task_no, (report,))

    def note_taken(self, step: StepRow) -> None:
        """Note that an Agent here took a request from the store. Taking grows no revision, so the run stays valid."""
        known = self.run.steps.get(step.step_no)
        if known is not None and known.fence < step.fence:
            self.run.steps[step.step_no] = step

    def take_reports(self) -> tuple[Reported, ...]:
        """Empty the inbox and return its reports. A timer fires again from the record."""
        reports = tuple(item for item in self.inbox if isinstance(item, Reported))
        self.inbox.clear()
        return reports

    def reload_after_answer(self, reports: tuple[Reported, ...]) -> bool:
        """Returns True if a command is in transit: the record is then read after its answer, with these reports."""
        if self.in_flight:
            self._outdated = (self._outdated or ()) + reports
        return self.in_flight

    def catch_up(self, record: Loaded) -> bool:
        """Continue from a newer record. Returns False if the code must run from its start with a new driver."""
        self.is_held = run_code(self.run.task, lambda: self.run.catch_up(record))
        if self.run.error is not None:
            log_error(self.run)
        self.busy = False
        return self.is_held

    # --- the next move
    def drive(self) -> None:
        """Send the next command of the task, if there is one and none is in transit."""
        if self.busy or not self.is_held:
            return
        self.idle_since = None
        if not self.inbox and self.run.is_waiting():
            self._rest()
            return
        delivered: tuple[Came, ...] = ()
        if self.inbox:
            delivered, others = sort_inbox(self.run.steps, self.inbox)
            self.inbox.clear()
            for report in others:
                self._holder.report_alone(report)
        try:
            command = self._next_command(delivered)
            if command is None:
                self._rest()
        except Exception as error:  # it holds this task with its cause; no other task and no loop pays for it
            failure = build_driving_failure(error)
            logger.error("task %s is held: %s", self.run.task.task_id, failure.reason, exc_info=error)
            command = self._advance(Move(delivered, (), Hold(failure)))
        if command is not None:
            self._send(command)

    def _next_command(self, delivered: tuple[Came, ...]) -> Advance | None:
        """Decide the next command, if there is one. If this fails, the caller still records what was delivered."""
        run, loop = self.run, asyncio._get_running_loop()
        now = self._parts.context.store.now()
        code_running[loop] = run.task
        try:
            move = decide_next_move(run, delivered, now, self._parts.surroundings)
        finally:
            del code_running[loop]
            if run.error is not None:
                log_error(run)
        return None if move is None else self._advance(self._reserve_places(move))

    def _reserve_places(self, move: Move) -> Move:
        """Take places for what a move begins. Nothing may fail between this and sending it."""
        agents, ending, priority = self._parts.agents, move.ending, self.run.task.priority
        if move.opened:
            return replace(move, opened=agents.place(move.opened, priority))
        if isinstance(ending, PlanUndo):
            first = agents.place(ending.planned[:1], priority)
            return replace(move, ending=replace(ending, planned=first + ending.planned[1:]))
        if isinstance(ending, NextUndo):
            step = self.run.steps[ending.step_no]
            return replace(move, ending=replace(ending, take=agents.reserve(step, priority)))
        return move

    def _advance(self, move: Move) -> Advance:
        task, hand_over, trace_link, agents = self.run.task, None, None, self._parts.agents
        if task.convoy_no is not None and isinstance(move.ending, ENDS):
            tracer = agents.context.tracer
            trace_link = None if tracer is None else tracer.find_link(task)
            self._hand_over = ConvoyHandOver(self._parts, self._holder, key_since=self.key_since, behind=self.behind)
            hand_over = self._hand_over.prepare(self.run, move.ending)
        return Advance(
            actor=self._parts.context.actor,
            task_no=task.task_no,
            process_no=self._parts.context.process_no,
            fence=task.fence,
            revision=task.revision,
            state=task.state,
            delivered=move.delivered,
            opened=move.opened,
            ending=move.ending,
            convoy_no=task.convoy_no,
            hand_over=hand_over,
            trace_link=trace_link,
            published=move.published,
            unseen_since=task.unseen_since,
        )

    def send(self, ending: Ending) -> None:
        """Send a command that only ends or puts down the task."""
        self._send(self._advance(Move(ending=ending)))

    def _send(self, command: Advance) -> None:
        self.busy = self.in_flight = True
        if command.delivered or command.opened or command.published is not None:
            self.run.is_ahead_of_record = True
        self._parts.context.committer.put(command, partial(self._process_answer, command))

    # --- what was written
    def _process_answer(self, command: Advance, answer: Answer | BaseException) -> None:
        self.in_flight = False
        outdated, self._outdated = self._outdated, None
        hand_over, self._hand_over = self._hand_over, None
        if isinstance(answer, Applied):
            self.busy = outdated is not None
            self._process_applied(command, answer)
            if hand_over is not None:
                hand_over.go_on(command, answer)
            if outdated is not None:
                self._holder.reload_soon(command.task_no, outdated)
            return
        self._parts.agents.give_back(self._list_reserved_agents(command), self.run.task.priority)
        if hand_over is not None:
            hand_over.give_up(command)
        self._process_refusal(command, answer, outdated or ())

    def _process_refusal(
        self, command: Advance, answer: Answer | BaseException, outdated: tuple[Reported, ...]
    ) -> None:
        reports = tuple(item for item in command.delivered if isinstance(item, Reported))
        if isinstance(answer, Refusal | UnreadableRow):  # of an unreadable row the store has notified an operator
            if isinstance(answer, Refusal) and answer.verdict != "moved_on":
                for report in reports:  # the refusal is of one of them: offered again it would be refused again
                    self._holder.report_alone(report)
                reports = ()
            self._holder.reload_soon(command.task_no, reports + outdated)
        elif isinstance(answer, StoreError):
            self.busy = False  # the process ends and the store is silent: the one who frees the task continues with it
        elif self.is_held:
            for report in reports + outdated:  # what came in counts all the same
                self._holder.report_alone(report)
            self._hold_unwritable(command, answer)

    def _process_applied(self, command: Advance, answer: Applied) -> None:
        parts, run = self._parts, self.run
        parts.context.on_applied(command, answer)
        for item in command.delivered:
            if isinstance(item, Reported):
                parts.agents.settle_report((item.step_no, item.fence), APPLIED)
        reserved = self._list_reserved_agents(command)
        # A breaker let none through, or the task was held for opening too many steps.
        if len(reserved) != len(answer.dispatches):
            parts.agents.give_back_unused(reserved, answer.dispatches, run.task.priority)
        run.is_ahead_of_record = False
        run.task = answer.task
        asks_children = answer.task.state is not command.state and answer.task.state is TaskState.COMPENSATING
        begun: list[StepRow] = []
        for step in answer.steps:
            run.steps[step.step_no] = step
            if step.state is StepState.RUNNING and not step.agent:  # of a child
                if step.kind is StepKind.CHILD and step.attempt == 1:
                    begun.append(step)
                else:
                    asks_children = True
        if not self.is_held:
            return
        for dispatch in answer.dispatches:
            parts.agents.dispatch(dispatch, reserved=True)
        if answer.task.locked_by != parts.context.process_no:
            self._holder.let_go(command.task_no)
            has_next = command.convoy_no is not None and answer.next is None and answer.task.ended_at is not None
            if has_next or isinstance(command.ending, Continue):
                self._holder.claim_soon()  # the next of its convoy, or its next run, is free for the one who comes first
            return
        if isinstance(command.ending, BeginUndo | PlanUndo):
            run.close()
        if begun:
            self._holder.begin_children(self, begun)
        # News of a child may have come after the look that earlier news caused: the mark is the same.
        if command.unseen_since is not None or answer.task.unseen_since is not None:
            asks_children |= any(step.state is StepState.RUNNING and not step.agent for step in run.steps.values())
        if asks_children:
            self._holder.look_after_children(self)
        self.drive()

    def _list_reserved_agents(self, command: Advance) -> list[str]:
        """Agents whose places a command has reserved for the task itself."""
        ending = command.ending
        if isinstance(ending, NextUndo) and ending.take:
            return [self.run.steps[ending.step_no].agent]
        opened = command.opened + ending.planned if isinstance(ending, PlanUndo) else command.opened
        return [new.agent for new in opened if new.take] if opened else []

    def _hold_unwritable(self, command: Advance, error: object) -> None:
        """Hold a task whose command cannot be written, with the evidence: a bug of arriero, which must not stop other tasks."""
        if isinstance(command.ending, Hold):
            logger.error("task %s cannot even be held, it is read again: %r", self.run.task.task_id, error)
            self.busy = True  # its code is ahead of the record: it must not be driven any longer
            self._parts.context.ports.clock.call_later(UNWRITABLE_SECONDS, self._reload_if_held)
            return
        self.busy = False
        failure = TaskFailure(
            "bug", f"its transition could not be written: {type(error).__name__}: {error}", code="quarantined"
        )
        logger.error("task %s is held: %s", self.run.task.task_id, failure.reason)
        self.send(Hold(failure))

    def _reload_if_held(self) -> None:
        if self.is_held:
            self._holder.reload_soon(self.run.task.task_no, ())

    # --- waiting
    def begin(self, loaded: Loaded, dispatches: Iterable[Dispatch], left_at: float | None) -> None:
        """Begin a task whose speculative first requests are recorded. ``left_at``: see ``AgentHost.dispatch``."""
        agents = self._parts.agents
        self.run.begin(loaded)
        for dispatch in dispatches:
            agents.dispatch(dispatch, reserved=True, left_at=left_at)
        children: list[StepRow] = []
        for step in loaded.steps:
            if step.state is StepState.PENDING and step.kind is not StepKind.TIMER:
                agents.note_waiting(step.agent)
            elif step.kind is StepKind.CHILD:
                children.append(step)
        if children:
            self._holder.begin_children(self, children)
        if self.run.has_published:  # before it asked for them
            self.drive()
        else:
            self._rest()

    def _rest(self) -> None:
        """Wait for a timer, a report or another process."""
        self.idle_since = self._parts.context.ports.clock.monotonic()
        timers = list_pending_timers(self.run)
        if not timers:
            return
        if self._fire_due():
            self.drive()
            return
        now = self._parts.context.store.now()
        waits = [seconds_between(now, timer.not_before) for timer in timers if timer.not_before is not None]
        if waits and min(waits) <= self._parts.surroundings.linger_seconds * 2:
            self._parts.context.ports.clock.call_later(min(waits), self._wake)

    def _wake(self) -> None:
        if self.is_resting:
            self.drive()

    def fire_timers(self) -> None:
        """Continue if a timer is due."""
        if self._fire_due():
            self.drive()

    def _fire_due(self) -> bool:
        """Put timers whose time has come into the inbox, earliest first. Returns True if there were any."""
        timers = list_pending_timers(self.run)
        fired = list_due_timers(timers, self._parts.context.store.now()) if timers else []
        self.inbox.extend(fired)
        return bool(fired)

    def close(self) -> None:
        """Drop the code, and the speculative run of the next task."""
        if self._hand_over is not None:
            self._hand_over.close()
            self._hand_over = None
        self.run.close()
