"""One verb for all tasks of a filter: its form, its preview, its outcome, and what two operators or a reload do with it."""

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from console_pages import Browser
from server_shop import ShopWorld, open_shop
from server_world import TOKENS

from arriero.server.console import bulk_verbs

ADMIN = {"Authorization": f"Bearer {TOKENS['admin']}"}
HELD = "?state=held&workflow=inspect_item"
WHY = "the books were opened"


@pytest.fixture
async def world() -> AsyncIterator[ShopWorld]:
    async with open_shop(running=True) as world:
        yield world


@pytest.fixture
async def browser(world: ShopWorld) -> Browser:
    await hold(world, 3)
    browser = Browser(world.http)
    await browser.sign_in(TOKENS["admin"], "/tasks" + HELD)
    return browser


async def hold(world: ShopWorld, count: int, prefix: str = "held") -> list[str]:
    """Bring tasks into the state held."""
    ids = [f"{prefix}-{number}" for number in range(count)]
    tasks = [{"workflow": "inspect_item", "arguments": {"item": "lamp"}, "id": one} for one in ids]
    (await world.http.post("/v1/tasks:submit", json={"tasks": tasks}, headers=ADMIN)).raise_for_status()
    for one in ids:
        found = await world.http.get(f"/v1/tasks/{one}/result?wait=30", headers=ADMIN)
        assert found.json()["state"] == "held"
    return ids


async def list_acts(world: ShopWorld, task_id: str) -> list[tuple[str, str, str]]:
    """The verbs in the history of a task, with who asked for them and why."""
    entries = (await world.http.get(f"/v1/tasks/{task_id}/history?limit=200", headers=ADMIN)).json()["entries"]
    events: list[dict[str, Any]] = [event for entry in entries for event in entry["events"]]
    return [(one["verb"], one["by"], one["reason"]) for one in events if one["type"] == "operator.action"]


async def press(browser: Browser, **fields: str) -> None:
    await browser.send("/bulk/", **fields)


async def test_all_tasks_of_a_filter_are_compensated_from_their_list(world: ShopWorld, browser: Browser) -> None:
    await browser.follow("compensate")
    assert "State: held" in browser.page.text
    await press(browser, field_reason=WHY, preview="true")
    assert "Compensate would be done for 3 tasks" in browser.page.text
    assert {"held-0", "held-1", "held-2"} <= browser.page.links.keys()
    assert await list_acts(world, "held-0") == []
    await press(browser)
    assert "Compensate: done for 3 tasks" in browser.page.text
    for number in range(3):
        assert await list_acts(world, f"held-{number}") == [("compensate", "caller-admin", WHY)]
    await browser.follow("Back")
    assert str(browser.answer.url) == "http://localhost/tasks" + HELD


async def test_a_preview_says_what_is_left_alone_and_what_is_refused_and_why(
    world: ShopWorld, browser: Browser
) -> None:
    body = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}, "id": "processed"}
    (await world.http.post("/v1/tasks", json=body, headers=ADMIN)).raise_for_status()
    await world.http.get("/v1/tasks/processed/result?wait=30", headers=ADMIN)
    await browser.open("/bulk/answer?since=1h")
    await press(browser, field_step="refund", field_result="1", field_reason=WHY, preview="true")
    assert "Answer would be done for 0 tasks , refused by 3; left alone: 1 processed." in browser.page.text
    assert "has no step 'refund'" in browser.page.text
    assert "Answer 0" not in browser.page.text  # nothing is there to press
    await browser.open("/bulk/answer?since=1h")
    await press(browser, field_step="audit", field_result='"open"', field_reason=WHY, preview="true")
    assert "Answer would be done for 3 tasks" in browser.page.text


async def test_a_task_that_comes_to_fit_the_filter_after_the_preview_is_left_alone(
    world: ShopWorld, browser: Browser
) -> None:
    await browser.follow("compensate")
    await press(browser, field_reason=WHY, preview="true")
    await hold(world, 1, "later")
    await press(browser)
    assert "done for 3 tasks" in browser.page.text
    assert await list_acts(world, "later-0") == []


