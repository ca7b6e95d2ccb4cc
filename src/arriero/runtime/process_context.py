"""Context of one process start that all its parts share: its store, its committer, its clock, its name and its lease."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..declare.attempt import Attempt
from ..declare.steps import Agent, Step
from ..model import StepRow
from ..model.answers import Answer
from ..model.commands import AnyCommand
from ..store.committer import Committer
from ..store.state_store import StateStore
from .failure_log import OnApplied, ignore_applied
from .ports import Ports
from .settings import Settings

if TYPE_CHECKING:  # only who traces tasks pays for loading it
    from ..tracing.tracer import TaskTracer


class Substitutes(msgspec.Struct, frozen=True):
    """Functions that a test puts in the place of the user's.

    Attributes:
        find_step: given the step, its row, its Attempt and arguments; it returns None for the step's own function.
        find_probe: given an Agent; returns what is called instead of its probe. None: its own probe is called.
    """

    find_step: Callable[[Step[Any, Any], StepRow, Attempt, dict[str, Any]], Callable[[], Any] | None]
    find_probe: Callable[[Agent], Callable[..., Any]] | None = None


class ProcessContext:
    """One process start, as all its parts see it.

    Attributes:
        actor: its name in the history.
        app: the App whose tasks it runs.
        on_applied: called with each transition of a task that this process has written.
        tracer: traces the attempts; None: nobody does.
        substitutes: of a test; with them resources are opened at the first call of a step's own function.
        process_no: its number in the store; 0 before ``Membership`` has registered it.
        trusted_until: when its lease ends on its own monotonic clock; ``Membership`` moves it.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        committer: Committer[AnyCommand, Answer],
        ports: Ports,
        settings: Settings,
        actor: str,
        app: str = "",
        on_applied: OnApplied = ignore_applied,
        tracer: "TaskTracer | None" = None,
        substitutes: Substitutes | None = None,
    ) -> None:
        self.store = store
        self.committer = committer
        self.ports = ports
        self.clock = ports.clock
        self.settings = settings
        self.actor = actor
        self.app = app
        self.on_applied = on_applied
        self.tracer = tracer
        self.substitutes = substitutes
        self.process_no = 0
        self.trusted_until = 0.0

    def is_trusted(self) -> bool:
        """Returns True if this process may still trust its lease, on its own monotonic clock."""
        return self.clock.monotonic() < self.trusted_until

    async def ask(self, command: AnyCommand, *, directly: bool = False) -> tuple[Answer, float]:
        """Commit a command. ``directly``: without the committer, as its caller holds up the event loop.

        Returns: its answer, and the monotonic time before the store's clock was read for it.
        """
        left_at = self.clock.monotonic()
        if directly:
            (answer,) = await self.store.apply([command])
            if isinstance(answer, BaseException):
                raise answer
            return answer, left_at

        def note_time(_: Answer | BaseException) -> None:
            nonlocal left_at
            left_at = self.committer.left_at  # of the commit that is answered: others may have failed before it

        return await self.committer.ask(command, note_time), left_at
