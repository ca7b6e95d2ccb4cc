"""An operator's night in the console: from the overview to a clean shop, once with the mouse and once with the keyboard alone."""

import re
from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from chromium import Tab, find_chromium, open_chromium, open_tab
from playwright.async_api import Browser, Locator

from arriero.events import decode_event_fields
from lab.console_shop import ServedShop, serving_shop

TABS_MAX = 150  # that an operator may press to reach anything on a page


class Hand(Protocol):
    """How an operator reaches what is on a page."""

    async def press(self, what: Locator) -> None: ...

    async def write(self, field: Locator, text: str) -> None: ...

    async def check(self, box: Locator) -> None: ...


class Mouse:
    """Clicks, and types into what was clicked."""

    async def press(self, what: Locator) -> None:
        await what.click()

    async def write(self, field: Locator, text: str) -> None:
        await field.click()
        await field.fill(text)

    async def check(self, box: Locator) -> None:
        await box.click()


class Keyboard:
    """Moves by Tab, presses Enter, and types. It never touches the mouse, and focuses nothing by a script."""

    async def _reach(self, what: Locator) -> None:
        keyboard = what.page.keyboard
        for _ in range(TABS_MAX):
            if await what.evaluate("one => one === document.activeElement"):
                return
            await keyboard.press("Tab")
        raise AssertionError(f"{what} was not reached by {TABS_MAX} presses of Tab")

    async def press(self, what: Locator) -> None:
        await self._reach(what)
        await what.page.keyboard.press("Enter")

    async def write(self, field: Locator, text: str) -> None:
        await self._reach(field)
        await field.page.keyboard.press("ControlOrMeta+A")
        await field.page.keyboard.type(text)

    async def check(self, box: Locator) -> None:
        await self._reach(box)
        await box.page.keyboard.press("Space")


class Operator:
    """Ana, in one tab."""

    def __init__(self, tab: Tab, hand: Hand) -> None:
        self.tab, self.page, self.hand = tab, tab.page, hand

    def link(self, name: str | re.Pattern[str], within: str = "body") -> Locator:
        return self.page.locator(within).get_by_role("link", name=name, exact=isinstance(name, str)).first

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str)).first

    async def go_by(self, what: Locator) -> None:
        """Press what leads to another page, and wait for that."""
        async with self.page.expect_navigation(wait_until="load"):
            await self.hand.press(what)

    async def follow(self, name: str | re.Pattern[str], within: str = "body") -> None:
        await self.go_by(self.link(name, within))

    async def send(self, name: str | re.Pattern[str]) -> None:
        await self.go_by(self.button(name))

    async def give_reason(self, text: str) -> None:
        await self.hand.write(self.page.get_by_label("Reason").first, text)

    async def go_to(self, place: str) -> None:
        await self.follow(place, "nav[aria-label=Pages]")


@pytest.fixture
async def shop() -> AsyncIterator[ServedShop]:
    find_chromium()
    async with serving_shop(orders=3) as shop:
        yield shop


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


async def mend_the_stuck_order(ana: Operator) -> None:
    """From the overview to the task, its timeline, and its arguments."""
    await ana.go_to("Overview")
    await ana.tab.wait_for_text("What needs an operator")
    await ana.follow("order-4711", "main")
    assert await ana.page.locator("section:has-text('Timeline') svg").count() >= 1
    assert "the carrier needs a city" in await ana.tab.read()
    await ana.follow(re.compile("resubmit.*"), "main .verbs li:has-text('other arguments')")
    await ana.hand.write(ana.page.get_by_label(re.compile("^City")).first, "Madrid")
    await ana.give_reason("the customer has named the city")
    await ana.send("Preview")
    await ana.tab.wait_for_text("Would be done")
    await ana.go_by(ana.page.locator("form.act button.primary"))
    await ana.tab.wait_for_text("Done: ")
    await ana.page.wait_for_selector(".heading .state.good")


async def undo_the_group(ana: Operator) -> None:
    """One verb for all orders whose card has expired."""
    await ana.go_to("Failures")
    await ana.go_by(
        ana.page.locator("section:has-text('card_expired')").get_by_role("link", name="compensate all").first
    )
    await ana.give_reason("the customers were asked to order again")
    await ana.send("Preview")
    await ana.send(re.compile("^Compensate 1[0-9] tasks"))
    await ana.tab.wait_for_text("Compensate: done for 1")


async def answer_the_question(ana: Operator) -> None:
    """Finance approves a refund."""
    await ana.go_to("Inbox")
    await ana.go_by(ana.page.locator("section.question:has-text('Ana')").get_by_role("link", name="answer").first)
    await ana.hand.check(ana.page.get_by_label(re.compile("Approved")).first)
    await ana.give_reason("the invoice was checked")
    await ana.send("Answer")


async def release_the_convoy(ana: Operator) -> None:
    """The customer's next orders continue."""
    await ana.go_to("Convoys")
    await ana.follow("customer-7", "main")
    await ana.follow("release", "main")
    await ana.give_reason("the customer pays by transfer")
    await ana.go_by(ana.page.locator("form.act button.primary"))
    await ana.tab.wait_for_text("Done: ")


async def hold_the_breaker_open(ana: Operator) -> None:
    """No call goes to the courier until the morning."""
    await ana.go_to("Agents")
    await ana.follow("courier", "main")
    await ana.follow("open", "main")
    await ana.give_reason("the courier is closed until the morning")
    await ana.go_by(ana.page.locator("form.act button.primary"))
    await ana.tab.wait_for_text("Done: ")


async def read_reasons(shop: ServedShop) -> set[str]:
    """Why ana has acted, as the whole history of the store says."""
    found = set()
    async for row in shop.app.session.store.history():
        found |= {event.get("reason", "") for event in decode_event_fields(row) if event.get("by") == "ana"}
    return found


@pytest.mark.parametrize("hand", [Mouse(), Keyboard()], ids=["mouse", "keyboard"])
async def test_an_operator_mends_the_shop_from_the_overview(shop: ServedShop, chromium: Browser, hand: Hand) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token)
        ana = Operator(tab, hand)
        await mend_the_stuck_order(ana)
        await undo_the_group(ana)
        await answer_the_question(ana)
        await release_the_convoy(ana)
        await hold_the_breaker_open(ana)
        assert await read_reasons(shop) >= {
            "the customer has named the city",
            "the customers were asked to order again",
            "the invoice was checked",
            "the customer pays by transfer",
            "the courier is closed until the morning",
        }
        await tab.open("/tasks/order-4711")
        history = await tab.page.inner_text("main")
        assert "ana" in history
        assert "the customer has named the city" in history
    view = await shop.app.task("order-4711").view()
    assert view.state == "processed"
