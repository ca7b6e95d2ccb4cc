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