async def test_a_task_that_another_operator_has_moved_meanwhile_refuses(world: ShopWorld, browser: Browser) -> None:
    await browser.follow("compensate")
    await press(browser, field_reason=WHY, preview="true")
    other = {"reason": "by another"}
    (await world.http.post("/v1/tasks/held-1:compensate", json=other, headers=ADMIN)).raise_for_status()
    await press(browser)
    assert "Compensate: done for 2 tasks , refused by 1" in browser.page.text
    assert "held-1 : it is in incarnation" in browser.page.text


async def test_a_double_click_and_a_reload_do_nothing_twice(world: ShopWorld, browser: Browser) -> None:
    await browser.follow("tag")
    await press(browser, field_put="seen=yes", field_reason=WHY, preview="true")
    assert "Tag would be done for 3 tasks" in browser.page.text
    form = browser.page.find_form("/bulk/tag")
    plans = re.findall(r'name="plan" value="([^"]+)"', browser.answer.text)
    await press(browser)
    for once in (form.fields["once"], "after-a-restart"):
        body = urlencode({**form.fields, "plan": plans, "once": once}, doseq=True)
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
        again = await world.http.post("/bulk/tag", content=body, headers=headers)
        assert again.status_code == 200
        says = "Tag: done for 3 tasks" if once != "after-a-restart" else "It was done before for 3 tasks"
        assert says in again.text
    assert await list_acts(world, "held-0") == [("tag", "caller-admin", WHY)]


async def test_many_tasks_are_done_in_parts_that_an_operator_continues(
    world: ShopWorld, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_verbs, "LIMIT_MAX", 1)
    monkeypatch.setattr(bulk_verbs, "TASKS_MAX", 2)
    monkeypatch.setattr(bulk_verbs, "ACT_SECONDS", 0.0)
    await hold(world, 2, "more")
    await browser.follow("tag")
    await press(browser, field_put="seen=yes", field_reason=WHY, preview="true")
    assert "Tag would be done for 2 tasks" in browser.page.text
    assert "The filter names more tasks" in browser.page.text
    await press(browser)
    assert "Tag: done for 1 task" in browser.page.text
    assert "1 task of the preview is left" in browser.page.text
    await press(browser)
    assert "With those before: 2 tasks done." in browser.page.text
    assert "The filter names more tasks, which no preview has looked at." in browser.page.text
    await press(browser)
    assert "With those before: 3 tasks done." in browser.page.text
    await press(browser, preview="true")
    assert "Tag would be done for 2 tasks" in browser.page.text
    await press(browser)
    await press(browser)
    assert "With those before: 5 tasks done." in browser.page.text
    assert "Continue" not in browser.page.text
    for task_id in ("held-0", "held-1", "held-2", "more-0", "more-1"):
        assert await list_acts(world, task_id) == [("tag", "caller-admin", WHY)]


@pytest.fixture
def two_approve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_APPROVALS_COMPENSATE", "2")


@pytest.mark.usefixtures("two_approve")  # before the App is opened
async def test_a_verb_that_needs_two_operators_says_so_before_and_after() -> None:
    async with open_shop(running=True) as world:
        await hold(world, 3)
        browser = Browser(world.http)
        await browser.sign_in(TOKENS["admin"], "/bulk/compensate" + HELD)
        await press(browser, field_reason=WHY, preview="true")
        assert "For 3 tasks it would only be kept as your approval" in browser.page.text
        assert "would be kept as an approval by caller-admin" in browser.page.text
        await press(browser)
        assert "Compensate: done for 0 tasks , refused by 3" in browser.page.text
        assert "needs 2 operators; approved by caller-admin, nothing was done yet" in browser.page.text
        await browser.send("/sign-out")
        await browser.sign_in(TOKENS["operate"], "/bulk/compensate" + HELD)
        await press(browser, field_reason=WHY, preview="true")
        await press(browser)
        assert "Compensate: done for 3 tasks" in browser.page.text


