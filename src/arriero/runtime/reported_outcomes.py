"""Outcomes of attempts as programs outside of Python report them."""

import msgspec

from ..errors import Permanent, Transient
from ..failures import StepFailure


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
