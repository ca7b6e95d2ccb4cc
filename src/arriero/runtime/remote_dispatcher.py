"""Hands requests of remote steps to the programs that poll for them, and waits for their reports.

A program polls for requests of an Agent. While it waits, what it asks for are the Agent's places here, so a request is taken
from the store only if a caller waits for it. An attempt waits here from its beginning to its report. Its request is
handed to a poll, and is delivered once the answer of the poll has been written. A request that nobody fetches goes back to
the store; it costs no attempt.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..errors import InvalidInput, StoreError, Transient
from ..model import StepRow
from ..model.answers import Answer, Applied, Refusal
from ..model.commands import DeliverAttempt, ReleaseAttempt
from ..store.contract import CAPABILITY_SECRET
from .agent_requests import RemoteAttempt, RemoteCalls, RemoteRequest, build_request
from .hosted_agent import HostedAgent
from .process_context import ProcessContext
from .report_verdicts import AttemptIdentity, ReportedFailure, ReportedResult, ReportVerdicts
from .request_taker import RequestTaker

logger = logging.getLogger("arriero")
TAKE_SECONDS_MAX = 5.0  # that a poll waits for the store beyond its own time
FETCH_SECONDS = 1.0  # that a request waits for the next poll of its Agent before it goes back to the store
LOOK_SECONDS = 1.0  # between looks whether attempts here were reported, extended or released by way of another process


class Poll:
    """A program that waits for requests of one Agent.

    ``requests``: those that it is to be given. ``asked_with``: the Take that asks for them; 0: none is running.
    """

    def __init__(self, agent: str, limit: int) -> None:
        self.agent = agent
        self.limit = limit
        self.requests: list[RemoteAttempt] = []
        self.arrived = asyncio.Event()
        self.asked_with = 0
        self.is_open = True


class RemoteDispatcher:
    """Gives requests of remote steps to programs that poll, and waits for their reports.

    A poll waits for the Take that it has caused, and for the requests that it brings: their attempts begin within moments.
    """

    def __init__(
        self,
        context: ProcessContext,
        hosted: Mapping[str, HostedAgent],
        verdicts: ReportVerdicts,
        taker: RequestTaker,
    ) -> None:
        self.context = context
        self._hosted = hosted
        self._verdicts = verdicts
        self._taker = taker
        self._secret: bytes | None = None
        self._remote_attempts: dict[AttemptIdentity, RemoteAttempt] = {}
        self._waiting: defaultdict[str, deque[RemoteAttempt]] = defaultdict(deque)
        self._polls: defaultdict[str, dict[Poll, None]] = defaultdict(dict)
        self._coming: defaultdict[str, set[AttemptIdentity]] = defaultdict(set)  # taken, and not handed out yet
        self.calls = RemoteCalls(context, verdicts, self._begin)
        self._tasks: set[asyncio.Task[None]] = set()
        self._looked_at = 0.0
        self.is_draining = False  # once True, no request is given out any longer

    async def read_secret(self) -> bytes:
        """Read the secret under which capabilities are signed, once. Raises StoreError.

        It changes with the store's epoch, and a process of an earlier epoch begins again.
        """
        if self._secret is None:
            self._secret = await self.context.store.read_secret(CAPABILITY_SECRET)
        return self._secret

    def is_busy(self) -> bool:
        """Returns True if it still asks the store about an attempt that has ended, or gives one back."""
        return bool(self._tasks)

    # --- attempts
    async def wait_for_report(self, remote_attempt: RemoteAttempt) -> ReportedResult:
        """Hand the request of an attempt out, and wait for its report. Raises ReportedFailure."""
        agent = remote_attempt.dispatch.step.agent
        self._remote_attempts[remote_attempt.identity] = remote_attempt
        try:
            if not remote_attempt.is_delivered:
                self._waiting[agent].append(remote_attempt)
                self._hand_out(agent)
            else:
                self._hosted[agent].delivered += 1
            self.note_begun(remote_attempt.dispatch.step)
            return await remote_attempt.outcome
        finally:
            del self._remote_attempts[remote_attempt.identity]
            remote_attempt.outcome.cancel()
            if remote_attempt.is_delivered:
                self._hosted[agent].delivered -= 1
            elif remote_attempt in self._waiting[agent]:
                self._waiting[agent].remove(remote_attempt)

    def find(self, identity: AttemptIdentity) -> RemoteAttempt | None:
        """Find an attempt that waits here for its report."""
        remote_attempt = self._remote_attempts.get(identity)
        return None if remote_attempt is None or remote_attempt.outcome.done() else remote_attempt

    def settle(self, remote_attempt: RemoteAttempt, outcome: ReportedResult | ReportedFailure) -> "asyncio.Future[str]":
        """End an attempt by its report. Returns: a future of what the store says of it; see ``ReportVerdicts``."""
        verdict = self._verdicts.expect(remote_attempt.identity)
        if isinstance(outcome, ReportedResult):
            remote_attempt.outcome.set_result(outcome)
        else:
            remote_attempt.outcome.set_exception(outcome)
        return verdict

    # --- polls
    def open_poll(self, agent: str, limit: int) -> Poll:
        """Begin to wait for requests of an Agent."""
        poll = Poll(agent, limit)
        self._hosted[agent].last_poll = self.context.store.now()
        if self.is_draining:
            poll.is_open = False
            return poll
        self._polls[agent][poll] = None
        self._hosted[agent].wanted += limit
        self._hand_out(agent)
        if len(poll.requests) < limit:
            self._hosted[agent].note_waiting()
            poll.asked_with = self._taker.find_asking()
        return poll

    async def wait(self, poll: Poll, seconds: float) -> None:
        """Wait until a poll has requests that may be delivered, or until its time is over.

        A poll waits at least for the Take that it has caused. What that brought would else wait for a next poll and go back,
        and a program that asks now and then without waiting would never get a request.
        """
        clock = self.context.clock
        until = clock.monotonic() + seconds
        at_least = until + TAKE_SECONDS_MAX
        while poll.is_open and (left := (at_least if self._is_awaited_by(poll) else until) - clock.monotonic()) > 0:
            self._drop_ended(poll)
            if poll.requests and self.context.is_trusted():
                await clock.sleep(0)  # what was taken with the same commit comes along
                break
            poll.arrived.clear()
            await clock.idle(poll.arrived, min(left, LOOK_SECONDS))
        self._drop_ended(poll)
        if not self.context.is_trusted():  # others may have freed what this process holds
            self._put_back(poll)
        self._keep_only(poll, len(poll.requests))

    def _keep_only(self, poll: Poll, count: int) -> None:
        """Hand nothing more to a poll: its answer is being written."""
        if poll in self._polls[poll.agent]:
            self._hosted[poll.agent].wanted += count - poll.limit
        poll.limit = count

    def confirm(self, poll: Poll) -> None:
        """Note that the answer of a poll was written: its requests are delivered."""
        self._drop_ended(poll)
        for remote_attempt in poll.requests:
            remote_attempt.is_delivered = True
            self._hosted[poll.agent].delivered += 1
            if self.is_draining:
                self._begin_hand_over(remote_attempt)
        poll.requests = []
        self._close(poll)

    def give_up(self, poll: Poll) -> None:
        """Note that a poll definitely gets no answer: its requests go to the next one. Nothing happens after ``confirm``."""
        self._close(poll)
        self._put_back(poll)

    def _close(self, poll: Poll) -> None:
        poll.is_open = False
        if poll in self._polls[poll.agent]:
            del self._polls[poll.agent][poll]
            self._hosted[poll.agent].wanted -= poll.limit

    def _put_back(self, poll: Poll) -> None:
        self._drop_ended(poll)
        requests, poll.requests = poll.requests, []
        self._waiting[poll.agent].extendleft(reversed(requests))
        self._hand_out(poll.agent)

    @staticmethod
    def _drop_ended(poll: Poll) -> None:
        poll.requests = [remote_attempt for remote_attempt in poll.requests if not remote_attempt.outcome.done()]

    def _hand_out(self, agent: str) -> None:
        waiting = self._waiting[agent]
        for poll in self._polls[agent] if self.context.is_trusted() else ():
            while waiting and len(poll.requests) < poll.limit:
                poll.requests.append(waiting.popleft())
                poll.arrived.set()
        if waiting:
            seconds = 0.0 if self.is_draining else FETCH_SECONDS
            self.context.clock.call_later(seconds, partial(self._release_unfetched, agent, tuple(waiting)))

    # --- the Takes that polls wait for
    def note_taken(self, step: StepRow) -> None:
        """Note a request that a Take has brought: its attempt begins within moments, and waits for a poll then."""
        if self._polls[step.agent]:
            self._coming[step.agent].add((step.step_no, step.fence))

    def note_begun(self, step: StepRow) -> None:
        """Note that a request of a Take was handed out, or that its attempt has ended before that."""
        coming = self._coming[step.agent]
        coming.discard((step.step_no, step.fence))
        if not coming:
            for poll in self._polls[step.agent]:
                poll.arrived.set()

    def note_take_answered(self) -> None:
        """Let polls go whose time is over, and which only waited for the Take that they have caused."""
        asking, answered = self._taker.find_asking(), self._taker.answered
        for polls in self._polls.values():
            for poll in polls:
                if poll.asked_with and (answered >= poll.asked_with or not asking):
                    poll.asked_with = 0
                    poll.arrived.set()

    def _is_awaited_by(self, poll: Poll) -> bool:
        return poll.asked_with > 0 or bool(self._coming[poll.agent])

    # --- going back
    def _release_unfetched(self, agent: str, waited: tuple[RemoteAttempt, ...]) -> None:
        """Give back what no poll has fetched meanwhile."""
        self._hand_out_again(agent)
        for remote_attempt in [remote_attempt for remote_attempt in waited if remote_attempt in self._waiting[agent]]:
            self._waiting[agent].remove(remote_attempt)
            remote_attempt.is_leaving = True
            self._begin(self._release(remote_attempt), "arriero-release")

    def _begin(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hand_out_again(self, agent: str) -> None:
        if self._polls[agent] and self._waiting[agent] and self.context.is_trusted():
            self._hand_out(agent)

    async def _release(self, remote_attempt: RemoteAttempt) -> None:
        try:
            await self.release(remote_attempt)
        except StoreError:
            remote_attempt.is_leaving = False
            if not remote_attempt.outcome.done():
                self._waiting[remote_attempt.dispatch.step.agent].append(remote_attempt)
                self._hand_out(remote_attempt.dispatch.step.agent)

    async def release(self, remote_attempt: RemoteAttempt) -> Answer:
        """Give an attempt back to the store, unbegun. Returns the store's answer. Raises StoreError."""
        step_no, fence = remote_attempt.identity
        answer, _ = await self.context.ask(ReleaseAttempt(actor=self.context.actor, step_no=step_no, fence=fence))
        if isinstance(answer, Applied):
            self._end(remote_attempt)
            self._hosted[remote_attempt.dispatch.step.agent].note_waiting()
        elif isinstance(answer, Refusal):  # it is over: its time is, or it ended by way of another process
            self._end(remote_attempt)
        return answer

    def _end(self, remote_attempt: RemoteAttempt) -> None:
        """End an attempt without a report: it is over by what the store says."""
        if not remote_attempt.outcome.done():
            remote_attempt.outcome.cancel()
            remote_attempt.task.cancel()

    # --- what programs hold
    def _begin_hand_over(self, remote_attempt: RemoteAttempt) -> None:
        self._begin(self._hand_over(remote_attempt), "arriero-delivered")

    async def _hand_over(self, remote_attempt: RemoteAttempt) -> None:
        """Give a delivered attempt to its program: from then on neither the loss nor the end of this process touches it."""
        step_no, fence = remote_attempt.identity
        command = DeliverAttempt(
            actor=self.context.actor, process_no=self.context.process_no, step_no=step_no, fence=fence
        )
        try:
            await self.context.ask(command)
        except (StoreError, InvalidInput) as error:  # the next look asks again
            logger.info("the request of step %s was delivered, and the store does not know yet: %s", step_no, error)
            return
        remote_attempt.is_handed_over = True
        if self.is_draining:
            self._end(remote_attempt)

    # --- what came by way of others
    async def look(self) -> None:
        """Ask the store now and then which of the attempts here still run: their reports may have come to other processes.

        Those that run are handed over to their programs. One that is reported sooner costs no commit for that.
        """
        clock = self.context.clock
        if clock.monotonic() < self._looked_at + LOOK_SECONDS:
            return
        delivered = [remote_attempt for remote_attempt in self._remote_attempts.values() if remote_attempt.is_delivered]
        if not delivered:
            return
        self._looked_at = began_at = clock.monotonic()
        running = await self.context.store.list_running_attempts([one.dispatch.step.step_no for one in delivered])
        complete_by = {(one.step_no, one.fence): one.complete_by for one in running}
        now = self.context.store.now()
        for remote_attempt in delivered:
            by = complete_by.get(remote_attempt.identity)
            if by is None:
                self._end(remote_attempt)
            else:
                remote_attempt.time.learn(by, began_at, now)
                if not remote_attempt.is_handed_over:
                    self._begin_hand_over(remote_attempt)

    # --- the end
    def drain(self) -> None:
        """Give no request out any longer. Attempts that are delivered end here: their programs hold them."""
        self.is_draining = True
        for remote_attempt in self._remote_attempts.values():
            if remote_attempt.is_delivered:
                self._begin_hand_over(remote_attempt)
        for agent in list(self._polls):
            for poll in list(self._polls[agent]):
                if not poll.requests:
                    self._close(poll)
                    poll.arrived.set()
            self._hand_out(agent)
        for agent in list(self._waiting):
            self._release_unfetched(agent, tuple(self._waiting[agent]))

    def abandon(self) -> None:
        """Forget everything: what was here is another's now."""
        self.is_draining = True
        for task in self._tasks:
            task.cancel()
        for polls in self._polls.values():
            for poll in list(polls):
                poll.requests = []
                self._close(poll)
                poll.arrived.set()


