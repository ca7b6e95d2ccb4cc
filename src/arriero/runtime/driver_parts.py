"""The surroundings of task drivers: the parts of the process, and the Scheduler that holds the drivers."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from ..answers import Dispatch
from ..commands import Reported
from ..core.drive import Surroundings
from ..core.task_run import RunnableCode, TaskRun
from ..model import Loaded
from .agent_host import AgentHost
from .process_context import ProcessContext


class Parts(msgspec.Struct, frozen=True):
    """The parts of the process that all its drivers use."""

    context: ProcessContext
    agents: AgentHost
    codes: Mapping[str, RunnableCode]
    names: tuple[str, ...]  # of the codes
    surroundings: Surroundings


class DriverHost(Protocol):
    """The Scheduler, as a driver sees it."""

    def may_hand_over(self, key_since: float) -> bool:
        """Returns True if this process may go on with the next task of a convoy whose key it has held since then."""
        ...

    def reload_soon(self, task_no: int, reports: tuple[Reported, ...]) -> None: ...
    def report_alone(self, report: Reported) -> None: ...
    def take_over(self, loaded: Loaded, *, key_since: float, behind: Loaded | None) -> None: ...
    def begin(
        self,
        run: TaskRun,
        loaded: Loaded,
        dispatches: tuple[Dispatch, ...],
        *,
        left_at: float | None = None,
        key_since: float = 0.0,
        behind: Loaded | None = None,
    ) -> bool:
        """Drive a task whose code ran before the commit that began it. Returns False if it is known here already."""
        ...

    def let_go(self, task_no: int) -> None: ...
    def find_submitted(self, task_no: int) -> None:
        """Look for a submitted task that did not begin here."""
        ...

    def claim_soon(self) -> None: ...
