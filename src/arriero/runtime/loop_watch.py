"""Watches from a thread whether the event loop continues, remembers when it did not and what ran, and reports it to others.

The thread asks the loop to answer. While an answer is missing, it looks at the line that the loop's thread is at: this is
the call that blocks. It logs a standstill once when it has lasted ``TOLD_SECONDS``, and once when it is over. If the time of
an attempt ran out meanwhile, the Supervisor names the standstill as the reason.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec

from ..explain.standstills import (
    STOOD_STILL,
    Standstill,
    add_standstill,
    format_begun_line,
    format_code_that_ran,
    format_ended_line,
    is_worth_saying,
    read_standstill,
    suggest_remedy,
)
from ..model import MICROSECONDS, Instant, StepRow
from ..system.loops import Loop, LoopGuard
from ..system.rate_limited_log import RateLimitedLog
from ..system.traceback_capture import capture_stack
from ..text.format import find_frame_to_fix, format_step
from .driver_parts import code_running
from .membership import Membership
from .ports import Keeper, Ports

LOOK_SECONDS = 0.2
SEEN_SECONDS = 0.3  # without an answer: shorter ones are what a busy loop does
TOLD_SECONDS = 1.0
NOT_RUN_SECONDS = 2.0  # between two looks: this thread did not run either, so nothing follows about the loop
KEPT_MAX = 100  # standstills; an attempt's time is looked up among them


class Doing(msgspec.Struct, frozen=True):
    """Description of what runs on the loop now; empty if it is not known."""

    says: str = ""
    code_of_workflow: bool = False


class LoopWatch:
    """Watches the event loop from a thread. ``look`` runs in a thread, all else on the loop.

    Args:
        monotonic: seconds of the process.
        now: the store's clock; like ``doing`` it is asked in the thread.
        doing: what runs on the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        monotonic: Callable[[], float],
        now: Callable[[], Instant],
        doing: Callable[[], Doing],
        log: RateLimitedLog,
    ) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._now = now
        self._doing = doing
        self._log = log
        self._guard = LoopGuard(Loop.LOOP_WATCH, monotonic)
        self._asked_at: float | None = None  # an answer of the loop is missing since
        self._looked_at = monotonic()
        self._seen: Standstill | None = None  # the one that lasts
        self._is_told = False
        self._over: deque[Standstill] = deque(maxlen=KEPT_MAX)

    # --- in the thread
    def look(self, frame_of_loop: Callable[[], FrameType | None]) -> None:
        """Look once. ``frame_of_loop``: where the loop's thread is."""
        with self._guard:
            self._look(frame_of_loop)

    def _look(self, frame_of_loop: Callable[[], FrameType | None]) -> None:
        now = self._monotonic()
        has_run = now - self._looked_at < NOT_RUN_SECONDS
        self._looked_at = now
        asked_at = self._asked_at
        if asked_at is None or not has_run:  # a machine that slept: the loop is asked again
            self._ask(now)
        elif now - asked_at >= SEEN_SECONDS:
            self._note(now - asked_at, frame_of_loop)

    def _ask(self, now: float) -> None:
        self._asked_at = now
        with suppress(RuntimeError):  # the loop has ended, and the process with it
            self._loop.call_soon_threadsafe(self._process_answer)

    def _note(self, seconds: float, frame_of_loop: Callable[[], FrameType | None]) -> None:
        until = self._now()
        since = Instant(until - round(seconds * MICROSECONDS))
        seen = self._seen
        if seen is None or find_frame_to_fix(seen.trace) is None:  # the first of the user's lines that is found stays
            doing = self._doing()
            trace = capture_stack(frame_of_loop(), STOOD_STILL)
            seen = Standstill(since, until, doing.says, doing.code_of_workflow, trace)
        else:
            seen = msgspec.structs.replace(seen, until=until)
        if self._asked_at is None:  # it has answered meanwhile
            return
        self._seen = seen
        if seconds >= TOLD_SECONDS and not self._is_told:
            self._is_told = True
            self._log.tell(("standstill", _format_place(seen)), format_begun_line(seen))

    # --- on the loop
    def _process_answer(self) -> None:
        self._asked_at = None
        seen, self._seen = self._seen, None
        was_told, self._is_told = self._is_told, False
        if seen is None:
            return
        over = msgspec.structs.replace(seen, until=self._now())
        self._over.append(over)
        if was_told:
            self._log.tell(("standstill over", _format_place(over)), format_ended_line(over))

    def find_current(self) -> Standstill | None:
        """The standstill that still lasts; None while the loop continues."""
        return self._seen

    def find_last_ended(self) -> Standstill | None:
        """The last standstill that is over; None if there was none."""
        over = self._over
        return over[-1] if over else None

    def list_standstills(self) -> Iterable[Standstill]:
        """The last standstills, and the one that still lasts."""
        seen = self._seen
        return (*self._over, *(() if seen is None else (seen,)))


def _format_place(standstill: Standstill) -> str:
    frame = find_frame_to_fix(standstill.trace)
    return "" if frame is None else f"{frame.file}:{frame.line}"


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
        """Describe what runs while the loop is blocked; empty if it continues."""
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
