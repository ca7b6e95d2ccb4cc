"""The collector of prometheus-client: what the store says of itself, and what this process counted, as families of metrics."""

import asyncio
import concurrent.futures
from collections.abc import Iterable, Iterator

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

from ..client.app import App
from ..errors import DefinitionError
from . import families as names
from .families import FAMILIES, Family, Histogram, Values
from .process_metrics import build_process_metrics
from .reading import ANSWER_SECONDS_MAX, ReadingFailures, StoreReader, StoreReading, read_store
from .store_metrics import build_store_metrics

THREAD_SECONDS_MAX = ANSWER_SECONDS_MAX + 1.0  # what another thread waits for the event loop


class MetricsCollector(Collector):
    """Metrics of an App's store and of this process. Register it with a registry, or call ``render``.

    ``collect`` may be called in any thread. Outside of the App's event loop it waits a few seconds for the store. On that
    event loop it must not wait: there it gives the last reading and begins the next one, so use ``render`` there.

    Args:
        app: an App; it need not be open. While it is not, ``arriero_store_up`` is 0.
        store: False: leave out what is the same in all processes of the store.
    Raises: DefinitionError - it is no App.
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
