"""Metrics for Prometheus: what is exposed, that any parser takes it, and that it never waits for a silent store."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import prometheus_client.openmetrics.parser as openmetrics
import prometheus_client.parser as plain
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

import arriero
from arriero import Agent, App, Attempt, Permanent, StoreError, workflow
from arriero.metrics import FAMILIES, MetricsCollector
from arriero.metrics import reading as readings

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ID = "order-4711"

bank = Agent("bank", max_in_flight=3)


@bank.step(effect_free=True)
async def charge(attempt: Attempt, pence: int) -> str:
    if pence < 0:
        raise Permanent("refused")
    return "paid"


@workflow
async def pay(pence: int) -> str:
    return await charge(pence)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    yield App("till", agents=[bank], workflows=[pay], store=f"sqlite:///{tmp_path}/store.db")


def numbers(metrics: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    """Samples by name and label values."""
    return {(s.name, *(s.labels[key] for key in sorted(s.labels))): s.value for one in metrics for s in one.samples}


async def scrape(collector: MetricsCollector) -> dict[tuple[str, ...], float]:
    body, _ = await collector.render()
    return numbers(plain.text_string_to_metric_families(body.decode()))


# Nothing was refused, and nobody asked over HTTP.
NOTHING_HAPPENED = (
    "arriero_commands_refused",
    "arriero_http_requests",
    "arriero_http_problems",
    "arriero_tasks_ended_by_tag",
)


@pytest.mark.parametrize("accept", ["", "text/plain", OPENMETRICS], ids=["nothing", "plain", "openmetrics"])
async def test_the_text_is_taken_by_the_parser_and_has_every_metric_with_its_type_and_help(
    app: App, accept: str
) -> None:
    async with app.running():
        await (await app.submit(pay(5), task_id=ID)).result()
        assert app.session.node is not None and app.session.node.session is not None
        await app.session.node.session.agents.metrics.write()
        body, content_type = await MetricsCollector(app).render(accept)
    parse = (
        openmetrics.text_string_to_metric_families
        if "openmetrics" in content_type
        else plain.text_string_to_metric_families
    )
    found = {one.name: one for one in parse(body.decode()) if one.samples}
    assert ("openmetrics" in content_type) == bool(accept == OPENMETRICS)
    for family in FAMILIES:
        if family.name in NOTHING_HAPPENED:
            continue
        name = family.name if "openmetrics" in content_type or family.kind not in ("info",) else f"{family.name}_info"
        assert found[name].documentation == family.help
        assert {sample.name for sample in found[name].samples} <= set(family.samples)
        labels = {label for sample in found[name].samples for label in sample.labels} - {"le"}
        assert labels == set(family.labels), name


async def test_no_sample_holds_an_id(app: App) -> None:
    async with app.running():
        task = await app.submit(pay(5), task_id=ID, convoy="customer-77", reply_to="web-queue")
        await task.result()
        body, _ = await MetricsCollector(app).render()
        node = app.session.node
        assert node is not None and node.session is not None
        for word in (ID, "customer-77", "web-queue", node.session.context.actor):
            assert word not in body.decode()


def test_names_follow_openmetrics_and_have_a_help_line() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert re.fullmatch(r"arriero_[a-z_]+[a-z]", family.name)
        assert not family.name.endswith(("_total", "_info", "_count", "_sum", "_bucket"))
        assert family.help.endswith(".")
        assert not {"task", "task_id", "convoy", "token", "instance", "step"} & set(family.labels)


async def test_a_store_that_does_not_answer_is_a_scrape_with_store_up_0(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.running():

        async def fail() -> None:
            raise StoreError("gone")

        monkeypatch.setattr(app.session.store, "measure_backlog", fail)
        found = await scrape(MetricsCollector(app))
        assert found["arriero_store_up",] == 0
        assert found["arriero_store_reading_failures_total", "error"] == 1
        assert found["arriero_store_reading_failures_total", "timeout"] == 0
        assert ("arriero_leader_known",) not in found
        assert found["arriero_process_running",] == 1


async def test_a_failed_reading_is_logged_with_its_cause_and_counted_also_after_the_app_was_opened_again(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise StoreError("subquery in FROM must have an alias")

    collector = MetricsCollector(app)
    for count in (1, 2):
        async with app.running():
            monkeypatch.setattr(app.session.store, "measure_backlog", fail)
            found = await scrape(collector)
        assert found["arriero_store_reading_failures_total", "error"] == count
    assert caplog.text.count("subquery in FROM must have an alias") == 2


async def test_a_store_that_hangs_is_waited_for_a_moment_only_and_asked_once(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with app.running():
        asked, answer = [], asyncio.Event()
        measure = app.session.store.measure_backlog

        async def hang() -> object:
            asked.append(1)
            await answer.wait()
            return await measure()

        monkeypatch.setattr(app.session.store, "measure_backlog", hang)
        monkeypatch.setattr(readings, "ANSWER_SECONDS_MAX", 0.01)
        collector = MetricsCollector(app)
        assert (await scrape(collector))["arriero_store_up",] == 0
        assert (await scrape(collector))["arriero_store_up",] == 0
        assert len(asked) == 1
        assert "no answer within 0.01 s" in caplog.text
        answer.set()
        monkeypatch.setattr(readings, "ANSWER_SECONDS_MAX", 60.0)
        found = await scrape(collector)
        assert found["arriero_store_up",] == 1
        assert found["arriero_store_reading_failures_total", "timeout"] == 2
        assert len(asked) == 1


async def test_a_reading_is_kept_for_some_seconds_and_longer_if_it_took_long(app: App) -> None:
    now, asked = 100.0, []

    async def read(seconds: float) -> readings.StoreReading:
        nonlocal now
        asked.append(now)
        at, now = now, now + seconds
        made = await readings.read_store(app.session.store, (), lambda: 0.0)
        return readings.StoreReading(
            at=at, seconds=seconds, backlog=made.backlog, leader=None, processes={}, agents=made.agents
        )

    async with app:
        loop = asyncio.get_running_loop()
        took = 0.1
        reader = readings.StoreReader(
            lambda: loop.create_task(read(took)), lambda: now, readings.ReadingFailures(lambda: now)
        )
        assert await reader.read() is not None
        now += readings.KEPT_SECONDS - 0.01
        await reader.read()
        assert len(asked) == 1
        now, took = now + 0.02, 2.0
        await reader.read()
        now += 2.0 * readings.REST - 0.01
        await reader.read()
        assert len(asked) == 2
        now += 0.02
        await reader.read()
        assert len(asked) == 3


async def test_a_registry_of_the_users_collects_in_another_thread(app: App) -> None:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(app))
    async with app.running():
        body = await asyncio.to_thread(generate_latest, registry)
    assert numbers(plain.text_string_to_metric_families(body.decode()))["arriero_store_up",] == 1


async def test_on_the_apps_event_loop_collect_gives_the_last_reading_and_does_not_wait(app: App) -> None:
    async with app.running():
        collector = MetricsCollector(app)
        assert numbers(collector.collect())["arriero_store_up",] == 0
        await collector.render()
        assert numbers(collector.collect())["arriero_store_up",] == 1


async def test_an_app_that_is_not_open_has_metrics_of_the_process_alone(app: App) -> None:
    found = numbers(await asyncio.to_thread(lambda: list(MetricsCollector(app).collect())))
    assert found["arriero_store_up",] == 0
    assert found["arriero_process_running",] == 0
    assert found["arriero_process_info", "till", arriero.__version__] == 1


async def test_registering_it_asks_nothing_and_refuses_doubled_names(app: App) -> None:
    registry = CollectorRegistry()
    registry.register(MetricsCollector(app))
    with pytest.raises(ValueError, match="arriero_store_up"):
        registry.register(MetricsCollector(app))


async def test_without_the_store_only_what_differs_between_processes_is_exposed(app: App) -> None:
    async with app.running():
        found = {name for name, *_ in await scrape(MetricsCollector(app, store=False))}
    of_process = {sample for family in FAMILIES if family.source == "process" for sample in family.samples}
    assert found <= of_process


async def test_counts_of_this_process_tell_what_ended_and_what_was_committed(app: App) -> None:
    async with app.running():
        await (await app.submit(pay(5))).result()
        failed = await app.submit(pay(-5))
        with pytest.raises(arriero.TaskFailed):
            await failed.result()
        found = await scrape(MetricsCollector(app))
        assert found["arriero_tasks_ended_total", "processed"] == 1
        assert found["arriero_commit_commands_count", "submissions"] == 2
        assert found["arriero_commit_commands_bucket", "submissions", "1.0"] == 2
        assert found["arriero_attempt_places", "bank"] == 3
        assert found["arriero_process_loop_alive", "committer"] == 1


async def test_counters_of_the_process_go_on_when_it_begins_again_as_a_new_one(app: App) -> None:
    async with app.running():
        await (await app.submit(pay(5))).result()
        node = app.session.node
        assert node is not None and node.session is not None
        before = await scrape(MetricsCollector(app))
        first = node.session
        first.lost.set()
        while node.session is first or node.session is None or not node.session.has_started:
            await asyncio.sleep(0)
        await (await app.submit(pay(5))).result()
        after = await scrape(MetricsCollector(app))
    for key in (("arriero_tasks_ended_total", "processed"), ("arriero_commit_commands_count", "engine")):
        assert after[key] > before[key]


async def test_it_takes_an_app_and_nothing_else() -> None:
    with pytest.raises(arriero.DefinitionError, match="needs an App"):
        MetricsCollector("till")  # type: ignore[arg-type]
