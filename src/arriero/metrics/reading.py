"""Reads the state store for metrics: seldom, one reading at a time, and never longer than a scrape may wait.

A reading is kept for ``KEPT_SECONDS``, and for ``REST`` times as long as it took. So monitors take at most a twentieth of
one connection, however often they ask and however slow the store is.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from ..client.agent_metrics import AppMetrics, load_metrics
from ..core.lease import is_alive
from ..errors import ArrieroError
from ..inspection.facts import Backlog
from ..model.processes import LeaderSurvey
from ..runtime.settings import ROLES
from ..store.state_store import StateStore
from ..system.rate_limited_log import RateLimitedLog

logger = logging.getLogger("arriero")

KEPT_SECONDS = 5.0  # most monitors ask every 15 or 30 seconds, and several may ask at the same time
REST = 20
FAILURES = ("error", "timeout")
ANSWER_SECONDS_MAX = 4.0  # a scrape of Prometheus may last ten seconds


class StoreReading(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a store. ``seconds``: duration of the reading; ``at``: its beginning on the monotonic clock."""

    at: float
    seconds: float
    backlog: Backlog
    leader: LeaderSurvey | None
    processes: dict[str, int]
    agents: AppMetrics


async def read_store(
    store: StateStore, known: tuple[tuple[str, str], ...], monotonic: Callable[[], float]
) -> StoreReading:
    """Read everything once. ``known``: Agents that have metrics also if they were never called. Raises StoreError."""
    at = monotonic()
    backlog = await store.measure_backlog()
    leader = await store.survey_leader()
    now, rows = await store.known_processes()
    alive = Counter(role for row in rows for role in ROLES if is_alive(row, role, now))
    agents = await load_metrics(store, known)
    processes = {role: alive[role] for role in ROLES}
    seconds = monotonic() - at
    return StoreReading(at=at, seconds=seconds, backlog=backlog, leader=leader, processes=processes, agents=agents)


class ReadingFailures:
    """Counts readings that brought nothing, by cause, and logs why. It outlives the readers of one collector."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.counts = Counter(dict.fromkeys(FAILURES, 0))
        self._log = RateLimitedLog(logger, monotonic)

    def note(self, cause: str, why: str) -> None:
        """Count one and log it. ``cause``: of ``FAILURES``."""
        self.counts[cause] += 1
        self._log.tell(cause, f"metrics: the state store was not read, the scrape shows arriero_store_up 0: {why}")

    def note_late(self) -> None:
        """Note that a scrape could not wait longer."""
        self.note("timeout", f"no answer within {ANSWER_SECONDS_MAX:g} s; arriero doctor says what keeps it")


class StoreReader:
    """Keeps the last reading of a store. All methods run on the event loop that the store is open on.

    Args:
        read: one reading; raises ArrieroError where the store does not answer.
        failures: notes each reading that brings nothing.
    """

    def __init__(
        self,
        read: "Callable[[], asyncio.Future[StoreReading]]",
        monotonic: Callable[[], float],
        failures: ReadingFailures,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._failures = failures
        self._under_way: asyncio.Future[StoreReading] | None = None
        self.last: StoreReading | None = None

    def is_fresh(self) -> bool:
        """Returns True if the last reading is still kept."""
        last = self.last
        return last is not None and self._monotonic() - last.at < last.seconds + max(KEPT_SECONDS, REST * last.seconds)

    async def read(self) -> StoreReading | None:
        """The reading that is kept, or a new one. Returns None if the store does not answer in time."""
        if self.is_fresh():
            return self.last
        under_way = self._join()
        done, _ = await asyncio.wait({under_way}, timeout=ANSWER_SECONDS_MAX)
        if not done:
            self._failures.note_late()
        return self.last if done and self.is_fresh() else None

    def begin(self) -> None:
        """Begin a reading, unless one is running."""
        _ = self._join()

    def _join(self) -> "asyncio.Future[StoreReading]":
        if self._under_way is None or self._under_way.done():
            self._under_way = self._read()
            self._under_way.add_done_callback(self._keep)
        return self._under_way

    def _keep(self, reading: "asyncio.Future[StoreReading]") -> None:
        if reading.cancelled():
            self.last = None
        elif (error := reading.exception()) is None:
            self.last = reading.result()
        else:
            self.last = None
            self._failures.note("error", str(error) or type(error).__name__)
            if not isinstance(error, ArrieroError):
                raise error  # a bug: the event loop logs it
