"""The collector of prometheus-client: what the store says of itself, and what this process counted, as families of metrics."""

import asyncio
import concurrent.futures
from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ..client.agent_metrics import AgentMetrics
from ..client.app import App
from ..client.session import Session
from ..errors import DefinitionError
from ..model import Instant, seconds_between
from ..runtime.node import NodeSession
from ..store.committer import CommitCounts
from ..version import __version__
from . import families as names
from .families import FAMILIES, Family, Histogram, Values
from .reading import ANSWER_SECONDS_MAX, ReadingFailures, StoreReader, StoreReading, read_store

BREAKER_STATES = ("open", "half_open", "paused")


def build_store_metrics(reading: StoreReading, now: float) -> Iterator[tuple[Family, Values]]:
    """Build what a reading says. ``now``: monotonic."""
    backlog, leader = reading.backlog, reading.leader

    def measure_age(since: Instant | None) -> float:
        return 0.0 if since is None else max(seconds_between(since, backlog.now), 0.0)

    yield names.STORE_READ, [((), reading.seconds)]
    yield names.STORE_AGE, [((), max(now - reading.at, 0.0))]
    situations = {
        "running": backlog.running,
        "due": backlog.due,
        "later": backlog.later,
        "in_convoy": backlog.in_convoy,
        "held": backlog.held,
    }
    yield names.TASKS, [((situation,), count) for situation, count in situations.items()]
    yield names.TASKS_DUE_AGE, [((), measure_age(backlog.oldest_due_at))]
    still = {"stopped": backlog.convoys_stopped, "gap": backlog.convoys_in_gap, "parked": backlog.convoys_parked}
    yield names.CONVOYS_STILL, [((state,), count) for state, count in still.items()]
    yield names.ALERTS_OPEN, [((), backlog.alerts)]
    yield names.STATUSES, [((), backlog.statuses)]
    yield names.STATUSES_AGE, [((), measure_age(backlog.oldest_status_at))]
    yield names.SCHEDULES_DUE, [((), backlog.schedules_due)]
    yield names.SCHEDULES_LAG, [((), measure_age(backlog.oldest_schedule_at))]
    yield names.LEASES_HELD, [((), backlog.leases)]
    yield names.LEADER_KNOWN, [((), 0 if leader is None else 1)]
    if leader is not None:
        yield names.LEADER_TERM, [((), leader.term)]
    yield names.PROCESSES, [((role,), count) for role, count in reading.processes.items()]
    yield from _build_agents(reading.agents.agents)


def _build_agents(agents: tuple[AgentMetrics, ...]) -> Iterator[tuple[Family, Values]]:
    of = [((one.app, one.agent), one) for one in agents]
    yield (
        names.CALLS,
        [
            ((*key, outcome), count)
            for key, one in of
            for outcome, count in msgspec.structs.asdict(one.total.outcomes).items()
        ],
    )
    yield (
        names.CALL_SECONDS,
        [(key, Histogram(one.total.bounds_seconds, one.total.buckets, one.total.seconds)) for key, one in of],
    )
    yield names.AGENT_ATTEMPTS, [(key, one.in_flight) for key, one in of]
    yield names.REQUESTS, [(key, one.waiting) for key, one in of]
    yield names.REQUESTS_AGE, [(key, one.oldest_wait_seconds or 0.0) for key, one in of]
    yield names.BREAKERS, [((*key, state), _count_breakers(one, state)) for key, one in of for state in BREAKER_STATES]


def _count_breakers(one: AgentMetrics, state: str) -> int:
    if state == "paused":
        return sum(breaker.paused for breaker in one.breakers)
    return sum(breaker.state == state for breaker in one.breakers)


ENDED_STATES = ("processed", "compensated", "held")


def build_process_metrics(session: Session) -> Iterator[tuple[Family, Values]]:
    """Build what this process says of itself, also while its App is not open or the store is silent."""
    counts = {"engine": session.commit_counts, "submissions": session.submission_counts}
    found = session.openings.find_any().node  # a monitor may ask on another event loop than the one that it runs on
    node = None if found is None else found.session
    yield names.PROCESS, [((session.app, __version__), 1)]
    yield names.RUNNING, [((), 0 if node is None or node.lost.is_set() else 1)]
    yield names.COMMIT_COMMANDS, [((kind,), _build_sizes(of)) for kind, of in counts.items()]
    refused = session.commit_counts.refused + session.submission_counts.refused
    yield names.REFUSED, [((verdict,), count) for verdict, count in sorted(refused.items())]
    yield names.ENDED, [((state,), session.commit_counts.ended[state]) for state in ENDED_STATES]
    yield (
        names.ENDED_BY_TAG,
        [
            ((tag, value, state), count)
            for tag, values in sorted(session.commit_counts.ended_by_tag.items())
            for value, states in sorted(values.items())
            for state, count in sorted(states.items())
        ],
    )
    yield (
        names.HTTP_REQUESTS,
        [((name, str(status)), count) for (name, status), count in sorted(session.http_requests.items())],
    )
    yield names.HTTP_PROBLEMS, [((code,), count) for code, count in sorted(session.http_problems.items())]
    yield names.SUBMISSIONS_WAITING, [((), session.count_submissions_waiting())]
    if node is not None and node.has_started:
        yield from _build_node(node)


