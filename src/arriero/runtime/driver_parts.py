"""The surroundings of task drivers: the parts of the process, the Scheduler that holds them, and the code that runs just now."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from ..core.drive import Surroundings
from ..core.task_run import RunnableCode, TaskRun
from ..model import Loaded, StepRow, TaskRow
from ..model.answers import Dispatch
from ..model.commands import Submit
from ..model.moves import Reported
from ..model.processes import Versions
from .agent_host import AgentHost
from .child_tasks import ParentDriver
from .process_context import ProcessContext

logger = logging.getLogger("arriero")
T = TypeVar("T")

# Whose code runs just now, by the event loop that it keeps waiting.
code_running: dict[asyncio.AbstractEventLoop | None, TaskRow | Submit] = {}


def run_code(task: TaskRow | Submit, run: Callable[[], T]) -> T:
    """Let a workflow's code run; meanwhile nothing else continues on this event loop."""
    loop = asyncio._get_running_loop()
    code_running[loop] = task
    try:
        return run()
    finally:
        del code_running[loop]


def start_run(loaded: Loaded, code: RunnableCode | None) -> TaskRun:
    """A task with its code brought to where its record ends."""
    run = run_code(loaded.task, lambda: TaskRun(loaded, code))
    log_error(run)
    return run


def log_error(run: TaskRun) -> None:
    """Log an error of ours, or of the code's, by which a run is newly broken."""
    if run.error is not None:
        logger.error("task %s could not be driven", run.task.task_id, exc_info=run.error)
        run.error = None


class Parts(msgspec.Struct, frozen=True):
    """The parts of the process that all its drivers use."""

    context: ProcessContext
    agents: AgentHost
    codes: Mapping[str, RunnableCode]
    names: tuple[str, ...]  # of the codes
    versions: Versions  # of the codes
    surroundings: Surroundings


class DriverHost(Protocol):
    """The Scheduler, as a driver sees it."""

    def may_hand_over(self, key_since: float) -> bool:
        """Returns True if this process may continue with the next task of a convoy whose key it has held since then."""
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
    def begin_children(self, driver: ParentDriver, steps: list[StepRow]) -> None:
        """Submit children for which a commit has just opened these steps."""
        ...

    def look_after_children(self, driver: ParentDriver) -> None:
        """Do what the running children of a task need now."""
        ...
