"""The calls of this process to remote services: those of the last seconds, by which breakers are judged, and their counts.

The counts are written into the store in coarse steps. What was counted since the last write is lost if the process dies, and
nothing that any work depends on is decided by it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from ..core.agent_metrics import AgentCounts, CountsByAgent, encode_counts, find_minute, may_be_written
from ..core.breaker import STEPS_IN_A_ROW_MIN
from ..inspection.facts import CountsRow
from ..model import MICROSECONDS, Instant, later
from ..model.agents import FAILED_ENDS, CallCounts
from ..model.policies import Breaker
from ..store.state_store import StateStore
from ..system.loops import Loop, LoopGuard
from .ports import ProcessClock

BUCKETS = 10  # parts of a window: calls leave it that many at a time
ADDED_UP_AT = 1_000  # calls: so that a store that is away for an hour costs little memory


class EndedCall(msgspec.Struct, frozen=True):
    """One call that has ended. ``end``: ``succeeded``, ``permanent`` or one of ``FAILED_ENDS``; ``seconds``: how long it took."""

    end: str
    seconds: float
    error: str = ""


NO_STEP, SEVERAL_STEPS = 0, -1  # in place of the number of one


def _join_steps(one: int, other: int) -> int:
    if other in (one, NO_STEP):
        return one
    return other if one == NO_STEP else SEVERAL_STEPS


class _Bucket(msgspec.Struct):
    number: int
    since: Instant
    calls: int = 0
    failed: int = 0
    slow: int = 0
    failed_seconds: float = 0.0
    failed_step: int = NO_STEP
    answered_step: int = NO_STEP


class CallWindow:
    """The calls to one service, or to one part of it, that has a separate breaker."""

    def __init__(self, policy: Breaker) -> None:
        self.slow_limit = policy.slow_limit
        self._bucket_length = policy.window_seconds * MICROSECONDS / BUCKETS
        self._buckets: deque[_Bucket] = deque()
        self._failed_in_a_row = 0
        self._steps_in_a_row: set[int] = set()  # whose calls these were, until they are enough

    def add(self, call: EndedCall, now: Instant, step_no: int) -> bool:
        """Count a call of a step. Returns True if it speaks against the service: it failed, or it was slow."""
        buckets, number = self._buckets, int(now / self._bucket_length)
        while buckets and buckets[0].number <= number - BUCKETS:
            buckets.popleft()
        if not buckets or call.end not in FAILED_ENDS:
            self._failed_in_a_row = 0
            self._steps_in_a_row.clear()
        if not buckets or buckets[-1].number < number:
            buckets.append(_Bucket(number, later(now, -call.seconds)))
        last, has_failed, is_slow = buckets[-1], call.end in FAILED_ENDS, call.seconds > self.slow_limit
        if has_failed:
            self._failed_in_a_row += 1
            if len(self._steps_in_a_row) < STEPS_IN_A_ROW_MIN:
                self._steps_in_a_row.add(step_no)
            last.failed_step = _join_steps(last.failed_step, step_no)
        else:
            last.answered_step = _join_steps(last.answered_step, step_no)
        last.calls += 1
        last.failed += has_failed
        last.slow += is_slow
        last.failed_seconds += call.seconds if has_failed else 0.0
        return has_failed or is_slow

    def is_empty(self, now: Instant) -> bool:
        """Returns True if all its calls have left the window."""
        return not self._buckets or self._buckets[-1].number <= int(now / self._bucket_length) - BUCKETS

    def count_ended(self, now: Instant) -> tuple[int, int]:
        """Count the calls that are in the window by now, and those of them that failed. May be called from another thread."""
        oldest = int(now / self._bucket_length) - BUCKETS
        buckets = [bucket for bucket in tuple(self._buckets) if bucket.number > oldest]
        return sum(bucket.calls for bucket in buckets), sum(bucket.failed for bucket in buckets)

    def count(self, last_error: str) -> CallCounts:
        """Count the calls in the window. There is one at least."""
        buckets = self._buckets
        failed, answered = NO_STEP, NO_STEP
        for bucket in buckets:
            failed, answered = _join_steps(failed, bucket.failed_step), _join_steps(answered, bucket.answered_step)
        return CallCounts(
            sum(bucket.calls for bucket in buckets),
            sum(bucket.failed for bucket in buckets),
            sum(bucket.slow for bucket in buckets),
            min(bucket.since for bucket in buckets),
            last_error,
            sum(bucket.failed_seconds for bucket in buckets),
            self._failed_in_a_row,
            len(self._steps_in_a_row),
            failed not in (NO_STEP, SEVERAL_STEPS),
            answered not in (NO_STEP, failed),
        )


class CallCounter:
    """The calls of this process by minute and Agent, as far as the store may not have them.

    A call that has ended costs one entry of a list. The entries are added up many at the same time.
    """

    def __init__(self, app: str, process_no: int) -> None:
        self._app = app
        self._process_no = process_no
        self._ended: list[tuple[str, str, float, Instant]] = []  # Agent, outcome, seconds, when: not added up yet
        self._minute = 0  # the last one in which a call ended; it never goes back, so a minute before it is complete
        self._minutes: dict[int, CountsByAgent] = {}
        self._changed: set[int] = set()  # minutes with calls that the store does not have

    def add(self, agent: str, call: EndedCall, now: Instant) -> None:
        """Count a call that has ended."""
        self._ended.append((agent, call.end, call.seconds, now))
        if len(self._ended) >= ADDED_UP_AT:
            self._add_up()

    def _add_up(self) -> None:
        ended, self._ended = self._ended, []
        for agent, outcome, seconds, at in ended:
            self._minute = max(self._minute, find_minute(at))
            self._changed.add(self._minute)
            of_minute = self._minutes.setdefault(self._minute, {})
            of_minute.setdefault(agent, AgentCounts()).add_call(outcome, seconds)

    @property
    def has_unwritten(self) -> bool:
        """Returns True if the store may lack a call."""
        return bool(self._ended or self._changed)

    def list_unwritten(self, now: Instant) -> list[CountsRow]:
        """List the minutes that the store may lack, as they stand now. Those that it takes no more are dropped."""
        self._add_up()
        self._changed = {minute for minute in self._changed if may_be_written(minute, now)}
        kept = self._changed | {self._minute}  # more calls may end in the last one
        self._minutes = {minute: counts for minute, counts in self._minutes.items() if minute in kept}
        return [self._build_row(minute) for minute in sorted(self._changed)]

    def note_written(self, rows: Sequence[CountsRow]) -> None:
        """Note that the store has these rows. A minute in which a call ended since then is written again."""
        self._changed -= {row.minute for row in rows if row.calls == self._count(row.minute)}

    def _build_row(self, minute: int) -> CountsRow:
        text = encode_counts(self._minutes[minute])
        calls = self._count(minute)
        return CountsRow(app=self._app, process_no=self._process_no, minute=minute, calls=calls, counts=text)

    def _count(self, minute: int) -> int:
        return sum(counts.calls for counts in self._minutes[minute].values())


WRITE_SECONDS = 10.0  # between two writes: so much is lost if the process dies


class AgentMetricsWriter:
    """Writes what the counter has, at most once in ``WRITE_SECONDS``, and nothing if no call has ended.

    A write that failed is repeated with the next one.
    """

    def __init__(self, store: StateStore, clock: ProcessClock, counter: CallCounter) -> None:
        self._store = store
        self._clock = clock
        self._counter = counter
        self._never = asyncio.Event()
        self._guard = LoopGuard(
            Loop.METRICS, clock.monotonic, unanswered="the metrics of Agents could not be written yet: %s"
        )

    async def run(self) -> None:
        """Run until cancelled."""
        due_at = self._clock.monotonic() + WRITE_SECONDS
        while True:
            await self._clock.idle(self._never, WRITE_SECONDS)  # need not be waited out
            if self._counter.has_unwritten and self._clock.monotonic() >= due_at:
                due_at = self._clock.monotonic() + WRITE_SECONDS
                await self.write()

    async def write(self) -> None:
        """Write what the store may lack. What fails is logged and disturbs nobody."""
        with self._guard:
            rows = self._counter.list_unwritten(self._store.now())
            if rows:
                await self._store.put_agent_counts(rows)
                self._counter.note_written(rows)