def _build_node(node: NodeSession) -> Iterator[tuple[Family, Values]]:
    hosted = node.agents.hosted.values()
    yield names.LEASE_TRUSTED, [((), float(node.context.is_trusted()))]
    yield names.LEADING, [((), float(node.leader.is_leading()))]
    yield names.LOOP_ALIVE, [((str(loop),), float(alive)) for loop, alive in node.list_loop_liveness().items()]
    yield names.COMMANDS_WAITING, [(("engine",), node.committer.on_the_way)]
    yield names.ATTEMPTS, [((one.name,), one.used) for one in hosted]
    yield names.PLACES, [((one.name,), one.count_places()) for one in hosted]


def _build_sizes(counts: CommitCounts) -> Histogram:
    """Commits by their commands: the bit length n holds those of at most 2^n - 1 commands."""
    sizes = list(counts.sizes)
    bounds = [2.0**length - 1 for length in range(1, len(sizes))]
    return Histogram(bounds, [*sizes[1:], 0], counts.commands)


THREAD_SECONDS_MAX = ANSWER_SECONDS_MAX + 1.0  # what another thread waits for the event loop


class MetricsCollector(Collector):
    """Metrics of an App's store and of this process. Register it with a registry, or call ``render``.

    ``collect`` may be called in any thread. Outside of the App's event loop it waits a few seconds for the store. On that
    event loop it must not wait: there it gives the last reading and begins the next one, so use ``render`` there.

    Args:
        app: an App; it need not be open. While it is not, ``arriero_store_up`` is 0.
        store: False: leave out what is the same in all processes of the store.
    Raises: DefinitionError - it is not an App.
    """

    def __init__(self, app: App, *, store: bool = True) -> None:
        if not isinstance(app, App):
            raise DefinitionError(f"MetricsCollector needs an App, not {app!r}")
        self._app = app
        self._has_store = store
        self._failures = ReadingFailures(app.session.ports.clock.monotonic)
        self._reader: StoreReader | None = None
        self._reader_key: object = None  # the store that it reads

    # --- what a registry calls
    def describe(self) -> Iterable[Metric]:
        """The families without samples, so that a registry finds doubled names without asking the store."""
        return [build_family(family) for family in FAMILIES if self._has_store or family.source == "process"]

    def collect(self) -> Iterator[Metric]:
        """All metrics, now. Raises nothing: a store that does not answer is ``arriero_store_up 0``."""
        yield from self._build(self._read_anywhere() if self._has_store else None)

    # --- for a web server
    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics as text. To be awaited on the event loop that the App is open on.

        Args:
            accept: the header ``Accept`` of the request; it chooses between Prometheus' text and OpenMetrics.
        Returns: the body, and its content type.
        """
        reading = await self._read() if self._has_store else None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(list(self._build(reading))))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    # --- reading the store
    async def _read(self) -> StoreReading | None:
        reader = self._find_reader()
        return None if reader is None else await reader.read()

    def _find_reader(self) -> StoreReader | None:
        """The reader of the store that the App is open on; None: it is not open."""
        session = self._app.session
        loop = session.loop
        if loop is None:
            return None
        store, monotonic = session.store, session.ports.clock.monotonic
        if self._reader is None or self._reader_key is not store:
            known = tuple((session.app, agent.name) for agent in session.agents)
            self._reader_key = store
            self._reader = StoreReader(
                lambda: loop.create_task(read_store(store, known, monotonic)), monotonic, self._failures
            )
        return self._reader

    def _read_anywhere(self) -> StoreReading | None:
        loop = self._app.session.loop
        if loop is None or loop.is_closed():
            return None
        if asyncio._get_running_loop() is loop:
            reader = self._find_reader()
            if reader is None:
                return None
            if not reader.is_fresh():
                reader.begin()
            return reader.last
        reading = self._read()
        try:
            asked = asyncio.run_coroutine_threadsafe(reading, loop)
        except RuntimeError:  # it was closed a moment ago
            reading.close()
            return None
        try:
            return asked.result(THREAD_SECONDS_MAX)
        except (TimeoutError, concurrent.futures.CancelledError):
            asked.cancel()
            self._failures.note_late()
            return None

    # --- building
    def _build(self, reading: StoreReading | None) -> Iterator[Metric]:
        session = self._app.session
        if self._has_store:
            counted = [((cause,), count) for cause, count in self._failures.counts.items()]
            yield build_family(names.READING_FAILURES, counted)
            yield build_family(names.STORE_UP, [((), 0.0 if reading is None else 1.0)])
            if reading is not None:
                for family, values in build_store_metrics(reading, session.ports.clock.monotonic()):
                    yield build_family(family, values)
        for family, values in build_process_metrics(session):
            yield build_family(family, values)


class _Collected(Collector):
    """Families that are collected already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def build_family(family: Family, values: Values = ()) -> Metric:
    """Build the family of prometheus-client. ``values``: label values and number, or Histogram."""
    unit = "seconds" if family.name.endswith("_seconds") else ""
    built: Metric
    if family.kind == "histogram":
        built = histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels, unit=unit)
        for labels, value in values:
            assert isinstance(value, Histogram)
            histogram.add_metric(labels, value.list_buckets(), value.sum)
        return built
    if family.kind == "info":
        built = info = InfoMetricFamily(family.name, family.help)
        for labels, _ in values:
            info.add_metric((), dict(zip(family.labels, labels, strict=True)))
        return built
    made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    built = numbers = made(family.name, family.help, labels=family.labels, unit=unit)
    for labels, value in values:
        assert not isinstance(value, Histogram)
        numbers.add_metric(labels, value)
    return built
