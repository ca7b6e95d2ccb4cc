"""Claims tasks, runs their code to the next open steps, records, dispatches, applies reports, carries out undo."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..calls import current_run
from ..commands import (
    ENDS,
    Advance,
    Ahead,
    Answer,
    AnyCommand,
    Applied,
    BeginUndo,
    Claim,
    Claimed,
    Dispatch,
    Ending,
    Fired,
    HandOver,
    Hold,
    Keep,
    NewStep,
    NextUndo,
    PlanUndo,
    PutDown,
    Refusal,
    Report,
    Reported,
    RetryAsked,
    Start,
    Submit,
    Submitted,
    Succeeded,
)
from ..core.advancing import driving_failure, new_step, on_code_ended, reopened, when_to_put_down
from ..core.compensation import next_undo
from ..core.lease import is_on_probation
from ..core.replay import Asked, Raised
from ..core.supervision import on_limit_passed
from ..errors import StoreError, UnreadableRow
from ..model import Loaded, StepKind, StepRow, StepState, TaskFailure, TaskRow, TaskState, seconds_between
from ..store.base import Busy, StateStore, Unwritten
from ..store.committer import Committer
from .agent_host import AgentHost
from .ahead import run_ahead, run_new
from .code import Code
from .courtesy import Courtesy
from .failure_log import OnApplied, unheard
from .live import LiveTask
from .ports import Ports
from .rereading import Rereading
from .room import may_begin, to_claim
from .settings import Settings

logger = logging.getLogger("arriero")
OnSubmitted = Callable[[object, float], None]  # the answer, and when the batch left for the store, monotonic

REPORT_AGAIN_SECONDS = 2.0  # until a report is offered again whose task could not be read
REPORT_SECONDS_MAX = 600.0  # how long it is: then its attempt has expired, or whoever mends the row answers by hand
UNWRITABLE_SECONDS = 5.0  # until a task is read again that could not even be held: the machine may have been to blame
UNSEEN_SECONDS = 1.0  # what has begun so and asks for no further write is marked as seen after so long


class Scheduler:
    """The Scheduler of one process.

    Args:
        codes: what this process can run, by the name in the task's row.
        on_end: told of each task that ended here.
        is_trusted: whether this process may still believe in its lease.
        others: how many other processes claim tasks.
        on_applied: told of each transition of a task that was written.
        app: the name of the App; what carries another's name is not claimed.
    """

    def __init__(
        self,
        codes: Mapping[str, Code],
        *,
        store: StateStore,
        committer: Committer[AnyCommand, Answer],
        ports: Ports,
        settings: Settings,
        actor: str,
        process_no: int,
        agents: AgentHost,
        on_end: Callable[[TaskRow, LiveTask], None],
        spawn: Callable[..., None],
        is_trusted: Callable[[], bool],
        others: Callable[[], int],
        on_applied: OnApplied = unheard,
        app: str = "",
    ) -> None:
        self._codes = codes
        self._app = app
        self._store = store
        self._committer = committer
        self._ports = ports
        self._settings = settings
        self._actor = actor
        self._process_no = process_no
        self._agents = agents
        self._on_end = on_end
        self._is_trusted = is_trusted
        self._others = others
        self._on_applied = on_applied
        self._names = tuple(codes)
        self._courtesy = Courtesy(ports, others)
        self._claiming = False
        self._claim_again = False
        self._caught_up = False  # the last claim left nothing behind
        self._proven: set[str] = set()  # workflows whose code has come to its first steps here, from what is durable
        self._unsure: list[tuple[NewStep, ...]] = []  # asked for with submissions whose answer was lost
        self._asked_about: list[tuple[NewStep, ...]] = []  # of those, what the last look for news may have brought
        self._beginning = 0  # submissions on their way with which tasks begin here
        self._draining = False
        self._abandoned = False
        self.live: dict[int, LiveTask] = {}
        self._rereading = Rereading(
            store=store, ports=ports, spawn=spawn, on_read=self._read_again, reading=agents.registry.reading
        )

    # --- claiming
    def claim_soon(self) -> None:
        """Ask for tasks, as many as there is room for, one question at a time."""
        if self._claiming:
            self._claim_again = True
            return
        if self._courtesy.asks_for_patience(self.claim_soon):
            self._caught_up = False
            return
        room = to_claim(tasks_max=self._settings.tasks_max, taken=self._taken, others=self._others())
        if self._draining or room <= 0 or not self._is_trusted():  # what a lapsed process claims is only lost again
            self._caught_up = False
            return
        self._claiming = True
        probation = not any(is_on_probation(live.task) for live in self.live.values())
        command = Claim(
            actor=self._actor,
            process_no=self._process_no,
            workflows=self._names,
            limit=room,
            probation=probation,
            app=self._app,
        )
        self._committer.put(command, lambda answer: self._claimed(room, answer))

    @property
    def _taken(self) -> int:
        return len(self.live) + self._beginning

    def _claimed(self, room: int, answer: Answer | BaseException) -> None:
        self._claiming = False
        tasks = answer.tasks if isinstance(answer, Claimed) else ()
        self._caught_up = isinstance(answer, Claimed) and len(tasks) < room
        for loaded in tasks:
            self._take_over(loaded)
        again, self._claim_again = self._claim_again, False
        if again or len(tasks) == room:
            self.claim_soon()

    def _take_over(self, loaded: Loaded, *, before: LiveTask | None = None, behind: Loaded | None = None) -> None:
        """Drive what the store says is ours now. ``before``: had its turn before it; ``behind``: waits for the next one."""
        task_no = loaded.task.task_no
        if self._is_known_here(task_no):
            self._reload_soon(task_no, ())  # we knew it before this answer came: what is recorded counts
        else:
            self._adopt(loaded, before=before, behind=behind)

    def _adopt(
        self,
        loaded: Loaded,
        reports: tuple[Reported, ...] = (),
        *,
        before: LiveTask | None = None,
        behind: Loaded | None = None,
    ) -> None:
        """Drive a task that is ours, from its record; ``reports`` came for it and are not recorded yet."""
        task = loaded.task
        live = LiveTask(loaded, self._codes.get(task.workflow))
        if live.execution is not None:
            self._proven.add(task.workflow)
        live.key_since = self._ports.clock.monotonic() if before is None else before.key_since
        live.behind = behind
        self.live[task.task_no] = live
        self._take_up(live, reports)

    def _take_up(self, live: LiveTask, reports: tuple[Reported, ...]) -> None:
        """Go on with a task that stands as recorded."""
        for step in tuple(live.steps.values()):
            self._adopt_attempt(step, live.task)
        for report in reports:
            step_now = live.steps.get(report.step_no)
            if step_now is not None and (step_now.fence, step_now.state) == (report.fence, StepState.RUNNING):
                live.inbox.append(report)
            else:
                self.report_alone(report)
        self._fire_due(live)
        self._pump(live)

    def _adopt_attempt(self, step: StepRow, task: TaskRow) -> None:
        """Begin an attempt recorded as ours that never began here: the answer that told of it was lost."""
        if step.state is not StepState.RUNNING or step.locked_by != self._process_no:
            return
        left_at = self._ports.clock.monotonic()
        dispatch = Dispatch(step, task.task_id, self._store.now(), task.lost_count)
        self._agents.dispatch(dispatch, reserved=False, left_at=left_at)

    # --- beginning with the submission
    def begin_with(self, command: Submit) -> tuple[Submit, OnSubmitted | None]:
        """The submission by which a task begins here in the same commit, and who is to be told of its answer.

        It stays as it was where others come first, and where the code cannot run before the commit.
        """
        if not self._may_begin(command):
            return command, None
        try:
            prepared = self._prepared(command)
        except Exception:  # the submission must not be lost with it; once it is claimed it meets the same again
            logger.exception("the code of task %s could not be run with its submission", command.task_id)
            return command, None
        if prepared is None:
            return command, None
        live, opened = prepared
        self._beginning += 1
        return (
            msgspec.structs.replace(command, start=Start(self._process_no, opened)),
            lambda answer, left_at: self._submitted(live, opened, left_at, answer),
        )

    def _prepared(self, command: Submit) -> tuple[LiveTask, tuple[NewStep, ...]] | None:
        """Its code at its first steps, and what it asks for, with places taken for it."""
        live = run_new(command, self._codes, self._store.now())
        if live is None:
            return None
        requests = self._requests(live)
        if live.broken is None:
            return live, self._placed(requests)
        live.close()
        return None

    def _may_begin(self, command: Submit) -> bool:
        """Whether a new task need not wait behind others, and this process can take it up now."""
        if command.convoy is not None or command.delay > 0 or self._draining or not self._caught_up:
            return False
        if command.workflow not in self._proven or current_run() is not None:
            return False
        limit, others = self._settings.tasks_max, self._others()
        has_room = may_begin(tasks_max=limit, taken=self._taken, beginning=self._beginning, others=others)
        return has_room and self._is_trusted()

    def _submitted(self, live: LiveTask, opened: tuple[NewStep, ...], left_at: float, answer: object) -> None:
        self._beginning -= 1
        begun = answer.begun if isinstance(answer, Submitted) else None
        if begun is not None and not self._abandoned and not self._is_known_here(begun.task.task.task_no):
            self._begin(live, begun.task, begun.dispatches, left_at)
            return
        live.close()
        if isinstance(answer, StoreError) and not isinstance(answer, Unwritten | Busy):
            self._unsure.append(opened)  # it may have begun; then the news bring it, and its attempts take these places
        else:
            self._give_back(opened)
        if self._abandoned or not isinstance(answer, Submitted) or not answer.created:
            return  # should it have begun all the same, it is among the news
        if not self._is_known_here(answer.task_no):
            self._reload_soon(answer.task_no, ())
        self.claim_soon()

    # --- what comes in
    def offer(self, step: StepRow, report: Reported) -> bool:
        """A report of an Agent here. False: the task is not held here; it goes to the store by itself."""
        live = self.live.get(step.task_no)
        if live is None:
            return False
        known = live.steps.get(report.step_no)
        if known is not None and known.fence >= report.fence:
            live.inbox.append(report)
            self._pump(live)
        else:  # opened by a commit whose answer was lost, or recovered and taken again since we read it
            self._reload_soon(step.task_no, (report,))
        return True

    def note_taken(self, step: StepRow) -> None:
        """An Agent here took a request from the store; taking grows no revision, so what we hold stays good."""
        live = self.live.get(step.task_no)
        known = None if live is None else live.steps.get(step.step_no)
        if live is not None and known is not None and known.fence < step.fence:
            live.steps[step.step_no] = step

    def report_alone(self, report: Reported) -> None:
        """A report for a task that is not held here goes to the store by itself."""
        command = Report(actor=self._actor, process_no=self._process_no, report=report)
        self._committer.put(command, lambda answer: self._reported_alone(command, answer))

    def _reported_alone(self, command: Report, answer: Answer | BaseException) -> None:
        report = command.report
        if isinstance(answer, UnreadableRow) and not self._abandoned:  # it may be mended, or another release replace it
            age = seconds_between(report.delivered_at, self._store.now())
            if age < REPORT_SECONDS_MAX:
                self._ports.clock.call_later(REPORT_AGAIN_SECONDS, lambda: self.report_alone(report))
        if not isinstance(answer, BaseException):
            self._agents.registry.settle((report.step_no, report.fence))
        if not isinstance(answer, Applied):
            return
        self._on_applied(command, answer)
        if answer.task.locked_by is None:
            self.claim_soon()  # it may have woken its task

    def report_late(self, report: Reported) -> None:
        """An answer that came after its attempt's time. It is offered once, and nothing follows from what the store says.

        The attempt stays registered: until the Supervisor has recovered it, its row still shows it as running.
        """
        command = Report(actor=self._actor, process_no=self._process_no, report=report, late=True)
        self._committer.put(command, lambda _answer: None)

    async def look_for_news(self) -> None:
        """Reports that other processes recorded for tasks held here, and tasks that are ours unknown to us."""
        lost_before = len(self._unsure)  # more may be lost while the store is asked: this look need not see them
        for task_no, revision in await self._store.load_news(self._process_no):
            live = self.live.get(task_no)
            if live is None or (not live.busy and live.task.revision < revision):
                self._reload_soon(task_no, ())
        # Only now: a look that failed has brought nothing, and these places are still to be given back.
        known_by_now, self._asked_about = self._asked_about, self._unsure[:lost_before]
        del self._unsure[:lost_before]
        for opened in known_by_now:
            self._give_back(opened)

    async def reconcile(self) -> None:
        """After an answer of the store was lost: what does it say is ours that we know nothing of?"""
        with self._agents.registry.reading():
            for loaded in await self._store.load_held(self._process_no, self._settings.tasks_max * 2):
                task = loaded.task
                if task.locked_by == self._process_no and not self._is_known_here(task.task_no):
                    self._reload_soon(task.task_no, ())
                    continue
                for step in loaded.steps:  # also of a task whose command is on its way: its attempts must begin in time
                    self._adopt_attempt(step, task)

    def _reload_soon(self, task_no: int, reports: tuple[Reported, ...]) -> None:
        """Read the record again; ``reports`` came for the task and are not recorded yet."""
        live = self.live.get(task_no)
        if live is not None:
            live.busy = True
            reports += tuple(item for item in live.inbox if isinstance(item, Reported))
            live.inbox.clear()
            if live.in_flight:  # its answer first: what it writes must be in what we read
                live.outdated = (live.outdated or ()) + reports
                return
        self._rereading.ask(task_no, reports)

    def _read_again(self, task_no: int, loaded: Loaded | None, reports: tuple[Reported, ...]) -> None:
        """Go on with a task from its record, if it is still ours."""
        live = self.live.get(task_no)
        if live is not None and live.in_flight:  # adopted meanwhile, and it went on: what we read is old
            live.outdated = (live.outdated or ()) + reports
            return
        ours = loaded if loaded is not None and loaded.task.locked_by == self._process_no else None
        if live is not None:
            del self.live[task_no]
            reports += tuple(item for item in live.inbox if isinstance(item, Reported))
            live.inbox.clear()
            if ours is not None and live.catch_up(ours):
                live.busy = False
                self.live[task_no] = live
                self._take_up(live, reports)
                return
            live.close()
        if ours is not None:
            self._adopt(ours, reports, before=live, behind=None if live is None else live.behind)
            return
        for report in reports:
            self.report_alone(report)

    # --- driving
    def _pump(self, live: LiveTask) -> None:
        """Send the next command of a task, if there is one and none is on its way."""
        if live.busy or self.live.get(live.task.task_no) is not live:
            return
        live.idle_since = None
        delivered = self._take_inbox(live)
        try:
            is_undo = live.task.state is TaskState.COMPENSATING
            command = self._compensate(live, delivered) if is_undo else self._forward(live, delivered)
            if command is None:
                self._rest(live)
        except Exception as error:  # it holds this task with its cause; no other task and no loop pays for it
            command = self._held_as_broken(live, delivered, error)
        if command is not None:
            self._send(live, command)

    def _held_as_broken(
        self, live: LiveTask, delivered: tuple[Reported | Fired, ...], error: Exception
    ) -> Advance | None:
        """Driving the task failed: what came in is recorded all the same, and the task waits for a person."""
        failure = driving_failure(error)
        logger.error("task %s is held: %s", live.task.task_id, failure.reason, exc_info=error)
        return self._advance(live, delivered, (), Hold(failure))

    def _take_inbox(self, live: LiveTask) -> tuple[Reported | Fired, ...]:
        """What came in, each step once, as far as it can still count; the rest goes to the store for its verdict."""
        items: dict[int, Reported | Fired] = {}
        for item in live.inbox:
            step = live.steps[item.step_no]
            if isinstance(item, Fired):
                if step.state is StepState.PENDING:
                    items[item.step_no] = item
            elif item.step_no in items or (step.state, step.fence) != (StepState.RUNNING, item.fence):
                self.report_alone(item)
            else:
                items[item.step_no] = item
        live.inbox.clear()
        return tuple(items.values())

    def _forward(self, live: LiveTask, delivered: tuple[Reported | Fired, ...]) -> Advance | None:
        for item in delivered:
            self._deliver(live, item)
        end = live.end()
        limit = live.task.complete_by
        if limit is not None and limit <= self._store.now() and not isinstance(end, Raised):
            # A busy task moves on before the Supervisor's word arrives; so whoever drives it looks at the clock too.
            return self._advance(live, delivered, (), Keep() if delivered else on_limit_passed(live.loaded))
        if end is None:
            requests = self._requests(live)
            if live.broken is None:
                where_to = self._where_to(live, delivered, requests)
                return self._advance(live, delivered, self._placed(requests), where_to)
            end = Raised(live.broken)
        if isinstance(end, Raised) and delivered:
            return self._advance(live, delivered)  # first the results, then the decision from what is recorded
        just_ended = {item.step_no for item in delivered if not _is_retry(item)}
        still_open = [step for step in live.open_steps() if step.step_no not in just_ended]
        ending = on_code_ended(end, live.output, live.loaded, still_open, live.unseen, live.kept_convoy_state)
        return self._advance(live, delivered, (), ending or Keep())

    def _deliver(self, live: LiveTask, item: Reported | Fired) -> None:
        step = live.steps[item.step_no]
        if isinstance(item, Fired):
            live.deliver(msgspec.structs.replace(step, state=StepState.COMPLETED, result="null"), item.delivered_at)
            return
        outcome = item.outcome
        if isinstance(outcome, Succeeded):
            live.deliver(
                msgspec.structs.replace(step, state=StepState.COMPLETED, result=outcome.result), item.delivered_at
            )
        elif not isinstance(outcome, RetryAsked):
            failure = msgspec.json.encode(outcome.failure).decode()
            live.deliver(msgspec.structs.replace(step, state=StepState.FAILED, failure=failure), item.delivered_at)

    def _requests(self, live: LiveTask) -> tuple[NewStep, ...]:
        """What the code asks for; no place is taken for it yet."""
        asked = live.to_be_opened()
        unknown = [one for one in asked if one.call is not None and not self._is_known(one)]
        if unknown:
            step = unknown[0].call.step
            live.broken = TaskFailure(
                "bug",
                f"step {step.name} of Agent {step.agent.name} is not in this App: add the Agent to it",
                step.name,
                "unknown_step",
            )
            return ()
        return tuple(self._request(live, one) for one in asked)

    def _request(self, live: LiveTask, asked: Asked) -> NewStep:
        before = None if live.earlier is None else live.earlier.find(asked)
        if before is None:
            return new_step(asked, live.task, self._store.store_id)
        return reopened(asked, before, live.task, self._store.store_id)

    def _is_known(self, asked: Asked) -> bool:
        code = self._codes.get(f"step:{asked.call.step.name}")
        return code is not None and code.runs(asked.call.step)

    def _placed(self, requests: Iterable[NewStep]) -> tuple[NewStep, ...]:
        """Requests that are sent next, with places taken. Nothing after it may fail before they are sent."""
        return tuple(map(self._place, requests))

    def _place(self, new: NewStep) -> NewStep:
        """Straight to an Agent here if it has room; else the request waits in the store for any Agent."""
        if new.kind is StepKind.TIMER or not self._agents.reserve(new.agent):
            return new
        return msgspec.structs.replace(new, take=True)

    def _where_to(self, live: LiveTask, delivered: tuple[Reported | Fired, ...], opened: tuple[NewStep, ...]) -> Ending:
        """A task that only sleeps from here on is put down in the same commit."""
        if not opened or any(new.kind is not StepKind.TIMER for new in opened):
            return Keep()
        ended = {item.step_no for item in delivered}
        if any(step.step_no not in ended for step in live.open_steps()):
            return Keep()
        waits = [new.fire_at for new in opened if new.fire_at is not None]
        waits += [
            s.not_before
            for s in live.steps.values()
            if s.state is StepState.PENDING and s.step_no not in ended and s.not_before
        ]
        soonest = min(waits)
        return (
            PutDown(soonest) if seconds_between(self._store.now(), soonest) > self._settings.linger_seconds else Keep()
        )

    def _compensate(self, live: LiveTask, delivered: tuple[Reported | Fired, ...]) -> Advance | None:
        if delivered:
            return self._advance(live, delivered)
        ending = next_undo(live.loaded, self._store.store_id)
        if isinstance(ending, PlanUndo):
            first = self._place(ending.planned[0])
            ending = msgspec.structs.replace(ending, planned=(first, *ending.planned[1:]))
        elif isinstance(ending, NextUndo):
            ending = msgspec.structs.replace(ending, take=self._agents.reserve(live.steps[ending.step_no].agent))
        return self._advance(live, (), (), ending or Keep())

    def _advance(
        self,
        live: LiveTask,
        delivered: tuple[Reported | Fired, ...] = (),
        opened: tuple[NewStep, ...] = (),
        ending: Ending = Keep(),
    ) -> Advance | None:
        task = live.task
        if isinstance(ending, Keep) and not delivered and not opened and task.unseen_since is None:
            return None
        return Advance(
            actor=self._actor,
            task_no=task.task_no,
            process_no=self._process_no,
            fence=task.fence,
            revision=task.revision,
            state=task.state,
            delivered=delivered,
            opened=opened,
            ending=ending,
            convoy_no=task.convoy_no,
            hand_over=self._hand_over(live, ending),
        )

    # --- the next task of a convoy
    def _hand_over(self, live: LiveTask, ending: Ending) -> HandOver | None:
        """Whether this process goes on with the next task of the convoy, and what that asks for first, if that is known.

        A process that is full goes on with none: what has a higher priority elsewhere comes first.
        """
        if live.task.convoy_no is None or not isinstance(ending, ENDS):
            return None
        if self._draining or len(self.live) >= self._settings.tasks_max or not self._is_trusted():
            return None
        if self._courtesy.lets_go(live.key_since):
            return None
        try:
            return HandOver(self._names, self._run_ahead(live, ending), self._app)
        except Exception:  # the end that is on its way must not be lost with it; by its turn it meets the same again
            logger.exception("the code of the task behind %s could not be run ahead of its turn", live.task.task_id)
            return HandOver(self._names, app=self._app)

    def _run_ahead(self, live: LiveTask, ending: Ending) -> Ahead | None:
        """What the task behind asks for first, with places taken for it; None: it begins by itself."""
        ahead = run_ahead(live, ending, self._codes, self._store.now(), self._app)
        if ahead is None or ahead.convoy is None:
            return None
        requests = self._requests(ahead)
        if ahead.broken is not None:
            ahead.close()
            return None
        live.ahead = ahead
        return Ahead(ahead.task.task_no, ahead.task.link, ahead.convoy.value, self._placed(requests))

    def _go_on(self, live: LiveTask, ahead: LiveTask | None, command: Advance, answer: Applied) -> None:
        """With the next task of the convoy, if that is ours: from where its code has run to, or from its record."""
        if ahead is not None:
            if (
                answer.next is not None
                and answer.begun is not None
                and not self._is_known_here(answer.next.task.task_no)
            ):
                ahead.key_since, ahead.behind = live.key_since, answer.following
                self._begin(ahead, answer.next, answer.begun)
                return
            self._drop_ahead(ahead, command)
        if answer.next is not None:
            self._take_over(answer.next, before=live, behind=answer.following)

    def _begin(
        self, ahead: LiveTask, loaded: Loaded, begun: tuple[Dispatch, ...], left_at: float | None = None
    ) -> None:
        """What its code asked for before it began is recorded. ``left_at``: see ``AgentHost.dispatch``."""
        ahead.begin(loaded)
        self.live[loaded.task.task_no] = ahead
        for dispatch in begun:
            self._agents.dispatch(dispatch, reserved=True, left_at=left_at)
        for step in loaded.steps:
            if step.state is StepState.PENDING and step.kind is not StepKind.TIMER:
                self._agents.note_waiting(step.agent)
        self._rest(ahead)

    def _is_known_here(self, task_no: int) -> bool:
        return task_no in self.live or task_no in self._rereading

    def _drop_ahead(self, ahead: LiveTask, command: Advance) -> None:
        ahead.close()
        if command.hand_over is not None and command.hand_over.ahead is not None:
            self._give_back(command.hand_over.ahead.opened)

    def _give_back(self, opened: Iterable[NewStep]) -> None:
        """Places that were taken for requests which are not made after all."""
        for new in opened:
            if new.take:
                self._agents.give_back(new.agent)

    # --- what was written

    def _send(self, live: LiveTask, command: Advance) -> None:
        live.busy = live.in_flight = True
        live.is_ahead_of_record = live.is_ahead_of_record or bool(command.delivered or command.opened)
        self._committer.put(command, lambda answer: self._answered(live, command, answer))

    def _answered(self, live: LiveTask, command: Advance, answer: Answer | BaseException) -> None:
        live.in_flight = False
        outdated, live.outdated = live.outdated, None
        ahead, live.ahead = live.ahead, None
        if isinstance(answer, Applied):
            self._on_applied(command, answer)
            self._settle(command)
            self._give_back_unused(live, command, answer)
            live.busy, live.is_ahead_of_record = outdated is not None, False
            self._written(live, command, answer)
            self._go_on(live, ahead, command, answer)
            if outdated is not None:
                self._reload_soon(command.task_no, outdated)
            return
        for agent in _reserved(live, command):
            self._agents.give_back(agent)
        if ahead is not None:
            self._drop_ahead(ahead, command)
        reports = tuple(item for item in command.delivered if isinstance(item, Reported))
        if isinstance(answer, Refusal | UnreadableRow):  # of an unreadable row the store has told a person
            if isinstance(answer, Refusal) and answer.verdict != "moved_on":
                for report in reports:  # the refusal is of one of them: offered again it would be refused again
                    self.report_alone(report)
                reports = ()
            self._reload_soon(command.task_no, reports + (outdated or ()))
        elif isinstance(answer, StoreError):
            live.busy = False  # the process ends and the store is silent: whoever frees the task goes on with it
        elif self.live.get(command.task_no) is live:
            for report in reports + (outdated or ()):  # what came in counts all the same
                self.report_alone(report)
            self._quarantine(live, command, answer)

    def _settle(self, command: Advance) -> None:
        for item in command.delivered:
            if isinstance(item, Reported):
                self._agents.registry.settle((item.step_no, item.fence))

    def _give_back_unused(self, live: LiveTask, command: Advance, answer: Applied) -> None:
        """Places taken for steps that were not begun after all: the task was held for opening too many."""
        reserved = _reserved(live, command)
        if len(reserved) != len(answer.dispatches):
            for agent in (Counter(reserved) - Counter(d.step.agent for d in answer.dispatches)).elements():
                self._agents.give_back(agent)

    def _quarantine(self, live: LiveTask, command: Advance, error: object) -> None:
        """A command that cannot be written is a bug of ours: hold this one task with the evidence, go on with the others."""
        if isinstance(command.ending, Hold):
            logger.error("task %s cannot even be held, it is read again: %r", live.task.task_id, error)
            live.busy = True  # its code is ahead of the record: it must not be driven any more
            self._ports.clock.call_later(UNWRITABLE_SECONDS, lambda: self._reload_if_held(live))
            return
        live.busy = False
        failure = TaskFailure(
            "bug", f"its transition could not be written: {type(error).__name__}: {error}", code="quarantined"
        )
        logger.error("task %s is held: %s", live.task.task_id, failure.reason)
        held = self._advance(live, (), (), Hold(failure))
        assert held is not None
        self._send(live, held)

    def _reload_if_held(self, live: LiveTask) -> None:
        if self.live.get(live.task.task_no) is live:
            self._reload_soon(live.task.task_no, ())

    def _written(self, live: LiveTask, command: Advance, answer: Applied) -> None:
        live.task = answer.task
        for step in answer.steps:
            live.steps[step.step_no] = step
        if self.live.get(live.task.task_no) is not live:
            return
        for dispatch in answer.dispatches:
            self._agents.dispatch(dispatch, reserved=True)
        if answer.task.locked_by != self._process_no:
            self._let_go(live)
            if command.convoy_no is not None and answer.next is None and answer.task.ended_at is not None:
                self.claim_soon()  # the next of its convoy is free for whoever comes first
            return
        if isinstance(command.ending, BeginUndo | PlanUndo):
            live.close()
        self._pump(live)

    def _let_go(self, live: LiveTask) -> None:
        """It ended, or was put down."""
        was_full = len(self.live) >= self._settings.tasks_max
        del self.live[live.task.task_no]
        live.close()
        for item in live.inbox:
            if isinstance(item, Reported):
                self.report_alone(item)
        if live.task.ended_at is not None:
            try:
                self._on_end(live.task, live)
            except Exception:  # whoever waits asks the store; the next task of the convoy must still be taken up
                logger.exception("the end of task %s could not be told", live.task.task_id)
        if was_full or is_on_probation(live.task):
            self.claim_soon()

    # --- waiting
    def _rest(self, live: LiveTask) -> None:
        """Nothing to write: a timer, a report or another process moves it."""
        live.idle_since = self._ports.clock.monotonic()
        if live.task.state is not TaskState.PROCESSING:
            return
        timers = _timers(live)
        if not timers:
            return
        if self._fire_due(live):
            self._pump(live)
            return
        now = self._store.now()
        waits = [seconds_between(now, timer.not_before) for timer in timers if timer.not_before is not None]
        if waits and min(waits) <= self._settings.linger_seconds * 2:
            self._ports.clock.call_later(min(waits), lambda: self._wake(live))

    def _fire_due(self, live: LiveTask) -> bool:
        """Put timers whose time has come into the inbox, earliest first; answers whether there were any."""
        timers = _timers(live)
        if not timers or live.task.state is not TaskState.PROCESSING:
            return False
        now = self._store.now()
        due = [timer for timer in timers if timer.not_before is not None and timer.not_before <= now]
        for timer in sorted(due, key=lambda step: (step.not_before or 0, step.ordinal)):
            live.inbox.append(Fired(timer.step_no, now))
        return bool(due)

    def _wake(self, live: LiveTask) -> None:
        if live.is_resting:
            self._pump(live)

    def _resting(self, seconds: float) -> list[LiveTask]:
        """Tasks that have asked for nothing for at least so long."""
        before = self._ports.clock.monotonic() - seconds
        return [
            live
            for live in self.live.values()
            if live.is_resting and live.idle_since is not None and live.idle_since <= before
        ]

    def mark_seen(self) -> None:
        """Take the mark of news off tasks that began with their submission and have asked for no further write since."""
        for live in self._resting(UNSEEN_SECONDS):
            if live.task.unseen_since is not None:
                self._pump(live)

    def put_down_idle(self, *, all_idle: bool = False) -> None:
        """Free tasks whose next event is far off, so that waiting costs no memory. ``all_idle``: at the end of a drain."""
        now = self._store.now()
        for live in self._resting(0.0 if all_idle else self._settings.linger_seconds):
            ending = (
                PutDown(now) if all_idle else when_to_put_down(live.steps.values(), now, self._settings.linger_seconds)
            )
            if ending is not None:
                command = self._advance(live, (), (), ending)
                assert command is not None
                self._send(live, command)
            elif self._fire_due(live):  # it stays here for a step's sake; its timers go on
                self._pump(live)

    def look_again(self) -> None:
        """Read tasks again that have been idle for long: whatever we missed, it is in the record."""
        monotonic = self._ports.clock.monotonic()
        for live in list(self.live.values()):
            if (
                not live.busy
                and live.idle_since is not None
                and monotonic - live.idle_since > self._settings.progress_seconds
            ):
                self._reload_soon(live.task.task_no, ())

    # --- the end of the process
    def is_busy(self) -> bool:
        """Whether a task is held here, or may still come: with a claim, with a submission, or as it is read again."""
        return bool(self.live or self._rereading or self._beginning) or self._claiming

    def drain(self) -> None:
        """Claim nothing any more."""
        self._draining = True

    def abandon(self) -> None:
        """Forget everything held: it is another's now."""
        self._abandoned = True
        for live in self.live.values():
            live.close()
        self.live.clear()


def _timers(live: LiveTask) -> list[StepRow]:
    return [s for s in live.steps.values() if s.kind is StepKind.TIMER and s.state is StepState.PENDING]


def _is_retry(item: Reported | Fired) -> bool:
    return isinstance(item, Reported) and isinstance(item.outcome, RetryAsked)


def _reserved(live: LiveTask, command: Advance) -> list[str]:
    """Agents whose places a refused command had taken."""
    agents = [new.agent for new in command.opened if new.take]
    if isinstance(command.ending, PlanUndo):
        agents += [new.agent for new in command.ending.planned if new.take]
    if isinstance(command.ending, NextUndo) and command.ending.take:
        agents.append(live.steps[command.ending.step_no].agent)
    return agents