@runtime_checkable
class SendingAgent(Protocol):
    """An Agent that can send requests."""

    async def send_request(self, request: RemoteRequest, body: bytes, message_id: str) -> bytes | None:
        """Send a request. Returns the JSON of its result; None: the program will report.

        Raises: StepError - it failed; see ``http.meaning``.
        """
        ...


async def push_request(dispatcher: RemoteDispatcher, remote_attempt: RemoteAttempt) -> Any:
    """Make one try: send the request, and wait for the report if the program promises one.

    Returns: the result as plain JSON values, or as it was reported. Raises: StepError, ReportedFailure.
    """
    agent, context = remote_attempt.definition.agent, dispatcher.context
    assert isinstance(agent, SendingAgent)
    try:
        secret = await dispatcher.read_secret()
    except StoreError as error:  # nothing was sent
        raise Transient(f"the store did not answer: {error}", code="no_store") from error
    request = build_request(remote_attempt, context.store.store_id, secret, context.app)
    step = remote_attempt.dispatch.step
    body = msgspec.json.encode(request)
    answer = await agent.send_request(request, body, f"{step.idempotency_key}-{step.fence}")
    if answer is None:
        remote_attempt.is_delivered = True
        return await dispatcher.wait_for_report(remote_attempt)
    if request.kind == "compensation":
        return ReportedResult("null")
    return msgspec.json.decode(answer)
