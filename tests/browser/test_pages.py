"""Every page in Chromium: what axe finds, what stands out of the window, what scripts say, and what is there without them."""

from collections.abc import AsyncIterator

import pytest
from chromium import find_chromium, open_chromium, open_tab
from playwright.async_api import Browser

from lab.console_paths import list_console_paths
from lab.console_shop import ServedShop, serving_shop

WIDTHS = (360, 1280, 2560)


@pytest.fixture
async def shop() -> AsyncIterator[ServedShop]:
    find_chromium()
    async with serving_shop(orders=3) as shop:
        yield shop


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_has_a_serious_fault_for_those_who_cannot_see_or_point(
    shop: ServedShop, chromium: Browser, scheme: str
) -> None:
    async with open_tab(chromium, shop.url, scheme=scheme) as tab:
        await tab.open("/sign-in")
        assert await tab.find_faults() == []
        await tab.sign_in(shop.token)
        for path in (*list_console_paths(shop.server), "/nothing"):
            await tab.open(path)
            assert await tab.find_faults() == [], path


@pytest.mark.parametrize("width", WIDTHS)
async def test_no_page_is_wider_than_its_window(shop: ServedShop, chromium: Browser, width: int) -> None:
    async with open_tab(chromium, shop.url, width=width) as tab:
        await tab.sign_in(shop.token)
        for path in (*list_console_paths(shop.server), "/nothing"):
            await tab.open(path)
            assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


async def test_every_page_can_be_read_and_each_form_sent_without_scripts(shop: ServedShop, chromium: Browser) -> None:
    async with open_tab(chromium, shop.url, scripts=False) as tab:
        await tab.sign_in(shop.token)
        for path in (*list_console_paths(shop.server), "/nothing"):
            await tab.open(path)
            assert len(await tab.page.inner_text("main")) > 20, path
        await tab.open("/act/compensate_task/order-4711?back=/tasks/order-4711")
        await tab.page.get_by_label("Reason").fill("the customer has cancelled")
        await tab.page.get_by_role("button", name="Preview").click()
        assert "Would be done" in await tab.read()
        await tab.page.get_by_role("button", name="Compensate").click()
        assert "Done: " in await tab.read()
        task = shop.app.task("order-4711")
    assert (await task.view()).state in ("compensating", "compensated")


async def test_instants_are_shown_in_the_zone_of_the_reader_with_the_stores_clock_beside(
    shop: ServedShop, chromium: Browser
) -> None:
    async with open_tab(chromium, shop.url, zone="Asia/Tokyo") as tab:
        await tab.sign_in(shop.token, "/tasks/order-4711")
        shown = tab.page.locator("time").first
        instant, text, title = (
            await shown.get_attribute("datetime"),
            await shown.inner_text(),
            await shown.get_attribute("title"),
        )
        assert instant is not None
        assert title is not None
        assert title == instant.split(".")[0].replace("T", " ") + "Z"
        assert text.endswith(f"{(int(instant[11:13]) + 9) % 24:02}{instant[13:19]}")
