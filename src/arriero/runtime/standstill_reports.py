"""Says when the event loop of this process stood still and what ran meanwhile: to its log, to others, to the Supervisor here."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from ..explain.standstills import (
    Standstill,
    add_standstill,
    format_code_that_ran,
    is_worth_saying,
    read_standstill,
    suggest_remedy,
)
from ..model import Instant, StepRow
from ..rate_limited_log import RateLimitedLog
from ..text.format import format_step
from .loop_watch import LOOK_SECONDS, Doing, LoopWatch
from .membership import Membership
from .ports import Keeper, Ports
from .running_code import code_running

# Finds the step whose attempt runs as an asyncio task, and the id of its workflow's task.
FindAttempt = Callable[["asyncio.Task[Any] | None"], tuple[StepRow, str] | None]


class StandstillReports:
    """Reports standstills of the event loop. Before ``start`` there is nothing to say.

    Args:
        now: the store's clock.
        log: gets a line for each long standstill.
    """

    def __init__(self, ports: Ports, now: Callable[[], Instant], log: RateLimitedLog) -> None:
        self._ports = ports
        self._now = now
        self._log = log
        self.watch: LoopWatch | None = None
        self.keeper: Keeper | None = None  # of the thread that watches

    def start(self, find_attempt: FindAttempt) -> None:
        """Watch the running event loop."""
        loop = asyncio.get_running_loop()
        self.watch = LoopWatch(
            loop,
            monotonic=self._ports.clock.monotonic,
            now=self._now,
            doing=lambda: _describe_doing(loop, find_attempt),
            log=self._log,
        )
        self.keeper = self._ports.watch(self.watch.look, LOOK_SECONDS)

    async def stop(self) -> None:
        """End the watching."""
        if self.keeper is not None:
            await self.keeper.stop()

    def describe_current(self) -> str:
        """Describe what runs while the loop stands still; empty if it goes on."""
        seen = None if self.watch is None else self.watch.find_current()
        return "" if seen is None else f"{format_code_that_ran(seen)}; {suggest_remedy(seen)}"

    def add_to_about(self, about: str) -> str:
        """Add a standstill to what the process says of itself; called from another thread."""
        watch = self.watch
        if watch is None:
            return about
        if (seen := watch.find_current()) is not None and is_worth_saying(seen):
            return add_standstill(about, seen, lasts=True)
        over = watch.find_last_ended()
        return add_standstill(about, over, lasts=False) if over is not None and is_worth_saying(over) else about

    def list_of_process(self, step: StepRow, membership: Membership, process_no: int) -> Iterable[Standstill]:
        """List the known standstills of the process that runs a step."""
        if step.locked_by is None or self.watch is None:
            return ()
        if step.locked_by == process_no:
            return self.watch.list_standstills()
        said = read_standstill(membership.find_description(step.locked_by), self._now())
        return () if said is None else (said,)


def _describe_doing(loop: asyncio.AbstractEventLoop, find_attempt: FindAttempt) -> Doing:
    """Describe what runs on the event loop now; called from another thread."""
    if (task := code_running.get(loop)) is not None:
        return Doing(f"the code of workflow {task.workflow}, task {task.task_id}", code_of_workflow=True)
    attempted = find_attempt(asyncio.current_task(loop))
    return Doing() if attempted is None else Doing(f"{format_step(attempted[0])} of task {attempted[1]}")
