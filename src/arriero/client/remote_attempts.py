"""An attempt of a remote step by its row in the store: it does not wait in this process, or its time is over."""

from ..answers import Answer, Applied, AttemptApplied, Refusal
from ..commands import ExtendAttempt, GaveUp, Outcome, ReleaseAttempt, Report, Reported, Succeeded
from ..core.capabilities import Capability
from ..core.supervision import compute_complete_within, on_attempt_failed
from ..core.transitions import report_verdict
from ..declare.steps import Step
from ..model import Instant, StepRow, later, seconds_between
from ..runtime.agent_host import AgentHost
from ..runtime.call_monitor import EndedCall
from ..runtime.report_verdicts import read_verdict
from ..runtime.reported_outcomes import ReportedFailure, ReportedResult, ReportedTransient
from .session import Session

_REFUSALS = {
    "duplicate": ("report-duplicate", "the attempt is reported already: its first report counts"),
    "late": ("report-expired", "the deadline has passed; a result is kept for people, and changes nothing"),
    "unknown": ("report-ended", "the task or its step is not there any more"),
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
        came too late is written once, as the first answer of its attempt is kept for people.
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
            or self._hosts.context.process_no,  # whoever holds it: the capability speaks for the attempt
            step_no=step.step_no,
            fence=capability.fence,
            seconds=seconds,
            latest=capability.latest,
        )
        answer, _ = await self._hosts.context.ask(command)
        return answer.complete_by if isinstance(answer, AttemptApplied) else read_verdict(answer)

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
