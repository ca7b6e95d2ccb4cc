"""Hosts Agents: runs one attempt up to its ``complete_by``, then reports or keeps silent."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import msgspec

from ..attempt import Attempt, Undo
from ..codec import error_text, recordable_text, step_error_fields
from ..commands import Answer, AnyCommand, Dispatch, GaveUp, Outcome, Reported, Succeeded, Take, Taken
from ..core.backoff import retry_delay
from ..core.lease import PROBATION_FROM
from ..core.supervision import on_attempt_failed, step_policy
from ..definitions import Agent, Compensation, Resource, Step, open_resources
from ..errors import Cause, InvalidInput, Permanent, StepError, Transient
from ..model import StepFailure, StepKind, StepRow, UndoContext, seconds_between
from ..store.base import Busy, StateStore, Unwritten
from ..store.committer import Committer
from ..traceback_frames import trace_of
from .attempt_registry import AttemptRegistry
from .crash_points import reach
from .ending import CANCELLED_SECONDS_MAX
from .ports import Ports, Timer
from .settings import Settings
from .thread_answer import ThreadAnswer

logger = logging.getLogger("arriero")
TRUST_SECONDS = 0.05  # between looks whether the process's lease was renewed
_read_undo = msgspec.json.Decoder(UndoContext).decode


# What a test puts in a step's place: given the step, its row, its Attempt and arguments; None: the step's own function.
Around = Callable[[Step[Any, Any], StepRow, Attempt, dict[str, Any]], Callable[[], Any] | None]


class AgentHost:
    """The Agents of one process.

    Args:
        report: hands on a report; the node knows who holds the task.
        report_late: hands on a report whose attempt's time was over; it changes nothing.
        on_taken: told of each request taken from the store, as its row now stands.
        is_trusted: whether this process may still believe in its lease.
        around: for tests; with it resources are opened at the first call of a step's own function.
        probation: the task on probation this process holds, 0 when none, as the scheduler knows it.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        store: StateStore,
        committer: Committer[AnyCommand, Answer],
        ports: Ports,
        settings: Settings,
        actor: str,
        process_no: int,
        report: Callable[[StepRow, Reported], None],
        report_late: Callable[[Reported], None],
        is_trusted: Callable[[], bool],
        on_taken: Callable[[StepRow], None],
        around: Around | None = None,
        app: str = "",
    ) -> None:
        self._app = app
        self.agents = {agent.name: agent for agent in agents}
        self._store = store
        self._committer = committer
        self._ports = ports
        self._settings = settings
        self._actor = actor
        self._process_no = process_no
        self.report = report
        self.report_late = report_late
        self._is_trusted = is_trusted
        self._on_taken = on_taken
        self._around = around
        self._used: Counter[str] = Counter()
        self._backlog: set[str] = set()  # Agents for which requests may wait in the store: those go first
        self._asked_room: tuple[tuple[str, int], ...] = ()  # places kept for the Take under way
        self._unsure: tuple[tuple[str, int], ...] = ()  # places of Takes whose answer was lost
        self._take_again = False
        self._stopping = False
        self._resources: dict[Resource[Any], Any] = {}
        self._exits = AsyncExitStack()
        self._names = tuple({name for agent in self.agents.values() for name in agent.steps})
        self.in_flight: dict[tuple[int, int], asyncio.Task[None]] = {}
        self.registry = AttemptRegistry()
        self._runs: dict[asyncio.Task[None], _AttemptRun] = {}  # that have not ended, also those that were dropped
        self._in_threads: set[_AttemptRun] = set()  # whose function has not ended, also after their own end
        self._probation: Counter[int] = Counter()  # attempts here of tasks on probation

    # --- life
    async def start(self) -> None:
        """Open the Agents' resources."""
        if self._around is None:
            for agent in self.agents.values():
                await self.open_resources(agent)

    async def open_resources(self, agent: Agent) -> None:
        """Open those of one Agent that are not open yet."""
        for resource in agent.resources:
            if resource in self._resources:
                continue
            context = resource.opened()
            if isinstance(context, AbstractAsyncContextManager):
                self._resources[resource] = await self._exits.enter_async_context(context)
            else:
                self._resources[resource] = self._exits.enter_context(context)

    def stop_taking(self) -> None:
        """Begin to drain: no request is taken any more."""
        self._stopping = True

    async def drained(self) -> None:
        """Wait for the attempts under way; each ends by its ``complete_by``, or is left behind a little later."""
        while waited := self._waited_for():
            await asyncio.wait(waited)

    def _waited_for(self) -> "dict[asyncio.Future[None], _AttemptRun]":
        return {run.over: run for run in self._runs.values() if not run.over.done()}

    def is_busy(self) -> bool:
        """Whether an attempt is under way, or one may still begin: a Take has not been answered yet."""
        return bool(self._asked_room) or any(not run.over.done() for run in self._runs.values())

    def abandon(self) -> None:
        """Stop every attempt where it stands and say nothing of it."""
        self._stopping = True
        for task in self._runs:
            task.cancel()
        self.in_flight.clear()

    async def dropped(self) -> None:
        """Wait until what was abandoned has ended; what swallows its cancellation is left behind."""
        if waited := self._waited_for():
            _, left = await asyncio.wait(waited, timeout=CANCELLED_SECONDS_MAX)
            for over in left:
                waited[over].leave_behind()

    def may_still_act(self) -> bool:
        """Whether an attempt goes on whose time is not over: it swallows its cancellation, or runs in a thread."""
        return any(run.is_in_time() for run in (*self._runs.values(), *self._in_threads))

    async def close(self) -> None:
        """Close the resources."""
        await self._exits.aclose()

    # --- room
    def reserve(self, agent: str) -> bool:
        """Whether a new request can go straight to a local Agent; if so, its place is taken."""
        hosted = self.agents.get(agent)
        if hosted is None or self._stopping or agent in self._backlog or self._used[agent] >= hosted.max_in_flight:
            self._backlog.add(agent)
            return False
        if not self._is_trusted():
            return False
        self._used[agent] += 1
        return True

    def give_back(self, agent: str) -> None:
        """A place that was reserved, or whose attempt has ended, is free."""
        self._used[agent] -= 1
        if agent in self._backlog:
            self.take_soon()

    def note_waiting(self, agent: str) -> None:
        """A request for an Agent waits in the store from now on; one that was asked for it before has not seen it."""
        if agent in self.agents:
            self._backlog.add(agent)
            self.take_soon()

    def note_due(self) -> None:
        """Requests are due in the store, for any Agent."""
        self._backlog.update(self.agents)
        self.take_soon()

    def leaked_places(self) -> int:
        """Places in use that belong to no attempt and to no Take under way; 0 once nothing is on its way."""
        under_way = sum(not task.done() for task in self.in_flight.values())
        return self._used.total() - sum(places for _, places in self._asked_room) - under_way

    # --- taking
    def take_soon(self) -> None:
        """Ask for requests, one question at a time."""
        if self._asked_room:
            self._take_again = True
            return
        free = [
            (name, self.agents[name].max_in_flight - self._used[name])
            for name in sorted(self._backlog & self.agents.keys())
        ]
        room = tuple((name, min(places, self._settings.batch_max)) for name, places in free if places > 0)
        if self._stopping or not room or not self._is_trusted():
            return
        self._asked_room = room
        for name, places in room:
            self._used[name] += places
        suspect = next(iter(self._probation), None)
        command = Take(
            actor=self._actor,
            process_no=self._process_no,
            room=room,
            names=self._names,
            probation=suspect,
            app=self._app,
        )
        self._committer.put(command, lambda answer: self._taken(room, answer))

    def _taken(self, room: tuple[tuple[str, int], ...], answer: Answer | BaseException) -> None:
        self._asked_room = ()
        if isinstance(answer, Busy | Unwritten):  # nothing was taken; the next poll asks again
            for name, places in room:
                self._used[name] -= places
            return
        if not isinstance(answer, Taken):
            self._unsure += room  # what was taken, if anything, is found by reconciling; until then its place is kept
            return
        dispatches = answer.dispatches
        got = Counter(dispatch.step.agent for dispatch in dispatches)
        for name, places in room:
            self._used[name] -= places - got[name]
            if got[name] < places:
                self._backlog.discard(name)
        for dispatch in dispatches:
            self._on_taken(dispatch.step)
            self.dispatch(dispatch, reserved=True)
        again, self._take_again = self._take_again, False
        if again or any(name in self._backlog for name, _ in room if got[name]):
            self.take_soon()

    def unsure_places(self) -> tuple[tuple[str, int], ...]:
        """Places of Takes whose answer was lost, as of now; what they took is found by asking the store."""
        return self._unsure

    def reconciled(self, known: tuple[tuple[str, int], ...]) -> None:
        """What these lost answers had taken is under way by now; the places kept for it are free.

        Others may have been lost since the store was asked: their places are kept until it is asked again.
        """
        for name, places in known:
            self._used[name] -= places
        self._unsure = self._unsure[len(known) :]
        self.take_soon()

    # --- attempts
    def dispatch(self, dispatch: Dispatch, *, reserved: bool, left_at: float | None = None) -> None:
        """Begin an attempt that the store has recorded as ours.

        ``left_at``: monotonic time before the store's clock was read for it; None: as for what is being answered now.
        """
        step = dispatch.step
        identity = (step.step_no, step.fence)
        assert step.complete_by is not None
        if not self.registry.begin(identity, step.complete_by, dispatch.now):
            if reserved:
                self.give_back(step.agent)
            return
        if not reserved:
            self._used[step.agent] += 1
        if dispatch.lost_count >= PROBATION_FROM:
            self._probation[step.task_no] += 1
        left_at = self._committer.left_at if left_at is None else left_at
        deadline = left_at + seconds_between(dispatch.now, step.complete_by)
        run = _AttemptRun(self, dispatch, deadline)
        task = asyncio.get_running_loop().create_task(run.run(), name=f"arriero-{step.label}")
        self.in_flight[identity] = task
        self._runs[task] = run
        # By the task itself: it may be cancelled before its first line, or end before this one.
        task.add_done_callback(lambda ended: self._ended(ended, run, dispatch))

    def _ended(self, task: asyncio.Task[None], run: "_AttemptRun", dispatch: Dispatch) -> None:
        step = dispatch.step
        del self._runs[task]
        run.end()
        if not run.began:
            self.give_back(step.agent)
        self.in_flight.pop((step.step_no, step.fence), None)
        if dispatch.lost_count >= PROBATION_FROM:
            self._probation[step.task_no] -= 1
            self._probation += Counter()

    def attempted_by(self, task: "asyncio.Task[Any] | None") -> tuple[StepRow, str] | None:
        """The step whose attempt is this task of the event loop, and its task's id; None: it is none."""
        run = None if task is None else self._runs.get(task)
        return None if run is None else (run._step, run._dispatch.task_id)

    def definition(self, step: StepRow) -> Step[Any, Any] | None:
        """The code of a step; None when this process does not have it."""
        agent = self.agents.get(step.agent)
        return None if agent is None else agent.steps.get(step.name)


