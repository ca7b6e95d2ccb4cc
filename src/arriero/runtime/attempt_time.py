"""The deadline and the checkpoint of a running attempt, what its code asks the store for, and the attempts begun here."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from ..core.attempts import find_latest_complete_by
from ..errors import AttemptOver, InvalidInput
from ..events.base import payload_hash
from ..model import Instant, later, seconds_between
from ..model.answers import AttemptApplied, Dispatch
from ..model.commands import CommandOfAttempt, ExtendAttempt, SaveCheckpoint
from .process_context import ProcessContext
from .progress_publisher import ProgressPublisher

KEPT_SECONDS = 600.0  # after complete_by: longer than a store's clock goes back when another server takes over
SWEEP_FROM = 1_000  # entries; below it the expired ones cost nothing worth looking for


class AttemptRegistry:
    """Attempts by (step_no, fence).

    An entry goes when the store has answered the attempt's report, because from then on no new reading shows the attempt
    as running. A reading that was running may still show it, so the entry outlives such readings. A submission with which
    a task begins is such a reading, too: its answer names the first attempts, and may come after news of the same commit.
    Answers to all other commands come one after the other, before the answer to the report.

    The entry of an attempt without a report goes some time after its ``complete_by``: past that instant no request is sent.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[int, int], Instant] = {}
        self._readings: dict[int, None] = {}  # those running, the oldest first
        self._last_reading = 0
        # Attempts that readings running may still show, each behind the last reading that had begun by then.
        self._settled: deque[tuple[int, tuple[int, int]]] = deque()
        self._sweep_at = SWEEP_FROM

    def __contains__(self, identity: tuple[int, int]) -> bool:
        return identity in self._begun

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, identity: tuple[int, int], complete_by: Instant, now: Instant) -> bool:
        """Register an attempt. Returns False if it began here before. ``now``: the store's clock."""
        if identity in self._begun:
            return False
        if len(self._begun) >= self._sweep_at:
            self._sweep(now)
        self._begun[identity] = complete_by
        return True

    def extend(self, identity: tuple[int, int], latest: Instant) -> None:
        """Keep an attempt for longer: from now on its ``complete_by`` may be moved to ``latest``.

        Called before the store is asked: it may move the deadline although its answer is lost.
        """
        if identity in self._begun:
            self._begun[identity] = latest

    def settle(self, identity: tuple[int, int]) -> None:
        """Note that the store has answered the attempt's report."""
        if self._readings:
            self._settled.append((self._last_reading, identity))
        else:
            self._begun.pop(identity, None)

    def begin_reading(self) -> int:
        """Note that something is asked of the store whose answer may name attempts that run here. Returns its number."""
        self._last_reading += 1
        self._readings[self._last_reading] = None
        return self._last_reading

    def end_reading(self, number: int) -> None:
        """Note that the answer was acted on, or will never come."""
        del self._readings[number]
        oldest = next(iter(self._readings), self._last_reading + 1)
        while self._settled and self._settled[0][0] < oldest:
            _, identity = self._settled.popleft()
            self._begun.pop(identity, None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context in which records are read and acted on: they may show attempts as running that are settled meanwhile."""
        number = self.begin_reading()
        try:
            yield
        finally:
            self.end_reading(number)

    def _sweep(self, now: Instant) -> None:
        kept_from = later(now, -KEPT_SECONDS)
        self._begun = {identity: at for identity, at in self._begun.items() if at > kept_from}
        self._sweep_at = max(SWEEP_FROM, 2 * len(self._begun))  # so a sweep costs each entry a constant amount


class AttemptTime:
    """Deadline of an attempt, by the store's clock and by this process's; both move only forward.

    The deadline here is never later than the store's: it moves only by what the store has answered, counted from before the
    store read its clock. If an answer is lost, the committer asks again; until it comes the old deadline holds.
    """

    def __init__(self, context: ProcessContext, registry: AttemptRegistry, dispatch: Dispatch, deadline: float) -> None:
        step = dispatch.step
        assert step.complete_by is not None
        self._context = context
        self._registry = registry
        self._step = step
        self._dispatch = dispatch
        self._deadline = deadline
        self.complete_by = step.complete_by
        self.checkpoint = step.checkpoint
        self._loop = asyncio.get_running_loop()
        self._saving = asyncio.Lock()
        self._holds_loop_up = False
        self.publisher: ProgressPublisher | None = None  # most attempts publish nothing
        self.is_over = False  # its function has ended, or nobody waits for it any longer

    def publish(self, text: str) -> None:
        """Publish a value soon; also from the thread of a plain function. Once the attempt is over it changes nothing."""
        if self.is_over:
            return
        if asyncio._get_running_loop() is self._loop:
            self._publish(text)
            return
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            self._loop.call_soon_threadsafe(self._publish, text)

    def _publish(self, text: str) -> None:
        if self.publisher is None:
            self.publisher = ProgressPublisher(self._context, self._step)
        if not self.is_over and self.remaining_seconds() > 0:
            self.publisher.publish(text)

    @property
    def deadline(self) -> float:
        """The deadline on this process's monotonic clock."""
        return self._deadline

    @property
    def trace_headers(self) -> Mapping[str, str]:
        """Headers that inform a service of the attempt's span; where nobody traces, those that the submitter gave."""
        if self._context.tracer is not None:
            return self._context.tracer.find_context(self._dispatch).headers
        if self._dispatch.trace_context is None:
            return {}
        from ..model.trace_context import read_trace_context

        found = read_trace_context(self._dispatch.trace_context)
        return {} if found is None else found.headers

    def remaining_seconds(self) -> float:
        """Seconds until the deadline by this process's clock; below 0 once it has passed."""
        return self._deadline - self._context.clock.monotonic()

    async def extend(self, seconds: float) -> None:
        """Move the deadline to that many seconds from now, at most to the step's ``extend_max``. Raises AttemptOver."""
        latest = find_latest_complete_by(self._step)
        self._registry.extend((self._step.step_no, self._step.fence), latest)
        command = ExtendAttempt(
            actor=self._context.actor,
            process_no=self._context.process_no,
            step_no=self._step.step_no,
            fence=self._step.fence,
            seconds=seconds,
            latest=latest,
        )
        await self._apply(command)

    async def save_checkpoint(self, text: str) -> None:
        """Keep a value, as JSON text, for the attempts after this one. Raises AttemptOver.

        A caller that stops waiting does not stop the commit. The next value names what it replaces, so it waits for the end.
        """
        if self._holds_loop_up:
            await self._save(text)
            return
        saving = asyncio.get_running_loop().create_task(self._save(text))
        saving.add_done_callback(lambda task: task.cancelled() or task.exception())  # also if nobody waits any longer
        await asyncio.shield(saving)

    async def _save(self, text: str) -> None:
        async with self._saving:  # one after the other, in the order of the calls
            command = SaveCheckpoint(
                actor=self._context.actor,
                process_no=self._context.process_no,
                step_no=self._step.step_no,
                fence=self._step.fence,
                value=text,
                replaces=payload_hash(self.checkpoint),
            )
            await self._apply(command)
            self.checkpoint = text

    async def _apply(self, command: CommandOfAttempt) -> None:
        if self.remaining_seconds() <= 0:
            raise self._build_over("its time has passed")
        answer, left_at = await self._context.ask(command, directly=self._holds_loop_up)
        if not isinstance(answer, AttemptApplied):
            raise self._build_over("its time has passed, or another process may have it")
        self._move(answer.complete_by, left_at + seconds_between(answer.now, answer.complete_by))

    def _move(self, complete_by: Instant, deadline: float) -> None:
        if complete_by > self.complete_by:
            self.complete_by = complete_by
            self._deadline = max(self._deadline, deadline)

    def learn(self, complete_by: Instant, read_at: float, now: Instant) -> None:
        """Apply a deadline that another process has moved. ``read_at``: monotonic, before the store's clock said ``now``."""
        self._registry.extend((self._step.step_no, self._step.fence), max(complete_by, self.complete_by))
        self._move(complete_by, read_at + seconds_between(now, complete_by))

    def _build_over(self, why: str) -> AttemptOver:
        step = self._step
        return AttemptOver(
            f"attempt {step.attempt} of step {step.label} is over: {why}; nothing that it does counts any longer"
        )

    def wait_in_thread(self, asked: Coroutine[Any, Any, None], instead: str) -> None:
        """Wait in the thread of a plain function for one of the coroutines above. ``instead``: what async code calls."""
        ports = self._context.ports
        if not ports.runs_inline and asyncio._get_running_loop() is self._loop:
            asked.close()
            raise InvalidInput(f"an async step must not wait for the store on the event loop: use `{instead}`")
        self._holds_loop_up = ports.runs_inline
        try:
            ports.wait_in_thread(self._loop, asked)
        except (CancelledError, RuntimeError) as error:  # the loop has ended, or drops what it carries out
            raise self._build_over("its process stops") from error
        finally:
            self._holds_loop_up = False
