"""Reports of programs, as their attempts end by them, and the answers for those that wait until the store has decided."""

import asyncio

import msgspec

from ..errors import Permanent, Transient
from ..model.answers import Answer, Refusal
from ..model.failures import StepFailure


class ReportedResult(msgspec.Struct, frozen=True):
    """A result as a program has reported it: JSON text that fits the step's type."""

    result: str


class ReportedUnknown(Exception):
    """A program has reported that it does not know what happened."""

    def __init__(self, failure: StepFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ReportedPermanent(Permanent):
    """A program has reported that the step did not happen and never will."""

    def __init__(self, failure: StepFailure) -> None:
        super().__init__(failure.message, code=failure.code, details=failure.details)
        self.failure = failure


class ReportedTransient(Transient):
    """A program has reported that the step did not happen this time."""

    def __init__(self, failure: StepFailure, *, retry_after: float | None = None, unavailable: bool = False) -> None:
        super().__init__(
            failure.message,
            code=failure.code,
            details=failure.details,
            retry_after=retry_after,
            unavailable=unavailable,
        )
        self.failure = failure


ReportedFailure = ReportedUnknown | ReportedPermanent | ReportedTransient


APPLIED = "applied"
LATE = "late"
UNANSWERED = "unanswered"  # nobody knows if it is kept: the store or this process went away meanwhile
UNSENT = "unsent"  # the attempt ended, and nothing was sent for it

AttemptIdentity = tuple[int, int]  # step_no and fence


def read_verdict(answer: Answer | BaseException) -> str:
    """Read the verdict in the store's answer to a report that was sent by itself."""
    if isinstance(answer, Refusal):
        return answer.verdict
    return UNANSWERED if isinstance(answer, BaseException) else APPLIED


class ReportVerdicts:
    """Verdicts of the store about reports, for those who wait for them."""

    def __init__(self) -> None:
        self._waiting: dict[AttemptIdentity, asyncio.Future[str]] = {}

    def expect(self, identity: AttemptIdentity) -> "asyncio.Future[str]":
        """A future of the verdict: APPLIED, the verdict of a refusal, UNANSWERED or UNSENT. All who ask share it."""
        waiting = self._waiting.get(identity)
        if waiting is None:
            waiting = self._waiting[identity] = asyncio.get_running_loop().create_future()
        return waiting

    def find(self, identity: AttemptIdentity) -> "asyncio.Future[str] | None":
        """The future of a verdict that a caller waits for; None: nobody does."""
        return self._waiting.get(identity)

    def tell(self, identity: AttemptIdentity, verdict: str) -> None:
        """Report the verdict about a report."""
        waiting = self._waiting.pop(identity, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(verdict)

    def give_up(self) -> None:
        """Notify all who wait that nobody knows: this process ends."""
        for identity in list(self._waiting):
            self.tell(identity, UNANSWERED)
