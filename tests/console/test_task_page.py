"""The page of a task: all that its answers hold, drawn; what its caller may not see or do is not there."""

from collections.abc import AsyncIterator

import pytest
from console_pages import Browser
from damaging import NO_POLICY, Damage
from server_shop import ShopWorld, bearer, open_shop
from server_world import TOKENS

from arriero.server.parameters import write_id


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


async def test_a_task_that_was_purged_and_an_id_that_no_task_has_are_said_in_a_page(browser: Browser) -> None:
    for path in (
        "/tasks/never",
        "/tasks/never/steps/1",
        "/tasks/never/history",
        "/tasks/never/edit",
        "/tasks/held/steps/99",
    ):
        page = await browser.open(path)
        assert browser.answer.status_code == 404, path
        assert "there is no task" in page.text or "has no step" in page.text


async def test_ids_with_markup_slashes_and_marks_of_direction_are_text_and_lead_to_their_pages(
    world: ShopWorld, browser: Browser
) -> None:
    for task_id in ("<script>alert(1)</script>", "../../act/x", "a\u202eb", "..", "x" * 255, "q\"'&#"):
        body = {"workflow": "wait_long", "arguments": {}, "id": task_id}
        (await world.http.post("/v1/tasks", json=body, headers=bearer("admin"))).raise_for_status()
        for part in ("", "/history", "/steps", "/signals"):
            await browser.open(f"/tasks/{write_id(task_id)}{part}")
            assert browser.answer.status_code == 200, (task_id, part)
            assert "<script>alert" not in browser.answer.text
            assert "\u202e" not in browser.answer.text


async def test_a_damaged_task_is_shown_with_the_columns_that_cannot_be_read(world: ShopWorld, browser: Browser) -> None:
    store = world.app.session.store
    loaded = await store.find("held")
    assert loaded is not None
    damage = Damage(store, "task", loaded.task.task_no, "policy", NO_POLICY)
    page = await browser.open("/tasks/held")
    assert browser.answer.status_code == 200
    assert "This release cannot read a part of this task" in page.text
    assert "column policy of table task" in page.text
    damage.mend()


async def test_a_large_payload_with_a_script_is_cut_and_its_whole_is_a_file_of_text(
    world: ShopWorld, browser: Browser
) -> None:
    item = "<script>alert(1)</script>" * 8_000
    body = {"workflow": "fulfil", "arguments": {"order": {"item": item}}, "id": "large"}
    (await world.http.post("/v1/tasks", json=body, headers=bearer("admin"))).raise_for_status()
    await browser.open("/tasks/large")
    assert "<script>alert" not in browser.answer.text
    assert len(browser.answer.content) < 200_000
    whole = await world.http.get(browser.page.links["The whole of it, as text"])
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert item in whole.text


async def test_who_may_not_read_payloads_or_act_is_told_which_scope_that_needs(world: ShopWorld) -> None:
    browser = Browser(world.http)
    await browser.sign_in(TOKENS["read"])
    page = await browser.open("/tasks/held")
    assert "withheld; needs the scope read-payloads" in page.text
    assert "Verbs need the scope operate" in page.text
    assert not [link for link in page.links.values() if "/act/" in link or "/edit" in link]
    await browser.open("/tasks/held/payloads/0/arguments")
    assert browser.answer.status_code == 403


async def test_the_history_leads_to_older_and_newer_entries_and_to_operators_alone(
    world: ShopWorld, browser: Browser
) -> None:
    await browser.open("/act/pause_task/sleeping?back=/tasks/sleeping")
    await browser.send("/act/pause_task/sleeping", field_reason="the road is closed")
    page = await browser.open("/tasks/sleeping/history?operators=true")
    assert 'caller-admin paused it: "the road is closed"' in page.text
    assert "submitted to workflow" not in page.text
    page = await browser.open("/tasks/sleeping/history?link=1")
    assert "submitted to workflow" in page.text
    assert "the road is closed" not in page.text
    page = await browser.follow("Newer")
    assert "the road is closed" in page.text