@pytest.mark.parametrize(
    ("verb", "fields", "says"),
    [
        ("tag", {"field_reason": WHY}, "tag"),
        ("tag", {"field_reason": "", "field_put": "a=b"}, "reason is ''"),
        ("tag", {"field_reason": WHY, "field_put": "nothing"}, "nothing"),
        ("answer", {"field_reason": WHY, "field_step": "audit", "field_result": "{"}, "Result: this is not JSON"),
    ],
)
async def test_a_form_that_cannot_be_read_is_shown_again_with_the_reason(
    browser: Browser, verb: str, fields: dict[str, str], says: str
) -> None:
    await browser.open(f"/bulk/{verb}{HELD}")
    await press(browser, preview="true", **fields)
    assert browser.answer.status_code in (400, 422)
    assert says in browser.page.text
    kept = browser.page.find_form("/bulk/").fields
    assert {name: kept[f"field.{name.removeprefix('field_')}"] for name in fields} == fields


async def test_what_is_typed_is_shown_as_it_was_and_can_be_changed_before_the_verb(browser: Browser) -> None:
    await browser.follow("tag")
    await press(browser, field_put="note=<script>alert(1)</script>", field_reason="<b>why</b>", preview="true")
    assert "<script>alert" not in browser.answer.text
    assert "<b>why</b>" in browser.page.text
    await press(browser, edit="true")
    assert browser.page.find_form("/bulk/").fields["field.reason"] == "<b>why</b>"


async def test_a_verb_for_all_tasks_there_are_is_refused(browser: Browser) -> None:
    await browser.open("/bulk/cancel")
    assert browser.answer.status_code == 422
    assert "cancel of all tasks there are: filter them first" in browser.page.text
    await browser.open("/bulk/cancel?since=yesterday")
    assert "'yesterday' is neither a duration" in browser.page.text
    await browser.open("/bulk/destroy?state=held")
    assert browser.answer.status_code == 404
    assert "there is no verb 'destroy'" in browser.page.text


async def test_a_filter_that_no_task_fits_says_for_which_the_verb_is(browser: Browser) -> None:
    await browser.open("/bulk/resubmit?state=processing")
    await press(browser, field_reason=WHY, preview="true")
    assert "There is nothing to resubmit: it is for tasks that are held, compensated." in browser.page.text


async def test_only_who_may_operate_gets_the_form_or_acts(world: ShopWorld, browser: Browser) -> None:
    await browser.follow("tag")
    form = browser.page.find_form("/bulk/tag")
    await browser.send("/sign-out")
    await browser.sign_in(TOKENS["read"], "/tasks" + HELD)
    page = await browser.open("/bulk/tag" + HELD)
    assert browser.answer.status_code == 403
    assert "lacks the scope operate" in page.text
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    sent = {**form.fields, "field.reason": WHY, "field.put": "a=b"}
    answer = await world.http.post("/bulk/tag", content=urlencode(sent), headers=headers)
    assert answer.status_code == 403
    world.http.cookies.clear()
    await browser.sign_in(TOKENS["operate"], "/bulk/tag" + HELD)
    answer = await world.http.post(
        "/bulk/tag", content=urlencode(sent), headers=headers
    )  # the key is of another caller
    assert answer.status_code == 403
    assert await list_acts(world, "held-0") == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"plan": "many"}, "the plan of the form cannot be read; look at the tasks again"),
        ({"plan": "3.AAAA"}, "the cursor or plan is not one of this list"),
        ({"plan": "", "cursor": "AAAA"}, "the plan of the form cannot be read"),
        ({"filter": "", "plan": "3.AAAA"}, "tag of all tasks there are: filter them first"),
    ],
)
async def test_a_form_that_was_changed_on_its_way_does_nothing(
    world: ShopWorld, browser: Browser, changed: dict[str, str], says: str
) -> None:
    await browser.follow("tag")
    await press(browser, field_put="seen=yes", field_reason=WHY, preview="true")
    await press(browser, **changed)
    assert browser.answer.status_code == 422
    assert says in browser.page.text
    assert await list_acts(world, "held-0") == []


async def test_a_verb_for_all_is_not_carried_out_without_a_preview(world: ShopWorld, browser: Browser) -> None:
    await browser.follow("compensate")
    await press(browser, field_reason=WHY)
    assert "look at the tasks before you act on all of them: press Preview" in browser.page.text
    assert await list_acts(world, "held-0") == []
