"""Lists in Chromium: a filter that is typed while the page follows the store, and one verb for all tasks of a filter."""

from collections.abc import AsyncIterator

import pytest
from chromium import find_chromium, open_chromium, open_tab
from playwright.async_api import Browser

from lab.console_shop import ServedShop, remind, serving_shop


@pytest.fixture
async def shop() -> AsyncIterator[ServedShop]:
    find_chromium()
    async with serving_shop(orders=3) as shop:
        yield shop


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


async def test_a_list_follows_the_store_and_keeps_what_is_typed_in_its_filter(
    shop: ServedShop, chromium: Browser
) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, "/tasks")
        await tab.page.get_by_text("More filters").click()
        await tab.page.get_by_label("Workflow").fill("remi")
        await tab.page.get_by_label("Ledger").fill("payroll")
        await shop.app.submit(remind("order-1001"), task_id="reminder-new")
        await tab.page.wait_for_selector("text=reminder-new")
        assert await tab.page.get_by_label("Workflow").input_value() == "remi"
        assert await tab.page.get_by_label("Ledger").input_value() == "payroll"
        assert await tab.page.get_by_label("Ledger").is_visible()


async def test_a_group_of_failures_is_resubmitted_by_keyboard_alone(shop: ServedShop, chromium: Browser) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, "/failures")
        await tab.page.get_by_role("link", name="resubmit all").first.focus()
        await tab.page.keyboard.press("Enter")
        await tab.page.get_by_label("Reason").focus()
        await tab.page.keyboard.type("the cards are valid again")
        await tab.page.keyboard.press("Enter")
        await tab.wait_for_text("Resubmit would be done for 13 tasks")
        await tab.page.get_by_role("button", name="Resubmit 13 tasks").focus()
        await tab.page.keyboard.press("Enter")
        await tab.wait_for_text("Resubmit: done for 13 tasks")
        await tab.page.reload()  # the browser sends the form again
        await tab.wait_for_text("Resubmit: done for 13 tasks")
        await tab.open("/tasks/order-2000")
        assert (await tab.read()).count("the cards are valid again") == 1