class _AttemptRun:
    """One attempt: its tries, and what is said of it in the end."""

    def __init__(self, host: AgentHost, dispatch: Dispatch, deadline: float) -> None:
        self._host = host
        self._dispatch = dispatch
        self._step = dispatch.step
        self._deadline = deadline
        self._clock = host._ports.clock
        self._in_thread = False
        self._thread_answer: ThreadAnswer | None = None  # of the last try that ran in a thread
        self._task: asyncio.Task[None] | None = None
        self._number = 0  # of the try under way, or the last one
        self._leaving: Timer | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # it has ended, or was left behind

    @property
    def began(self) -> bool:
        """Whether its first line was reached: it may be cancelled before."""
        return self._task is not None

    def _remaining(self) -> float:
        return self._deadline - self._clock.monotonic()

    def is_in_time(self) -> bool:
        """Whether its time is not over: whoever else began it now would do so beside it."""
        return self._remaining() > 0

    def end(self) -> None:
        """It has ended."""
        if self._leaving is not None:
            self._leaving.cancel()
        if not self.over.done():
            self.over.set_result(None)

    def leave_behind(self) -> None:
        """Nobody waits for it any more. Nothing of it counts: it has no lease, and after its time no say."""
        if self.over.done():
            return
        self.over.set_result(None)
        logger.error(
            "attempt %d of step %s of task %s goes on %g s after it was cancelled: it is left behind, and nothing that it "
            "still does counts; let the step pass asyncio.CancelledError on",
            self._step.attempt,
            self._step.label,
            self._dispatch.task_id,
            CANCELLED_SECONDS_MAX,
        )

    async def run(self) -> None:
        self._task = asyncio.current_task()
        timer = self._clock.call_later(self._remaining(), self._expire)
        outcome = None
        try:
            outcome = await self._tries()
        except asyncio.CancelledError:
            pass  # past complete_by, or the process stops: there is no answer, whoever supervises decides
        except Exception:
            self._log_broke()
        finally:
            timer.cancel()
            if not self._in_thread:
                self._host.give_back(self._step.agent)
        if outcome is not None:
            self._report(outcome)
        elif not self._in_thread:
            self._report_thread_answer()

    def _report(self, outcome: Outcome) -> None:
        """In time the outcome counts. Later it is only told, once: the store keeps it, and nothing follows from it."""
        step = self._step
        now = self._host._store.now()
        report = Reported(step.step_no, step.fence, outcome, now, self._number, step.attempt, step.complete_by)
        if self._remaining() > 0:
            self._host.report(step, report)
        else:
            self._host.report_late(report)

    def _report_thread_answer(self) -> None:
        """The function ended in its thread after the attempt did. An attempt that was dropped in its time says nothing."""
        answer, self._thread_answer = self._thread_answer, None
        if answer is None or not answer.is_given() or self._remaining() > 0:
            return
        try:
            self._report(self._outcome_of(answer))
        except Exception:
            self._log_broke()

    def _outcome_of(self, answer: ThreadAnswer) -> Outcome:
        try:
            value = answer.value()
        except BaseException as error:  # whatever a user's function raises
            failure = _failure_of(error)
            return GaveUp(failure, failure.cause == "unknown")
        return self._succeeded(value)

    def _log_broke(self) -> None:
        logger.exception(
            "attempt %d of step %s of task %s broke; it will expire",
            self._step.attempt,
            self._step.label,
            self._dispatch.task_id,
        )

    def _expire(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._leaving = self._clock.call_later(CANCELLED_SECONDS_MAX, self.leave_behind)

    async def _tries(self) -> Outcome | None:
        try:
            call = self._call()
        except InvalidInput as error:  # recorded by other code than ours: nothing was sent, and no retry will mend it
            text = recordable_text(str(error))
            refused = StepFailure("permanent", text, "refused_arguments", trace=trace_of(error))
            return self._failed(refused, in_doubt=False)
        if call is None:
            return None
        policy = step_policy(self._step)
        delay, delay_max = policy.retry.delay_seconds()
        unsure = False
        for number in range(1, policy.retry.tries + 1):
            if not (self._may_send() or await self._may_send_later()):
                return None
            self._number = number
            try:
                value = await self._send(call)
            except Permanent as error:
                return self._failed(_failure_of(error), in_doubt=unsure)
            except Transient as error:
                failure, retry_after = _failure_of(error), step_error_fields(error).retry_after
            except asyncio.CancelledError as error:
                if self._task is None or self._task.cancelling():
                    raise
                unsure, retry_after = True, None  # the step cancelled itself, nobody asked it to
                failure = _failure_of(error)
            except (Exception, SystemExit) as error:  # a step that calls sys.exit must not take the process along
                unsure, retry_after = True, None
                failure = _failure_of(error)
            else:
                return self._succeeded(value)
            wait = retry_delay(
                number, delay=delay, factor=policy.retry.factor, delay_max=delay_max, jitter=self._jitter()
            )
            wait = max(wait, retry_after or 0.0)
            if number == policy.retry.tries or wait >= self._remaining():
                return self._failed(failure, in_doubt=unsure, retry_after=retry_after)
            await self._clock.sleep(wait)
        return None

    def _may_send(self) -> bool:
        """Whether a try may be made: in time by its own clock and the store's, and with a lease it may believe in."""
        step = self._step
        assert step.complete_by is not None
        is_in_time = self._remaining() > 0 and self._host._store.now() < step.complete_by
        return is_in_time and self._host._is_trusted()

    async def _may_send_later(self) -> bool:
        """Whether a try may be made before the time is over.

        Renewals may be late where many write to one store. Until one succeeds nothing is sent; it does not succeed any
        more once others may have freed what we hold.
        """
        while self._remaining() > 0:
            await self._clock.sleep(TRUST_SECONDS)
            if self._may_send():
                return True
        return False

    async def _send(self, call: Callable[[], Awaitable[Any]]) -> Any:
        is_undo = self._step.kind is StepKind.COMPENSATION
        reach("before_undo_send" if is_undo else "before_send")
        try:
            return await call()
        finally:
            reach("after_undo_send" if is_undo else "after_send")

    def _jitter(self) -> float:
        return self._host._ports.random.random()

    def _succeeded(self, value: Any) -> Outcome:
        if self._step.kind is StepKind.COMPENSATION:
            return Succeeded("null")
        definition = self._host.definition(self._step)
        assert definition is not None
        try:
            return Succeeded(definition.signature.encode_result(value))
        except InvalidInput as error:  # it happened, but what came of it cannot be kept, now or at another attempt
            text = recordable_text(str(error))
            return GaveUp(StepFailure("unknown", text, "unrecordable_result", trace=trace_of(error)), True)

    def _failed(self, failure: StepFailure, *, in_doubt: bool, retry_after: float | None = None) -> Outcome:
        now = self._host._store.now()
        return on_attempt_failed(
            self._step, failure, now, in_doubt=in_doubt, jitter=self._jitter(), retry_after=retry_after
        )

    def _call(self) -> Callable[[], Awaitable[Any]] | None:
        """One try, as a function without parameters; None when this process does not have the code."""
        definition = self._host.definition(self._step)
        if definition is None:
            return None
        code: Step[Any, Any] | Compensation | None = definition
        if self._step.kind is StepKind.COMPENSATION:
            code = definition.undone_by
        if code is None:
            return None
        first = self._first(definition)
        signature, is_async, agent = code.signature, code.is_async, definition.agent
        checked = [signature.arguments(self._step.arguments)]
        around = self._host._around

        def call() -> Awaitable[Any]:
            # Made anew for each further try: a step may change them.
            arguments = checked.pop() if checked else signature.arguments(self._step.arguments)

            def function() -> Any:
                return signature.call((first,), arguments)

            if around is not None:
                return self._stand_in(definition, is_async, around(definition, self._step, first, arguments), function)
            return self._invoke(is_async, agent, function)

        return call

    def _first(self, definition: Step[Any, Any]) -> Attempt:
        """What a step's function, or a compensation's, is given first."""
        step = self._step
        assert step.complete_by is not None
        given = (self._dispatch.task_id, step.label, step.attempt, step.idempotency_key, step.complete_by)
        if step.kind is not StepKind.COMPENSATION:
            return Attempt(*given, self._remaining)
        assert step.undo is not None
        context = _read_undo(step.undo)
        result = None if context.result is None else definition.signature.result(context.result)
        return Undo(*given, self._remaining, outcome=context.outcome, forward_key=context.forward_key, result=result)

    async def _stand_in(
        self,
        definition: Step[Any, Any],
        is_async: bool,
        instead: Callable[[], Any] | None,
        function: Callable[[], Any],
    ) -> Any:
        """What a test has put in the step's place; else its own function, with the resources opened by now."""
        if instead is not None:
            value = instead()
            return await value if inspect.isawaitable(value) else value
        await self._host.open_resources(definition.agent)
        return await self._invoke(is_async, definition.agent, function)

    def _invoke(self, is_async: bool, agent: Agent, function: Callable[[], Any]) -> Awaitable[Any]:
        open_resources.set(self._host._resources)
        if is_async:
            coroutine: Awaitable[Any] = function()
            return coroutine
        task = asyncio.current_task()
        assert task is not None
        self._in_thread = True
        self._host._in_threads.add(self)

        answer = self._thread_answer = ThreadAnswer(function)

        def ended() -> None:  # only now is its place free, also when it outlived its deadline
            self._in_thread = False
            self._host._in_threads.discard(self)
            if task.done():
                self._host.give_back(agent.name)
                self._report_thread_answer()

        return self._host._ports.in_thread(agent.name, agent.max_in_flight, answer.call, ended)


def _failure_of(error: BaseException) -> StepFailure:
    """Why a try has no result, by what the step's function raised."""
    if not isinstance(error, StepError):
        return StepFailure("unknown", error_text(error), trace=trace_of(error))
    cause: Cause = (
        "permanent" if isinstance(error, Permanent) else "transient" if isinstance(error, Transient) else "unknown"
    )
    fields = step_error_fields(error)
    return StepFailure(cause, fields.message, fields.code, fields.details, trace_of(error))
