"""The first page: what needs an operator, as the doctor judges it, and where it is mended."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx2
import pytest
from console_pages import Browser
from server_world import TOKENS, open_server

from arriero.client.overview import MinuteOfCalls
from arriero.server.application import build_application
from arriero.server.authentication import TokenAuthenticator
from arriero.server.console.overview import CHART_HEIGHT, draw_minutes
from lab.console_shop import ServedShop, serving_shop

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def minute(calls: int, failed: int = 0) -> MinuteOfCalls:
    return MinuteOfCalls(minute=NOON, calls=calls, failed=failed)


def test_the_minute_with_most_calls_has_the_full_height_and_a_single_call_can_be_seen() -> None:
    bars = draw_minutes([minute(0), minute(10_000, 5_000), minute(1, 1)])
    assert [bar.x for bar in bars] == [10, 20]
    assert bars[0].good + bars[0].failed == CHART_HEIGHT
    assert (bars[1].good, bars[1].failed) == (0.0, 1.0)
    assert bars[0].says == "12:00Z: 10,000 calls, 5,000 failed"


def test_an_hour_without_a_call_has_no_bars() -> None:
    assert draw_minutes([minute(0)] * 60) == ()


@pytest.fixture
async def shop() -> AsyncIterator[ServedShop]:
    async with serving_shop(orders=2) as shop:
        yield shop


async def open_browser(shop: ServedShop) -> Browser:
    transport = httpx2.ASGITransport(app=shop.server, raise_app_exceptions=False)
    return Browser(httpx2.AsyncClient(transport=transport, base_url=shop.url))


async def test_what_the_doctor_finds_about_unfinished_work_is_on_the_page_with_a_way_to_it(shop: ServedShop) -> None:
    browser = await open_browser(shop)
    page = await browser.sign_in(shop.token)
    found = await browser.http.get("/v1/doctor", headers={"Authorization": f"Bearer {shop.token}"})
    for finding in found.json()["findings"]:
        if finding["level"] == "care":
            assert finding["says"].split(" since ")[0].split("; ")[0].replace("`", "") in page.text
    assert "14 held, for an operator" in page.text
    assert "order-4711" in page.links
    assert page.links["14 held, for an operator"] == "/tasks?state=held"


async def test_a_store_in_which_all_is_well_says_so() -> None:
    async with open_server() as world:
        page = await Browser(world.http).sign_in(TOKENS["admin"])
        assert "What needs an operator" in page.text
        assert "No task is held." in page.text
        assert "No task was submitted within the last hour." in page.text


async def test_a_restricted_token_is_told_that_it_does_not_see_the_whole_store(shop: ServedShop) -> None:
    narrow = await shop.app.tokens.create("narrow", scopes=["read"], by="lab", workflows=["pay_out"])
    browser = await open_browser(shop)
    page = await browser.sign_in(narrow.token)
    assert "The token of narrow does not show the whole store" in page.text
    assert "order-4711" not in page.text
    page = await browser.open("/tasks")
    assert "refund-31" in page.links
    assert "order-4711" not in page.text


async def test_a_mounted_console_leads_to_its_own_pages(shop: ServedShop) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    web = Starlette(routes=[Mount("/desk", build_application(shop.app, TokenAuthenticator(shop.app.session)))])
    transport = httpx2.ASGITransport(app=web, raise_app_exceptions=False)
    browser = Browser(httpx2.AsyncClient(transport=transport, base_url="http://localhost"))
    await browser.open("/desk/tasks")
    page = await browser.send("/desk/sign-in", token=shop.token)
    assert str(browser.answer.url) == "http://localhost/desk/tasks"
    assert all(link.startswith(("/desk/", "#")) for link in page.links.values())
    assert (await browser.http.get("/desk/tasks")).status_code == 200
