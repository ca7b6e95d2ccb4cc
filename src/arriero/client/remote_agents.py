"""Agents outside of Python as one process serves them: their programs take requests, and report how the attempts ended."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, NoReturn

import msgspec
from msgspec.structs import replace

from ..core.capabilities import Capability, read_capability, seal_capability
from ..core.supervision import compute_complete_within, on_attempt_failed
from ..core.transitions import report_verdict
from ..declare.attempt import encode_published
from ..declare.steps import Agent, Step
from ..errors import AgentRequestRefused, AttemptOver, InvalidInput
from ..events.base import payload_hash
from ..model import NOT_SAID, Instant, StepKind, StepRow, later, seconds_between
from ..model.answers import Answer, Applied, AttemptApplied, Refusal
from ..model.commands import ExtendAttempt, PublishProgress, ReleaseAttempt, Report, SaveCheckpoint
from ..model.failures import StepFailure
from ..model.instants import as_datetime
from ..model.moves import GaveUp, Outcome, Reported, Succeeded
from ..model.policies import check_seconds
from ..payloads.codec import encode_untyped, recordable_details, recordable_text, refuse_deep
from ..runtime.agent_host import AgentHost
from ..runtime.agent_requests import RemoteRequest, build_request
from ..runtime.call_monitor import EndedCall
from ..runtime.report_verdicts import (
    APPLIED,
    UNANSWERED,
    UNSENT,
    ReportedFailure,
    ReportedPermanent,
    ReportedResult,
    ReportedTransient,
    ReportedUnknown,
    read_verdict,
)
from ..store.readable import refuse_unreadable
from .remote_progress import RemoteProgress
from .session import Session

_REFUSALS = {
    "duplicate": ("report-duplicate", "the attempt is reported already: its first report counts"),
    "late": ("report-expired", "the deadline has passed; a result is kept for operators, and changes nothing"),
    "unknown": ("report-ended", "the task or its step no longer exists"),
    "unanswered": ("report-unanswered", "nobody knows yet if it is kept: send it again"),
}
_STALE = ("report-stale", "the attempt is over: it was recovered, released, or taken by another program")


def describe_refusal(verdict: str) -> tuple[str, str]:
    """Return the code and the message of a refusal for the store's verdict about a report."""
    return _REFUSALS.get(verdict, _STALE)


