"""One attempt of a step: its tries up to its ``complete_by``, and its report, if there is one."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from ..core.supervision import decode_step_policy, on_attempt_failed, retry_delay
from ..declare.attempt import Attempt, StepTry, current_try
from ..declare.callbacks import CallbackAccess, read_arguments
from ..declare.compensation import Compensation
from ..declare.resources import ResourcePool, open_resources
from ..declare.signature import Signature
from ..declare.steps import Agent, Step
from ..errors import InvalidInput, Permanent, StepError, StoreError, Transient
from ..model import StepKind, StepRow
from ..model.answers import Dispatch
from ..model.failures import StepFailure
from ..model.moves import GaveUp, Outcome, Reported
from ..payloads.codec import step_error_fields
from . import crash_points
from .agent_requests import RemoteAttempt
from .attempt_outcome import ThreadAnswer, build_failure, build_refusal, build_undo, encode_success
from .attempt_time import AttemptRegistry, AttemptTime
from .call_monitor import EndedCall
from .callbacks import build_accesses
from .child_call import call_in_child
from .hosted_agent import HostedAgent
from .ports import Timer
from .process_context import ProcessContext
from .remote_dispatcher import RemoteDispatcher, push_request
from .shutdown import CANCELLED_SECONDS_MAX

logger = logging.getLogger("arriero")
TRUST_SECONDS = 0.05  # between looks whether the process's lease was renewed


class AttemptParts(msgspec.Struct, frozen=True):
    """The parts of the process that all its attempts use.

    Attributes:
        report: called with each report; the one who drives the task takes it.
        report_late: called with a report whose attempt's time was over; it changes nothing.
        in_threads: attempts whose function runs in a thread, also after their own end.
    """

    context: ProcessContext
    registry: AttemptRegistry
    resources: ResourcePool
    remote: RemoteDispatcher
    report: Callable[[StepRow, Reported], None]
    report_late: Callable[[Reported], None]
    in_threads: "set[AttemptRun]"


class AttemptRun:
    """One attempt: its tries and its report."""

    def __init__(self, parts: AttemptParts, hosted: HostedAgent, dispatch: Dispatch, deadline: float) -> None:
        context = self._context = parts.context
        self._parts = parts
        self._hosted = hosted
        self.dispatch = dispatch
        self._step = dispatch.step
        self._time = AttemptTime(context, parts.registry, dispatch, deadline)
        self._clock = context.clock
        self.label = dispatch.step.label
        self._definition = hosted.agent.steps.get(dispatch.step.name)  # None: not in this process
        self._in_thread = False
        self._thread_answer: ThreadAnswer | None = None  # of the last try that ran in a thread
        self._task: asyncio.Task[None] | None = None  # from its first line on: it may be cancelled before
        self._number = 0  # of the try running, or the last one
        self._call_began: float | None = None  # when the try running began, monotonic
        self._step_try: StepTry | None = None  # the same
        self._timer: Timer | None = None  # until its deadline
        self._leaving: Timer | None = None
        self.has_place = True  # of its Agent; False while it waits for the retry budget
        self.has_reported = False
        self._remote_attempt: RemoteAttempt | None = None  # of the last try, if a program outside of Python makes it
        self._accesses: Mapping[str, CallbackAccess] = {}  # to the callbacks among its arguments
        self.is_over = False  # it has ended, or was left behind
        self._over: asyncio.Future[None] | None = None  # made for the caller that waits for that

    def is_in_time(self) -> bool:
        """Returns True before its deadline: a second run of it would overlap with this one."""
        return self._time.remaining_seconds() > 0

    def end(self) -> None:
        """Finish an attempt that has ended, maybe before its first line."""
        if self._task is None:
            self._hosted.give_back(self._step.priority)
        if self._leaving is not None:
            self._leaving.cancel()
        self.is_over = True
        if self._over is not None:
            self._set_over()

    def wait_until_over(self) -> "asyncio.Future[None]":
        """A future that is done once the attempt has ended, or was left behind."""
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
            if self.is_over:
                self._over.set_result(None)
        return self._over

    def _set_over(self) -> None:
        self.is_over = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def leave_behind(self) -> None:
        """Stop waiting for an attempt that swallows its cancellation. It has no lease, and its report comes too late to count."""
        if self.is_over:
            return
        self._set_over()
        logger.error(
            "attempt %d of step %s of task %s continues %g s after it was cancelled: it is left behind, and nothing that it "
            "still does counts; let the step pass asyncio.CancelledError on",
            self._step.attempt,
            self.label,
            self.dispatch.task_id,
            CANCELLED_SECONDS_MAX,
        )

    async def run(self) -> None:
        self._task = asyncio.current_task()
        self._expire_later()
        outcome = None
        try:
            outcome = await self._run_tries()
        except asyncio.CancelledError:
            # Past complete_by, or the process stops: there is no answer, no matter who supervises decides.
            if self._call_began is not None and not self.is_in_time():
                self._note_call("expired", StepFailure("expired", "no answer within its time"))
        except Exception:
            self._log_breakage()
        finally:
            self._time.is_over = True
            if self._time.publisher is not None:
                self._time.publisher.close()
            if self._timer is not None:
                self._timer.cancel()
            if self.has_place and not self._in_thread:
                self._hosted.give_back(self._step.priority)
        if outcome is not None:
            self._report(outcome)
        elif not self._in_thread:
            self._report_thread_answer()

    def _report(self, outcome: Outcome) -> None:
        """Report an outcome. After the deadline it is sent once: the store keeps it, and nothing follows from it."""
        step, self.has_reported = self._step, True
        now = self._context.store.now()
        published = None if self._time.publisher is None else self._time.publisher.close()
        report = Reported(
            step.step_no, step.fence, outcome, now, self._number, step.attempt, self._time.complete_by, published
        )
        if self._time.remaining_seconds() > 0:
            self._parts.report(step, report)
        else:
            self._parts.report_late(report)

    def _report_thread_answer(self) -> None:
        """Report a function that ended in its thread after its attempt. An attempt dropped before its deadline reports nothing."""
        answer, self._thread_answer = self._thread_answer, None
        if answer is None or not answer.is_given() or self._time.remaining_seconds() > 0:
            return
        try:
            self._report(self._build_outcome(answer))
        except Exception:
            self._log_breakage()

    def _build_outcome(self, answer: ThreadAnswer) -> Outcome:
        try:
            value = answer.value()
        except BaseException as error:  # whatever a user's function raises
            failure = build_failure(error)
            return GaveUp(failure, failure.cause == "unknown" or self._is_refuted(error))
        return encode_success(self._step, self._definition, value)

    def _log_breakage(self) -> None:
        logger.exception(
            "attempt %d of step %s of task %s broke; it will expire",
            self._step.attempt,
            self.label,
            self.dispatch.task_id,
        )

    def _expire_later(self) -> None:
        self._timer = self._clock.call_later(self._time.remaining_seconds(), self._expire)

    def _expire(self) -> None:
        assert self._task is not None
        if self.is_in_time():  # its code has asked for more time meanwhile
            self._expire_later()
            return
        self._task.cancel()
        self._leaving = self._clock.call_later(CANCELLED_SECONDS_MAX, self.leave_behind)

    async def _run_tries(self) -> Outcome | None:
        try:
            if self._definition is not None and self._definition.signature.takes_references:
                self._accesses = await build_accesses(self._context, self._step)
            call = self._build_call()
        except Transient as error:
            return self._decide_failure(build_failure(error), in_doubt=False)
        except InvalidInput as error:  # recorded by other code than ours: nothing was sent, and no retry will fix it
            return self._decide_failure(build_refusal(self._step, self._definition, error), in_doubt=False)
        if call is None:
            return None
        retry = decode_step_policy(self._step.policy).retry
        unsure = False
        for number in range(1, retry.tries + 1):
            if not (self._may_send() or await self._may_send_later()):
                return None
            self._number = number
            retry_after, unavailable = None, False
            self._call_began = self._clock.monotonic()
            self._hosted.retries.note_call()
            try:
                value = await (self._send(call) if crash_points.is_armed else call())
            except Permanent as error:
                refuted = self._is_refuted(error)
                failure = build_failure(error)
                self._note_call("permanent", failure)
                return self._decide_failure(failure, in_doubt=unsure or refuted)
            except Transient as error:
                unsure = unsure or self._is_refuted(error)
                failure, fields = build_failure(error), step_error_fields(error)
                retry_after, unavailable = fields.retry_after, fields.unavailable
            except asyncio.CancelledError as error:
                if self._task is None or self._task.cancelling():
                    raise
                unsure = True  # the step cancelled itself, nobody asked it to
                failure = build_failure(error)
            except (Exception, SystemExit) as error:  # a step that calls sys.exit must not take the process along
                unsure = True
                failure = build_failure(error)
            else:
                self._note_call("succeeded")
                return encode_success(self._step, self._definition, value)
            finally:
                if self._step_try is not None:
                    self._step_try.end()
            self._note_call(failure.cause, failure, retry_after=retry_after, unavailable=unavailable)
            delay, delay_max = retry.delay_seconds()
            wait = retry_delay(
                number,
                delay=delay,
                factor=retry.factor,
                delay_max=delay_max,
                jitter=self._context.ports.random.random(),
            )
            wait = max(wait, retry_after or 0.0)
            is_last = number == retry.tries or self._step.is_canary or self._is_barred() or self._is_reported()
            if is_last or wait >= self._time.remaining_seconds():
                return self._decide_failure(failure, in_doubt=unsure, retry_after=retry_after)
            await self._clock.sleep(wait)
            # It may be barred since the last try.
            if self._is_barred() or not await self._may_retry() or not await self._begin_try(in_doubt=unsure):
                return self._decide_failure(failure, in_doubt=unsure)
        return None

    async def _begin_try(self, *, in_doubt: bool) -> bool:
        """Wait until the store allows another call. Returns False if it does not within the attempt's time, or does not answer.

        ``in_doubt``: a call before may have happened; with a report to come by way of others the store keeps that first.
        """
        while (left := self._time.remaining_seconds()) > 0:
            try:
                wait = await self._hosted.begin_try(self._step, in_doubt=in_doubt)
            except StoreError:
                return False
            if wait is None or wait >= left:
                return False
            if wait == 0:
                return True
            await self._clock.sleep(wait)
        return False

    def _note_call(
        self,
        end: str,
        failure: StepFailure | None = None,
        *,
        retry_after: float | None = None,
        unavailable: bool = False,
    ) -> None:
        """Count an ended call for its breaker. The call of a program is counted once it is known that no other process counts it."""
        assert self._call_began is not None
        seconds, self._call_began = self._clock.monotonic() - self._call_began, None
        call = EndedCall(end, seconds, "" if failure is None else failure.message)
        count = partial(self._count_call, call, retry_after, unavailable)
        if self._remote_attempt is not None and self._remote_attempt.is_delivered:
            self._parts.remote.calls.count_call(self._remote_attempt, end, count)
        else:
            count()

    def _count_call(self, call: EndedCall, retry_after: float | None, unavailable: bool) -> None:
        self._hosted.note_call(self._step, call, retry_after=retry_after, unavailable=unavailable)

    def _is_barred(self) -> bool:
        """Returns True if the breaker of the Agent is known not to be closed: no further try is made."""
        return self._hosted.breakers.is_barred(self._step.app, self._step.target)

    async def _may_retry(self) -> bool:
        """Wait until the retry budget allows another try. Returns False if it does not within the attempt's time."""
        if self._hosted.retries.may_retry():
            return True
        self.has_place = False
        self.has_place = await self._hosted.wait_for_retry(
            self._step.priority, remaining=self._time.remaining_seconds, is_barred=self._is_barred
        )
        return self.has_place

    def _is_refuted(self, error: BaseException) -> bool:
        """Returns True if a client raised ``error`` as "definitely did not happen", and the same try sent more afterwards."""
        if self._step_try is None or not isinstance(error, StepError):
            return False
        self._step_try.end()  # first: a thread of the step's that sends now is seen below, or is refused
        return self._step_try.is_refuted(error)

    def _may_send(self) -> bool:
        """Returns True if a try may be made: in time by this process's clock and the store's, and under a trusted lease."""
        is_in_time = self._time.remaining_seconds() > 0 and self._context.store.now() < self._time.complete_by
        return is_in_time and self._context.is_trusted()

    async def _may_send_later(self) -> bool:
        """Wait until a try may be made. Returns False if the time is over before.

        If many processes write to one store, renewals of the lease may be late. No try is made before a renewal succeeds. No
        renewal succeeds after others may have freed what this process holds.
        """
        while self._time.remaining_seconds() > 0:
            await self._clock.sleep(TRUST_SECONDS)
            if self._may_send():
                return True
        return False

    async def _send(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a try between its two crash points."""
        is_undo = self._step.kind is StepKind.COMPENSATION
        crash_points.reach("before_undo_send" if is_undo else "before_send")
        try:
            return await call()
        finally:
            crash_points.reach("after_undo_send" if is_undo else "after_send")

    def _decide_failure(self, failure: StepFailure, *, in_doubt: bool, retry_after: float | None = None) -> Outcome:
        now = self._context.store.now()
        return on_attempt_failed(
            self._step,
            failure,
            now,
            in_doubt=in_doubt,
            jitter=self._context.ports.random.random(),
            retry_after=retry_after,
        )

    def _build_call(self) -> Callable[[], Awaitable[Any]] | None:
        """Build a function that makes one try; None when this process does not have the code."""
        step, definition = self._step, self._definition
        if definition is None:
            return None
        is_undo = step.kind is StepKind.COMPENSATION
        code: Step[Any, Any] | Compensation | None = definition.undone_by if is_undo else definition
        if code is None:
            return None
        given = (self.dispatch.task_id, self.label, step.attempt, step.idempotency_key, self._time)
        first = build_undo(self._step, definition, given) if is_undo else Attempt(*given)
        return partial(
            self._make_try, definition, code, first, [_read_arguments(code.signature, step.arguments, self._accesses)]
        )

    def _make_try(
        self, definition: Step[Any, Any], code: Step[Any, Any] | Compensation, first: Attempt, checked: list[Any]
    ) -> Awaitable[Any]:
        """Call the step's function. ``checked``: its arguments; made again for each further try, as a step may change them."""
        step, signature, agent = self._step, code.signature, definition.agent
        arguments = checked.pop() if checked else _read_arguments(signature, step.arguments, self._accesses)
        self._step_try = StepTry(first, self.dispatch.tags)
        current_try.set(self._step_try)
        if self._context.substitutes is not None:
            instead = self._context.substitutes.find_step(definition, step, first, arguments)
            return self._call_substitute(agent, code.is_async, instead, partial(signature.call, first, arguments))
        if definition.is_remote:
            return self._ask_program(definition, first)
        if isinstance(code, Step) and code.run_in == "process" and not self._context.ports.runs_inline:
            return call_in_child(self._context.ports, code, step, self.dispatch.task_id, self._time, self._accesses)
        open_resources.set(self._parts.resources.opened)
        if code.is_async:
            coroutine: Awaitable[Any] = signature.call(first, arguments)
            return coroutine
        return self._call_in_thread(agent, partial(signature.call, first, arguments))

    def _ask_program(self, definition: Step[Any, Any], first: Attempt) -> Awaitable[Any]:
        """Have a program outside of Python carry the step out."""
        assert self._task is not None
        self._remote_attempt = RemoteAttempt(self.dispatch, definition, first, self._time, self._task, self._accesses)
        if definition.is_pulled:
            return self._parts.remote.wait_for_report(self._remote_attempt)
        open_resources.set(self._parts.resources.opened)
        return push_request(self._parts.remote, self._remote_attempt)

    def _is_reported(self) -> bool:
        """Returns True if the last try ended by a program's report: there is one for an attempt, so no try follows."""
        return self._remote_attempt is not None and self._remote_attempt.is_delivered

    async def _call_substitute(
        self, agent: Agent, is_async: bool, instead: Callable[[], Any] | None, function: Callable[[], Any]
    ) -> Any:
        """Call what a test has put in the step's place; else the step's function, once its resources are open."""
        if instead is not None:
            value = instead()
            return await value if inspect.isawaitable(value) else value
        if self._definition is not None and self._definition.is_remote:
            raise Permanent(
                f"step {self.label} is remote, and this test has no program for it: say what it answers with world.answers or"
                " world.replace",
                code="no_answer",
            )
        current_try.set(None)  # what a resource sends while it opens is not the step's
        await self._parts.resources.open(agent.resources)
        current_try.set(self._step_try)
        open_resources.set(self._parts.resources.opened)
        return await (function() if is_async else self._call_in_thread(agent, function))

    def _call_in_thread(self, agent: Agent, function: Callable[[], Any]) -> Awaitable[Any]:
        task = asyncio.current_task()
        assert task is not None
        self._in_thread = True
        self._parts.in_threads.add(self)

        answer = self._thread_answer = ThreadAnswer(function)

        def on_end() -> None:  # only now is its place free, also when it outlived its deadline
            self._in_thread = False
            self._parts.in_threads.discard(self)
            if task.done():
                self._hosted.give_back(self._step.priority)
                self._report_thread_answer()

        return self._context.ports.run_in_thread(agent.name, agent.max_in_flight, answer.call, on_end)


def _read_arguments(signature: Signature, text: str, accesses: Mapping[str, CallbackAccess]) -> dict[str, Any]:
    return read_arguments(signature, text, accesses) if signature.takes_references else signature.arguments(text)
