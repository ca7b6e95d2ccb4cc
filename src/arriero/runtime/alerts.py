"""Delivers the alerts in the store to the sinks of this process. No leader is needed.

A process takes an alert, delivers it, and settles it. The transaction that takes the alert makes it due again only after
``hold_seconds``, so that no other process delivers it meanwhile. After a crash in between, the alert is delivered again
under the same id: at least once. If the alert is closed meanwhile, settling is refused, and the alert is due again with its
new state.

A sink that fails is notified again after a growing delay, for as long as it takes; those that know are left alone. A sink
that let its whole time pass rests for a while: each alert offered to it meanwhile counts as failed immediately, so that a
webhook that hangs does not keep hundreds of alerts from the log.

Alerts of one cause are one message (``core.alert_groups``). The first is reported immediately. Those that follow are collected for a few
seconds, longer while they keep coming: they are put back, due when that time is over, and reported together. Each process collects for
itself, so a store with several processes gets a message from each at most.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ..core.alert_groups import GroupKey, build_group_alert, compute_window, find_group, group_rows
from ..core.alerts import RETRY_SECONDS, RETRY_SECONDS_MAX, Alert, compute_alert_delay
from ..errors import DefinitionError
from ..model import AlertRow
from ..model.policies import SECONDS_MAX
from ..payloads.codec import error_text, recordable_text
from ..store.state_store import StateStore
from ..system.loops import Loop, LoopGuard
from ..text.escaping import one_line
from .alert_sinks import AlertSink, NotTold
from .ports import Ports, ProcessClock

logger = logging.getLogger("arriero")

TELLINGS_MAX = 8  # at a time: a storm of alerts must not become a storm of requests
REST_SECONDS = 60.0
TAKEN_MAX = 400  # alerts looked at in one pass, of which those of one cause are one message
SETTLE_SECONDS = 30.0  # what settling may take on a busy store before another process takes the alert


class Alerting:
    """Delivers alerts to sinks. Without sinks alerts stay as they are: a process with sinks delivers them.

    Args:
        sinks: all processes on a store should have the same; an alert is settled when the sinks of one process know.
        retry_seconds: until a sink that failed is notified again; doubles up to ``retry_seconds_max``.
        poll_seconds: between passes.
    Raises: DefinitionError - two sinks have one name, or a number cannot work.
    """

    def __init__(
        self,
        sinks: Sequence[AlertSink],
        *,
        store: StateStore,
        ports: Ports,
        retry_seconds: float = RETRY_SECONDS,
        retry_seconds_max: float = RETRY_SECONDS_MAX,
        poll_seconds: float = 1.0,
    ) -> None:
        names = [sink.name for sink in sinks]
        if twice := [name for name in names if names.count(name) > 1]:
            raise DefinitionError(
                f"alerts are to be delivered twice to {twice[0]!r}: remove one, or give it another name"
            )
        _check_range(poll_seconds, "poll_seconds")
        _check_range(retry_seconds_max, "retry_seconds_max")
        _check_range(retry_seconds, "retry_seconds", at_most=retry_seconds_max)
        for sink in sinks:
            _check_range(sink.timeout_seconds, f"the timeout of {sink.name}")
        self._sinks = tuple(sinks)
        self._store = store
        self._ports = ports
        self._retry_seconds = retry_seconds
        self._retry_seconds_max = retry_seconds_max
        self._poll_seconds = poll_seconds
        self._alerts_max = max(1, TELLINGS_MAX // max(1, len(sinks)))  # each goes to all its sinks at the same time
        self._hold_seconds = max((sink.timeout_seconds for sink in sinks), default=0.0) + SETTLE_SECONDS
        self._rests_until: dict[str, float] = {}
        self._windows: dict[
            GroupKey, tuple[float, float]
        ] = {}  # when each cause was reported last, and for how long it collects
        self.told = 0  # alerts that every sink knows
        self.failed = 0  # tries after which one did not
        self._never = asyncio.Event()

    async def run(self) -> None:
        """Deliver alerts until cancelled."""
        guard = LoopGuard(Loop.ALERTS, self._ports.clock.monotonic, unanswered="alerts could not be read: %s")
        while True:
            with guard:  # what was taken in a pass that broke is due again when its hold is over
                await self.tell_due()
            await self._ports.clock.idle(self._never, self._poll_seconds)

    async def tell_due(self) -> None:
        """Deliver all alerts that are due; a full pass is followed by another immediately. Raises StoreError."""
        while await self.tick() >= TAKEN_MAX:
            pass

    async def tick(self) -> int:
        """Take the due alerts, deliver and settle them. Returns how many were taken. Raises StoreError."""
        if not self._sinks:
            return 0
        rows = await self._store.take_alerts(TAKEN_MAX, self._hold_seconds)
        groups, began_at = group_rows(rows), self._ports.clock.monotonic()
        for first in range(0, len(groups), self._alerts_max):
            is_late = self._ports.clock.monotonic() > began_at + SETTLE_SECONDS / 2
            some = groups[first : first + self._alerts_max]
            work = [self._put_back(group, 0.0) if is_late else self._handle(group) for group in some]
            for group, answer in zip(some, await asyncio.gather(*work, return_exceptions=True), strict=True):
                if isinstance(answer, BaseException):
                    self.failed += 1
                    logger.error(
                        "alert %d of task %s could not be settled, it will be reported again: %s",
                        group[0].no,
                        group[0].task_id,
                        error_text(answer),
                    )
        return len(rows)

    async def _handle(self, rows: Sequence[AlertRow]) -> None:
        """Deliver the alerts of one cause as one message, or put them back while it collects."""
        key, now = find_group(rows[0]), self._ports.clock.monotonic()
        told_at, window = self._windows.get(key, (0.0, 0.0)) if key is not None else (0.0, 0.0)
        if now < told_at + window and not rows[0].told:
            await self._put_back(rows, told_at + window - now)
            return
        alert, known = build_group_alert(rows, self._store.store_id), rows[0].told
        sinks = [sink for sink in self._sinks if sink.name not in known]
        async with asyncio.TaskGroup() as group:  # when we stop, it waits until each has let go of what it began
            tellings = {sink.name: group.create_task(self._tell(sink, alert)) for sink in sinks}
        answers = {name: telling.result() for name, telling in tellings.items()}
        failed = {name: one_line(error) for name, error in answers.items() if error is not None}
        told = (*known, *(sink.name for sink in sinks if sink.name not in failed))
        again = self._draw_retry_delay(max(row.attempts for row in rows)) if failed else None
        for name, error in failed.items():
            logger.warning("%s could not be sent alert %s; again in %.0f s: %s", name, alert.id, again, error)
        # What failed last stays with the alert when at last everybody knows: it says why it came late.
        error = recordable_text("; ".join(f"{name}: {text}" for name, text in failed.items()))
        for row in rows:
            await self._store.settle_alert(row.no, row.attempts, told, again, error or row.error)
        if key is not None and len(failed) < len(sinks):
            self._begin_window(key, now)
        self.failed += bool(failed)
        self.told += len(rows) if not failed else 0

    def _begin_window(self, key: GroupKey, now: float) -> None:
        """Begin to collect further alerts of a cause, and forget the causes that have been quiet."""
        window = compute_window(self._windows.get(key), now)
        self._windows = {one: last for one, last in self._windows.items() if now < last[0] + 2 * last[1]}
        self._windows[key] = (now, window)

    async def _put_back(self, rows: Sequence[AlertRow], seconds: float) -> None:
        for row in rows:
            await self._store.settle_alert(row.no, row.attempts, row.told, seconds, row.error)

    def _draw_retry_delay(self, attempts: int) -> float:
        jitter = self._ports.random.random()
        return compute_alert_delay(
            attempts, seconds=self._retry_seconds, seconds_max=self._retry_seconds_max, jitter=jitter
        )

    async def _tell(self, sink: AlertSink, alert: Alert) -> str | None:
        """Notify one sink. Returns why that failed, or None; raises only when this process stops."""
        if self._ports.clock.monotonic() < self._rests_until.get(sink.name, 0.0):
            return f"it is left alone for {REST_SECONDS:.0f} s, because it let its time pass"
        try:
            async with _limit_time(self._ports.clock, sink.timeout_seconds) as scope:
                await sink.tell(alert)
        except asyncio.CancelledError as error:
            if _is_stopping():
                raise
            return error_text(error)  # the sink cancelled itself, nobody asked it to
        except (Exception, SystemExit) as error:  # a function that calls sys.exit must not take the process along
            if not scope.expired():
                return recordable_text(str(error)) if isinstance(error, NotTold) else error_text(error)
            self._rests_until[sink.name] = self._ports.clock.monotonic() + REST_SECONDS
            return f"it took longer than {sink.timeout_seconds:g} s"
        self._rests_until.pop(sink.name, None)
        return None


def _check_range(seconds: float, what: str, *, at_most: float = SECONDS_MAX) -> None:
    if not 0 < seconds <= at_most:  # NaN fails it too
        raise DefinitionError(f"alerts: {what} is {seconds!r} seconds; it must be above 0 and at most {at_most:.0f}")


def _is_stopping() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


@asynccontextmanager
async def _limit_time(clock: ProcessClock, seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """A timeout by the process's own clock, which the loop's is not in simulations."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, lambda: scope.reschedule(loop.time()))
        try:
            yield scope
        finally:
            timer.cancel()
