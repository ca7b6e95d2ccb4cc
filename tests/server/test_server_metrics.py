"""/metrics: what Prometheus scrapes with a token."""

import sys

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from server_shop import bearer, open_shop


async def test_a_scrape_is_text_that_prometheus_reads() -> None:
    async with open_shop(running=True) as world:
        await world.sell()
        answer = await world.http.get("/metrics", headers=bearer("read"))
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")
        families = {family.name for family in text_string_to_metric_families(answer.text)}
        assert {"arriero_store_up", "arriero_tasks", "arriero_process_running"} <= families


async def test_a_scraper_that_wants_openmetrics_gets_it() -> None:
    async with open_shop(running=True) as world:
        wanted = "application/openmetrics-text; version=1.0.0"
        answer = await world.http.get("/metrics", headers={**bearer("read"), "Accept": wanted})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert list(openmetrics.text_string_to_metric_families(answer.text))


async def test_a_scrape_needs_the_scope_read() -> None:
    async with open_shop() as world:
        assert (await world.http.get("/metrics", headers={"Authorization": ""})).status_code == 401
        assert (await world.http.get("/metrics", headers=bearer("submit"))).status_code == 403


async def test_a_server_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arriero.metrics", None)
    async with open_shop() as world:
        answer = await world.http.get("/metrics", headers=bearer("read"))
        assert (answer.status_code, answer.json()["code"]) == (501, "metrics-missing")


async def test_requests_are_counted_by_operation_and_refusals_by_code(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "arriero.server.access")
    async with open_shop() as world:
        await world.http.get("/v1/tasks", headers=bearer("read"))
        await world.http.get("/v1/tasks/unknown", headers=bearer("read"))
        await world.http.get("/v1/tasks", headers=bearer("submit"))
        await world.http.get("/nowhere-in-particular", headers=bearer("read"))
        told = (await world.http.get("/metrics", headers=bearer("read"))).text
    for line in (
        'arriero_http_requests_total{operation="list_tasks",status="200"} 1.0',
        'arriero_http_requests_total{operation="show_task",status="404"} 1.0',
        'arriero_http_requests_total{operation="list_tasks",status="403"} 1.0',
        'arriero_http_requests_total{operation="",status="404"} 1.0',
        'arriero_http_problems_total{code="task-unknown"} 1.0',
        'arriero_http_problems_total{code="forbidden"} 1.0',
        'arriero_http_problems_total{code="not-found"} 1.0',
    ):
        assert line in told.splitlines(), line
    assert "nowhere" not in told
    assert "GET /v1/tasks 200" in caplog.messages[0]
    assert caplog.messages[0].endswith(" caller-read")
