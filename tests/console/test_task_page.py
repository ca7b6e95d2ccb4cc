"""The page of a task: all that its answers hold, drawn; what its caller may not see or do is not there."""

from collections.abc import AsyncIterator

import pytest
from console_pages import Browser
from server_shop import ShopWorld, open_shop
from server_world import TOKENS


@pytest.fixture
async def world() -> AsyncIterator[ShopWorld]:
    async with open_shop(running=True) as world:
        await world.sell()
        yield world


@pytest.fixture
async def browser(world: ShopWorld) -> Browser:
    browser = Browser(world.http)
    await browser.sign_in(TOKENS["admin"])
    return browser


async def test_the_page_of_a_held_task_says_why_and_what_may_be_done(browser: Browser) -> None:
    page = await browser.open("/tasks/held")
    assert browser.answer.status_code == 200
    assert "the books do not open" in page.text
    assert "arriero task resubmit held" in page.text
    assert "attempt 1, failed" in browser.answer.text
    assert "lamp" in page.text
