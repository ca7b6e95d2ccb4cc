"""Names whose features come with later releases: they import and type-check today, and say so when they are used."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from .calls import StepCall, WorkflowCall
from .errors import NotYetBuilt
from .policies import Duration

if TYPE_CHECKING:
    import sqlite3

    from .app import TaskView
    from .definitions import Workflow

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


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


class Status:
    """A message to the submitter's own reply queue."""

    task_id: str
    number: int
    kind: Literal["received", "started", "completed", "failed", "compensated", "needs_attention"]


class SyncTask(Generic[R_co]):
    """A task's handle for code without an event loop."""

    id: str

    def result(self, timeout: Duration | None = None) -> R_co:
        """Raises NotYetBuilt in this release."""
        raise _no_sync()

    def view(self) -> "TaskView":
        """Raises NotYetBuilt in this release."""
        raise _no_sync()


class SyncApp:
    """The front for code without an event loop. Everything raises NotYetBuilt in this release."""

    def submit(
        self,
        call: WorkflowCall[R] | StepCall[R],
        *,
        task_id: str | None = None,
        convoy: str | None = None,
        reply_to: str | None = None,
        connection: Any = None,
    ) -> SyncTask[R]:
        """Raises NotYetBuilt in this release."""
        raise _no_sync()

    @overload
    def task(self, task_id: str, of: "Workflow[..., R]") -> SyncTask[R]: ...
    @overload
    def task(self, task_id: str) -> SyncTask[Any]: ...
    def task(self, task_id: str, of: "Workflow[..., Any] | None" = None) -> SyncTask[Any]:
        """Raises NotYetBuilt in this release."""
        raise _no_sync()

    def replies(self, queue: str, *, timeout: Duration | None = None) -> Iterator[Status]:
        """Raises NotYetBuilt in this release."""
        raise _no_sync()

    def running(self) -> "AbstractContextManager[SyncApp]":
        """Raises NotYetBuilt in this release."""
        raise _no_sync()


def connect(store: str) -> "sqlite3.Connection":
    """A connection fit for joint transactions. Raises NotYetBuilt in this release."""
    raise NotYetBuilt(
        "arriero.connect: submission in your own transaction comes with a later release; submit after your commit"
    )


def _no_sync() -> NotYetBuilt:
    return NotYetBuilt("app.sync: the front for code without a loop comes with a later release; use asyncio.run")