class StoredAttempt:
    """Attempt of a remote step, by its row in the store. ``step``: its row, as just read."""

    def __init__(
        self, hosts: AgentHost, session: Session, capability: Capability, step: StepRow, definition: Step[..., object]
    ) -> None:
        self._hosts = hosts
        self._session = session
        self._capability = capability
        self.step = step
        self.definition = definition

    async def report(self, outcome: ReportedResult | ReportedFailure) -> str:
        """Report to the store. Returns: ``applied``, or the verdict for the program: ``late``
        after the deadline, even if the store says ``stale``.

        A report that is refused whatever it says writes nothing, so a program may repeat it a thousand times. A result that
        came too late is written once, as the first answer of its attempt is kept for operators.
        """
        now = self._session.store.now()
        verdict = report_verdict(self.step, self._capability.fence, now)
        is_late = now >= self._capability.complete_by
        if verdict == "duplicate" or (verdict == "stale" and not is_late):
            return verdict
        if is_late or verdict != "applied":
            await self._keep_late_answer(outcome, now)
            return "late"
        answer = await self._send(self._decide(outcome, now), now, late=False)
        if isinstance(answer, Applied):
            self._note_call(outcome, now)
            self._session.hint()  # it may have woken its task
        return read_verdict(answer)

    async def _keep_late_answer(self, outcome: ReportedResult | ReportedFailure, now: Instant) -> None:
        kept = await self._session.store.late_answers(self.step.task_no)
        if not any((one.ordinal, one.fence) == (self.step.ordinal, self._capability.fence) for one in kept):
            decided: Outcome = (
                Succeeded(outcome.result) if isinstance(outcome, ReportedResult) else GaveUp(outcome.failure, True)
            )
            await self._send(decided, now, late=True)

    async def _send(self, outcome: Outcome, now: Instant, *, late: bool) -> Answer:
        capability = self._capability
        report = Reported(
            step_no=capability.step_no,
            fence=capability.fence,
            outcome=outcome,
            delivered_at=now,
            attempt=capability.attempt,
            complete_by=capability.complete_by,
        )
        command = Report(
            actor=self._hosts.context.actor, process_no=self._hosts.context.process_no, report=report, late=late
        )
        answer, _ = await self._hosts.context.ask(command)
        return answer

    def _decide(self, outcome: ReportedResult | ReportedFailure, now: Instant) -> Outcome:
        if isinstance(outcome, ReportedResult):
            return Succeeded(outcome.result)
        return on_attempt_failed(
            self.step,
            outcome.failure,
            now,
            in_doubt=outcome.failure.cause == "unknown",
            jitter=self._session.ports.random.random(),
            retry_after=outcome.retry_after if isinstance(outcome, ReportedTransient) else None,
        )

    def _note_call(self, outcome: ReportedResult | ReportedFailure, now: Instant) -> None:
        """Count the call for the breaker and the metrics here: the process that holds the attempt does not see its end."""
        began_at = later(self._capability.complete_by, -compute_complete_within(self.step))
        transient = outcome if isinstance(outcome, ReportedTransient) else None
        failure = None if isinstance(outcome, ReportedResult) else outcome.failure
        end, error = ("succeeded", "") if failure is None else (failure.cause, failure.message)
        call = EndedCall(end, max(seconds_between(began_at, now), 0.0), error)
        self._hosts.find_breakers(self.definition.agent).note_call(
            self.step,
            call,
            retry_after=None if transient is None else transient.retry_after,
            unavailable=transient is not None and transient.unavailable,
        )

    async def extend(self, seconds: float) -> Instant | str:
        """Ask for more time. Returns: the deadline, or the verdict of a refusal."""
        step, capability = self.step, self._capability
        verdict = report_verdict(step, capability.fence, self._session.store.now())
        if verdict != "applied":
            return verdict
        command = ExtendAttempt(
            actor=self._hosts.context.actor,
            process_no=step.locked_by
            or self._hosts.context.process_no,  # the one who holds it: the capability speaks for the attempt
            step_no=step.step_no,
            fence=capability.fence,
            seconds=seconds,
            latest=capability.latest,
        )
        answer, _ = await self._hosts.context.ask(command)
        return answer.complete_by if isinstance(answer, AttemptApplied) else read_verdict(answer)

    async def save_checkpoint(self, text: str) -> str:
        """Keep a value for the attempts after it. Returns: ``applied``, or the verdict for the program."""
        return await self._change(
            lambda fields: SaveCheckpoint(**fields, value=text, replaces=payload_hash(self.step.checkpoint))
        )

    async def publish(self, text: str) -> str:
        """Publish a value. Returns: as above."""
        return await self._change(lambda fields: PublishProgress(**fields, value=text, at=self._session.store.now()))

    async def _change(self, build: Callable[[dict[str, Any]], SaveCheckpoint | PublishProgress]) -> str:
        verdict = report_verdict(self.step, self._capability.fence, self._session.store.now())
        if verdict != "applied":
            return verdict
        context = self._hosts.context
        fields = {
            "actor": context.actor,
            "process_no": self.step.locked_by or context.process_no,  # as ``extend``
            "step_no": self.step.step_no,
            "fence": self._capability.fence,
        }
        answer, _ = await context.ask(build(fields))
        return APPLIED if isinstance(answer, AttemptApplied) else read_verdict(answer)

    async def release(self) -> Answer:
        """Give the attempt back, unbegun. Returns the store's answer."""
        verdict = report_verdict(self.step, self._capability.fence, self._session.store.now())
        if verdict != "applied":
            return Refusal(verdict)
        step_no, fence = self._capability.identity
        answer, _ = await self._hosts.context.ask(
            ReleaseAttempt(actor=self._hosts.context.actor, step_no=step_no, fence=fence)
        )
        return answer


WAIT_SECONDS_MAX = 60.0  # of one poll: proxies cut what is silent for longer
BATCH_MAX = 100  # requests in one answer
ANSWER_SECONDS = 30.0  # until a program is informed that nobody knows yet if its report is kept


__all__ = ["AttemptTerm", "RemoteAgents", "RemoteReport", "RemoteRequest"]


def _build_nothing() -> msgspec.Raw:
    """Build what stands for a part that is left out; a plain default could not be written into the API's document."""
    return msgspec.Raw(b"null")


class RemoteReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report of a program about the end of an attempt.

    Args:
        task: of the request.
        capability: of the request, or of its last extension.
        status: ``succeeded``; ``transient``: definitely did not happen, try again; ``permanent``: definitely did not happen and never
            will; ``unknown``: nobody knows.
        result: JSON of the step's type, if it succeeded.
        message, code, details: why it failed, for operators and for the workflow's code.
        public: what a customer may read of the failure.
        retry_after: seconds that the service asks to wait before the next attempt, if the failure is transient.
        unavailable: the service says that it is down; its breaker may open.
    """

    task: str
    capability: str
    status: Literal["succeeded", "transient", "permanent", "unknown"]
    result: msgspec.Raw = msgspec.field(default_factory=_build_nothing)
    message: str = ""
    code: str = ""
    details: msgspec.Raw = msgspec.field(default_factory=_build_nothing)
    retry_after: float | None = None
    unavailable: bool = False
    public: str = ""


class AttemptTerm(msgspec.Struct, frozen=True):
    """More time for an attempt: the capability to report with from now on, and its deadline."""

    capability: str
    complete_by: str
    remaining_ms: int


class RemoteAgents:
    """Serves Agents outside of Python in one process. ``refusals``: how many there were in this process, by their code."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.refusals: Counter[str] = Counter()
        self._progress = RemoteProgress()

    # --- taking
    @asynccontextmanager
    async def taking(self, agent: str, limit: int, wait_seconds: float) -> AsyncIterator[tuple[RemoteRequest, ...]]:
        """Context in which the requests for an Agent are written to the program that asks for them.

        Left by an exception, they definitely were not delivered, and the next program gets them.

        Args:
            limit: requests at most, 1 to 100.
            wait_seconds: until there is one, 0 to 60. The store's answer to this question is awaited in any case.
        Yields: the requests; empty: there was none in that time.
        Raises: AgentRequestRefused; InvalidInput; StoreError.
        """
        hosts = self._find_hosts(agent, limit, wait_seconds)
        secret = await self._read_secret()
        dispatcher = hosts.remote
        poll = dispatcher.open_poll(agent, limit)
        try:
            await dispatcher.wait(poll, wait_seconds)
            store_id, app = self._session.store.store_id, self._session.app
            yield tuple(build_request(remote_attempt, store_id, secret, app) for remote_attempt in poll.requests)
            dispatcher.confirm(poll)
        finally:
            dispatcher.give_up(poll)

    async def take(self, agent: str, limit: int = 1, wait_seconds: float = 0.0) -> tuple[RemoteRequest, ...]:
        """Take requests for an Agent; see ``taking``. They count as delivered when this returns."""
        async with self.taking(agent, limit, wait_seconds) as requests:
            return requests

    def _find_hosts(self, agent: str, limit: int, wait_seconds: float) -> AgentHost:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= BATCH_MAX:
            raise InvalidInput(f"limit is {limit!r}; it must be a whole number from 1 to {BATCH_MAX}")
        if not isinstance(wait_seconds, int | float) or not 0 <= wait_seconds <= WAIT_SECONDS_MAX:
            raise InvalidInput(f"wait_seconds is {wait_seconds!r}; it must be from 0 to {WAIT_SECONDS_MAX:g}")
        definition = self._find_agent(agent)
        if definition.pushes:
            self._refuse("agent-not-pulled", f"Agent {agent}: arriero sends its requests, so they cannot be taken")
        hosts = self._get_hosts()
        if agent not in hosts.hosted:
            self._refuse("gateway-not-running", "this process does not run the role http: add it to its roles")
        if hosts.remote.is_draining:
            self._refuse("gateway-draining", "this process ends: ask another one")
        return hosts

    def _find_agent(self, agent: str) -> Agent:
        found = next((one for one in self._session.agents if one.name == agent), None)
        if found is None:
            self._refuse("agent-unknown", f"App {self._session.app} has no Agent {agent!r}")
        if not found.is_remote:
            self._refuse("agent-not-remote", f"Agent {agent}: its steps are Python code; declare them with remote=True")
        return found

    def _get_hosts(self) -> AgentHost:
        node = self._session.node or self._session.draining_node
        if node is None or node.session is None:
            self._refuse("gateway-not-running", "this process does not run the App now: ask again soon, or another one")
        return node.session.agents

    async def _read_secret(self) -> bytes:
        return await self._get_hosts().remote.read_secret()

    # --- reporting
    def check_agent(self, agent: str) -> None:
        """Check that reports of an Agent may come to this process. Raises AgentRequestRefused."""
        self._find_agent(agent)
        self._get_hosts()

    async def report(self, agent: str, report: RemoteReport) -> None:
        """Record how an attempt ended. It is committed when this returns.

        Raises: AgentRequestRefused - nothing changed, and why; StoreError - nobody knows: send it again; UnreadableRow - the step
            cannot be read: nothing changed, send it again once it can be.
        """
        capability = await self._admit(agent, report.task, report.capability)
        hosts = self._get_hosts()
        pending = hosts.verdicts.find(capability.identity)
        if pending is not None:  # a caller has just reported it
            self._raise_if_refused(await self._wait_for(pending), came_first=False)
            return
        remote_attempt = hosts.remote.find(capability.identity)
        if remote_attempt is not None and self._session.store.now() < capability.complete_by:
            is_undo = remote_attempt.dispatch.step.kind is StepKind.COMPENSATION
            outcome = self._read_outcome(report, remote_attempt.definition, is_undo=is_undo)
            verdict = await self._wait_for(hosts.remote.settle(remote_attempt, outcome))
            if verdict != UNSENT:
                self._raise_if_refused(verdict, came_first=True)
                return
        stored = await self._find_in_store(hosts, agent, capability)
        is_undo = stored.step.kind is StepKind.COMPENSATION
        outcome = self._read_outcome(report, stored.definition, is_undo=is_undo)
        self._raise_if_refused(await stored.report(outcome), came_first=True)

    async def _admit(self, agent: str, task: str, capability: str) -> Capability:
        """Read a capability. Raises AgentRequestRefused."""
        self._find_agent(agent)
        found = read_capability(capability, await self._read_secret(), self._session.store.store_id)
        if found is None:
            self._refuse("capability-invalid", "the capability was not made by this store, or was changed")
        if found.agent != agent:
            self._refuse("capability-invalid", f"the capability is of another Agent than {agent}")
        if found.task_id != task:
            self._refuse("capability-invalid", f"the capability is of another task than {task!r}")
        return found

    async def _find_in_store(self, hosts: AgentHost, agent: str, capability: Capability) -> StoredAttempt:
        """Find an attempt by its row: it does not wait here, or its time is over. Raises AgentRequestRefused, UnreadableRow."""
        loaded = await self._session.store.find(capability.task_id)
        step = None if loaded is None else loaded.find_step(capability.step_no)
        self._check_app(capability.app if step is None else step.app or capability.app)
        definition = None if step is None else self._find_agent(agent).steps.get(step.name)
        if step is None or definition is None:
            self._refuse("report-ended", "the task or its step no longer exists")
        refuse_unreadable(step)
        return StoredAttempt(hosts, self._session, capability, step, definition)

    def _check_app(self, app: str) -> None:
        """Check that an attempt is of this App, by its row: another App may have given the name of its Agent to other steps.

        ``app``: empty: it is not recorded whose it is.
        """
        if app not in (NOT_SAID, self._session.app):
            self._refuse(
                "capability-invalid",
                f"the attempt is of App {app!r}, and this gateway serves {self._session.app!r}: ask a gateway of {app!r}",
            )

    @staticmethod
    async def _wait_for(verdict: "asyncio.Future[str]") -> str:
        try:
            return await asyncio.wait_for(asyncio.shield(verdict), ANSWER_SECONDS)
        except TimeoutError:
            return UNANSWERED

    def _raise_if_refused(self, verdict: str, *, came_first: bool) -> None:
        """Raise what follows from the store's verdict about a report."""
        if verdict == APPLIED and came_first:
            return
        code, message = describe_refusal("duplicate" if verdict == APPLIED else verdict)
        self._refuse(code, message)

    def _read_outcome(
        self, report: RemoteReport, definition: Step[..., object], *, is_undo: bool
    ) -> ReportedResult | ReportedFailure:
        if report.status == "succeeded":
            if is_undo:
                return ReportedResult("null")
            try:
                value = _decode(report.result, "the result")
                return ReportedResult(definition.signature.encode_result(value))
            except (InvalidInput, msgspec.MsgspecError, ValueError) as error:
                self._refuse("result-invalid", f"the result does not fit: {error}")
        details = recordable_details(_decode(report.details, "details"))
        message = recordable_text(report.message)
        code, public = recordable_text(report.code), recordable_text(report.public)
        failure = StepFailure(report.status, message, code, details, public=public)
        if report.status == "transient":
            return ReportedTransient(failure, retry_after=report.retry_after, unavailable=report.unavailable)
        return ReportedPermanent(failure) if report.status == "permanent" else ReportedUnknown(failure)

    # --- more time, and going back
    async def extend(self, agent: str, task: str, capability: str, seconds: float) -> AttemptTerm:
        """Move the deadline of an attempt to that many seconds from now, at most to the step's ``extend_max``.

        The old capability stays valid until its own deadline, so that a program which loses this answer can still report.

        Raises: AgentRequestRefused, InvalidInput, StoreError.
        """
        seconds = check_seconds(seconds, "seconds", at_least=0.001)
        found = await self._admit(agent, task, capability)
        hosts, store = self._get_hosts(), self._session.store
        if store.now() >= found.complete_by:
            self._refuse("report-expired", "the deadline of the capability has passed")
        remote_attempt = hosts.remote.find(found.identity)
        if remote_attempt is not None:
            try:
                await remote_attempt.time.extend(seconds)
            except AttemptOver as error:
                self._refuse("report-stale", str(error))
            complete_by = remote_attempt.time.complete_by
        else:
            stored = await self._find_in_store(hosts, agent, found)
            extended = await stored.extend(seconds)
            if isinstance(extended, str):
                self._refuse(*describe_refusal(extended))
            complete_by = extended
        renewed = seal_capability(replace(found, complete_by=complete_by), await self._read_secret())
        remaining = max(complete_by - store.now(), 0) // 1000
        return AttemptTerm(renewed, as_datetime(complete_by).isoformat(), remaining)

    async def save_checkpoint(self, agent: str, task: str, capability: str, value: msgspec.Raw) -> None:
        """Keep a value for the attempts after this one, which get it with their requests. It is committed when this returns.

        Raises: AgentRequestRefused; InvalidInput - the value cannot be kept; StoreError.
        """
        text = encode_untyped(_decode(value, "the checkpoint"), "the checkpoint")
        found, hosts = await self._admit(agent, task, capability), self._get_hosts()
        stored = await self._find_in_store(hosts, agent, found)
        self._raise_if_refused(await stored.save_checkpoint(text), came_first=True)
        remote_attempt = hosts.remote.find(found.identity)
        if remote_attempt is not None:
            remote_attempt.time.checkpoint = text

    async def publish(self, agent: str, task: str, capability: str, value: msgspec.Raw) -> None:
        """Publish how far the step is. This value, or a later one, is committed when this returns: after a second at most.

        Raises: as ``save_checkpoint``.
        """
        text = encode_published(_decode(value, "the value"), "the value")
        found, hosts = await self._admit(agent, task, capability), self._get_hosts()

        async def write(latest: str) -> str:
            return await (await self._find_in_store(hosts, agent, found)).publish(latest)

        values = self._progress.find(found.identity, self._session.ports.clock)
        self._raise_if_refused(await values.publish(text, write), came_first=True)

    async def release(self, agent: str, task: str, capability: str) -> None:
        """Give a request back that the program has definitely not begun: it costs no attempt, and the next program gets it.

        Raises: AgentRequestRefused, StoreError.
        """
        found = await self._admit(agent, task, capability)
        hosts = self._get_hosts()
        remote_attempt = hosts.remote.find(found.identity)
        if remote_attempt is not None:
            answer = await hosts.remote.release(remote_attempt)
        else:
            answer = await (await self._find_in_store(hosts, agent, found)).release()
        verdict = getattr(answer, "verdict", APPLIED)
        self._raise_if_refused(verdict, came_first=True)

    def _refuse(self, code: str, message: str) -> NoReturn:
        self.refusals[code] += 1
        raise AgentRequestRefused(code, message)


def _decode(given: msgspec.Raw, what: str) -> Any:
    """Decode a part of a report into plain JSON values. Raises InvalidInput - it is nested too deep."""
    refuse_deep(bytes(given), what)
    return msgspec.json.decode(given)
