"""The list of tasks as operators use it: filters in addresses, pages, and what is said where nothing fits."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from console_pages import Browser
from server_shop import ShopWorld, open_shop
from server_world import TOKENS
from starlette.requests import Request

from arriero.model.tokens import Reach
from arriero.server.application import build_application
from arriero.server.calls import Caller

HOSTILE = ("<script>alert(1)</script>", "../../etc", "\u202egnirts", "x" * 255)


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


def list_ids(browser: Browser) -> list[str]:
    """The ids in the list, in its order."""
    return [
        unquote(path)
        for path in re.findall(r'<th scope="row"><a class="id" href="/tasks/([^"]+)"', browser.answer.text)
    ]


async def submit(world: ShopWorld, task_id: str, **more: Any) -> None:
    body = {"workflow": "wait_long", "arguments": {}, "id": task_id, **more}
    answer = await world.http.post("/v1/tasks", json=body, headers={"Authorization": f"Bearer {TOKENS['admin']}"})
    assert answer.status_code < 300, answer.text


async def test_the_newest_task_comes_first_with_its_state_and_its_reason(browser: Browser) -> None:
    page = await browser.open("/tasks")
    assert list_ids(browser) == ["sleeping", "held", "compensated", "processed"]
    assert "the books do not open" in page.text
    assert "the time " in page.text  # that the sleeping one waits for
    await browser.open("/tasks?order=oldest")
    assert list_ids(browser) == ["processed", "compensated", "held", "sleeping"]


async def test_a_link_for_each_state_leads_to_its_tasks(browser: Browser) -> None:
    await browser.open("/tasks?state=compensating")
    assert list_ids(browser) == []
    for state in ("held", "processed", "processing"):
        await browser.follow(state)
        assert str(browser.answer.url) == f"http://localhost/tasks?state={state}"
        assert len(list_ids(browser)) == 1
        assert browser.answer.text.count('aria-current="page"') == 2  # in the navigation, and here
        await browser.open("/tasks?state=compensating")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("code=closed", ["held"]),
        ("text=books", ["held"]),
        ("workflow=fulfil&state=compensated", ["compensated"]),
        ("step=audit", ["held"]),
        ("agent=till&state=held", ["held"]),
        ("paused=yes", []),
        ("paused=false&state=processing", ["sleeping"]),
        ("older_than=2h", []),
        ("since=15m&state=held", ["held"]),
        ("tag=tenant%3Dacme", []),
    ],
)
async def test_each_part_of_a_filter_stands_in_the_address(browser: Browser, query: str, found: list[str]) -> None:
    await browser.open(f"/tasks?{query}")
    assert browser.answer.status_code == 200
    assert list_ids(browser) == found
    assert ("No task fits the filter." in browser.page.text) == (not found)


async def test_a_date_is_typed_as_on_the_command_line(browser: Browser) -> None:
    for hours, count in ((-1, 4), (1, 0)):
        at = datetime.now(UTC) + timedelta(hours=hours)
        for name, found in (("since", count), ("older_than", 4 - count)):
            await browser.open(f"/tasks?{name}={at:%Y-%m-%d+%H:%M}")
            assert browser.answer.status_code == 200
            assert len(list_ids(browser)) == found


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("since=yesterday", "Submitted since: 'yesterday' is neither a duration like 90, 15m, 2h or 3d nor an instant"),
        ("older_than=-1", "Submitted before: '-1' is neither a duration"),
        ("state=broken", "state 'broken' is not known; states are"),
        ("paused=maybe", "paused is 'maybe'; write true or false"),
        ("tag=nothing", "tag"),
        ("code_version=1.2.3", "code_version"),
        ("cursor=AAAA", "This page of the list is not there"),
    ],
)
async def test_a_filter_that_cannot_be_read_is_shown_again_with_the_reason_above_it(
    browser: Browser, query: str, says: str
) -> None:
    page = await browser.open(f"/tasks?{query}&workflow=fulfil")
    assert browser.answer.status_code == 422
    assert says in page.text
    assert '<p class="banner bad" role="alert">' in browser.answer.text
    form = page.find_form("/tasks")
    assert form.fields["workflow"] == "fulfil"
    name, _, value = query.partition("=")
    assert name == "cursor" or form.fields[name] == value


async def test_pages_follow_one_another_and_lead_back_to_the_first(world: ShopWorld, browser: Browser) -> None:
    await browser.open("/tasks?limit=3")
    assert list_ids(browser) == ["sleeping", "held", "compensated"]
    await browser.follow("Next page")
    assert list_ids(browser) == ["processed"]
    assert "Next page" not in browser.page.links
    await browser.follow("First page")
    assert list_ids(browser) == ["sleeping", "held", "compensated"]


@pytest.mark.parametrize("order", ["newest", "oldest"])
async def test_each_page_leads_to_the_one_before_it(browser: Browser, order: str) -> None:
    every = ["sleeping", "held", "compensated", "processed"][:: 1 if order == "newest" else -1]
    await browser.open(f"/tasks?limit=1&order={order}")
    assert "Previous page" not in browser.page.links
    seen = list_ids(browser)
    while "Next page" in browser.page.links:
        await browser.follow("Next page")
        seen += list_ids(browser)
    assert seen == every
    back = list_ids(browser)
    while "Previous page" in browser.page.links:
        await browser.follow("Previous page")
        back += list_ids(browser)
    assert back == every[::-1]
    await browser.follow("Next page")
    assert list_ids(browser) == [every[1]]


async def test_a_page_of_another_filter_is_refused(browser: Browser) -> None:
    await browser.open("/tasks?limit=3")
    page = await browser.open(browser.page.links["Next page"] + "&state=held")
    assert "This page of the list is not there" in page.text


async def test_tags_lead_to_the_tasks_that_have_them(world: ShopWorld, browser: Browser) -> None:
    await submit(world, "tagged", tags={"tenant": "acme & sons", "note": "<b>"})
    page = await browser.open("/tasks")
    assert "<b>" not in browser.answer.text
    await browser.open(page.links["tenant=acme & sons"])
    assert list_ids(browser) == ["tagged"]
    assert "Tag: tenant=acme & sons \u00d7, leave out" in browser.page.links


async def test_names_are_shown_as_text_whatever_they_hold(world: ShopWorld, browser: Browser) -> None:
    for one in HOSTILE:
        await submit(world, one)
    page = await browser.open("/tasks")
    assert "<script>alert" not in browser.answer.text
    assert "\u202e" not in browser.answer.text
    assert "<script>alert(1)</script>" in page.text
    await browser.open("/tasks?text=%3Cscript%3Ealert(1)")
    assert "<script>alert" not in browser.answer.text
    await browser.follow("All tasks")
    assert set(HOSTILE) < set(list_ids(browser))


async def test_a_task_is_opened_by_its_id_whatever_stands_in_it(world: ShopWorld, browser: Browser) -> None:
    for one in ("sleeping", *HOSTILE):
        if one != "sleeping":
            await submit(world, one)
        await browser.open("/tasks")
        sent = await world.http.get("/open", params={"id": f" {one} "})
        assert sent.status_code == 303
        page = await browser.open(sent.headers["location"])
        assert browser.answer.status_code == 200
        assert one.replace("\u202e", "") in page.text.replace("\\u202e", "")
    page = await browser.open("/open?id=nothing")
    assert browser.answer.status_code == 404
    assert "nothing" in page.text
    await browser.open("/open")
    assert str(browser.answer.url) == "http://localhost/tasks"


async def test_an_empty_store_says_how_the_first_task_comes() -> None:
    async with open_shop() as world:
        browser = Browser(world.http)
        page = await browser.sign_in(TOKENS["read"], "/tasks")
        assert "The store has no tasks yet." in page.text


async def test_verbs_for_all_are_offered_with_a_filter_to_those_who_may(world: ShopWorld) -> None:
    browser = Browser(world.http)
    await browser.sign_in(TOKENS["admin"], "/tasks")
    assert "resubmit" not in browser.page.links
    await browser.open("/tasks?state=held&workflow=inspect_item")
    assert browser.page.links["resubmit"] == "/bulk/resubmit?state=held&workflow=inspect_item"
    assert "cancel" not in browser.page.links  # of a task that is held there is nothing to cancel
    await browser.open("/tasks?workflow=fulfil")
    assert {"resubmit", "cancel", "compensate", "pause", "snooze", "tag"} <= browser.page.links.keys()
    await browser.send("/sign-out")
    await browser.sign_in(TOKENS["read"], "/tasks?state=held")
    assert list_ids(browser) == ["held"]
    assert "resubmit" not in browser.page.links


class OfOneWorkflow:
    """Knows each caller as one who may do everything with the tasks of one workflow."""

    async def authenticate(self, request: Request) -> Caller:
        return Caller("partner", frozenset({"admin"}), "", Reach(workflows=("fulfil",)))


async def test_a_token_of_one_workflow_lists_its_tasks_and_acts_on_no_others(world: ShopWorld) -> None:
    served = build_application(world.app, OfOneWorkflow())
    transport = httpx2.ASGITransport(app=served, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        browser = Browser(http)
        page = await browser.open("/tasks?since=1h")
        assert list_ids(browser) == ["compensated", "processed"]
        assert not {"Failures", "Alerts", "Ledgers"} & page.links.keys()
        await browser.follow("tag")
        await browser.send("/bulk/tag", field_put="seen=yes", field_reason="looked at", preview="true")
        assert "Tag would be done for 2 tasks" in browser.page.text
        for path in ("/failures", "/alerts", "/ledgers"):
            await browser.open(path)
            assert browser.answer.status_code == 404
        page = await browser.open("/inbox")
        assert "No question is open." in page.text
