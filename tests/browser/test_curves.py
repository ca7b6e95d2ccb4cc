"""The curves of an Agent: drawn in the colours and the width of the page, also after it was brought up to date."""

from collections.abc import AsyncIterator

import pytest
from chromium import find_chromium, open_chromium, open_tab
from playwright.async_api import Browser, expect
from waiting import call_until_answered

from arriero.core.agent_metrics import AgentCounts, encode_counts, find_minute
from arriero.inspection.facts import CountsRow
from lab.console_shop import ServedShop, serving_shop

CANVAS = "figure.curve canvas"
WIDTH = "document.querySelector('figure.curve canvas').getBoundingClientRect().width"
PICTURE = "document.querySelector('figure.curve canvas').toDataURL()"
PLACE = "document.querySelector('figure.curve .plot').getBoundingClientRect().width"


@pytest.fixture
async def shop() -> AsyncIterator[ServedShop]:
    find_chromium()
    async with serving_shop(orders=3) as shop:
        await write_counts(shop)
        yield shop


async def write_counts(shop: ServedShop) -> None:
    """Count calls of payments some minutes ago, as its process does every ten seconds."""
    store = shop.app.session.store
    counts = encode_counts({"payments": AgentCounts({"succeeded": 4}, 0.4, {100: 4})})
    minute = find_minute(store.now()) - 5
    await store.put_agent_counts([CountsRow(app="shop", process_no=1, minute=minute, calls=4, counts=counts)])


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


async def test_curves_are_drawn_and_stay_when_the_page_is_brought_up_to_date(
    shop: ServedShop, chromium: Browser
) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, "/agents/payments")
        await expect(tab.page.locator(CANVAS)).to_have_count(2)
        await shop.app.agent("payments").pause(by="eva", reason="the bank is closed")
        await expect(tab.page.locator("main")).to_contain_text("the bank is closed")
        await expect(tab.page.locator(CANVAS)).to_have_count(2)


async def test_curves_follow_the_width_of_the_window_and_light_and_dark(shop: ServedShop, chromium: Browser) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, "/agents/payments")
        await expect(tab.page.locator(CANVAS)).to_have_count(2)

        async def has_the_width_of_its_place() -> None:
            assert await tab.page.evaluate(f"Math.abs({WIDTH} - {PLACE}) <= 1")

        for width in (2_000, 500):
            await tab.page.set_viewport_size({"width": width, "height": 800})
            await call_until_answered(has_the_width_of_its_place, AssertionError)
        light = await tab.page.evaluate(PICTURE)

        async def has_other_colours() -> None:
            assert await tab.page.evaluate(PICTURE) != light

        await tab.page.emulate_media(color_scheme="dark")
        await call_until_answered(has_other_colours, AssertionError)
