"""The list of alerts: open and closed, from either end, with their delivery and what to do."""

import re
from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest
from console_pages import Browser
from server_shop import ShopWorld, open_shop
from server_world import TOKENS
from waiting import wait_until_async

from arriero.model import AlertRow

ADMIN = {"Authorization": f"Bearer {TOKENS['admin']}"}


@pytest.fixture
async def world() -> AsyncIterator[ShopWorld]:
    async with open_shop(running=True) as world:
        for number in range(3):
            body = {"workflow": "inspect_item", "arguments": {"item": "lamp"}, "id": f"held-{number}"}
            (await world.http.post("/v1/tasks", json=body)).raise_for_status()
            await world.http.get(f"/v1/tasks/held-{number}/result?wait=30")
        yield world


@pytest.fixture
async def browser(world: ShopWorld) -> Browser:
    browser = Browser(world.http)
    await browser.sign_in(TOKENS["admin"], "/alerts")
    return browser


def list_ids(browser: Browser) -> list[str]:
    """The ids of the tasks in the list, in its order."""
    found = re.findall(r'<th scope="row"><a class="id" href="/tasks/([^"]+)"', browser.answer.text)
    return [unquote(path) for path in found]


async def test_open_alerts_come_newest_first_with_cause_reason_and_remedy(browser: Browser) -> None:
    assert list_ids(browser) == ["held-2", "held-1", "held-0"]
    assert "a step failed: audit closed" in browser.page.text
    assert "the books do not open" in browser.page.text
    assert "arriero task explain held-2" in browser.page.text
    await browser.follow("oldest first")
    assert list_ids(browser) == ["held-0", "held-1", "held-2"]


@pytest.mark.parametrize("order", ["newest", "oldest"])
async def test_alerts_have_pages_from_either_end(browser: Browser, order: str) -> None:
    await browser.open(f"/alerts?order={order}&limit=2")
    first = list_ids(browser)
    await browser.follow("Next page")
    assert len(first) == 2
    assert [*first, *list_ids(browser)] == [
        f"held-{number}" for number in ((2, 1, 0) if order == "newest" else (0, 1, 2))
    ]
    assert "Next page" not in browser.page.links
    await browser.follow("First page")
    assert list_ids(browser) == first
    await browser.open("/alerts?cursor=AAAA")
    assert browser.answer.status_code == 422
    assert "This page of the list is not there" in browser.page.text


async def test_a_closed_alert_is_in_the_list_of_all(world: ShopWorld, browser: Browser) -> None:
    undone = await world.http.post("/v1/tasks/held-1:compensate", json={"reason": "never mind"}, headers=ADMIN)
    undone.raise_for_status()
    await browser.open("/alerts")
    assert list_ids(browser) == ["held-2", "held-0"]
    await browser.follow("all")
    assert list_ids(browser) == ["held-2", "held-1", "held-0"]
    assert browser.page.text.count("arriero task explain") == 2


async def test_a_list_says_which_sinks_have_heard_of_an_alert(world: ShopWorld, browser: Browser) -> None:
    rows: dict[int, AlertRow] = world.app.session.store.alert_rows  # type: ignore[attr-defined]  # of the memory store
    await wait_until_async(lambda: all(row.told and row.next_at is None for row in rows.values()), "the delivery")
    await browser.open("/alerts")
    assert "not yet to all" not in browser.page.text
    alert = (await world.http.get("/v1/alerts", headers=ADMIN)).json()["alerts"][0]
    assert alert["delivered_to"][0] in browser.page.text


async def test_an_empty_list_says_so_and_a_token_without_read_sees_none() -> None:
    async with open_shop() as world:
        browser = Browser(world.http)
        page = await browser.sign_in(TOKENS["read"], "/alerts")
        assert "No alert is open." in page.text
        page = await browser.open("/alerts?state=all")
        assert "The store has no alerts." in page.text
        page = await browser.open("/ledgers")
        assert "No ledger is open." in page.text
        await browser.send("/sign-out")
        await browser.sign_in(TOKENS["submit"], "/alerts")
        assert browser.answer.status_code == 403


async def test_a_ledger_leads_to_its_tasks(world: ShopWorld, browser: Browser) -> None:
    entries = [{"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}, "id": f"pay-{one}"} for one in range(2)]
    (await world.http.put("/v1/ledgers/payroll%20%3Cb%3E", json={"entries": entries}, headers=ADMIN)).raise_for_status()
    page = await browser.open("/ledgers?state=all")
    assert "<b>" not in browser.answer.text
    await browser.open(page.links["payroll <b>"])
    assert set(list_ids(browser)) == {"pay-0", "pay-1"}
