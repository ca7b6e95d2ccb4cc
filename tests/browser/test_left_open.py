"""Pages that were left open, and operators who act twice or at the same time."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from chromium import find_chromium, open_chromium, open_tab
from playwright.async_api import Browser

from arriero.model import TaskState
from arriero.server.console import assets
from arriero.store.contract import Purge
from lab.console_shop import ServedShop, serving_shop

STUCK = "/tasks/order-4711"
FORM = f"/act/resubmit_task/order-4711?back={STUCK}"


@pytest.fixture
async def shop() -> AsyncIterator[ServedShop]:
    find_chromium()
    async with serving_shop(orders=3) as shop:
        yield shop


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with open_chromium() as browser:
        yield browser


async def wait_until_refused(shop: ServedShop, token: str) -> None:
    """Until the server refuses a token that was revoked: it remembers a valid one for half a second."""
    async with httpx2.AsyncClient(base_url=shop.url, headers={"authorization": f"Bearer {token}"}) as http:
        while (await http.get("/v1/tasks?limit=1")).status_code != 401:
            pass


async def count_acts(shop: ServedShop, task_id: str) -> int:
    """How many verbs of operators the history of a task has."""
    loaded = await shop.app.session.store.find(task_id)
    assert loaded is not None
    rows = [row async for row in shop.app.session.store.history(loaded.task.task_no)]
    return sum(bytes(row.events).count(b'"operator.') for row in rows)


async def test_a_task_that_changes_is_shown_as_it_is_now(shop: ServedShop, chromium: Browser) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, STUCK)
        await tab.page.wait_for_selector(".heading .state.bad")
        await shop.app.task("order-4711").compensate(by="eva", reason="the customer has cancelled")
        await tab.page.wait_for_selector(".heading .state.undone")


async def test_a_page_says_that_it_is_behind_while_the_server_restarts_and_then_catches_up(
    shop: ServedShop, chromium: Browser
) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, STUCK)
        await shop.stop_serving()
        await tab.wait_for_text("Not connected: this page shows how things stood at")
        await shop.app.task("order-4711").compensate(by="eva", reason="the customer has cancelled")
        await shop.serve_again()
        await tab.page.wait_for_selector(".heading .state.undone")
        await tab.page.wait_for_selector("#behind", state="hidden")
        tab.errors.clear()  # Chromium notes each connection that was refused


async def test_a_page_whose_token_was_revoked_says_so_and_shows_nothing_new(
    shop: ServedShop, chromium: Browser
) -> None:
    created = await shop.app.tokens.create("eva", scopes=["read"], by="lab")
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(created.token, STUCK)
        await shop.app.tokens.revoke(created.about.id, by="lab", reason="eva has left")
        await wait_until_refused(shop, created.token)
        await shop.app.task("order-4711").compensate(by="ana", reason="the customer has cancelled")
        await tab.wait_for_text("You are signed out")
        assert await tab.page.locator(".heading .state.bad").count() == 1
        tab.errors.clear()  # htmx writes each refusal to the console
        await tab.page.get_by_role("link", name="Sign in").click()
        await tab.page.get_by_label("Token").fill(shop.token)
        await tab.page.get_by_role("button", name="Sign in").click()
        await tab.page.wait_for_selector(".heading .state.undone")


async def test_a_page_from_before_a_release_is_loaded_again_with_the_files_of_the_release(
    shop: ServedShop, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, STUCK)
        before = assets.compute_edition()
        assert await tab.page.get_attribute("body", "data-edition") == before
        released = {**assets.read_assets(), "console.css": b"body { margin: 0 }"}
        monkeypatch.setattr(assets, "read_assets", lambda: released)
        assets.compute_edition.cache_clear()
        try:
            await shop.app.task("order-4711").compensate(by="eva", reason="the customer has cancelled")
            await tab.page.wait_for_selector(f"body:not([data-edition='{before}'])")
            await tab.page.wait_for_selector(".heading .state.undone")
        finally:
            monkeypatch.undo()
            assets.compute_edition.cache_clear()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_a_double_click_acts_once(shop: ServedShop, chromium: Browser, scripts: bool) -> None:
    async with open_tab(chromium, shop.url, scripts=scripts) as tab:
        await tab.sign_in(shop.token)
        await tab.open(FORM)
        await tab.page.get_by_label("Reason").fill("tried again")
        await tab.page.locator("form.act button.primary").dblclick(no_wait_after=True)
        await tab.wait_for_text("Done: ")
        assert await count_acts(shop, "order-4711") == 1


async def test_a_reload_of_what_came_of_an_act_does_not_act_again(shop: ServedShop, chromium: Browser) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token)
        await tab.open(FORM)
        await tab.page.get_by_label("Reason").fill("tried again")
        await tab.page.locator("form.act button.primary").click()
        await tab.wait_for_text("Done: ")
        await tab.page.reload()
        await tab.page.go_back()
        await tab.page.go_forward()
        assert await count_acts(shop, "order-4711") == 1


async def test_the_second_of_two_operators_learns_the_new_state_and_decides_again(
    shop: ServedShop, chromium: Browser
) -> None:
    created = await shop.app.tokens.create("eva", scopes=["read", "operate"], by="lab")
    async with open_tab(chromium, shop.url) as first, open_tab(chromium, shop.url) as second:
        await first.sign_in(shop.token)
        await second.sign_in(created.token)
        for tab in (first, second):
            await tab.open(f"/act/compensate_task/order-4711?back={STUCK}")
            await tab.page.get_by_label("Reason").fill("the customer has cancelled")
        await first.page.locator("form.act button.primary").click()
        await first.wait_for_text("Done: ")
        await second.page.locator("form.act button.primary").click()
        await second.wait_for_text("The task has changed since this form was opened")
        assert await second.page.get_by_label("Reason").input_value() == "the customer has cancelled"
        assert await count_acts(shop, "order-4711") == 1


async def test_a_page_of_a_task_that_was_purged_meanwhile_says_so_and_keeps_what_it_showed(
    shop: ServedShop, chromium: Browser
) -> None:
    async with open_tab(chromium, shop.url) as tab:
        await tab.sign_in(shop.token, "/tasks/order-1000")
        await tab.page.wait_for_selector(".heading .state.good")
        store = shop.app.session.store
        ended = Purge(states=(TaskState.PROCESSED,), ended_before=store.now())
        assert (await store.purge(ended, actor="a test", limit=100)).count
        await tab.wait_for_text("What this page shows was purged")
        assert await tab.page.locator(".heading .state.good").count() == 1
        tab.errors.clear()  # htmx writes each refusal to the console
        await tab.page.reload()
        await tab.wait_for_text("No such task")


async def test_the_form_that_answers_a_question_has_no_serious_fault(shop: ServedShop, chromium: Browser) -> None:
    async with open_tab(chromium, shop.url, width=360) as tab:
        await tab.sign_in(shop.token, "/inbox")
        await tab.page.get_by_role("link", name="answer").first.click()
        await tab.page.wait_for_selector("form.act")
        assert await tab.find_faults() == []
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_forms_that_are_made_from_types_have_no_serious_fault(
    shop: ServedShop, chromium: Browser, scheme: str
) -> None:
    async with open_tab(chromium, shop.url, width=360, scheme=scheme) as tab:
        await tab.sign_in(shop.token, STUCK)
        await tab.page.locator("main .verbs li:has-text('other arguments') a").first.click()
        await tab.page.get_by_label("City").first.wait_for()
        assert await tab.find_faults() == []
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
