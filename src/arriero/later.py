"""Names whose features come with later releases: they import and type-check today, and say so when they are used."""

from typing import Any, Generic, TypeVar

from .calls import StepCall, WorkflowCall
from .errors import NotYetBuilt

T = TypeVar("T")


class ConvoyState(Generic[T]):
    """State kept for a convoy's key."""


class Entry:
    """One operation of a ledger. Raises NotYetBuilt in this release."""

    def __init__(
        self,
        call: WorkflowCall[Any] | StepCall[Any],
        *,
        convoy: str | None = None,
        task_id: str | None = None,
        sequence: int | None = None,
    ) -> None:
        raise NotYetBuilt("Entry: ledgers come with a later release; submit each task with app.submit")


class Ledger:
    """What became of a submitted ledger."""

    accepted: int
    duplicates: int
    set_aside: list[str]
